"""The fencing protocol and its rows: how frames get into the store, and which of them count.

Statements, the hash chain, segments, registers, and the rounds that write several frames at once.
All of it is shown by `tests/model` and `tests/core/journal`: change no statement without both. What
a row means never changes, because journals outlive versions.
"""
