"""What clients ask over gRPC and HTTP: calls are translated, asked of the cluster, and answered.

The two servers (`grpc_server.py`, `http_server.py`) put together what the rooms have: `v0`,
`v1alpha`, `ops` and `private` are services, by who is served; `cluster`, `server`, `access` and
`translate` are what these stand on. Which room knows which is in `.importlinter`. Nothing here may
decide: what a job, a pool or a host does is said by actors.
"""
