"""Names of foreign runs: those that a caller launched on a hold, which no task of a job has.

Turns the caller's id of a task into the crowd and the name of its run, and back. The crowd is that
of a job whose id no job can have, so that ledgers, lists and keepers treat the run as any other.
It must not decide what happens to a run.
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
    """Whether a caller may give a task this id: it becomes the name of a folder."""
    return _FOREIGN_ID.fullmatch(task) is not None


def foreign_crowd(task: str) -> Key:
    """The crowd of a foreign run, which has this one member: 0."""
    return Key(f"task/{FOREIGN_MARK}{task}/0")


def foreign_number(hold: str) -> int:
    """The run number of all that is launched on a hold: another hold, another name of the run."""
    return zlib.crc32(hold.encode()) + 1


def held_task(task: str) -> str:
    """The name of a task by that of its run: a host is held for its next run as well."""
    return task.rpartition("-")[0] if parse_pod(task) is not None else task


def is_foreign(crowd: Key) -> bool:
    """Whether no task is told of runs of this crowd."""
    return crowd.startswith(f"task/{FOREIGN_MARK}")


def shown_run(name: str) -> str:
    """The name of a run as clients know it: of a foreign one, the id that its caller gave."""
    if not name.startswith(FOREIGN_MARK):
        return name
    parsed = parse_pod(name)
    return name if parsed is None else parsed[0].split("/")[1][len(FOREIGN_MARK) :]
