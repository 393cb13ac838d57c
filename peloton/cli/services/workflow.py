"""`peloton job stateless workflow`, and the lists of updates and restarts.

Only `status --follow` waits.
"""

from __future__ import annotations

from typing import Any

import click

from peloton.cli.jobs.task import INSTANCE
from peloton.cli.services import workflow_wait
from peloton.cli.services.stateless import JOB_TEXTS, VERSION, is_plain, show_version
from peloton.cli.shared import exits, table
from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import ChangingCommand, OwnCommand, PelotonCommand
from peloton.cli.shared.output import OutputForms, as_yaml, hint, plain, show
from peloton.cli.shared.session import connected, refusal_texts
from peloton.cli.shared.values import COUNT, duration, opaque_option
from peloton.cli.shared.watching import watched
from peloton.cli.texts.job_rows import time_of
from peloton.cli.texts.stateless_rows import WORKFLOWS_HEADER, enum_text, workflow_row
from peloton.printable import escaped

HERE = __name__
workflow = LazyGroup(
    name="workflow",
    help="Manage the update or restart that is under way.",
    table={
        "status": LazyCommand(
            f"{HERE}:status", ("Show how far it is; with --follow until it is over.")
        ),
        "pause": LazyCommand(f"{HERE}:pause", "Stop updating further pods until it is resumed."),
        "resume": LazyCommand(f"{HERE}:resume", "Go on as before the pause."),
        "abort": LazyCommand(f"{HERE}:abort", "Stop it for good; keep what is already updated."),
        "events": LazyCommand(f"{HERE}:events", "Print what it did to one pod."),
    },
)


def order(verb: str, job: str, *, said: str, **how: Any) -> None:
    """Pause, resume or abort; a workflow that is over accepts it, and stays so, as in the
    original."""
    with connected() as peloton, refusal_texts(JOB_TEXTS, job=job):
        before = workflow_wait.newest(peloton, job) if is_plain() else None
        answer = getattr(peloton.stateless, verb)(job, **how)
    show_version(answer, f"Workflow {said}. New EntityVersion: {{v}}", job=job)
    if before is not None and workflow_wait.is_over(before):
        hint(f"warning: it was over, and stays so: {workflow_wait.text_of(before)}")


@click.command(cls=ChangingCommand)
@click.argument("job")
@click.argument("version", metavar=VERSION, default="")
@opaque_option
def pause(job: str, version: str, opaque: str) -> None:
    """Stop updating further pods of JOB until it is resumed; those under way go on.

    \b
    peloton job stateless workflow pause web
    """
    order("pause", job, said="paused", version=version, opaque=opaque)


@click.command(cls=ChangingCommand)
@click.argument("job")
@click.argument("version", metavar=VERSION, default="")
@opaque_option
def resume(job: str, version: str, opaque: str) -> None:
    """Go on with the pods of JOB as before the pause."""
    order("resume", job, said="resumed", version=version, opaque=opaque)


@click.command(cls=ChangingCommand)
@click.argument("job")
@click.argument("version", metavar=VERSION, default="")
@opaque_option
def abort(job: str, version: str, opaque: str) -> None:
    """Stop the workflow of JOB for good; keep pods already updated."""
    order("abort", job, said="aborted", version=version, opaque=opaque)


@click.command(cls=PelotonCommand)
@click.argument("job")
@click.argument("instance", type=INSTANCE)
def events(job: str, instance: int) -> None:
    """Print what the newest workflow of JOB did to one INSTANCE, the newest first."""
    with connected() as peloton, refusal_texts(JOB_TEXTS, job=job):
        answer = peloton.stateless.workflow_events(job, instance)
    show(
        OutputForms(
            answer,
            header=("Workflow State", "Workflow Type", "Timestamp"),
            rows=lambda: [
                (enum_text(one, "state"), enum_text(one, "type"), one.timestamp)
                for one in answer.events
            ],
            names=lambda: [f"{job}-{instance}"],
        )
    )


@click.command(cls=OwnCommand)
@click.argument("job")
@click.option("--follow", "-f", is_flag=True, help="Go on until it is over, or Ctrl-C.")
@click.option(
    "--within", "within_s", type=duration, metavar="TIME", help=("Follow at most this long.")
)
def status(job: str, follow: bool, within_s: float | None) -> int:
    """Show how far the newest update or restart of JOB is.

    With --follow there is a line each time that something changes; it exits with 0 if the workflow
    succeeded, with 1 if it failed, was aborted or rolled back, and with 124 if it goes on.

    \b
    peloton job stateless workflow status web --follow
    """
    with connected() as peloton, refusal_texts(JOB_TEXTS, job=job):
        if follow:
            return workflow_wait.follow(
                peloton, job, within_s=within_s, say=lambda text: click.echo(escaped(text))
            )
        info = workflow_wait.newest(peloton, job)
    text = "no workflow: nothing is under way" if info is None else workflow_wait.text_of(info)
    show(OutputForms({} if info is None else info, text=text, names=lambda: [job]))
    return exits.OK


@click.command("list-workflows", cls=OwnCommand)
@click.argument("job")
@click.option("--limit", default=0, type=COUNT, help="Print only this many, the newest; 0 for all.")
@watched
def list_workflows(job: str, limit: int) -> None:
    """List the updates and restarts of JOB that are kept, the newest first.

    \b
    peloton job stateless list-workflows web
    """
    with connected() as peloton, refusal_texts(JOB_TEXTS, job=job):
        answer = peloton.stateless.workflows(job, limit=limit)
    show(
        OutputForms(
            answer,
            header=WORKFLOWS_HEADER,
            rows=lambda: map(workflow_row, answer.workflow_infos),
            names=lambda: [one.status.version.value for one in answer.workflow_infos],
            nothing="No update for job",
        )
    )


@click.command("list-updates", cls=PelotonCommand)
@click.argument("job")
@click.option(
    "--limit", default=10, type=COUNT, show_default=True, help="Print only this many, the newest."
)
def list_updates(job: str, limit: int) -> None:
    """Print the updates and restarts of JOB whole, the newest first."""
    with connected() as peloton, refusal_texts(JOB_TEXTS, job=job):
        answer = peloton.stateless.workflows(job, limit=limit)
    if not is_plain():
        show(OutputForms(answer, names=lambda: [job]))
        return
    if not answer.workflow_infos:
        click.echo("No update for job")
    for index, info in enumerate(answer.workflow_infos):
        print_whole(index, info)


def print_whole(index: int, info: Any) -> None:
    """Print as the original does: all but the events as YAML, the events as a table."""
    whole = plain(info)
    whole.pop("events", None)
    click.echo(f"Index {index}:")
    click.echo(as_yaml(whole), nl=False)
    rows = [
        (enum_text(one, "type"), time_of(one.timestamp), enum_text(one, "state"))
        for one in info.events
    ]
    click.echo(table.render(("Type", "Timestamp", "State"), rows))
