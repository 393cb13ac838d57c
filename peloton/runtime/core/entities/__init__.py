"""The entities of a shard: cells, crowds, their columns and deadlines, and their bytes.

`codec.py` and `encoding.py` are the form in which states, facts and messages are stored: it never
changes but by fields at an end (`tests/actors/golden`). `population.py` is what is in memory, and
`passivation.py` what is packed.
"""
