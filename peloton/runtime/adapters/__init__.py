"""Adapters of the runtime, one outside thing per file; they must not know each other's insides."""
