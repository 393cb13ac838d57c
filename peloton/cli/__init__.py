"""The command line on top of the client.

Imports nothing: the first word typed decides what is loaded.
"""
