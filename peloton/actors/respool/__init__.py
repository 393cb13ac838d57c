"""A resource pool: its limits, its use, and its queue.

All pools of a tree share a shard, and the root takes the steps for all, on an index (`tree.py`,
`node.py`) that is derived and never journaled. Who is admitted is in `admission.py` and `queue.py`;
what a pool is entitled to, in `sharing.py`, `division.py` and `filling.py`; who gives back, in
`reclaiming.py`, `displacing.py` and `proving.py`; what people are told, in `blockers.py` and
`accounts.py`. No step may look at all pools, or at all that wait.
"""
