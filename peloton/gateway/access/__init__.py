"""The callers, what they may do, and how a call is refused.

`access_table.py` has a row for each call, without which it is not served: a new call needs a row
there. Access is decided from requests, rules and files, without asking the cluster.
"""
