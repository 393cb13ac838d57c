"""Processes in the foreground: a daemon, a minicluster, the demo.

Reads options and files, checks the start, and runs an assembled daemon; it wires nothing itself.
"""
