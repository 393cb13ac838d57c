"""Mail that cannot be decided now: it waits for an entity, is retried, or is set aside.

`deferred.py` says which, `mailbox.py` keeps the order of one entity's mail, and dead letters are
what failed too often, until an operator redrives them. Whatever waits has a limit, and nothing is
lost in silence.
"""
