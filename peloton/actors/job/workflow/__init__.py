"""Workflows of a job: updates and restarts of its instances, a bounded number at a time.

Part of the kind "job", as all beside it: its messages, facts and numbers are in the job's tables.
`goals.py` has what becomes of a workflow by what is ordered of it, `leaves.py` how many members
each slice may have under way. Slices carry it out (`slice/renewing.py`); no instance is known here.
"""
