"""Services, pods and their events of v1alpha as rows of the original's tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from peloton.cli.shared.output import OutputForms
from peloton.cli.texts.job_rows import COUNTED_STATES, time_of, wide_labels
from peloton.cli.texts.task_texts import health, next_attempt, run_time, termination

JOBS_HEADER = (
    "ID", "Name", "Owner", "State", "Creation Time", "Total", "Running", "Succeeded", "Failed",
    "Killed", "Workflow Status", "Completed", "Failed", "Current",
)  # fmt: skip
JOBS_WIDE_HEADER = ("Entity Version", "Pool", "Labels")
PODS_HEADER = (
    "Name", "Pod ID", "State", "Healthy", "Start Time", "Host", "Message", "Reason",
)  # fmt: skip
PODS_WIDE_HEADER = ("Version", "Completion Time", "Failures")
FOUND_HEADER = (
    "Pod ID", "Name", "State", "Container Name", "Container State", "Healthy", "Start Time",
    "Run Time", "Host", "Message", "Reason", "Termination Status",
)  # fmt: skip
EVENTS_HEADER = (
    "Pod Id", "Desired Pod Id", "Actual State", "Desired State", "Job Version",
    "Desired Job Version", "Healthy", "Host", "Message", "Reason", "Update Time",
)  # fmt: skip
WORKFLOWS_HEADER = (
    "Type", "State", "From", "To", "Created", "Completed", "Done", "Remaining", "Failed", "Data",
)  # fmt: skip

ROLLS = {"3": "ROLLING-START", "4": "ROLLING-STOP"}
"""Workflows of v0 that the contract of v1alpha has no names for."""


def enum_text(message: Any, field: str) -> str:
    """Return the name of a state as the contract has it."""
    from peloton.sdk.render import enum_name

    return enum_name(message, field)


def short(message: Any, field: str) -> str:
    """Return the last words of such a name: `ROLLING_FORWARD` of
    `WORKFLOW_STATE_ROLLING_FORWARD`."""
    text = enum_text(message, field)
    if field == "type":
        text = ROLLS.get(text, text)
    for prefix in ("WORKFLOW_STATE_", "WORKFLOW_TYPE_", "HEALTH_STATE_"):
        text = text.removeprefix(prefix)
    return text


# ---- services ----


def job_row(summary: Any) -> Sequence[object]:
    status, workflow = summary.status, summary.status.workflow_status
    has = status.HasField("workflow_status")
    return (
        summary.job_id.value,
        summary.name,
        summary.owning_team,
        enum_text(status, "state"),
        time_of(status.creation_time),
        summary.instance_count,
        *(status.pod_stats.get(f"POD_STATE_{state}", 0) for state in COUNTED_STATES),
        enum_text(workflow, "state") if has else "",
        workflow.num_instances_completed if has else "",
        workflow.num_instances_failed if has else "",
        len(workflow.instances_current) if has else "",
    )


def jobs_view(answer: Any, summaries: Iterable[Any]) -> OutputForms:
    """Return a table of services."""
    found = list(summaries)
    return OutputForms(
        answer,
        header=JOBS_HEADER,
        rows=lambda: map(job_row, found),
        wide_header=JOBS_WIDE_HEADER,
        wide_rows=lambda: [
            (one.status.version.value, one.respool_id.value, wide_labels(one)) for one in found
        ],
        names=lambda: [one.job_id.value for one in found],
        nothing="No results found",
    )


def workflow_row(info: Any) -> Sequence[object]:
    status = info.status
    return (
        short(status, "type"),
        short(status, "state"),
        status.prev_version.value.partition("-")[0],
        status.version.value.partition("-")[0],
        time_of(status.creation_time),
        time_of(status.completion_time),
        status.num_instances_completed,
        status.num_instances_remaining,
        status.num_instances_failed,
        info.opaque_data.data,
    )


# ---- pods ----


def container_of(status: Any) -> Any:
    """Return the one container of a pod, as far as it is known."""
    from peloton.sdk import pods

    return pods.container_of(status)


def health_of(status: Any) -> str:
    return health(enum_text(container_of(status).healthy, "state"))


def _reason_of(status: Any) -> str:
    return next_attempt(status.throttle_reason, status.next_attempt_time) or str(status.reason)


def pod_row(summary: Any) -> Sequence[object]:
    status = summary.status
    return (
        summary.pod_name.value,
        status.pod_id.value,
        enum_text(status, "state"),
        health_of(status),
        time_of(status.start_time),
        status.host,
        status.message,
        _reason_of(status),
    )


def pods_view(answer: Any, summaries: Sequence[Any]) -> OutputForms:
    """Return a table of pods."""
    return OutputForms(
        answer,
        header=PODS_HEADER,
        rows=lambda: map(pod_row, summaries),
        wide_header=PODS_WIDE_HEADER,
        wide_rows=lambda: [
            (
                one.status.version.value,
                time_of(one.status.completion_time),
                one.status.failure_count,
            )
            for one in summaries
        ],
        names=lambda: [one.pod_name.value for one in summaries],
        nothing="No pods found",
    )


def found_row(info: Any) -> Sequence[object]:
    status, container = info.status, container_of(info.status)
    return (
        status.pod_id.value,
        info.spec.pod_name.value,
        enum_text(status, "state"),
        container.name,
        enum_text(container, "state"),
        health_of(status),
        time_of(status.start_time),
        run_time(status.start_time, status.completion_time, now=datetime.now(UTC)),
        status.host,
        status.message,
        _reason_of(status),
        termination(container),
    )


def found_view(answer: Any) -> OutputForms:
    """Return a table of the pods that a query has found."""
    return OutputForms(
        answer,
        header=FOUND_HEADER,
        rows=lambda: map(found_row, answer.pods),
        names=lambda: [one.spec.pod_name.value for one in answer.pods],
        nothing="No pods found",
    )


def event_row(event: Any) -> Sequence[object]:
    return (
        event.pod_id.value,
        event.desired_pod_id.value,
        event.actual_state,
        event.desired_state,
        event.version.value,
        event.desired_version.value,
        health(event.healthy),
        event.hostname,
        event.message,
        event.reason,
        event.timestamp,
    )


def events_view(answer: Any) -> OutputForms:
    """Return a table of the events of a run."""
    return OutputForms(
        answer,
        header=EVENTS_HEADER,
        rows=lambda: map(event_row, answer.events),
        names=lambda: dict.fromkeys(event.pod_id.value for event in answer.events),
    )
