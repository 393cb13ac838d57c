"""A resource pool: its limits, its use, and its queue.

All pools of a tree share a shard, and the root takes the steps for all, on an index (`tree.py`,
`node.py`) that is derived and never journaled. Admission is in `admission.py` and `queue.py`;
entitlements in `sharing.py`, `division.py` and `filling.py`; preemption in `taking_back.py`,
`giving.py` and `proving.py`; explanations for people in `blockers.py` and `pool_report.py`. No
step may look at all pools, or at all waiting lots: its cost would grow with the cluster.
"""
