"""`peloton update`: updates of services by configs of v0.

The pool is the path on the command line, not in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.jobs import job_checks
from peloton.cli.services import workflow_wait
from peloton.cli.shared import names
from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import ChangingCommand, PelotonCommand
from peloton.cli.shared.output import OutputForms, hint, show
from peloton.cli.shared.session import connected, refusal_texts, spec_in
from peloton.cli.shared.values import COUNT, SPEC_FILE, healthy_option, opaque_option
from peloton.cli.shared.watching import watched
from peloton.sdk.errors import Conflict, NotFound, StaleVersion

if TYPE_CHECKING:
    from peloton.sdk.client import Client

HERE = __name__
HEADER = (
    "Update-ID", "State", "NumberTasksCompleted", "NumberTasksFailed", "NumberTasksRemaining",
)  # fmt: skip
TRIES = 5
"""How often a config is sent, if somebody else changes the job at the same time."""
TEXTS = {
    "NOT_FOUND": "Job {job} was not found: {m}",
    "INVALID_ARGUMENT": "Invalid job config: {m}",
}

update = LazyGroup(
    name="update",
    help="""Manage updates of services by configs of v0: create, get, list, pause, resume, abort.

    UPDATE is the id of an update, or a job, by id, name or the beginning of its id: its last.""",
    epilog="""\b
Examples:
  peloton update create web service.yaml 2 /web --wait
  peloton update list web
  peloton update pause web
""",
    table={
        "create": LazyCommand(f"{HERE}:create", "Give a service another config."),
        "get": LazyCommand(f"{HERE}:get", "Show how far an update is."),
        "list": LazyCommand(f"{HERE}:list_", "List the updates of a job."),
        "pause": LazyCommand(
            f"{HERE}:pause", ("Stop updating further instances until it is resumed.")
        ),
        "resume": LazyCommand(f"{HERE}:resume", "Go on as before the pause."),
        "abort": LazyCommand(f"{HERE}:abort", "Stop it for good; keep what is already updated."),
        "rollback": LazyCommand(f"{HERE}:rollback", "Restore the previous configs."),
        "cache": LazyCommand(f"{HERE}:cache", "Print an update and its instances as JSON."),
    },
)


def row(info: Any) -> Sequence[object]:
    from peloton.sdk.render import enum_name

    status = info.status
    return (
        info.updateId.value,
        enum_name(status, "state"),
        status.numTasksDone,
        status.numTasksFailed,
        status.numTasksRemaining,
    )


def view(answer: Any, infos: Iterable[Any]) -> OutputForms:
    """Return a table of updates."""
    found = list(infos)
    return OutputForms(
        answer,
        header=HEADER,
        rows=lambda: map(row, found),
        wide_header=("To", "From", "Data"),
        wide_rows=lambda: [
            (one.configVersion, one.prevConfigVersion, one.opaque_data.data) for one in found
        ],
        names=lambda: [one.updateId.value for one in found],
    )


@click.command(cls=ChangingCommand)
@click.argument("job")
@click.argument("config", type=SPEC_FILE)
@click.argument("batch", metavar="BATCH-SIZE", type=COUNT)
@click.argument("respool")
@click.option(
    "-c",
    "--configuration-version",
    "version",
    default=0,
    type=COUNT,
    help="Fail unless this is the current version of the config of JOB.",
)
@click.option(
    "-o",
    "--override",
    is_flag=True,
    help="Abort another update that is under way, and start this one.",
)
@click.option(
    "--maxattempts",
    "max_instance_retries",
    default=0,
    type=COUNT,
    help="Failures after which an instance counts as failed (0: never).",
)
@click.option(
    "--maxfailureInstances",
    "max_tolerable_instance_failures",
    default=0,
    type=COUNT,
    help="Failed instances that fail the update (0: never).",
)
@click.option(
    "--rollbackOnFailure",
    "rollback_on_failure",
    is_flag=True,
    help="Restore the previous config if the update fails.",
)
@click.option(
    "--start-paused",
    is_flag=True,
    help="Start paused: begin with no instance until it is resumed.",
)
@opaque_option
@click.option("--in-place", is_flag=True, help="Keep instances on their hosts.")
@healthy_option
@workflow_wait.wait_options
def create(
    job: str, config: str, batch: int, respool: str, version: int, override: bool, wait: bool,
    within_s: float | None, **how: Any,
) -> int:  # fmt: skip
    """Give the service JOB, in the pool at RESPOOL, the config in the YAML file CONFIG, BATCH-SIZE
    instances at a time; 0 for all at once.

    \b
    peloton update create web service.yaml 2 /web
    peloton update create web service.yaml 2 /web --maxattempts 3 --maxfailureInstances 1 \\
      --rollbackOnFailure --wait
    """
    with connected() as peloton:
        from peloton.sdk.stateless import BatchOptions

        with spec_in(config) as given, refusal_texts(TEXTS, job=job):
            job_checks.check(given)
            spec = job_checks.with_resource_of(
                lambda: peloton.jobs.get(job).jobInfo.config, spec=given
            )
            if not override:
                refuse_second(peloton, job)
            job_checks.warn_of_constraints(peloton, respool, spec=spec)
            options = BatchOptions(batch, **how)
            answer = by_the_newest(
                lambda: peloton.updates.create(
                    job, spec, pool=respool, version=version, how=options
                ),
                version=version,
            )
        made = answer.updateID.value
        show(OutputForms(answer, text=f"Job update {made} created", names=lambda: [made]))
        return workflow_wait.after(peloton, job, wait=wait, within_s=within_s)


def refuse_second(peloton: Client, job: str) -> None:
    """Refuse a second update: the server would replace the first one, which a user may not know."""
    from peloton.sdk import updates

    for info in peloton.updates.list(job).updateInfo:
        if not updates.is_over(info.status):
            state = updates.state_of(info.status)
            text = f"update {info.updateId.value} is {state}; --override aborts it"
            raise Conflict(text)


def by_the_newest(send: Callable[[], Any], *, version: int) -> Any:
    """Return the answer; without a version the update is sent again if another client was first."""
    for turn in range(1, TRIES + 1):
        try:
            return send()
        except StaleVersion:
            if version or turn == TRIES:
                raise
            hint("the job was changed meanwhile: once more")
    raise AssertionError("the last turn returns or raises")


@click.command(cls=PelotonCommand)
@click.argument("update_id", metavar="UPDATE")
@watched
def get(update_id: str) -> None:
    """Show how far an update is.

    \b
    peloton update get web --watch
    """
    with connected() as peloton:
        answer = peloton.updates.get(update_named(peloton, update_id))
    show(view(answer, [answer.updateInfo]))


def update_named(peloton: Client, typed: str) -> str:
    """Return the id of an update; the job alone means its last one."""
    job, _, number = typed.rpartition("-")
    if names.is_id(job):
        return typed
    found = names.id_of(peloton, typed)
    if names.is_id(found):
        infos = peloton.updates.list(found, limit=1).updateInfo
        if not infos:
            raise NotFound(f"job {typed} has had no update")
        return str(infos[0].updateId.value)
    if job and number.isdecimal():
        return f"{names.id_of(peloton, job)}-{number}"
    return typed


@click.command("list", cls=PelotonCommand)
@click.argument("job")
@watched
def list_(job: str) -> None:
    """List the updates of JOB that are kept, the newest first."""
    with connected() as peloton, refusal_texts(TEXTS, job=job):
        answer = peloton.updates.list(job)
    show(view(answer, answer.updateInfo))


@click.command(cls=PelotonCommand)
@click.argument("update_id", metavar="UPDATE")
def cache(update_id: str) -> None:
    """Print an update, and its instances by what became of them."""
    with connected() as peloton:
        answer = peloton.updates.cache(update_named(peloton, update_id))
    show(OutputForms(answer, default="json", names=lambda: [update_id]))


@click.command(cls=PelotonCommand)
@click.argument("update_id", metavar="UPDATE")
@opaque_option
def pause(update_id: str, opaque: str) -> None:
    """Stop updating further instances until it is resumed; those under way go on."""
    with connected() as peloton:
        peloton.updates.pause(update_named(peloton, update_id), opaque=opaque)


@click.command(cls=PelotonCommand)
@click.argument("update_id", metavar="UPDATE")
@opaque_option
def resume(update_id: str, opaque: str) -> None:
    """Go on as before the pause."""
    with connected() as peloton:
        peloton.updates.resume(update_named(peloton, update_id), opaque=opaque)


@click.command(cls=PelotonCommand)
@click.argument("update_id", metavar="UPDATE")
@opaque_option
def abort(update_id: str, opaque: str) -> None:
    """Stop updating further instances; keep those already updated."""
    with connected() as peloton:
        peloton.updates.abort(update_named(peloton, update_id), opaque=opaque)


@click.command(cls=PelotonCommand)
@click.argument("update_id", metavar="UPDATE")
def rollback(update_id: str) -> None:
    """Give the instances the configs that they had before an update."""
    with connected() as peloton:
        peloton.updates.rollback(update_named(peloton, update_id))
