"""What clients ask over gRPC and HTTP: calls are translated, asked of the cluster, and answered.

The two servers (`grpc_server.py`, `http_server.py`) put together the folders: `v0`, `v1alpha`,
`ops` and `private` are services, by their clients; `cluster`, `server`, `access` and `translate`
are what these use. `.importlinter` has the imports that are allowed between them. Actors decide
what a job, a pool or a host does; the gateway decides nothing.
"""
