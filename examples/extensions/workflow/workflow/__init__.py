"""Workflows: graphs of jobs with retries and a deadline, as the kind `workflow` of a cluster."""
