"""The owner of a name that no two jobs of a pool may have at a time."""
