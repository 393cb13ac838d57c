"""The kind "task", as registered with the runtime: members of their slice's crowd."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.host.messages import Launch
from peloton.actors.respool.lot.messages import Enqueue
from peloton.actors.task import messages as m
from peloton.actors.task.columns import ARCHIVE, COLUMNS, WRITE
from peloton.actors.task.decide import ABSENT, DECIDE, deadline, owed
from peloton.actors.task.facts import (
    FACTS,
    AdmissionGranted,
    AdmissionQueued,
    AdmissionReleased,
    LaunchAccepted,
    TaskLaunching,
)
from peloton.actors.task.goals import pursue
from peloton.actors.task.run_messages import TASK_LIVE_MESSAGES
from peloton.actors.task.state import EVOLVE, Task
from peloton.runtime.kinds import CrowdKind, Kind
from peloton.runtime.vocabulary import WAITING, Key, Message


def _enqueue(parent: Any, message: Enqueue, *, spec: int) -> Enqueue:
    row = parent.specs[spec]
    gang = parent.gang_terms(row.lot) if parent.gang_lots else None
    return Enqueue(message.ticket, row.lot_shape, gang)


# Fields that a task leaves empty are filled in from the slice's table of configs (`specs`).
RESOLVE: Mapping[type, Callable[[Any, Any, Any], Message]] = {
    Launch: lambda parent, message, spec: Launch(
        message.run, parent.specs[spec].run, message.shares, message.prepare
    ),
    Enqueue: lambda parent, message, spec: _enqueue(parent, message, spec=spec),
}


def _partition(key: Key) -> str:
    return key.partition("/")[2]


KIND = Kind(
    name="task",
    group="jobmgr",
    state=Task,
    decide=DECIDE,
    absent=ABSENT,
    pursue=pursue,
    at_rest=WAITING,
    evolve=EVOLVE,
    messages={**m.MESSAGES, **TASK_LIVE_MESSAGES},
    facts=FACTS,
    partition=_partition,
    deadline=deadline,
    owed=owed,
    # Before and after each of these the task owes what is answered by the same message once more:
    # its ticket, its release, its launch. The wish that follows an admission is no promise.
    lazy=frozenset((AdmissionQueued, AdmissionGranted, AdmissionReleased, LaunchAccepted)),
    crowd=CrowdKind(
        columns=COLUMNS,
        write=WRITE,
        parent=m.slice_of_crowd,
        per_member={TaskLaunching: "host"},
        resolve=RESOLVE,
        archive=ARCHIVE,
    ),
)
