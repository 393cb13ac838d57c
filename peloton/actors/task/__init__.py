"""A task: one instance of a job with its successive runs, a member of its slice's crowd.

`goals.py` has its tables; `columns.py` is what differs from one member to the next, and all else is
equal for a class of them. `admitting.py` is its ticket, `giving_way.py` how it gives up what it
holds. Facts and messages are of sets: one that said something of a single member would break its
crowd into a thousand.
"""
