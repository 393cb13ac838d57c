"""Backends: the systems that run tasks.

Each module turns launch and kill orders into calls of one outside system, and what that system
reports into messages for hosts. The host actor judges the reports.
"""
