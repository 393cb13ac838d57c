"""What the system decides: one folder per kind of actor, the same rooms in each. All of it pure."""
