"""A run as one or more tasks of Mesos: the orders for them, and the meaning of their updates.

Turns specs into tasks and groups, and statuses into ends and readiness, as values, without waiting
or keeping state of the cluster. `words.py` has Mesos' names of resources. Tasks that are under way
carry these forms: what is read of them stays readable.
"""
