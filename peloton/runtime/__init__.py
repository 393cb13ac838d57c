"""The actor runtime: shards of goal-driven actors, journaled. It must never import a kind."""
