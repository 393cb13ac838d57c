"""Workflows of a job: updates and restarts of its instances, a bounded number at a time."""
