"""Tasks and pod events as rows and sentences of the original."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from peloton.cli.shared.output import OutputForms, hint
from peloton.cli.shared.values import numbers
from peloton.cli.texts.job_rows import time_of

HEADER = (
    "Instance", "Name", "State", "Healthy", "Start Time", "Run Time", "Host", "Message", "Reason",
    "Termination Status",
)  # fmt: skip
WIDE_HEADER = ("Run", "Completion Time", "Failures")
EVENTS_HEADER = (
    "Mesos Task Id", "Desired Mesos Task Id", "Actual State", "Goal State", "Config Version",
    "Desired Config Version", "Healthy", "Host", "Message", "Reason", "Update Time",
)  # fmt: skip
NOT_FOUND = "Job {job} was not found: {m}"
OUT_OF_RANGE = "Requested instances:[{instance}] of job {job} is not in the valid range: {m}"
OVER = ("SUCCEEDED", "FAILED", "KILLED", "LOST", "DELETED")
"""States of an instance that has ended."""
TASK_TEXTS: Mapping[str, str] = {"notFound": NOT_FOUND, "outOfRange": OUT_OF_RANGE}


def ended_of(counts: Mapping[str, int]) -> int:
    """Return how many instances have ended, by their counts."""
    return sum(counts.get(name, 0) for name in OVER)


def row(info: Any) -> Sequence[object]:
    from peloton.sdk.render import enum_name

    runtime = info.runtime
    return (
        info.instanceId,
        info.config.name,
        enum_name(runtime, "state"),
        health(enum_name(runtime, "healthy")),
        time_of(runtime.startTime),
        run_time(runtime.startTime, runtime.completionTime, now=datetime.now(UTC)),
        runtime.host,
        runtime.message,
        next_attempt(runtime.throttleReason, runtime.nextAttemptTime) or runtime.reason,
        termination(runtime),
    )


def health(name: str) -> str:
    """Return a state of health; empty for a run that has none, such as one of a batch job."""
    return "" if name.endswith("INVALID") else name


def next_attempt(reason: str, at: str) -> str:
    """Return which failure an instance waits after, and until when; empty if it does not wait."""
    return f"{reason}; next attempt at {time_of(at)}" if reason else ""


def wide_row(info: Any) -> Sequence[object]:
    runtime = info.runtime
    return runtime.mesosTaskId.value, time_of(runtime.completionTime), runtime.failureCount


def run_time(start: str, end: str, *, now: datetime) -> str:
    """Return hours, minutes, seconds since the start, until the end or until now."""
    if not start:
        return ""
    seconds = max(int(((moment(end) if end else now) - moment(start)).total_seconds()), 0)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def moment(stamp: str) -> datetime:
    """Return a time; nanoseconds are cut, as Python's moments have microseconds."""
    whole, _, fraction = stamp.removesuffix("Z").partition(".")
    read = datetime.fromisoformat(f"{whole}.{fraction[:6]:0<6}" if fraction else whole)
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def termination(runtime: Any) -> str:
    """Return how a run of a task, or a container of a pod, ended; the fields have the same
    names."""
    if not runtime.HasField("terminationStatus"):
        return ""
    from peloton.sdk.render import enum_name

    ended = runtime.terminationStatus
    reason = enum_name(ended, "reason").removeprefix("TERMINATION_STATUS_REASON_")
    if reason == "INVALID":
        return f"exit code {ended.exit_code}" if ended.exit_code else ""
    if ended.signal:
        return f"{reason}: {ended.signal}"
    # One that was never run has failed without a code.
    return f"{reason}: exit code {ended.exit_code}" if ended.exit_code else reason


def view(answer: Any, tasks: Sequence[Any], *, nothing: str = "") -> OutputForms:
    return OutputForms(
        answer,
        header=HEADER,
        rows=lambda: map(row, tasks),
        wide_header=WIDE_HEADER,
        wide_rows=lambda: map(wide_row, tasks),
        names=lambda: [f"{one.jobId.value}-{one.instanceId}" for one in tasks],
        nothing=nothing,
    )


def runs_view(answer: Any, runs: Sequence[Any]) -> OutputForms:
    """Return the runs of one instance, each with the id that `task logs` takes."""
    ids = [one.runtime.mesosTaskId.value for one in runs]
    return OutputForms(
        answer,
        header=("Run", *HEADER),
        rows=lambda: [(run, *row(one)) for run, one in zip(ids, runs, strict=True)],
        names=lambda: ids,
    )


def event_row(event: Any) -> Sequence[object]:
    return (
        event.taskId.value,
        # The contract spells it so.
        event.desriedTaskId.value,
        event.actualState,
        event.goalState,
        event.configVersion,
        event.desiredConfigVersion,
        health(event.healthy),
        event.hostname,
        event.message,
        event.reason,
        event.timestamp,
    )


def events_view(answer: Any) -> OutputForms:
    return OutputForms(
        answer,
        header=EVENTS_HEADER,
        rows=lambda: map(event_row, answer.result),
        names=lambda: dict.fromkeys(event.taskId.value for event in answer.result),
    )


def stop_text(answer: Any, *, ended: int = 0) -> str:
    """Return what was stopped, without those that had `ended` already and are in the answer."""
    if answer.invalidInstanceIds:
        failed = numbers(answer.invalidInstanceIds)
        return f"Some tasks failed to stop, failed_instance_ids:{failed}"
    return f"Successfully signalled {len(answer.stoppedInstanceIds) - ended} tasks for stopping"


def print_ended(answer: Any, wanted: int, *, ended: int = 0) -> None:
    """Print how many of `wanted` instances had nothing left to stop: they stay as they ended.

    `ended` of them are in the answer.
    """
    ended += wanted - len(answer.stoppedInstanceIds) - len(answer.invalidInstanceIds)
    if ended > 0:
        hint(f"{ended} of {wanted} had ended already")


def start_text(answer: Any) -> str:
    started, failed = numbers(answer.startedInstanceIds), numbers(answer.invalidInstanceIds)
    prefix = "Tasks started successfully for instances"
    return f"{prefix}: {started} and failed instances are: {failed}"
