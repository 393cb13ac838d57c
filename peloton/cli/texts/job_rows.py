"""Jobs as rows of the original's table, made of the summary or the info at hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from peloton.cli.shared.output import OutputForms

HEADER = (
    "ID", "Name", "Owner", "State", "Creation Time", "Completion Time",
    "Total", "Running", "Succeeded", "Failed", "Killed",
)  # fmt: skip
WIDE_HEADER = ("Start Time", "Pool", "Labels")
COUNTED_STATES = ("RUNNING", "SUCCEEDED", "FAILED", "KILLED")


def time_of(stamp: str) -> str:
    """Return the time to the second, in UTC.

    The fraction is in the JSON.
    """
    if not stamp:
        return "--"
    return stamp.split(".")[0].removesuffix("Z") + "Z"


def row(job_id: str, about: Any, *, runtime: Any) -> Sequence[object]:
    """Return a row. `about` is a summary or a config: both have name, team and size."""
    from peloton.sdk.render import enum_name

    return (
        job_id,
        about.name,
        about.owningTeam,
        enum_name(runtime, "state"),
        time_of(runtime.creationTime),
        time_of(runtime.completionTime),
        about.instanceCount,
        *(runtime.taskStats.get(state, 0) for state in COUNTED_STATES),
    )


def wide_row(summary: Any) -> Sequence[object]:
    started = time_of(summary.runtime.startTime)
    return started, summary.respoolID.value, wide_labels(summary)


def wide_labels(summary: Any) -> str:
    """Return all labels in one cell."""
    return ",".join(f"{label.key}={label.value}" for label in summary.labels)


def view_of_many(answer: Any, summaries: Iterable[Any]) -> OutputForms:
    found = list(summaries)
    return OutputForms(
        answer,
        header=HEADER,
        rows=lambda: [row(one.id.value, one, runtime=one.runtime) for one in found],
        wide_header=WIDE_HEADER,
        wide_rows=lambda: map(wide_row, found),
        names=lambda: [one.id.value for one in found],
        nothing="No jobs found.",
    )


def view_of_one(info: Any, *, answer: Any) -> OutputForms:
    return OutputForms(
        answer,
        default="yaml",
        header=HEADER,
        rows=lambda: [row(info.id.value, info.config, runtime=info.runtime)],
        names=lambda: [info.id.value],
    )
