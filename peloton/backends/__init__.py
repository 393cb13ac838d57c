"""Backends: where tasks really run.

Each module turns launch and kill orders into calls of one outside system, and what that system
reports into messages for hosts. None of them may decide anything: the host actor judges reports.
"""
