"""What calls of several services ask of the cluster, and where the files of runs are.

`cluster_client.py` asks and ends calls; the others gather jobs, instances, hosts, feeds and files
from wherever they live. Here are also the gates: they ask whose an object is before a call goes on.
What two services ask in the same way may come here. It must not know a service.
"""
