"""A job: what a client wants, and the total order of all commands about it and its instances."""
