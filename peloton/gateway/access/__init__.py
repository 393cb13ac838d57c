"""Who calls, what they may do, and how a call ends that they may not make.

`access_table.py` has a row for each call, without which it is not served: whoever adds a call adds
it there. It decides from requests, rules and files; it must not ask the cluster, and knows services
only by their names.
"""
