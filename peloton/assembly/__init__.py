"""Where kinds, shards, stores, backends and the gateway meet: one daemon, wired of its settings.

Nothing below imports this. What a person starts, and the options of it, stand in `processes`.
"""
