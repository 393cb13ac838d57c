"""Locks with leases: the kind `lock` of a Peloton cluster, and a client."""
