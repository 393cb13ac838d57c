"""A task: one instance of a job, run after run, as a member of its slice's crowd."""
