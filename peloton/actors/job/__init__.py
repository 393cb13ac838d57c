"""A job: its spec, its goal, and the total order of commands about it and its instances.

`decide.py` makes and ends it, `changes.py` changes it, `waiting.py` has what it waits for or is
waited for; `grants.py`, `throttle.py` and `budget.py` share out among slices what the job as a
whole may do. The folder `workflow` belongs to the job; `slice`, `name` and `version` are kinds of
their own. Only its slices address tasks and hosts.
"""
