"""Choosing hosts for tasks, on views that may be stale. Pure: the host alone grants room."""
