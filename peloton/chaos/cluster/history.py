"""What clients said and heard: operations from invocation to answer, and whether they make sense.

Turns a list of operations into a list of what is wrong with it. An answer is *ok*, *refused* (it
never happened) or *unknown* (it may have happened, or may yet); one that is unknown stays open to
the end. It must not know what happened inside: only what any client could have seen.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

from peloton.actors.job.messages import JobGoals, JobView
from peloton.actors.job.totals import TERMINAL
from peloton.runtime.vocabulary import Absent, Key, Refused


class What(enum.Enum):
    """What was asked for."""

    CREATE = "create"
    STOP = "stop"
    DELETE = "delete"
    GET = "get"


class Operation:
    """One thing a client wanted; it may have been said several times under one request key."""

    def __init__(self, client: str, what: What, *, job: Key, begun_s: float) -> None:
        self.client = client
        self.what = what
        self.job = job
        self.begun_s = begun_s
        self.ended_s: float | None = None  # None: unknown
        self.answer: Any = None
        self.tries = 0

    @property
    def known(self) -> bool:
        """Whether it was answered for certain."""
        return self.ended_s is not None

    @property
    def refused(self) -> bool:
        """Whether it certainly did not happen."""
        return isinstance(self.answer, Refused)

    def end(self, answer: Any, now: float) -> None:
        """The answer."""
        self.answer, self.ended_s = answer, now

    def __repr__(self) -> str:
        end = f"{self.ended_s:.3f}" if self.ended_s is not None else "?"
        answer = type(self.answer).__name__
        return f"{self.client} {self.what.value} {self.job} {self.begun_s:.3f}–{end} {answer}"


def faults(history: list[Operation]) -> list[str]:
    """Everything that contradicts itself, each as a line."""
    jobs: dict[Key, list[Operation]] = {}
    for operation in history:
        jobs.setdefault(operation.job, []).append(operation)
    found: list[str] = []
    for job, some in jobs.items():
        found += [f"{job}: {text}" for text in _of_job(some)]
    return found


def _of_job(some: list[Operation]) -> Iterator[str]:
    made = [each for each in some if each.what is What.CREATE]
    looks = sorted(
        (each for each in some if each.what is What.GET and each.known),
        key=lambda each: each.ended_s or 0.0,
    )
    yield from _is_there(some, made, looks)
    yield from _never_goes_back(looks)
    yield from _stays_stopped(some, looks)


def _is_there(
    some: list[Operation], made: list[Operation], looks: list[Operation]
) -> Iterator[str]:
    """R1 and R2: acknowledged is there until deleted; refused never is."""
    acknowledged = min((e.ended_s for e in made if e.ended_s and not e.refused), default=None)
    deleted = min(
        (e.begun_s for e in some if e.what is What.DELETE and not e.refused), default=None
    )
    gone = min((e.ended_s for e in some if e.what is What.DELETE and e.known and not e.refused),
               default=None)  # fmt: skip
    possible = [each for each in made if not each.refused]
    for look in looks:
        absent = isinstance(look.answer, Absent)
        before_deletion = deleted is None or (look.ended_s or 0.0) < deleted
        if absent and acknowledged is not None and look.begun_s > acknowledged and before_deletion:
            yield f"acknowledged, then absent: {look}"
        if isinstance(look.answer, JobView):
            if not possible:
                yield f"refused, yet there: {look}"
            if gone is not None and look.begun_s > gone + DELETED_S_MAX:
                yield f"deleted, yet there: {look}"


DELETED_S_MAX = 600.0
"""Deletion is acknowledged when it is begun; a job with tasks takes a while to vanish."""


def _never_goes_back(looks: list[Operation]) -> Iterator[str]:
    """R6, R13: who looks later sees no less; what has ended stays ended."""
    views = [look for look in looks if isinstance(look.answer, JobView)]
    for at, later in enumerate(views):
        for earlier in views[:at]:
            if earlier.ended_s is None or earlier.ended_s >= later.begun_s:
                continue
            was, now = earlier.answer, later.answer
            ended = was.summary.state in TERMINAL and now.goal is not JobGoals.DELETED
            if ended and now.summary.state != was.summary.state:
                yield f"ended as {was.summary.state.name}, then {now.summary.state.name}"
            if now.desired_state_version < was.desired_state_version:
                yield f"went back in time: {earlier} then {later}"
            done = dict(was.summary.counts).get("SUCCEEDED", 0)
            if dict(now.summary.counts).get("SUCCEEDED", 0) < done:
                yield f"had {done} succeeded, then fewer: {later}"


def _stays_stopped(some: list[Operation], looks: list[Operation]) -> Iterator[str]:
    """A stop that was acknowledged is seen by whoever looks later."""
    stopped = [
        each.ended_s
        for each in some
        if each.what is What.STOP and each.ended_s and not each.refused
        and not isinstance(each.answer, Absent)
    ]  # fmt: skip
    for look in looks:
        view = look.answer
        if stopped and isinstance(view, JobView) and look.begun_s > min(stopped):
            goes_on = view.goal not in (JobGoals.KILLED, JobGoals.DELETED)
            if goes_on and view.summary.state not in TERMINAL:
                yield f"stopped at {min(stopped):.3f}, yet its goal is {view.goal.name}: {look}"
