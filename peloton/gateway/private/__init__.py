"""The private services of the original, as its own daemons and tools call them.

Hosts that are held and launched on (`host_offers.py`, `foreign_runs.py`, `task_holds.py`), streams
of what became of runs and hosts, and the queues of tasks. A change here may be made for those tools
alone. Only what assembles servers imports this room: what another service needs of it goes down.
"""
