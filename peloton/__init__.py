"""Peloton, a unified resource scheduler whose jobs, tasks, pools and hosts are actors.

Importing the package must do nothing: no import of its own parts, no thread, no file.
"""

__version__ = "0.1.0"
