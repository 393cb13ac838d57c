"""`peloton volume`: the volumes of services.

Must not stop an instance so that its volume can be deleted.
"""

from __future__ import annotations

from typing import Any

import click

from peloton.cli.lazy import LazyCommand, LazyGroup
from peloton.cli.options import PelotonCommand
from peloton.cli.output import OutputForms, show
from peloton.cli.session import connected, refusal_texts

HEADER = (
    "VolumeID",
    "JobID",
    "Instance",
    "Hostname",
    "State",
    "GoalState",
    "SizeMB",
    "ContainerPath",
    "CreateTime",
    "UpdateTime",
)
TEXTS = {"NOT_FOUND": "Volume {name}: not found"}

volume = LazyGroup(
    name="volume",
    help="The volumes of services: list, get, delete.",
    table={
        "list": LazyCommand(f"{__name__}:list_", "The volumes of a job."),
        "get": LazyCommand(f"{__name__}:get", "One volume."),
        "delete": LazyCommand(f"{__name__}:delete", "Delete a volume, with what is in it."),
    },
)


@click.command("list", cls=PelotonCommand)
@click.argument("job")
def list_(job: str) -> None:
    """The volumes of JOB, also once it is deleted.

    \b
    peloton volume list JOB
    """
    with connected() as peloton:
        answer = peloton.volumes.of_job(job)
    found = sorted(answer.volumes.values(), key=lambda one: one.instanceId)
    show(
        OutputForms(
            answer,
            header=HEADER,
            rows=lambda: map(_row, found),
            names=lambda: [one.id.value for one in found],
            nothing="No volume was found",
        )
    )


@click.command(cls=PelotonCommand)
@click.argument("name", metavar="VOLUME")
def get(name: str) -> None:
    """Show one volume; its name is JOB-INSTANCE, that of an orphan JOB-INSTANCE@HOST.

    \b
    peloton volume get JOB-0
    """
    with connected() as peloton, refusal_texts(TEXTS, name=name):
        found = peloton.volumes.get(name)
    show(OutputForms(found, header=HEADER, rows=lambda: [_row(found)], names=lambda: [name]))


@click.command(cls=PelotonCommand)
@click.argument("name", metavar="VOLUME")
def delete(name: str) -> None:
    """Delete a volume for ever. Its instance has to be stopped before, unless it is an orphan's
    name, JOB-INSTANCE@HOST.

    \b
    peloton task stop JOB 0
    peloton volume delete JOB-0
    """
    with connected() as peloton, refusal_texts(TEXTS, name=name):
        answer = peloton.volumes.delete(name)
    show(OutputForms(answer, text=f"Volume {name} deleted", names=lambda: [name]))


def _row(one: Any) -> tuple[Any, ...]:
    return (
        one.id.value,
        one.jobId.value,
        one.instanceId,
        one.hostname,
        _name(one, "state"),
        _name(one, "goalState"),
        one.sizeMB,
        one.containerPath,
        one.createTime,
        one.updateTime,
    )


def _name(one: Any, field: str) -> str:
    """The name of a state, as the contract has it."""
    names = one.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    return str(names[getattr(one, field)].name)
