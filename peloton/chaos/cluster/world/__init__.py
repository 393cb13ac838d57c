"""The simulated world around the daemons: machines, backends, clients and readers.

Everything is drawn from the seed: the order in which chance is asked is part of every seed, and
must not change. `history.py` records requests and answers of clients, and `view.py` is what checks
see of a cluster.
"""
