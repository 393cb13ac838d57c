"""The keeper's start: `python -I -S .../keeper/__main__.py FOLDER [IDLE_S [KEPT [ROUND_S]]]`.

Turns a starting process into a detached supervisor (`supervisor.py`) that holds the folder, and
whose child is the keeper, and reports the outcome to its starter as exit status. With `--below
DOWN_FD UP_FD LOCK_FD` before the folder it is that child. Nothing of its starter may be kept: no
descriptor (the daemon's locks!), no session, no working folder.

The program is run by its path, so that nothing of the package around it is imported.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

_FAILED_STATUS = 1
_DESCRIPTORS_MAX = 65536
_BELOW = "--below"
_ABOVE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main(arguments: list[str]) -> NoReturn:
    """Keep the folder, or detach and have it kept.

    In the second case the parent waits for one byte, its exit status.
    """
    os.umask(0o077)
    if arguments[0] == _BELOW:
        _or_log(lambda: _keep(arguments[1:]))
        os._exit(0)
    os.closerange(3, _DESCRIPTORS_MAX)
    os.makedirs(arguments[0], mode=0o700, exist_ok=True)
    folder = os.path.realpath(arguments[0])
    status_read, status_write = os.pipe()
    if os.fork() > 0:
        os.close(status_write)
        status = os.read(status_read, 1)
        os._exit(status[0] if status else _FAILED_STATUS)
    os.close(status_read)
    os.setsid()
    os.chdir(folder)
    _or_log(lambda: _supervise([folder, *arguments[1:]], status_write))
    os._exit(0)


def _keep(arguments: list[str]) -> None:
    below = _module("supervised").Supervised.of(arguments)
    _module("keeping").keep(arguments[3], arguments[4:], below=below)


def _supervise(arguments: list[str], status_fd: int) -> None:
    _module("processes").become_subreaper()
    _module("supervised").begin(arguments, status_fd)


def _module(name: str) -> Any:
    if _ABOVE not in sys.path:
        sys.path.append(_ABOVE)
    return import_module(f"keeper.{name}")


def _or_log(work: Callable[[], object]) -> None:
    """Run `work`, and log a failure: nothing else could report its reason."""
    try:
        work()
    except BaseException:
        print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "the keeper failed", flush=True)
        traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        os._exit(_FAILED_STATUS)


if __name__ == "__main__":
    main(sys.argv[1:])
