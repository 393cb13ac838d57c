"""What calls of several services ask of the cluster, and where the files of runs are.

`cluster_client.py` asks and ends calls; the other modules gather jobs, instances, hosts, feeds and
files from all daemons. The gates are here too: they ask for the owner of an object before a call
goes on. Code that two services share belongs here; it imports no service.
"""
