"""Adapters of the runtime's ports, one external system per module."""
