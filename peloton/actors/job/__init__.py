"""A job: its spec, its goal, and the total order of commands about it and its instances."""
