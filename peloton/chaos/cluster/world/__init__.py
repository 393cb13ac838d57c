"""The simulated world around the daemons: machines, backends, clients and readers.

Everything is drawn from the seed: the order in which chance is asked is part of every seed, and
must not change. `history.py` notes what clients asked and were told, and `view.py` is what
checks see of a cluster. Nothing here chooses what clients ask for, and nothing knows a rule of
`rules`.
"""
