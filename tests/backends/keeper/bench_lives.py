"""Lives of keepers, forked from one process that has loaded the program: a start in milliseconds.

Turns lines of JSON on its input into keepers over a disk of `bench_disk`, and their deaths into
lines on its output.

    {"bench": FOLDER, "fault": [...], "settings": [...]}   → {"pid": …, "status": … or null}
    {"ended": PID}                                         → {"exit": … (a signal's negative)}
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from peloton.backends.keeper import keeping, watch
from tests.backends.keeper.bench_disk import BenchDisk, PlannedFault


def live(wanted: dict[str, Any], status_fd: int) -> None:
    """One life, in the child. As `__main__` of the keeper, without its fork."""
    bench = Path(wanted["bench"])
    log = os.open(bench / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.setsid()
    os.umask(0o077)
    os.chdir(bench / "keeper")
    watch.JOURNAL_COMPACT_BYTES_MIN = 1  # a journal of some hundred bytes is written anew, too
    disk = BenchDisk(bench, PlannedFault(*wanted["fault"]))
    folder = os.path.realpath(bench / "keeper")
    keeping.keep(folder, wanted["settings"], say=lambda status: _say(status_fd, status), disk=disk)


def _say(status_fd: int, status: int) -> None:
    os.write(status_fd, bytes([status]))
    os.close(status_fd)


def start(wanted: dict[str, Any]) -> dict[str, Any]:
    status_read, status_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(status_read)
            live(wanted, status_write)
            code = 0
        except BaseException:  # as the keeper's own start: the log has the reason
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    os.close(status_write)
    status = os.read(status_read, 1)
    os.close(status_read)
    return {"pid": pid, "status": status[0] if status else None}


def main() -> None:
    for line in sys.stdin:
        wanted = json.loads(line)
        if "bench" in wanted:
            answer = start(wanted)
        else:
            _, status = os.waitpid(wanted["ended"], 0)
            answer = {"exit": os.waitstatus_to_exitcode(status)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
