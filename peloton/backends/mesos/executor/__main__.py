"""The start of the executor: `python -I -S …/peloton/backends/mesos/executor/__main__.py`.

An agent starts it, with its settings in the environment. By its path nothing has to be installed
there but this package's files.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from importlib import import_module

_UP = 5


def main() -> None:
    """Be the executor; returns never."""
    folder = os.path.abspath(__file__)
    for _ in range(_UP):
        folder = os.path.dirname(folder)
    if folder not in sys.path:
        sys.path.append(folder)
    os.umask(0o077)
    work = import_module("peloton.backends.mesos.executor.loop").work
    guard = import_module("peloton.backends.mesos.executor.guardian").guard
    clear = import_module("peloton.backends.mesos.executor.secret_folders").sweep
    guard(partial(work, dict(os.environ)), clear=clear)


if __name__ == "__main__":
    main()
