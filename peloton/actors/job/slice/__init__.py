"""A slice: up to a thousand instances of a job, and the supervisor of their tasks.

From its tasks, which share its shard, it derives its reports and which members need a host
(`looks.py`, `goals.py`). By idea: `gang`, `parking` and `placing` for the way to hosts; `renewing`
and `rollouts` for workflows; `sparing`, `evicting` and `availability` for which members may be
taken down; `following` and `homes` for daemon jobs. All is decided for sets of members, and
journaled so.
"""
