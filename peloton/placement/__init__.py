"""Choosing hosts for tasks, on views that may be stale. Pure: only hosts grant resources."""
