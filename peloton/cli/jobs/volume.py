"""`peloton volume`: the volumes of services.

A volume in use is not deleted: no instance is stopped for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from peloton.cli.shared import names
from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import PelotonCommand
from peloton.cli.shared.output import OutputForms, command, hint, show
from peloton.cli.shared.session import connected, refusal_texts
from peloton.sdk.errors import NotFound, PelotonError

if TYPE_CHECKING:
    from peloton.sdk.client import Client

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
    help="""Manage the volumes of services: list, get, delete.

    A volume's name is JOB-INSTANCE, where JOB is the id of the job, its name or the beginning of
    its id; of a job that is deleted, its id.""",
    table={
        "list": LazyCommand(f"{__name__}:list_", "List the volumes of a job."),
        "get": LazyCommand(f"{__name__}:get", "One volume."),
        "delete": LazyCommand(f"{__name__}:delete", "Delete a volume, with what is in it."),
    },
)


@click.command("list", cls=PelotonCommand)
@click.argument("job")
def list_(job: str) -> None:
    """List the volumes of JOB, even after it is deleted.

    \b
    peloton volume list JOB
    """
    if not names.is_id(job):
        raise no_job(job)
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
    peloton volume get web-0
    """
    with connected() as peloton, refusal_texts(TEXTS, name=name):
        found = peloton.volumes.get(volume_named(peloton, name))
    ids = [found.id.value]
    show(OutputForms(found, header=HEADER, rows=lambda: [_row(found)], names=lambda: ids))


@click.command(cls=PelotonCommand)
@click.argument("name", metavar="VOLUME")
def delete(name: str) -> None:
    """Delete a volume for ever. Its instance has to be stopped before, unless it is an orphan's
    name, JOB-INSTANCE@HOST.

    \b
    peloton task stop web 0
    peloton volume delete web-0
    """
    with connected() as peloton, refusal_texts(TEXTS, name=name):
        whole = volume_named(peloton, name)
        answer = peloton.volumes.delete(whole)
    show(OutputForms(answer, text=f"Volume {whole} deleted", names=lambda: [whole]))


def volume_named(peloton: Client, typed: str) -> str:
    """Return the name of a volume, whose job was typed by id, name or the beginning of its id."""
    name, at, host = typed.partition("@")
    job, _, number = name.rpartition("-")
    if not job or names.is_id(name):
        return typed  # the server says what is wrong with it
    found = names.id_of(peloton, job)
    if not names.is_id(found):
        raise no_job(job)
    return f"{found}-{number}{at}{host}"


def no_job(typed: str) -> NotFound:
    """Return the error for an unknown job; a job that was deleted may still have volumes."""
    text = f"there is no job {typed}; of a deleted job give the whole id"
    return NotFound(text)


def may_have_volumes(peloton: Client, job: str) -> bool:
    """Return whether a config of the job, which still exists, names a volume."""
    try:
        config = peloton.jobs.get(job).jobInfo.config
    except PelotonError:
        return False
    of_some = any(one.HasField("volume") for one in config.instanceConfig.values())
    return of_some or config.defaultConfig.HasField("volume")


def say_that_volumes_stay(job: str) -> None:
    """Say that the volumes of a deleted job stay, and take room."""
    hint(f"its volumes stay until they are deleted: {command('volume', 'list', job)}")


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
    """Return the name of a state, as the contract has it."""
    names = one.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    return str(names[getattr(one, field)].name)
