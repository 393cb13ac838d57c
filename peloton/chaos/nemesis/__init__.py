"""Real daemons on real servers, storms over them from a seed, and what is found afterwards."""
