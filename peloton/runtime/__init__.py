"""The actor runtime: shards of goal-driven actors, journaled.

It imports no kind: kinds register themselves in `peloton/assembly/kinds.py`.
"""
