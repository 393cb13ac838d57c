"""The command line on top of the client.

This file imports nothing: the first argument decides what is loaded.
"""
