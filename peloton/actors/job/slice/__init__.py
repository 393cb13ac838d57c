"""A slice: up to a thousand instances of a job, and the supervisor of their tasks."""
