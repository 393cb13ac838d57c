"""Peloton, a unified resource scheduler whose jobs, tasks, pools and hosts are actors.

Importing the package must do nothing: no import of its own parts, no thread, no file.
"""

__version__ = "0.1.0"
INSTALL_FLEET = "in the checkout, run `.venv/bin/pip install -e '.[fleet]'`"
"""What to do where a library of the extra `fleet` is missing. Never `pip install peloton`: on PyPI
that name is somebody else's package."""


def missing_package(name: str) -> str:
    """The text where a package of the extra `fleet` is missing."""
    return f"the package {name} is missing; {INSTALL_FLEET}"
