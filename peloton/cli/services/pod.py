"""`peloton pod`: single pods by their names, `JOB-INSTANCE`, and the pods of a job.

`logs` prints the bytes of the sandbox undecoded.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from peloton.cli.services.stateless import JOB_TEXTS
from peloton.cli.shared import names
from peloton.cli.shared.dry_run import dry_run_option, would
from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import PelotonCommand
from peloton.cli.shared.output import OutputForms, hint, show
from peloton.cli.shared.session import connected, refusal_texts
from peloton.cli.shared.values import COUNT, LIMIT, range_option, words
from peloton.cli.shared.watching import watched
from peloton.cli.texts import stateless_rows
from peloton.sdk.errors import NotFound

HERE = __name__
DONE = {
    "start": "start ordered", "stop": "stop ordered", "restart": "restart ordered",
    "refresh": "refreshed",
}  # fmt: skip
TEXTS = {"NOT_FOUND": "Pod {pod} was not found: {m}"}

pod = LazyGroup(
    name="pod",
    help="""Manage pods, the instances of jobs, each by its name JOB-INSTANCE, such as web-0.

    JOB is the id of the job, its name or the beginning of its id.""",
    epilog="""\b
Examples:
  peloton pod get web-0
  peloton pod restart web-0
  peloton pod events web 0
  peloton pod query web --states FAILED,PENDING
""",
    table={
        "get": LazyCommand(f"{HERE}:get", "Print a pod: its spec, its status, its earlier runs."),
        "query": LazyCommand(f"{HERE}:query", "List the pods of a job that match."),
        "events": LazyCommand(
            "peloton.cli.jobs.task:pod_events", ("Print what happened to an instance.")
        ),
        "events-v1alpha": LazyCommand(f"{HERE}:events", "Print what happened to one run of a pod."),
        "logs": LazyCommand(f"{HERE}:logs", "Print a file of a pod's sandbox."),
        "start": LazyCommand(f"{HERE}:start", "Start a stopped pod."),
        "stop": LazyCommand(f"{HERE}:stop", "Stop a pod."),
        "restart": LazyCommand(f"{HERE}:restart", "Give a pod a new run."),
        "delete-events": LazyCommand(f"{HERE}:delete_events", "Delete the events of one run."),
        "refresh": LazyCommand(f"{HERE}:refresh", "Check that it exists.", hidden=True),
        "cache": LazyCommand(f"{HERE}:cache", "Print a pod's status as YAML."),
    },
)


def pod_named(peloton: Any, typed: str) -> str:
    """Return the name of a pod, whose job was typed by id, name or the beginning of its id."""
    job, _, number = typed.rpartition("-")
    if not job:
        return typed  # the server says what is wrong with it
    found = names.id_of(peloton, job)
    if not names.is_id(found):
        raise NotFound(f"there is no job {job}", kind="NOT_FOUND")
    return f"{found}-{number}"


@click.command(cls=PelotonCommand)
@click.argument("name", metavar="POD")
@click.option("--statusonly", "status_only", is_flag=True, help="Leave out its spec.")
@click.option(
    "--limit",
    default=0,
    type=COUNT,
    help="Print at most this many runs, the present one included.",
)
def get(name: str, status_only: bool, limit: int) -> None:
    """Print POD as it is, and the runs it had before.

    \b
    peloton pod get web-0 --statusonly --limit 1
    """
    with connected() as peloton, refusal_texts(TEXTS, pod=name):
        answer = peloton.pods.get(pod_named(peloton, name), status_only=status_only, limit=limit)
    runs = [answer.current, *answer.previous]
    ids = [one.status.pod_id.value for one in runs]
    show(OutputForms(answer, default="yaml", names=lambda: ids))


@click.command(cls=PelotonCommand)
@click.argument("name", metavar="POD")
def cache(name: str) -> None:
    """Print the status and the labels of POD."""
    with connected() as peloton, refusal_texts(TEXTS, pod=name):
        answer = peloton.pods.cache(pod_named(peloton, name))
    show(OutputForms(answer, default="yaml", names=lambda: [answer.status.pod_id.value]))


@click.command("events-v1alpha", cls=PelotonCommand)
@click.argument("name", metavar="POD")
@click.option(
    "-p", "--id", "run", default="", metavar="POD-RUN", help=("Print the events of this run.")
)
def events(name: str, run: str) -> None:
    """Print what happened to the newest run of POD, or to one, the newest event first."""
    with connected() as peloton, refusal_texts(TEXTS, pod=name):
        found = pod_named(peloton, name)
        answer = peloton.pods.events(found, run=run_of(found, run))
    show(stateless_rows.events_view(answer))


def run_of(name: str, typed: str) -> str:
    """Return the id of a run, which may be typed as its number."""
    return f"{name}-{typed}" if typed.isascii() and typed.isdigit() else typed


@click.command("delete-events", cls=PelotonCommand)
@click.argument("name", metavar="POD")
@click.argument("run", metavar="POD-RUN")
@dry_run_option
def delete_events(name: str, run: str, dry_run: bool) -> None:
    """Delete what happened to one run of POD; the run itself is kept.

    \b
    peloton pod delete-events web-0 1
    """
    with connected() as peloton, refusal_texts(TEXTS, pod=name):
        found = pod_named(peloton, name)
        wanted = run_of(found, run)
        if dry_run:
            count = len(peloton.pods.events(found, run=wanted).events)
            would(f"would delete {count} events of run {wanted}", names=[wanted])
            return
        answer = peloton.pods.delete_events(found, wanted)
    show(OutputForms(answer, text=f"Events of run {wanted} deleted", names=lambda: [wanted]))


def changed(name: str, verb: str, *, dry_run: bool) -> None:
    """Start, stop, restart or refresh a pod; or say what it is now."""
    with connected() as peloton, refusal_texts(TEXTS, pod=name):
        found = pod_named(peloton, name)
        if dry_run:
            status = peloton.pods.get(found, status_only=True, limit=1).current.status
            state = stateless_rows.enum_text(status, "state").removeprefix("POD_STATE_")
            would(f"would {verb} pod {found}, which is {state}", names=[found])
            return
        answer = getattr(peloton.pods, verb)(found)
    show(OutputForms(answer, text=f"Pod {found}: {DONE[verb]}", names=lambda: [found]))


@click.command(cls=PelotonCommand)
@click.argument("name", metavar="POD")
@dry_run_option
def start(name: str, dry_run: bool) -> None:
    """Start POD, if it was stopped."""
    changed(name, "start", dry_run=dry_run)


@click.command(cls=PelotonCommand)
@click.argument("name", metavar="POD")
@dry_run_option
def stop(name: str, dry_run: bool) -> None:
    """Stop POD; it stays so until it is started."""
    changed(name, "stop", dry_run=dry_run)


@click.command(cls=PelotonCommand)
@click.argument("name", metavar="POD")
@dry_run_option
def restart(name: str, dry_run: bool) -> None:
    """Give POD a new run, unless it was stopped; one that runs is killed first.

    \b
    peloton pod restart web-0
    """
    changed(name, "restart", dry_run=dry_run)


@click.command(cls=PelotonCommand)
@click.argument("name", metavar="POD")
def refresh(name: str) -> None:
    """Check that POD exists; there is nothing to refresh."""
    changed(name, "refresh", dry_run=False)


@click.command(cls=PelotonCommand)
@click.argument("name", metavar="POD")
@click.option("-f", "--filename", default="stdout", show_default=True)
@click.option(
    "-p", "--id", "run", default="", metavar="POD-RUN", help=("Print the events of this run.")
)
def logs(name: str, filename: str, run: str) -> None:
    """Print a file of the sandbox of POD: of its newest run, or of the run --id. Where the pod has
    several containers, NAME.stdout is what that container wrote, and stdout when each began.

    \b
    peloton pod logs web-0 -f stderr
    peloton pod logs web-0 -f main.stdout
    """
    with connected() as peloton, refusal_texts(TEXTS, pod=name):
        found = pod_named(peloton, name)
        for piece in peloton.pods.logs(found, run=run_of(found, run), filename=filename):
            sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


@click.command("list-pods", cls=PelotonCommand)
@click.argument("job")
@range_option("Pods")
@watched
def list_(job: str, only: tuple[int, int]) -> None:
    """List the pods of JOB.

    \b
    peloton job stateless list-pods web -r 0:10
    """
    with connected() as peloton, refusal_texts(JOB_TEXTS, job=job):
        from peloton.sdk.render import to_dict

        found = [*peloton.stateless.pods(job, only=only)]
    show(stateless_rows.pods_view({"pods": [to_dict(one) for one in found]}, found))


@click.command(cls=PelotonCommand)
@click.argument("job")
@click.option("-s", "--states", type=words, default=(), help="Match any of these states.")
@click.option("--names", type=words, default=(), help="Match any of these names of containers.")
@click.option("--hosts", type=words, default=(), help="Match any of these hosts.")
@click.option("-n", "--limit", default=100, type=LIMIT, help="Print at most this many pods.")
@click.option("-o", "--offset", default=0, type=COUNT, show_default=True, help="Pods to skip.")
@click.option(
    "-p", "--sort", type=words, default=(), help=("Sort by this, such as state, host or message.")
)
@click.option("-a", "--sortorder", "order", default="ASC", show_default=True, help="ASC or DESC.")
@watched
def query(job: str, limit: int, offset: int, **wanted: Any) -> None:
    """List the pods of JOB that match all of the options.

    \b
    peloton pod query web --states PENDING,FAILED --sort host
    """
    with connected() as peloton, refusal_texts(JOB_TEXTS, job=job):
        from peloton.sdk.tasks import TaskQuery

        answer = peloton.stateless.query_pods(job, TaskQuery(page=(offset, limit), **wanted))
    show(stateless_rows.found_view(answer))
    seen = offset + len(answer.pods)
    if answer.pods and seen < answer.pagination.total:
        hint(f"{answer.pagination.total} pods match; go on with --offset {seen}")
