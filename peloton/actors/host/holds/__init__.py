"""Holds on whole hosts: by clients that launch runs of their own there, and for tasks to come.

Part of the kind "host": only a host decides its holds. Other kinds and the private services may
read `hold_messages.py`; `foreign_names.py` names runs that are of no task. Numbers and fields of
messages are permanent: journals hold them.
"""
