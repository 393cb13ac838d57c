"""What the system decides: one folder per kind of actor, with the same files in each. All pure."""
