"""`peloton watch`: services and their pods, as they change.

A watch that breaks goes on behind its last revision. What comes is printed, and not kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.shared import names
from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import CliSettings, PelotonCommand
from peloton.cli.shared.output import OutputForms, as_yaml, hint, plain, show
from peloton.cli.shared.session import connected, refusal_texts
from peloton.sdk.errors import NotFound

if TYPE_CHECKING:
    from peloton.sdk.services import WatchTold

watch = LazyGroup(
    name="watch",
    help="Print services and their pods as they change.",
    table={
        "job": LazyCommand(f"{__name__}:job_", "Services: their summaries."),
        "pod": LazyCommand(f"{__name__}:pod", "Pods: their statuses."),
        "cancel": LazyCommand(f"{__name__}:cancel", "End a watch by its id."),
    },
)
FIELDS = ("stateless_jobs", "stateless_jobs_not_found", "pods", "pods_not_found")


def watching(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of both watches."""
    labels = click.option(
        "--labels",
        multiple=True,
        metavar="KEY:VALUE",
        help="Watch only services with this label; repeatable.",
    )
    start = click.option(
        "--start-revision", "start", default=0, type=click.IntRange(0, 2**64 - 1),
        help="Continue after this revision; 1: begin with everything as it is now.",
    )  # fmt: skip
    return labels(start(command))


@click.command("job", cls=PelotonCommand)
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@watching
def job_(jobs: tuple[str, ...], labels: tuple[str, ...], start: int) -> None:
    """Print each of these services, or of all, as it changes: a YAML document each, until Ctrl-C.

    \b
    peloton watch job JOB
    peloton watch job --labels team:search --start-revision 1
    """
    wanted = [pair(label) for label in labels]
    refuse_names(jobs)
    with connected() as peloton:
        told = peloton.services.watch_jobs(jobs, labels=wanted, since=start, silent=hint)
        print_told(found(told, "stateless_jobs_not_found", asked=len(set(jobs))))


@click.command(cls=PelotonCommand)
@click.argument("job", default="")
@click.argument("pods", nargs=-1, metavar="[POD]...")
@watching
def pod(job: str, pods: tuple[str, ...], labels: tuple[str, ...], start: int) -> None:
    """Print each pod of JOB, or of all services, as it changes: a YAML document each.

    \b
    peloton watch pod JOB
    peloton watch pod JOB JOB-0 JOB-1
    """
    wanted = [pair(label) for label in labels]
    refuse_names([job] if job else [])
    with connected() as peloton:
        if job:
            with refusal_texts({"NOT_FOUND": "job not found: {job}"}, job=job):
                peloton.stateless.get(job, summary_only=True)
        told = peloton.services.watch_pods(job, pods, labels=wanted, since=start, silent=hint)
        print_told(found(told, "pods_not_found", asked=len(set(pods))))


@click.command(cls=PelotonCommand)
@click.argument("watch_id")
def cancel(watch_id: str) -> None:
    """End the watch of this id, at the daemon that serves it."""
    with connected() as peloton:
        answer = peloton.services.cancel_watch(watch_id)
    show(OutputForms(answer, default="yaml"))


def refuse_names(jobs: Iterable[str]) -> None:
    """Refuse names that are of no job: others have become ids before."""
    unknown = [job for job in jobs if not names.is_id(job)]
    if unknown:
        raise NotFound(f"job not found: {', '.join(unknown)}")


def found(told: Iterable[WatchTold], field: str, *, asked: int) -> Iterator[WatchTold]:
    """Yield what comes, unless nothing that was asked for exists: then nothing ever would."""
    for one in told:
        missing = [each.value for each in getattr(one.message, field)]
        if asked and len(missing) == asked:
            kind = "job" if field.startswith("stateless") else "pod"
            raise NotFound(f"{kind} not found: {', '.join(missing)}")
        yield one


def pair(label: str) -> tuple[str, str]:
    key, colon, value = label.partition(":")
    if not key or not colon:
        raise click.UsageError(f"--labels: {label!r} is not KEY:VALUE")
    return key, value


def print_told(told: Iterable[WatchTold] | Iterator[WatchTold]) -> None:
    """Print what comes; of messages with a revision alone only the first of each stream."""
    form = click.get_current_context().ensure_object(CliSettings).output or "yaml"
    last = ""
    for message, gap in told:
        if gap:
            hint(f"changes may be missing here, so everything follows as it is now: {gap}")
        if message.watch_id == last and not any(getattr(message, field) for field in FIELDS):
            continue
        last = message.watch_id
        fields = plain(message)
        shown = {name: value for name, value in fields.items() if value or name not in FIELDS}
        if form == "json":
            click.echo(json.dumps(shown, ensure_ascii=False))
        else:
            click.echo("---")
            click.echo(as_yaml(shown), nl=False)
        sys.stdout.flush()
