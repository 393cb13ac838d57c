"""Answers to readers without a turn: summaries, listings, change feeds, and durable states.

All of it shows what is durable, and never what a turn has only decided. Reading must not delay
turns: a page costs what is on it (`tests/actors/pools/test_reader_costs.py`), so an index is kept
and never built.
"""
