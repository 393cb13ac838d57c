"""Real daemons on real servers, and storms over them from a seed, with a verdict."""
