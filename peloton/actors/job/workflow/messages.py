"""Commands that begin, pause, resume and abort workflows, their answers, and views.

No message may grow with the number of instances, except by configs of single instances.
"""

from __future__ import annotations

import enum

from peloton.actors.job.slice.task_config import Override
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import EntityVersion
from peloton.runtime.vocabulary import Message, Value


class WorkflowTypes(enum.IntEnum):
    """What a workflow does; the numbers are those of the wire."""

    UPDATE = 1
    RESTART = 2
    START = 3
    STOP = 4


class WorkflowStates(enum.IntEnum):
    """How far a workflow is; the numbers are those of the wire."""

    INITIALIZED = 1
    ROLLING_FORWARD = 2
    PAUSED = 3
    SUCCEEDED = 4
    ABORTED = 5
    FAILED = 6
    ROLLING_BACKWARD = 7
    ROLLED_BACK = 8


class WorkflowOrders(enum.IntEnum):
    """What a client may order of a workflow."""

    PAUSE = 1
    RESUME = 2
    ABORT = 3
    ROLL_BACK = 4


OTHER_CONFIG = "invalid job configuration version"
"""The text of a refusal, which clients know."""
HEALTHY_S = 5.0
"""For so long all have to do their work at the end, where a client does not say it."""


class WorkflowOptions(Value, frozen=True, gc=False, array_like=True):
    """How a client wants a workflow done.

    `batch`: instances under way at once, 0 for all. `max_attempts`: failures with which an instance
    has failed, 0: it never fails. `tolerated`: failed instances with which the workflow fails, 0:
    it never does; it is rolled back then, if `back` is set. `starts`: stopped instances, too.
    `in_place`: the host of a run waits for the next one, as far as it can. `healthy_s`: the
    workflow is over only once all instances that it changed have done their work for so long, at
    the end; one that dies before that has failed once more. 0: it is over once each has been seen
    to do it.
    """

    batch: int = 0
    max_attempts: int = 0
    tolerated: int = 0
    back: bool = False
    paused: bool = False
    starts: bool = False
    in_place: bool = False
    healthy_s: float = 0.0


class ReplaceJob(Message, frozen=True, gc=False, array_like=True):
    """Client to a service: have this spec, and these configs of single instances, by slice.

    `expected`: refused if the job has another version; `config`: or another version of its config.
    """

    spec: JobSpec
    overrides: tuple[tuple[int, tuple[Override, ...]], ...] = ()
    options: WorkflowOptions = WorkflowOptions()
    expected: EntityVersion | None = None
    config: int = 0
    opaque: str = ""


class RestartJob(Message, frozen=True, gc=False, array_like=True):
    """Client to a service: new runs of these instances, half-open ranges; of all without a range.

    Stopped instances are started. With the kind START only those begin a new run; with STOP the
    instances are stopped. `config`: refused if the config has another version; 0: any.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    options: WorkflowOptions = WorkflowOptions()
    expected: EntityVersion | None = None
    opaque: str = ""
    kind: WorkflowTypes = WorkflowTypes.RESTART
    config: int = 0


class ControlWorkflow(Message, frozen=True, gc=False, array_like=True):
    """Client to a service: pause, resume, abort or roll back its workflow.

    `number`: only this one, 0: any.
    """

    order: WorkflowOrders
    expected: EntityVersion | None = None
    number: int = 0
    opaque: str = ""


class WorkflowOrdered(Value, frozen=True, gc=False, array_like=True):
    """Answer to all of these: the job's version by then, and the number of the workflow.

    `changed`: whether the order changed anything.
    """

    version: EntityVersion
    number: int
    changed: bool = True


class WorkflowView(Value, frozen=True, gc=False, array_like=True):
    """A workflow as clients see it. Times are seconds since the epoch, 0.0 if not yet reached.

    `total` counts the instances that it is to change; `done`, `failed` and `current` are of these.
    """

    number: int
    kind: WorkflowTypes
    state: WorkflowStates
    previous: WorkflowStates
    options: WorkflowOptions
    version: int  # of the config it rolls to
    previous_version: int
    total: int
    done: int
    failed: int
    current: int
    added: int
    updated: int
    ranges: tuple[tuple[int, int], ...]
    opaque: str
    created_at: float
    updated_at: float
    completed_at: float
    events: tuple[tuple[WorkflowStates, float], ...]
    because: str = ""
    removed: int = 0
    rollouts: tuple[int, ...] = ()  # the numbers by which slices know it: forward, and back
