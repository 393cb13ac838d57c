"""The commands of the cluster: hosts, host pools, resource pools, plans, and operators' questions.

`host`, `hostmgr`, `respool`, `resmgr` and `jobmgr` have the texts of the original; `pool`, `plan`,
`top` and `admin` are Peloton's own.
"""
