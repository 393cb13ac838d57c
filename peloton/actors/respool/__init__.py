"""A resource pool: its limits, its use, and its queue."""
