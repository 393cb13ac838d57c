"""The assembly of a daemon: kinds, shards, stores, backends and gateway, from its settings.

Only the assembly knows all of them; nothing below imports it. Commands and their options are in
`processes`.
"""
