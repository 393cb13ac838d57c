"""Messages a schedule receives from clients and from its jobs, its queries and answers.

No message may grow with the number of past moments: of its jobs the last ones are kept.
"""

from __future__ import annotations

import enum

from peloton.actors.job.messages import AwaitNoted, EndTold, MakeHandled
from peloton.actors.job.slice.task_config import Override
from peloton.actors.job.spec import JobSpec
from peloton.runtime.vocabulary import Key, Message, Query, Value, key

# Codes of refusals.
EXISTS, NOT_FOUND, INVALID = "ALREADY_EXISTS", "NOT_FOUND", "INVALID_SCHEDULE"

RUNS_KEPT = 10
"""Jobs that a schedule knows it has made."""
SPEC_BYTES_MAX = 256 * 1024
"""Of the job of a schedule, as a client sends it: each moment sends it again."""


class Overlaps(enum.IntEnum):
    """What to do at a moment while the job of an earlier one has not ended."""

    SKIP = 0
    ALLOW = 1
    REPLACE = 2  # stop that one; begin once it has ended


class ScheduleSpec(Value, frozen=True, gc=False, array_like=True):
    """What a client wants. `raw` is the job's config as it was sent."""

    cron: str
    zone: str
    pool_path: str
    job: JobSpec
    overrides: tuple[tuple[int, tuple[Override, ...]], ...] = ()
    overlap: Overlaps = Overlaps.SKIP
    starting_deadline_s: float = 0.0  # 0: however late
    raw: bytes = b""


class CreateSchedule(Message, frozen=True, gc=False, array_like=True):
    """Client to a schedule that does not exist yet: create it."""

    spec: ScheduleSpec
    paused: bool = False


class PauseSchedule(Message, frozen=True, gc=False, array_like=True):
    """Client to a schedule: make no jobs, or make them again; moments between are not made up
    for."""

    paused: bool


class DeleteSchedule(Message, frozen=True, gc=False, array_like=True):
    """Client to a schedule: delete it; its jobs stay."""


class GetSchedule(Query, frozen=True, gc=False, array_like=True):
    """Asks for the schedule, answered `ScheduleView`."""


class ScheduleChanged(Value, frozen=True, gc=False, array_like=True):
    """Answer to all commands."""


class MadeJob(Value, frozen=True, gc=False, array_like=True):
    """A job that was made, for this moment, at that time."""

    job: Key
    moment: float
    at: float


class SkippedMoment(Value, frozen=True, gc=False, array_like=True):
    """A moment without a job, and why."""

    moment: float
    why: str


class ScheduleSummary(Value, frozen=True, gc=False, array_like=True):
    """A schedule in a listing. Times are seconds since the epoch, 0.0 for none."""

    schedule: Key
    cron: str
    zone: str
    pool_path: str
    overlap: Overlaps
    starting_deadline_s: float
    paused: bool
    next_at: float
    created_at: float
    created_by: str  # the text of a principal
    made: int
    skipped: int
    last: MadeJob | None = None


class ScheduleView(Value, frozen=True, gc=False, array_like=True):
    """A schedule as clients see it; its newest jobs come last."""

    summary: ScheduleSummary
    raw: bytes
    runs: tuple[MadeJob, ...]
    skip: SkippedMoment | None = None
    making: Key = Key("")


class AskRights(Message, frozen=True, gc=False, array_like=True):
    """Schedule to its daemon: may the owner still create jobs in the pool?

    The answer repeats all fields: no answer serves another moment, nor a later schedule of the
    name.
    """

    schedule: Key
    created_at: float
    moment: float
    owner: str  # the text of a principal
    pool_path: str


class RightsTold(Message, frozen=True, gc=False, array_like=True):
    """Answer to `AskRights`: why not, or empty if the owner may."""

    asked: AskRights
    why: str


RIGHTS = key("rights", "schedules")
"""Each daemon with schedules has one of its own."""
RIGHTS_MESSAGES: dict[int, type] = {1: AskRights}
MESSAGES: dict[int, type] = {
    1: CreateSchedule,
    2: PauseSchedule,
    3: DeleteSchedule,
    4: MakeHandled,
    6: AwaitNoted,
    7: EndTold,
    8: RightsTold,
}
QUERIES: dict[int, type] = {501: GetSchedule}
ANSWERS: dict[int, type] = {1: ScheduleChanged, 501: ScheduleView, 502: ScheduleSummary}


def schedule_key(name: str) -> Key:
    """Return the key of a schedule by its name."""
    return key("schedule", name)
