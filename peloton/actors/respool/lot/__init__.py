"""A lot: members of one slice that are alike to their pool."""
