"""The keeper's start: `python -I -S .../keeper/__main__.py FOLDER [IDLE_S [KEPT [ROUND_S]]]`.

Turns a starting process into a detached one that holds the folder's lock, and reports the outcome
to its starter as exit status. It must not keep anything of its starter: no descriptor (the
daemon's locks!), no session, no working folder.

Run by its path, so that nothing of the package around it is imported.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from importlib import import_module
from typing import NoReturn

_FAILED_STATUS = 1
_DESCRIPTORS_MAX = 65536


def main(arguments: list[str]) -> NoReturn:
    """Detach and keep the folder. The parent waits for one byte, its exit status."""
    os.closerange(3, _DESCRIPTORS_MAX)
    os.umask(0o077)
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
    try:
        sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        import_module("keeper.keeping").keep(folder, arguments[1:], status_fd=status_write)
    except BaseException:  # the log is the only place left for the reason
        print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "the keeper failed", flush=True)
        traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        os._exit(_FAILED_STATUS)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
