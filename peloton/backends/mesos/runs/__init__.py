"""A run as one or more tasks of Mesos: what is ordered there, and what updates say of it.

Turns specs into tasks and groups, and statuses into ends and readiness, as values; nothing here
may wait, keep state of the cluster, or speak to a master. Which words Mesos has for resources
stands in `words.py`. Tasks that are under way carry these forms: what is read of them stays
readable.
"""
