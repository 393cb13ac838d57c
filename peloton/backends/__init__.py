"""Backends: where tasks really run.

Each module turns launch and kill into the calls of one outside thing and its news into reports.
None of them may decide anything: what a report means is the host actor's business.
"""
