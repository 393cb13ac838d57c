"""What a journal has committed, read without owning its shard: to check, dump and compare it.

`peloton journal`, backups and the simulation stand on it, and the witness (`witness.py`), which
a daemon keeps outside of its journal. It must not write to a journal, because the shard may
have an owner, and nothing in the other rooms may import it.
"""
