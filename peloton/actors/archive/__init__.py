"""The archive: which jobs have ended and left the memory of a shard, and when they are deleted."""
