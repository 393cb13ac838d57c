"""How calls are served: carriers, events, threads and loop, limits, parsing, the audit log.

The code is independent of the services, which `gateway/grpc_server.py` lists, and of the cluster.
Run `script/bench api` before and after a change here.
"""
