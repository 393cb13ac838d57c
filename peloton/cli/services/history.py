"""`peloton job history`: what was done to a job, by whom and when, the newest first.

The rows are made from the workflows of a service and the story of its job: workflows are kept as
long as docs/workflows.md says, the person who ordered something as long as the story is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from peloton.cli.jobs import ops
from peloton.cli.services.stateless import JOB_TEXTS
from peloton.cli.shared.options import OwnCommand
from peloton.cli.shared.output import OutputForms, command, hint, show
from peloton.cli.shared.session import connected, refusal_texts
from peloton.cli.shared.watching import watched
from peloton.cli.texts import task_texts
from peloton.cli.texts.stateless_rows import short

if TYPE_CHECKING:
    from peloton.sdk.client import Client

HEADER = ("Time", "What", "Version", "State", "Done", "Failed", "Who", "Data")
BEGINS = ("ReplaceJob", "RestartJob", "CreateJob")
"""Orders that may begin a workflow, which is then shown in their place."""
ORDERS = {
    "CreateJob": "created", "StopJob": "stopped", "StartJob": "started",
    "StartInstances": "instances started", "DeleteJob": "deleted", "UpdateJob": "updated",
    "RestartJob": "restarted", "ReplaceJob": "replaced", "ControlWorkflow": "workflow ordered",
}  # fmt: skip
RESTARTS = "Task restart"
"""How the reason of an order begins that gives new runs to instances which run."""
NEAR_S = 0.001
"""The times of an order and of its workflow are the same but for rounding."""


class HistoryRow(NamedTuple):
    """What happened to a job at a time, in seconds since the epoch."""

    at: float
    what: str
    version: str = ""
    state: str = ""
    done: str = ""
    failed: str = ""
    who: str = ""
    data: str = ""

    @property
    def cells(self) -> Sequence[object]:
        return (ops.moment(self.at), *self[1:])


@click.command(cls=OwnCommand)
@click.argument("job")
@watched
def history(job: str) -> None:
    """List what was done to JOB, the newest first: its versions with their workflows, stops and
    starts.

    The number before an arrow is one that `peloton rollback JOB --to N` takes. Who ordered it is
    known as long as `peloton story JOB` tells it.

    \b
    peloton job history web
    """
    with connected() as peloton, refusal_texts(JOB_TEXTS, job=job):
        rows = sorted(found(peloton, job), key=lambda row: row.at, reverse=True)
    show(
        OutputForms(
            {"job_id": job, "history": [row._asdict() for row in rows]},
            header=HEADER,
            rows=lambda: [row.cells for row in rows],
            names=lambda: dict.fromkeys(row.version for row in rows if row.version),
            nothing="Nothing is kept.",
            compact=True,
        )
    )
    numbers = [row.version.partition(" -> ")[0] for row in rows if row.what == "update"]
    if earlier := [number for number in numbers if number != "0"]:
        back = command("rollback", job)
        hint(f"next: {back} (the spec before the last update), {back} --to {earlier[0]}")


def found(peloton: Client, job: str) -> Iterator[HistoryRow]:
    """Yield what the workflows and the story say, in no order."""
    infos = peloton.stateless.workflows(job).workflow_infos
    told = [line for line in peloton.ops.story(f"job/{job}").lines if line.cause in ORDERS]
    begun = [task_texts.moment(info.status.creation_time).timestamp() for info in infos]
    for info, at in zip(infos, begun, strict=True):
        who = [line.who for line in told if line.cause in BEGINS and abs(line.at - at) < NEAR_S]
        yield of_workflow(info, at, who=who[0] if who else "")
    for line in told:
        is_shown = any(abs(line.at - at) < NEAR_S for at in begun)
        if line.facts and not (line.cause in BEGINS and is_shown):
            yield HistoryRow(line.at, what_of(line), state=line.because, who=line.who)


def what_of(line: Any) -> str:
    """Return what an order did; one message starts instances, and restarts them."""
    restarts = line.cause == "StartInstances" and line.because.startswith(RESTARTS)
    return "instances restarted" if restarts else ORDERS[line.cause]


def of_workflow(info: Any, at: float, *, who: str) -> HistoryRow:
    """Return the row of a workflow: from which version to which, and its result."""
    status = info.status
    old, new = (one.value.partition("-")[0] for one in (status.prev_version, status.version))
    total = (
        status.num_instances_completed
        + status.num_instances_remaining
        + status.num_instances_failed
    )
    return HistoryRow(
        at,
        short(status, "type").lower(),
        version=f"{old} -> {new}",
        state=short(status, "state"),
        done=f"{status.num_instances_completed} of {total}",
        failed=str(status.num_instances_failed or ""),
        who=who,
        data=info.opaque_data.data,
    )
