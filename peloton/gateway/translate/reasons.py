"""Why an instance is not at its goal, as a stable code and a line for people.

The reasons are those in the views of slices and, for the queue, of lots. Instances with equal
reasons are grouped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from peloton.actors.job.messages import JobView
from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.job.stages import ENDED_NAMES
from peloton.actors.job.workflow.messages import WorkflowStates, WorkflowTypes
from peloton.actors.respool.lot.messages import LotWaits
from peloton.actors.task.messages import (
    DEADLINE_EXCEEDED,
    PREEMPTED,
    SLICE_SIZE,
    End,
    RunOutcome,
    TaskGoals,
)
from peloton.gateway.translate.texts import rfc3339
from peloton.placement.messages import NOT_UP
from peloton.runtime.core.principal import principal_of
from peloton.runtime.vocabulary import Bits, Key, counted

_ENDED_BADLY = {"FAILED": "failed", "LOST": "lost", "KILLED": "killed"}
_AT_GOAL = {"RUNNING": "running", "SUCCEEDED": "succeeded"}


class Reason(NamedTuple):
    """One reason. `known_at` is when it was found out, None for now."""

    code: str
    text: str
    position: int | None = None
    known_at: float | None = None
    retry_at: float | None = None
    counts: tuple[tuple[str, int], ...] = ()

    @property
    def message(self) -> str:
        """Return the text with the queue position, for clients that show one line only."""
        position = "" if self.position is None else f"; queue position {self.position}"
        return self.text + position


def at_goal(view: InstanceView) -> bool:
    """Return whether the instance runs as it should."""
    if view.state == "RUNNING":
        return view.goal not in (TaskGoals.KILLED, TaskGoals.DELETED)
    if view.state == "KILLED":
        return view.goal in (TaskGoals.KILLED, TaskGoals.DELETED)
    return view.state == "SUCCEEDED"


def waits_for_retry(view: InstanceView) -> bool:
    """Return whether the last attempt failed, and the next one is to come after a pause."""
    return view.code == "RETRY"


def has_ended(view: InstanceView) -> bool:
    """Return whether the instance has ended and waits for no further attempt: nothing is left to
    stop."""
    return view.state in ENDED_NAMES and not waits_for_retry(view)


def is_at_rest(view: InstanceView) -> bool:
    """Return whether the instance runs and should, or has ended and waits for no further
    attempt."""
    return has_ended(view) or at_goal(view)


def reason_at_rest(view: InstanceView, job: JobView, *, alone: bool) -> Reason:
    """Return the state of an instance that waits for nothing; `alone` adds its host and times."""
    host = f" on {view.host.partition('/')[2]}" if view.host and alone else ""
    began, ended = rfc3339(view.started_at)[:19], rfc3339(view.ended_at)[:19]
    if view.code == "SPARE":
        return Reason("cannot-be-spared", f"runs{host}, and is to give way: {view.because}")
    if view.state == "RUNNING":
        if view.code == "HEALTH":
            return Reason("health", view.because + host)
        if view.code == "READY":
            return Reason("not-ready", view.because + host)
        return Reason("running", "runs" + host + (f" since {began}Z" if alone and began else ""))
    text = _killed(view, job) if view.state == "KILLED" else outcome_text(view)
    if view.state == "SUCCEEDED":
        text = "succeeded"
    text += host + (f" at {ended}Z" if alone and ended else "")
    code = _ENDED_BADLY.get(view.state) or _AT_GOAL[view.state]
    return Reason(code, text, known_at=view.ended_at)


def _killed(view: InstanceView, job: JobView) -> str:
    """Return who ordered the end, if known, and how the run ended."""
    part, order = dict(job.part_stops).get(view.instance // SLICE_SIZE), job.stop
    if order is None or (part is not None and (view.ended_at or 0.0) < order.at):
        order = part  # it had ended before the whole job was stopped
    if view.goal not in (TaskGoals.KILLED, TaskGoals.DELETED) or order is None:
        return outcome_text(view)
    if order.reason:
        return f"stopped by its job: {order.reason}"
    who = principal_of(order.who).shown or "a client that gave no name"
    return f"stopped on request by {who}: {outcome_text(view)}"


def reason_of(view: InstanceView, job: JobView, *, lots: Mapping[Key, LotWaits]) -> Reason:
    """Return the reason of one instance that is not at its goal."""
    if waits_for_retry(view):
        return Reason("retry-backoff", retry_text(view), retry_at=view.retry_at)
    if view.state in _ENDED_BADLY:
        return Reason(_ENDED_BADLY[view.state], outcome_text(view), known_at=view.ended_at)
    if view.code == "POOL":
        return _pool(view, lots.get(view.lot))
    if view.code == "LIMIT":
        return Reason("job-limit", _limited(job))
    if view.code == "THROTTLE":
        return Reason("throttle", _throttled(job), retry_at=job.next_start_at)
    if view.code == "GANG":
        return Reason("gang", view.because, known_at=view.counted_at, counts=view.counts)
    if view.code == "NEVER" and not waits_for_own_host(view):
        return Reason(NEVER_RUNS, view.because, known_at=view.counted_at, counts=view.counts)
    if view.code in ("HOST", "NEVER"):
        code = "no-host-fits" if view.counts or view.code == "NEVER" else "placing"
        return Reason(code, view.because, known_at=view.counted_at, counts=view.counts)
    if view.state == "KILLING":
        return Reason("stopping", view.because)
    if view.code == "LAUNCH":
        where = f" on {view.host.partition('/')[2]}" if view.host else ""
        return Reason("launching", view.because + where)
    return Reason("not-asked", view.because or f"is {view.state}")


def workflow_text(job: JobView) -> str:
    """Return what the workflow has still to do that no instance waits for; empty if nothing."""
    return "; ".join(filter(None, (unadded_text(job), paused_text(job))))


def paused_text(job: JobView) -> str:
    """Return that the workflow of a job is paused, and what to do; empty if it is not."""
    newest = job.workflows[0] if job.workflows else None
    if newest is None or newest.state != WorkflowStates.PAUSED:
        return ""
    left = f"{newest.total - newest.done - newest.failed} of {newest.total} to go"
    what = f"its {newest.kind.name.lower()} to version {newest.version} is paused"
    return f"{what}, {left}: `peloton job stateless workflow resume` goes on"


class FailedRun(NamedTuple):
    """A run by which an update failed."""

    instance: int
    run: int
    text: str


def failed_update(job: JobView, views: Iterable[InstanceView]) -> FailedRun | None:
    """Return the newest run by which the job's newest update failed, or None.

    It ended by itself and has the config of an update that failed or was rolled back. None if there
    is no such update, or no such run is kept.
    """
    newest = job.workflows[0] if job.workflows else None
    verb = _FAILED_UPDATES.get(newest.state, "") if newest is not None else ""
    if newest is None or not verb or newest.kind != WorkflowTypes.UPDATE:
        return None
    # The way back has a version of its own, the last one.
    last = newest.version - (newest.state != WorkflowStates.FAILED)
    best, found = 0.0, None
    for view in views:
        present = view.run, view.ran_by, view.ended_at, view.outcome
        runs = [(one.run, one.config_version, one.ended_at, one.outcome) for one in view.runs]
        for run, version, ended_at, outcome in (*runs, present):
            by_it = newest.previous_version < version <= last
            if not by_it or outcome is None or outcome.end == End.KILLED:
                continue
            if (ended_at or 0.0) >= best:
                best = ended_at or 0.0
                text = (
                    f"its update to version {version} {verb}: instance {view.instance}, run {run}"
                )
                found = FailedRun(view.instance, run, f"{text}: {_ended(view, outcome)}")
    return found


def unadded_text(job: JobView) -> str:
    """Return that instances do not exist, since no workflow has come to them; empty if all do."""
    newest = job.workflows[0] if job.workflows else None
    if newest is None or not job.unadded:
        return ""
    some = counted(job.unadded, "instance", many="instances")
    if newest.completed_at:
        over = newest.state.name.lower().replace("_", " ")
        return f"its workflow was {over} before {some} were added: the next update adds them"
    return f"its workflow has {some} to add, a batch at a time"


def active_instances(job: JobView) -> int:
    """Return how many instances of the job have begun and not ended."""
    counts = dict(job.summary.counts)
    rest = sum(counts.get(state, 0) for state in (*ENDED_NAMES, "INITIALIZED"))
    return sum(counts.values()) - rest


def _limited(job: JobView) -> str:
    """Return that the limit of running instances is reached, in numbers."""
    most = job.spec.maximum_running
    active = f"{active_instances(job)} of at most {most} instances are active"
    return f"maximumRunningInstances reached: {active}"


def _throttled(job: JobView) -> str:
    """Return what the throttle allows, and when; not known in the moment after a release."""
    rule = job.spec.throttle
    text = "waits for the throttle" + (f": {rule.text}" if rule is not None else "")
    at = rfc3339(job.next_start_at)[:19]
    return f"{text}, next at {at}Z" if at else text


def retry_text(view: InstanceView) -> str:
    """Return which failure an instance waits after, and how that run ended."""
    text = view.because or "waits for its next attempt"
    return text if view.outcome is None else f"{text}: {_ended(view, view.outcome)}"


def outcome_text(view: InstanceView) -> str:
    """Return how the last run ended, in a line."""
    if view.outcome is None:
        return f"{view.state.lower()} before it was launched"
    text = _ended(view, view.outcome)
    text += f", after {view.failures} failed attempts" if view.failures > 1 else ""
    rules, outcome = view.config.retry, view.outcome
    left = view.state == "FAILED" and view.failures < (view.config.max_failures or 0)
    if rules is None or not left or not rules.rule_out(outcome.exit_code, outcome.signal):
        return text
    return f"{text}; not run again, by `retry` of its config"


def _ended(view: InstanceView, outcome: RunOutcome) -> str:
    parts = [outcome.message or outcome.reason or view.state.lower()]
    ordered = view.goal in (TaskGoals.KILLED, TaskGoals.DELETED)
    told = (DEADLINE_EXCEEDED, PREEMPTED)
    if outcome.end == End.KILLED and not ordered and outcome.reason not in told:
        # No actor ordered it: the backend killed it because of --stop-tasks-on-exit.
        parts[0] = f"killed with its cluster (--stop-tasks-on-exit): {parts[0]}"
    if outcome.exit_code and str(outcome.exit_code) not in parts[0]:
        parts.append(f"exit code {outcome.exit_code}")
    if outcome.signal and outcome.signal not in parts[0]:
        parts.append(f"signal {outcome.signal}")
    return ", ".join(parts)


def _pool(view: InstanceView, lot: LotWaits | None) -> Reason:
    if lot is None:
        return Reason("pool-queue", view.because)
    member = view.instance % SLICE_SIZE
    before = len(lot.waiting & Bits.span(0, member))
    text = lot.because or f"queued in pool {lot.path}"
    code = NEVER_RUNS if lot.never else CODE_OF_RULE.get(lot.rule, "pool-queue")
    # A member that can never be admitted blocks no other, so it has no queue position.
    position = None if lot.never else lot.position + before + 1
    return Reason(code, text, position=position)


_FAILED_UPDATES = {
    WorkflowStates.FAILED: "has failed",
    WorkflowStates.ROLLING_BACKWARD: "is being rolled back",
    WorkflowStates.ROLLED_BACK: "was rolled back",
}
NEVER_RUNS = "can-never-run"
"""Waiting does not help, even if all other tasks end: the limit or the hosts must change."""

CODE_OF_RULE = {"limit": "pool-limit", "capacity": "cluster-full", "deleted": "pool-deleted"}


class ReasonGroup(NamedTuple):
    """Instances with the same reason: the first of them, and how many."""

    first: InstanceView
    size: int
    why: Reason


def grouped(found: Iterable[tuple[InstanceView, Reason]]) -> list[ReasonGroup]:
    """Return equal reasons as one group, in the order of their lowest instance."""
    groups: dict[tuple[str, str, str], ReasonGroup] = {}
    for view, reason in found:
        alike = view.state, reason.code, reason.text
        known = groups.get(alike)
        groups[alike] = (
            known._replace(size=known.size + 1) if known else ReasonGroup(view, 1, reason)
        )
    return [*groups.values()]


def waits_for_own_host(view: InstanceView) -> bool:
    """Return whether the instance is of a daemon job, and waits for its host, which is down."""
    return view.code == "NEVER" and view.because.endswith(NOT_UP)
