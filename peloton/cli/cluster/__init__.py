"""The commands of the cluster: hosts, their pools, resource pools, plans, what operators ask.

`host`, `hostmgr`, `respool`, `resmgr` and `jobmgr` have the texts of the original; `pool`,
`plan`, `top` and `admin` are ours. None of them may change a host or a pool but by the command
that says so, and none shows what it has not been told by a daemon.
"""
