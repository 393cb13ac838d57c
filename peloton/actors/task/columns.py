"""What differs from one task to another, kept in columns: how facts write and archive it.

What `decide` reads must be state instead: equal tasks are decided as one, without their columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.task import facts as f
from peloton.actors.task.messages import PastRun, RunOutcome
from peloton.actors.task.run_messages import LiveContainers, steps_of
from peloton.actors.task.state import RUNS_KEPT_MAX, Task, TaskStates, dropped_runs
from peloton.runtime.vocabulary import Fact

COLUMNS: Mapping[str, Any] = {
    "spec": int,
    "lot": str,
    "host": str | None,
    "created_at": float | None,
    "launched_at": float | None,
    "started_at": float | None,
    "ended_at": float | None,
    "outcome": RunOutcome | None,
    "runs": tuple[PastRun, ...] | None,
    "begun_at": float | None,  # of the present run, where it is not the first
    "ran_s": float | None,  # seconds of all earlier runs, also of those that are not kept
    "dropped": tuple[int, float] | None,  # up to which run events are not shown, and until when
    "dropped_run": tuple[int, float] | None,  # of which single run they are not, and until when
    "dropped_before": tuple[tuple[int, float], ...] | None,  # other single runs, by number
    "health": tuple[str, float] | None,  # what the check found at the last change, and when
    "containers": LiveContainers | None,  # of a pod with several, until its run ends
    "version": int | None,  # of its config, of an instance of a service
    "ran_by": int | None,  # by which the present run ran, that has ended, where it is another one
}

_FRESH = {"launched_at": None, "started_at": None, "ended_at": None, "outcome": None, "host": None}


def _time_of(fact: f.TaskStarted | f.RunEnded, now: float) -> float:
    return now if fact.at is None else min(fact.at, now)


def _created(fact: f.TaskCreated, now: float) -> Mapping[str, Any]:
    columns = {"spec": fact.spec, "lot": fact.lot, "created_at": now}
    return {**columns, "version": fact.config_version} if fact.config_version else columns


def _renewed(fact: f.TaskRenewed, now: float) -> Mapping[str, Any]:
    renewal = fact.renewal
    return {"spec": renewal.spec, "lot": renewal.lot, "version": renewal.config_version}


def _ended(fact: f.RunEnded, now: float) -> Mapping[str, Any]:
    columns = {"ended_at": _time_of(fact, now), "outcome": fact.outcome}
    return {**columns, "containers": None} if fact.outcome.containers else columns


WRITE: Mapping[type, Callable[[Any, float], Mapping[str, Any]]] = {
    f.TaskCreated: _created,
    f.TaskLaunching: lambda fact, now: {} if fact.prepare else {"launched_at": now},
    f.TaskStarted: lambda fact, now: {"started_at": _time_of(fact, now)},
    f.RunEnded: _ended,
    f.TaskRetried: lambda fact, now: {**_FRESH, "begun_at": now},
    f.LaunchRefused: lambda fact, now: {"launched_at": None, "host": None},
    f.TaskWithdrawn: lambda fact, now: {"ended_at": now},
    f.EventsDropped: lambda fact, now: {
        "dropped_run" if fact.alone else "dropped": (fact.run, now)
    },
    f.HealthTold: lambda fact, now: {"health": (fact.text, now)},
    f.TaskRenewed: _renewed,
}


def _archive_run(task: Task, fact: Fact, *, read: Callable[[str], Any]) -> Mapping[str, Any]:
    outcome = read("outcome")
    started_at, ended_at = read("started_at"), read("ended_at")
    times = read("begun_at"), read("launched_at")
    version = read("ran_by") or read("version") or 0
    past = PastRun(task.run, read("host"), started_at, ended_at, outcome, *times, version)
    kept: dict[str, Any] = {"runs": ((*(read("runs") or ()), past))[-RUNS_KEPT_MAX:]}
    if read("ran_by"):
        kept["ran_by"] = None
    if started_at is None or ended_at is None:
        return kept
    return {**kept, "ran_s": (read("ran_s") or 0.0) + max(ended_at - started_at, 0.0)}


def _archive_version(
    task: Task, fact: f.TaskRenewed, *, read: Callable[[str], Any]
) -> Mapping[str, Any]:
    """Return the config version of a run that has ended: the next run has another."""
    if not fact.runs or task.state == TaskStates.WAITING:
        return {}
    return {"ran_by": read("ran_by") or read("version")}


def _keep_containers(
    task: Task, fact: f.ContainersTold, *, read: Callable[[str], Any]
) -> Mapping[str, Any]:
    """Keep the newer state of containers: what is told late, or again, changes nothing."""
    known: LiveContainers | None = read("containers")
    steps = steps_of(known.containers) if known is not None and known.run == task.run else -1
    if steps >= steps_of(fact.containers):
        return {}
    return {"containers": LiveContainers(task.run, fact.containers)}


def _archive_dropped(
    task: Task, fact: f.EventsDropped, *, read: Callable[[str], Any]
) -> Mapping[str, Any]:
    found = dropped_runs(read) if fact.alone else ()
    return {"dropped_before": found} if found else {}


ARCHIVE: Mapping[type, Callable[..., Mapping[str, Any]]] = {
    f.TaskRetried: _archive_run,
    f.EventsDropped: _archive_dropped,
    f.TaskRenewed: _archive_version,
    f.ContainersTold: _keep_containers,
}
