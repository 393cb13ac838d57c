"""Hosts on Apache Mesos: agents of a cluster are hosts, and runs are tasks of one framework.

`conversation.py` is the protocol, without any clock or socket; the words of Mesos, as JSON of its
v1 scheduler API, are known in this package and nowhere else.
"""
