"""Names of foreign runs: those that a client launched on a hold, which belong to no task of a job.

The client's id of a task maps to the crowd and the name of its run, and back. The crowd is that of
a job whose id no job can have, so that ledgers, lists and keepers treat the run as any other.
"""

from __future__ import annotations

import re
import zlib

from peloton.actors.task.messages import parse_pod
from peloton.runtime.vocabulary import Key

FOREIGN_MARK = "foreign_"
"""Ids of jobs are UUIDs, so none begins with it."""
FOREIGN_ID_MAX = 128
_FOREIGN_ID = re.compile(f"[A-Za-z0-9_-]{{1,{FOREIGN_ID_MAX}}}")


def is_foreign_id(task: str) -> bool:
    """Return whether a client may give a task this id: it becomes the name of a folder."""
    return _FOREIGN_ID.fullmatch(task) is not None


def foreign_crowd(task: str) -> Key:
    """Return the crowd of a foreign run, whose one member is 0."""
    return Key(f"task/{FOREIGN_MARK}{task}/0")


def foreign_number(hold: str) -> int:
    """Return the number of the runs that are launched on a hold, so that runs of two holds have
    different names."""
    return zlib.crc32(hold.encode()) + 1


def held_task(task: str) -> str:
    """Return the name of a task from that of its run: a host is held for its next run as well."""
    return task.rpartition("-")[0] if parse_pod(task) is not None else task


def is_foreign(crowd: Key) -> bool:
    """Return whether runs of this crowd belong to no task."""
    return crowd.startswith(f"task/{FOREIGN_MARK}")


def shown_run(name: str) -> str:
    """Return the name of a run as clients know it: of a foreign one, the id that its client
    gave."""
    if not name.startswith(FOREIGN_MARK):
        return name
    parsed = parse_pod(name)
    return name if parsed is None else parsed[0].split("/")[1][len(FOREIGN_MARK) :]
