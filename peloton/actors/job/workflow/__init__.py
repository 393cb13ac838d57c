"""Workflows of a job: updates and restarts of its instances, a limited number at a time.

Part of the kind "job": the messages, facts and numbers are in the job's tables. `goals.py` has the
states of a workflow by what is ordered, `leaves.py` how many members each slice may have under way.
Slices carry it out (`slice/renewing.py`); no instance is known here.
"""
