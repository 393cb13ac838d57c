"""`peloton task`: the instances of a job, and `peloton pod events`.

`logs` prints the bytes of the sandbox undecoded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.shared import exits
from peloton.cli.shared.dry_run import dry_run_option, instances_text, would
from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.meant import meant
from peloton.cli.shared.options import PelotonCommand
from peloton.cli.shared.output import OutputForms, hint, show
from peloton.cli.shared.session import connected, refusal_texts
from peloton.cli.shared.values import (
    COUNT,
    LIMIT,
    from_to,
    range_text,
    ranges_option,
    words,
)
from peloton.cli.shared.watching import watched
from peloton.cli.texts import task_texts
from peloton.cli.texts.task_texts import TASK_TEXTS, print_ended
from peloton.sdk.errors import NotFound

if TYPE_CHECKING:
    from peloton.sdk.client import Client

InstanceRange = tuple[int, int]
INSTANCE = click.IntRange(min=0, max=2**32 - 1)

RUNS_BACK = re.compile(r"-\d+", re.ASCII)
RUN_ID = re.compile(r"-\d+-\d+$", re.ASCII)
HERE = __name__
task = LazyGroup(
    name="task",
    help="Manage the instances of a job.",
    table={
        "list": LazyCommand(
            f"{HERE}:list_", "List instances, with the reason of what does not run."
        ),
        "get": LazyCommand(f"{HERE}:get", "List every run of one instance."),
        "query": LazyCommand(f"{HERE}:query", "List the instances that match."),
        "logs": LazyCommand(f"{HERE}:logs", "Print a file of an instance's sandbox."),
        "events": LazyCommand(f"{HERE}:events", "Print what happened to an instance.", hidden=True),
        "start": LazyCommand(f"{HERE}:start", "Start stopped instances."),
        "stop": LazyCommand(f"{HERE}:stop", "Stop instances."),
        "restart": LazyCommand(f"{HERE}:restart", "Restart instances."),
    }
    | {"refresh": LazyCommand(f"{HERE}:refresh", "Check that they exist.", hidden=True)}
    | {
        "cache": LazyCommand(
            "peloton.cli.jobs.cached:of_task", "Print the runtime of an instance as JSON."
        )
    },
)


@click.command("list", cls=PelotonCommand)
@click.argument("job")
@click.option(
    "-r", "--range", "only", type=from_to, default=":", metavar="FROM:TO",
    help="Instances FROM to TO (TO excluded), or one.",
)  # fmt: skip
@watched
def list_(job: str, only: InstanceRange) -> None:
    """List the instances of JOB."""
    with connected() as peloton, refusal_texts(TASK_TEXTS, job=job, instance=""):
        answer = peloton.tasks.list(job, only=only)
    tasks = [answer.result.value[number] for number in sorted(answer.result.value)]
    show(task_texts.view(answer, tasks))


@click.command(cls=PelotonCommand)
@click.argument("job")
@click.argument("instance", type=INSTANCE)
def get(job: str, instance: int) -> None:
    """List every run of one INSTANCE of JOB, the newest first."""
    with connected() as peloton, refusal_texts(TASK_TEXTS, job=job, instance=instance):
        answer = peloton.tasks.get(job, instance)
    runs = list(answer.results)
    # A run that has not ended is not among the results of every server.
    current = answer.result.runtime.mesosTaskId.value
    if current not in {run.runtime.mesosTaskId.value for run in runs}:
        runs.insert(0, answer.result)
    show(task_texts.runs_view(answer, runs))


@click.command(cls=PelotonCommand)
@click.argument("job")
@click.option("-s", "--states", type=words, default=(), help="Match any of these states.")
@click.option("--names", type=words, default=(), help="Match any of these names.")
@click.option("--hosts", type=words, default=(), help="Match any of these hosts.")
@click.option("-n", "--limit", default=100, type=LIMIT, help="Print at most this many instances.")
@click.option("-o", "--offset", default=0, type=COUNT, show_default=True, help="Instances to skip.")
@click.option(
    "-p", "--sort", type=words, default=(), help=("Sort by this, such as state, host or message.")
)
@click.option("-a", "--sortorder", "order", default="ASC", show_default=True, help="ASC or DESC.")
@watched
def query(job: str, limit: int, offset: int, **wanted: Any) -> None:
    """List the instances of JOB that match all of the options."""
    with connected() as peloton, refusal_texts(TASK_TEXTS, job=job, instance=""):
        from peloton.sdk.tasks import TaskQuery

        answer = peloton.tasks.query(job, TaskQuery(page=(offset, limit), **wanted))
    show(task_texts.view(answer, answer.records, nothing="No tasks found"))
    seen = offset + len(answer.records)
    if answer.records and seen < answer.pagination.total:
        hint(f"{answer.pagination.total} instances match; go on with --offset {seen}")


class LogsCommand(PelotonCommand):
    """A command that takes `-1` behind its instance, which is no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = [f"--back={word[1:]}" if RUNS_BACK.fullmatch(word) else word for word in args]
        return super().parse_args(ctx, typed)


@click.command(cls=LogsCommand)
@click.argument("job")
@click.argument("instance", type=INSTANCE)
@click.argument("run", metavar="[TASKID | -N]", default="")
@click.option("--back", type=LIMIT, hidden=True)
@click.option("-f", "--filename", default="stdout", show_default=True)
@click.option("--follow", is_flag=True, help="Go on until the run has ended, or Ctrl-C.")
def logs(job: str, instance: int, run: str, back: int | None, **how: Any) -> None:
    """Print a file of the sandbox of one INSTANCE of JOB: of its newest run, of the run TASKID, or
    of the one so many before the newest (-1, -2).

    The files of runs that have ended are kept for a while, those of the jobs that ended last for
    longest; `peloton task get JOB INSTANCE` lists the runs and their ids. With --follow, a file
    that is not there yet is waited for, and what the job leaves is kept meanwhile.

    \b
    peloton task logs JOB 0
    peloton task logs JOB 0 -f stderr
    peloton task logs JOB 0 JOB-0-1
    peloton task logs JOB 0 -1 -f stderr
    peloton task logs JOB 0 --follow
    """
    with connected() as peloton, refusal_texts(TASK_TEXTS, job=job, instance=instance):
        follows = how["follow"]
        read = peloton.tasks.follow if follows else peloton.tasks.logs
        if back is not None:
            run = _run_before(peloton, job, instance=instance, back=back)
        try:
            with peloton.outputs.held(job) if follows else nullcontext():
                for piece in read(job, instance, run=run, filename=how["filename"]):
                    sys.stdout.buffer.write(piece)
                    if follows:
                        sys.stdout.buffer.flush()
        except NotFound as error:
            if error.kind == "noSuchRun" and not RUN_ID.search(run):
                error.args = (f"{error}; a file of that name: `-f {run}`",)
            raise
    sys.stdout.buffer.flush()


def _run_before(peloton: Client, job: str, *, instance: int, back: int) -> str:
    """Return the id of a run before the newest: runs are counted from 1."""
    newest = peloton.tasks.get(job, instance).result.runtime.mesosTaskId.value
    task, _, number = newest.rpartition("-")
    if int(number) <= back:
        had = "one run" if number == "1" else f"{number} runs"
        raise NotFound(f"instance {instance} of job {job} has had {had}: there is no {back} before")
    return f"{task}-{int(number) - back}"


@click.command(cls=PelotonCommand)
@click.argument("job")
@click.argument("instance", type=INSTANCE)
def events(job: str, instance: int) -> None:
    """Print what happened to one INSTANCE of JOB."""
    hint("This command is deprecated, use `peloton pod events` instead.")
    print_events(job, instance)


@click.command("events", cls=PelotonCommand)
@click.argument("job")
@click.argument("instance", type=INSTANCE)
@click.option("-r", "--run", default="", help="Print only this run, by its task id.")
@click.option(
    "-l", "--limit", "runs_max", type=COUNT, default=0, help=("Print at most this many runs.")
)
def pod_events(job: str, instance: int, run: str, runs_max: int) -> None:
    """Print what happened to one INSTANCE of JOB, the newest first."""
    print_events(job, instance, run=run, runs_max=runs_max)


def print_events(job: str, instance: int, *, run: str = "", runs_max: int = 0) -> None:
    with connected() as peloton, refusal_texts(TASK_TEXTS, job=job, instance=instance):
        answer = peloton.tasks.events(job, instance, run=run, runs_max=runs_max)
    show(task_texts.events_view(answer))


@click.command(cls=PelotonCommand)
@click.argument("job")
@ranges_option
@dry_run_option
def start(job: str, ranges: tuple[InstanceRange, ...], dry_run: bool) -> int:
    """Start the stopped instances of JOB; without a range, all.

    Instances that nobody stopped are left as they are: `task restart` runs them again.
    """
    with connected() as peloton, refusal_texts(TASK_TEXTS, job=job, instance=""):
        if dry_run:
            would(
                "would start those that were stopped, of "
                + instances_text(peloton, job, ranges=ranges),
                names=[job],
            )
            return exits.OK
        answer = peloton.tasks.start(job, ranges)
    text = task_texts.start_text(answer)
    show(OutputForms(answer, text=text, names=lambda: ids(job, answer.startedInstanceIds)))
    return exits.SOME_FAILED if answer.invalidInstanceIds else exits.OK


@click.command(cls=PelotonCommand)
@click.argument("job")
@ranges_option
@dry_run_option
def stop(job: str, ranges: tuple[InstanceRange, ...], dry_run: bool) -> int:
    """Stop instances of JOB; without a range, the job."""
    wanted = " ".join(map(range_text, ranges))
    with connected() as peloton, refusal_texts(TASK_TEXTS, job=job, instance=wanted):
        if dry_run:
            would("would stop " + instances_text(peloton, job, ranges=ranges), names=[job])
            return exits.OK
        answer = peloton.tasks.stop(job, ranges)
        found = meant(peloton, job, ranges=ranges)
    text = task_texts.stop_text(answer)
    show(OutputForms(answer, text=text, names=lambda: ids(job, answer.stoppedInstanceIds)))
    print_ended(answer, found.some)
    return exits.SOME_FAILED if answer.invalidInstanceIds else exits.OK


@click.command(cls=PelotonCommand)
@click.argument("job")
@ranges_option
@dry_run_option
def restart(job: str, ranges: tuple[InstanceRange, ...], dry_run: bool) -> None:
    """Run instances of JOB again, with fresh attempts; without a range, all.

    Running ones are killed first. Stopped ones are left as they are: `task start` runs them.
    """
    texts = {**TASK_TEXTS, "NOT_FOUND": "Job {job} was not found: {m}"}
    with connected() as peloton, refusal_texts(texts, job=job, instance=""):
        if dry_run:
            would(
                "would restart those that were not stopped, of "
                + instances_text(peloton, job, ranges=ranges),
                names=[job],
            )
            return
        if ranges:
            meant(peloton, job, ranges=ranges)
        answer = peloton.tasks.restart(job, ranges)
    show(OutputForms(answer, text="Job restarted", names=lambda: [job]))


@click.command(cls=PelotonCommand)
@click.argument("job")
@click.option(
    "-r", "--range", "only", type=from_to, default=":", metavar="FROM:TO",
    help="Instances FROM to TO (TO excluded), or one.",
)  # fmt: skip
def refresh(job: str, only: InstanceRange) -> None:
    """Check that instances of JOB exist; there is nothing to refresh."""
    with connected() as peloton, refusal_texts({"NOT_FOUND": "{m}"}):
        answer = peloton.tasks.refresh(job, only)
    show(OutputForms(answer, text="", names=lambda: [job]))


def ids(job: str, instances: Iterable[int]) -> list[str]:
    return [f"{job}-{instance}" for instance in instances]
