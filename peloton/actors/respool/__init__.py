"""A resource pool: what it may use, and who is next in it."""
