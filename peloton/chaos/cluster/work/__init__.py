"""The work in a cluster during a storm, by name; with each sort the rule it can break.

`workload.py` has what every storm may do; work that was added later is drawn by a generator of its
own (`drawing.py`), so that older seeds keep their histories. Work only orders, as clients do: it
must not help the cluster, and its results are judged by rules.
"""
