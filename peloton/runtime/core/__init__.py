"""The pure core of the runtime. It must never wait, read a clock, or import a shell.

A shard (`shard.py`) and what surrounds it, in rooms that know only those below, from below:
`journal` and `reach`, `entities`, `turning`, `ended` and `owning`, `reading`, `deferring` and
`links`, and above the shard `offline` (`.importlinter`). Whoever changes what is written or sent
reads "What is stored or sent" in docs/contributing.md. It must not know a kind.
"""
