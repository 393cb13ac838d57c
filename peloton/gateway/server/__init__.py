"""How calls are served: carriers, events, threads and loop, limits, parsing, the audit log.

It must not know what is called: which services there are is said in `gateway/grpc_server.py`, and
nothing here asks the cluster. Whoever changes a module here runs `script/bench api` before and
after.
"""
