"""Entities that have ended: how they wait, leave memory, are stored as rows, and come back.

`endings.py` is who asks the others. Each ended entity has to be found again by its key, with the
replies that it remembers: what is stored of it (`ended_rows.py`) is read for ever.
"""
