"""What is done to a cluster during a storm, by name; with each sort of work the rule it can break.

`workload.py` has what every storm may do; work that was added later is drawn by a generator of
its own (`drawing.py`), so that older seeds keep their histories. It must not help the cluster:
it orders, as clients do, and what comes of that is judged by rules.
"""
