"""Files and options as checked values, each with its default, its unit and its bounds.

Imports no other layer: the daemon, the commands and the faces read settings, never the reverse.
"""
