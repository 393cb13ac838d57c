"""Reads of a journal without owning its shards, to check, dump and compare what it committed.

`peloton journal`, backups and the simulation stand on it, and the witness (`witness.py`), which a
daemon keeps outside of its journal. Nothing here may write to a journal, because the shard may have
an owner.
"""
