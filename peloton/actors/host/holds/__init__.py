"""A host that somebody wants whole: callers who launch runs of their own there, and tasks to come.

Part of the kind "host", as all beside it: only a host decides its holds. `hold_messages.py` is
what other kinds and the private services may read, and `foreign_names.py` what marks runs that
are of no task. Messages keep their numbers and fields: journals hold them.
"""
