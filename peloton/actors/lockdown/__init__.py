"""Lockdowns: what operators have stopped in the whole cluster."""
