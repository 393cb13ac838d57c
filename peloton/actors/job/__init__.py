"""A job: its spec, its goal, and the total order of commands about it and its instances.

`decide.py` makes and ends it, `changes.py` changes it, `waiting.py` has what it waits for or is
waited for; `grants.py`, `throttle.py` and `budget.py` share out among slices what the job as a
whole may do. `workflow` is a room of it; `slice`, `name` and `version` are kinds of their own. It
must not address a task or a host: its slices do.
"""
