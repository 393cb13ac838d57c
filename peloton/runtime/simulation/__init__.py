"""The unchanged shells in virtual time: simulated ports, with faults drawn from a seed.

Nothing here sleeps, or knows a kind.
"""
