"""A task: one instance of a job with its successive runs, a member of its slice's crowd."""
