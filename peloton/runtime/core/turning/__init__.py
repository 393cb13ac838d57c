"""A turn: a message is decided, facts are applied, and sends are resolved.

`turn.py` is one turn and `turns.py` those of a frame; the rest are the consequences of a turn:
envelopes, answers to repeated commands, resends, reports to parents, deadlines that are due, and
the order and the share of each frame. All work here is per message: nothing may grow with the
number of entities.
"""
