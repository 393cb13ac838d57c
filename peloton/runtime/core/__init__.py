"""The pure core of the runtime: it reads no clock, never waits, and imports no shell or kind.

A shard (`shard.py`) and what surrounds it, in rooms that know only those below, from below:
`journal` and `reach`, `entities`, `turning`, `ended` and `owning`, `reading`, `deferring` and
`links`, and above the shard `offline` (`.importlinter`). Whoever changes what is written or sent
reads "What is stored or sent" in docs/contributing.md.
"""
