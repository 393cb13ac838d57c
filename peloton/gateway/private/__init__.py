"""The private services of the original, as its own daemons and tools call them.

Hosts that are held and launched on (`host_offers.py`, `foreign_runs.py`, `task_holds.py`), streams
of statuses of runs and hosts, and the queues of tasks. Code here serves those tools alone. Only the
code that assembles servers imports this folder: what another service needs of it moves to
`cluster`.
"""
