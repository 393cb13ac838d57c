"""The command line on top of the client.

Imports nothing: the first argument decides what is loaded.
"""
