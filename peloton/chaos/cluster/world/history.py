"""The history of clients: operations from invocation to answer, and whether they are consistent.

Turns a list of operations into a list of what is wrong with it. An answer is *ok*, *refused* (it
never happened) or *unknown* (it may have happened, or may yet). An unknown one stays open to the
end: taking it for a failure would report faults that are none and miss real ones. Only what a
client could have seen is used: a mistake inside would excuse itself.

    R1  what was acknowledged is seen by every later read, until it is deleted
    R2  what was refused, and what nobody requested, is never seen
    R6  later reads see no less: versions, ended states and successes never go back;
        a request has one effect: a goal changes no more often than clients requested
    R33 a service that nobody stopped has not ended; as what its runs ended never counts
"""

from __future__ import annotations

import enum
from collections.abc import Container, Iterator
from typing import Any, NamedTuple

from peloton.actors.job.messages import JobStopped, JobSummary, JobView
from peloton.actors.job.spec import SERVICE
from peloton.actors.job.stages import TERMINAL_JOB_STATES, JobGoals, JobStates
from peloton.actors.task.messages import SLICE_SIZE
from peloton.runtime.vocabulary import Absent, Key, Refused

DELETED_S_MAX = 600.0
"""Deletion is acknowledged when it begins; a job with tasks takes a while to disappear."""
NO_JOB = Key("")
"""The job of a listing: none."""
TIMED = "timed"
"""The name of jobs whose runs are limited in time: these may end as KILLED without a request."""


class Asked(enum.Enum):
    """The kind of an operation."""

    CREATE = "create"
    STOP = "stop"
    STOP_SOME = "stop some"
    AGAIN = "again"  # start, restart: what was stopped or had ended may run again
    UPDATE = "update"  # of a job that goes on: nothing that was stopped or had ended runs again
    DELETE = "delete"
    GET = "get"
    LIST = "list"


class Operation:
    """A request of a client; it may have been sent several times under one request key."""

    def __init__(self, client: str, what: Asked, *, job: Key = NO_JOB, begun_s: float) -> None:
        self.client = client
        self.what = what
        self.job = job
        self.begun_s = begun_s
        self.ended_s: float | None = None  # None: unknown
        self.answer: Any = None
        self.tries = 0

    @property
    def known(self) -> bool:
        """Whether the operation has a definite answer."""
        return self.ended_s is not None

    @property
    def refused(self) -> bool:
        """Whether the operation definitely did not happen."""
        return isinstance(self.answer, Refused)

    @property
    def done(self) -> bool:
        """Whether the operation definitely happened: not refused, nor `Absent`."""
        return self.known and not isinstance(self.answer, Refused | Absent)

    def end(self, answer: Any, now: float) -> None:
        """Record the definite answer."""
        self.answer, self.ended_s = answer, now

    def __repr__(self) -> str:
        end = f"{self.ended_s:.3f}" if self.ended_s is not None else "?"
        answer = type(self.answer).__name__
        return f"{self.client} {self.what.value} {self.job} {self.begun_s:.3f}–{end} {answer}"


class Sight(NamedTuple):
    """A job as a client saw it, by a get or in a listing; without a summary: absent."""

    begun_s: float
    ended_s: float
    summary: JobSummary | None
    view: JobView | None  # of a get
    by: Operation


class JobHistory(NamedTuple):
    """All requests about one job, and all that was seen of it, in the order of the answers.

    `may_leave`: ended jobs may leave the listings, as they do if many jobs have ended.
    """

    wanted: list[Operation]
    sights: list[Sight]
    may_leave: bool

    def some(self, *what: Asked) -> list[Operation]:
        """Return the requests of these kinds that may have happened: all that were not refused."""
        return [each for each in self.wanted if each.what in what and not each.refused]

    @property
    def reborn_s(self) -> float:
        """When the job may begin to be another of the same id, created by a late repeat.

        Its versions then start again.
        """
        deleted_s = _first_begun(self.some(Asked.DELETE))
        late = [e for e in self.some(Asked.CREATE) if e.ended_s is None or e.ended_s > deleted_s]
        return deleted_s if late else float("inf")


def _may_have_happened(story: JobHistory, what: Asked) -> list[Operation]:
    """Return the requests of this kind of which a copy may have been carried out.

    That may be so for a refused request if the refusal may be followed by a success, or if the job
    that remembered the request was deleted.
    """
    forgotten = bool(story.some(Asked.DELETE))
    return [
        each
        for each in story.wanted
        if each.what is what and (not each.refused or each.answer.again or forgotten)
    ]


def _until(story: JobHistory) -> float:
    """Return when instances that were stopped or had ended may run again, or be of another job."""
    return min(story.reborn_s, _first_begun(_may_have_happened(story, Asked.AGAIN)))


def faults(
    history: list[Operation], *, may_leave: bool = False, scheduled: Container[Key] = ()
) -> list[str]:
    """Return every contradiction, each as a line. Nobody asked for jobs that are `scheduled`."""
    jobs: dict[Key, list[Operation]] = {}
    for operation in history:
        if operation.what is not Asked.LIST:
            jobs.setdefault(operation.job, []).append(operation)
    lists = [_listed(each) for each in history if each.what is Asked.LIST and each.known]
    found: list[str] = []
    for job, some in jobs.items():
        wrong = _of_job(_history_of(job, some, lists=lists)._replace(may_leave=may_leave))
        found += [f"{job}: {text}" for text in wrong]
    for operation, listed in lists:
        found += [f"R2 {job}: nobody created it, yet it is listed: {operation}" for job in listed
                  if job not in jobs and job not in scheduled]  # fmt: skip
    return found


def _listed(operation: Operation) -> tuple[Operation, dict[Key, JobSummary]]:
    return operation, {summary.job: summary for summary in operation.answer}


def _history_of(
    job: Key,
    some: list[Operation],
    *,
    lists: list[tuple[Operation, dict[Key, JobSummary]]],
) -> JobHistory:
    sights = []
    for each in some:
        if each.what is Asked.GET and isinstance(each.answer, JobView | Absent):
            view = each.answer if isinstance(each.answer, JobView) else None
            sights.append(_sight(each, view.summary if view is not None else None, view=view))
    sights += [_sight(each, listed.get(job), view=None) for each, listed in lists]
    sights.sort(key=lambda sight: sight.ended_s)
    return JobHistory(
        [each for each in some if each.what is not Asked.GET], sights, may_leave=False
    )


def _sight(by: Operation, summary: JobSummary | None, *, view: JobView | None) -> Sight:
    assert by.ended_s is not None
    return Sight(by.begun_s, by.ended_s, summary, view, by)


def _of_job(story: JobHistory) -> Iterator[str]:
    yield from _is_there(story)
    yield from _never_goes_back(story)
    yield from _stays_stopped(story)
    yield from _parts_stay_stopped(story)
    yield from _only_requested(story)
    yield from _services_go_on(story)


def _first_begun(some: list[Operation]) -> float:
    return min((each.begun_s for each in some), default=float("inf"))


def _first_done(some: list[Operation]) -> float:
    """Return when the first of them was acknowledged."""
    ends = [each.ended_s for each in some if each.done and each.ended_s is not None]
    return min(ends, default=float("inf"))


def _is_there(story: JobHistory) -> Iterator[str]:
    """Check R1, R2: an acknowledged job exists until it is deleted; a refused one never does."""
    possible = _may_have_happened(story, Asked.CREATE)
    made_s, deleted_s = (
        _first_done(story.some(Asked.CREATE)),
        _first_begun(story.some(Asked.DELETE)),
    )
    gone_s = _first_done(story.some(Asked.DELETE)) + DELETED_S_MAX
    for sight in story.sights:
        if sight.summary is None:
            if story.may_leave and sight.by.what is Asked.LIST and not _goes_on(story, sight):
                continue
            if made_s < sight.begun_s and sight.ended_s < deleted_s:
                yield f"R1 acknowledged at {made_s:.3f}, then absent: {sight.by}"
        elif sight.ended_s < _first_begun(possible):
            yield f"R2 refused or not requested, yet there: {sight.by}"
        elif sight.begun_s > gone_s and sight.ended_s < story.reborn_s:
            yield f"R1 deleted at {gone_s - DELETED_S_MAX:.3f}, yet there: {sight.by}"


def _goes_on(story: JobHistory, sight: Sight) -> bool:
    """Return whether a later read saw that the job had not ended by then."""
    return any(
        later.begun_s > sight.ended_s
        and later.summary is not None
        and later.summary.state not in TERMINAL_JOB_STATES
        for later in story.sights
    )


class _Newest:
    """The newest state that was seen by the answers until now."""

    def __init__(self) -> None:
        self.version = 0
        self.succeeded = 0
        self.ended: JobStates | None = None

    def add(self, sight: Sight) -> None:
        """Add a sight; no later read may see less."""
        if sight.summary is None:
            return
        self.succeeded = max(self.succeeded, _succeeded(sight.summary))
        if sight.summary.state in TERMINAL_JOB_STATES:
            self.ended = sight.summary.state
        if sight.view is not None:
            self.version = max(self.version, sight.view.desired_state_version)


def _never_goes_back(story: JobHistory) -> Iterator[str]:
    """Check R6, R13: later reads see no less; what has ended stays ended."""
    newest, added = _Newest(), 0
    until = _until(story)
    for later in sorted(story.sights, key=lambda sight: sight.begun_s):
        if later.ended_s >= story.reborn_s:
            continue
        while story.sights[added].ended_s < later.begun_s:
            newest.add(story.sights[added])
            added += 1
        if later.summary is None:
            continue
        if later.view is not None and later.view.desired_state_version < newest.version:
            now = later.view.desired_state_version
            yield f"R6 version {newest.version} was seen, then {now}: {later.by}"
        if later.ended_s >= until:
            continue
        if newest.ended is not None and later.summary.state != newest.ended:
            state = later.summary.state
            yield f"R13 it had ended as {newest.ended.name}, then it is {state.name}: {later.by}"
        if _succeeded(later.summary) < newest.succeeded:
            yield f"R6 {newest.succeeded} had succeeded, then fewer: {later.by}"


def _succeeded(summary: JobSummary) -> int:
    """Return how many instances are never to run again; 0 for a service.

    Of a service each may: a run that ends by itself as a workflow is about to end it has succeeded
    for a moment.
    """
    if summary.job_type == SERVICE:
        return 0
    return dict(summary.counts).get("SUCCEEDED", 0)


def _stays_stopped(story: JobHistory) -> Iterator[str]:
    """Check R1: an acknowledged stop is seen by every later read."""
    stopped_s = _first_done(story.some(Asked.STOP))
    for sight in story.sights:
        if sight.summary is None or sight.begun_s <= stopped_s or sight.ended_s >= _until(story):
            continue
        state = sight.summary.state
        if state not in TERMINAL_JOB_STATES and state is not JobStates.KILLING:
            yield f"R1 stopped at {stopped_s:.3f}, yet it is {state.name}: {sight.by}"


def _parts_stay_stopped(story: JobHistory) -> Iterator[str]:
    """Check R1: an acknowledged stop of some instances is seen in each slice that it touched."""
    for stop in story.some(Asked.STOP_SOME):
        if not isinstance(stop.answer, JobStopped) or stop.ended_s is None:
            continue
        for sight in story.sights:
            view = sight.view
            late = sight.begun_s > stop.ended_s and sight.ended_s < _until(story)
            if view is None or not late or view.summary.state in TERMINAL_JOB_STATES:
                continue
            if view.goal in (JobGoals.KILLED, JobGoals.DELETED):
                continue  # the stop of the whole job replaces the stops of its parts
            stopped = [number for number, _ in view.part_stops]
            missing = [each for each in _slices(stop.answer) if each not in stopped]
            if missing:
                yield f"R1 stopped in slices {missing} by {stop}, not seen by {sight.by}"


def _slices(answer: JobStopped) -> list[int]:
    found: dict[int, None] = {}
    for start, stop in answer.ranges:
        found.update(dict.fromkeys(range(start // SLICE_SIZE, -(-stop // SLICE_SIZE))))
    return [*found]


ENDS_ITSELF = ("peloton.after", "peloton.deadline", "peloton.name_unique")
"""Labels of jobs that may stop themselves; once, where nobody starts them again."""


def _stopped_itself(story: JobHistory, sight: Sight) -> bool:
    """Return whether the job may have stopped itself by then.

    A view without a reason for it shows that it has not, unless it was started again since.
    """
    assert sight.summary is not None
    if not any(name in ENDS_ITSELF for name, _ in sight.summary.labels):
        return False
    if sight.view is None or sight.ended_s >= _until(story):
        return True
    return sight.view.stop is not None and bool(sight.view.stop.reason)


def _only_requested(story: JobHistory) -> Iterator[str]:
    """Check R2, R6: nothing is stopped without a request, and no request has two effects."""
    goals = story.some(Asked.STOP, Asked.STOP_SOME, Asked.DELETE)
    parts, starts = story.some(Asked.STOP_SOME), story.some(Asked.AGAIN)
    for sight in story.sights:
        if sight.summary is None:
            continue
        requested = [each for each in goals if each.begun_s <= sight.ended_s]
        # The goal of a service has a new version when it is started, too.
        again = len(starts) if sight.summary.job_type == SERVICE else 0
        itself = int(_stopped_itself(story, sight))
        state = sight.summary.state
        stopped = state in (JobStates.KILLED, JobStates.KILLING)
        # Its runs are killed one by one, so it is never about to be stopped as a whole.
        timed = sight.summary.name == TIMED and state == JobStates.KILLED
        if stopped and not (requested or itself or timed):
            yield f"R2 {sight.summary.state.name}, and nobody stopped it: {sight.by}"
        if sight.view is None:
            continue
        if sight.view.desired_state_version > 1 + len(requested) + again + itself:
            changes = sight.view.desired_state_version - 1
            yield f"R6 {len(requested)} changes were requested, {changes} are seen: {sight.by}"
        if sight.view.part_stops and sight.ended_s < _first_begun(parts):
            yield f"R2 instances are stopped, and nobody stopped them: {sight.by}"


def _services_go_on(story: JobHistory) -> Iterator[str]:
    """Check R33: a service ends as KILLED only, and its ended instances were stopped."""
    stops = story.some(Asked.STOP, Asked.STOP_SOME, Asked.DELETE)
    for sight in story.sights:
        if sight.summary is None or sight.summary.job_type != SERVICE:
            continue
        state, counts = sight.summary.state, dict(sight.summary.counts)
        if state in (JobStates.SUCCEEDED, JobStates.FAILED):
            yield f"R33 a service is {state.name}: {sight.by}"
        # FAILED is also who waits for its next attempt.
        ended = [name for name in ("SUCCEEDED", "LOST") if counts.get(name)]
        if ended and not stops:
            yield f"R33 instances of a service are {ended}, and nobody stopped it: {sight.by}"
