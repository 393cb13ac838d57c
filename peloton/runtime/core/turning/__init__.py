"""What happens in a turn: a message is decided, facts are applied, and sends are resolved.

`turn.py` is one turn and `turns.py` those of a frame; the rest is what a turn brings about:
envelopes, answers to repeated commands, resends, reports to parents, deadlines that are due,
and the order and the share of each frame. Here all work is per message: nothing may grow with
the number of entities, and nothing may write, or know a frame that is not its own.
"""
