"""`peloton job stop`: one job by its id, or the jobs of an owner after asking.

With an id, owner and labels are checks: a job that does not match is not stopped.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.shared import exits
from peloton.cli.shared.dry_run import dry_run_option, states_text, would
from peloton.cli.shared.options import CliSettings, PelotonCommand
from peloton.cli.shared.output import OutputForms, hint, show
from peloton.cli.shared.session import connected, refusal_texts
from peloton.cli.shared.values import LIMIT, numbers, words
from peloton.cli.shared.values import labels as labels_of
from peloton.cli.texts import job_rows
from peloton.cli.texts.task_texts import ended_of, print_ended, stop_text
from peloton.sdk.errors import Conflict, PelotonError

if TYPE_CHECKING:
    from peloton.sdk.client import Client

ALIVE = ("INITIALIZED", "PENDING", "RUNNING")
POLL_S = 1.0
Labels = tuple[tuple[str, str], ...]


@click.command(cls=PelotonCommand)
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@click.option("--progress", is_flag=True, help="Wait until all instances have ended.")
@click.option("--owner", default="", help="Stop jobs of this team.")
@click.option(
    "-l", "--labels", type=labels_of, default=(), help="Stop jobs with all of these labels."
)
@click.option(
    "-s", "--states", type=words, default=(), help="Stop living jobs in any of these states."
)
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@click.option("-n", "--limit", default=100, type=LIMIT, help="Stop at most this many jobs.")
@click.option(
    "-q", "--total", "total_max", default=100, type=LIMIT, help="Consider at most this many jobs."
)
@dry_run_option
def stop(
    jobs: tuple[str, ...], progress: bool, owner: str, labels: Labels, states: tuple[str, ...],
    force: bool, limit: int, total_max: int, dry_run: bool,
) -> int:  # fmt: skip
    """Stop each JOB, or the living jobs of an owner or in a state.

    \b
    peloton job stop JOB --progress
    peloton job stop JOB JOB
    peloton job stop --owner research
    peloton job stop --states PENDING
    """
    dead = [state for state in states if state.upper() not in ALIVE]
    if dead or (jobs and states):
        text = f"{', '.join(dead)}: not one of {', '.join(ALIVE)}" if dead else "not with a JOB"
        raise click.UsageError(f"--states: {text}")
    with connected() as peloton:
        if jobs:
            checked = [
                checked_job(peloton, one, owner=owner, labels=labels) for one in dict.fromkeys(jobs)
            ]
            return stop_named(peloton, checked, progress=progress, dry_run=dry_run)
        if not owner and not states:
            raise click.UsageError("Either jobID or owner needs to be provided.")
        from peloton.sdk.jobs import JobQuery

        wanted = JobQuery(
            owner=owner, labels=labels, states=states or ALIVE, limit=limit, total_max=total_max
        )
        found = peloton.jobs.query(wanted)
        if dry_run:
            would_stop(found)
            return exits.OK
        return stop_many(peloton, found, force=force, progress=progress)


def checked_job(peloton: Client, job: str, *, owner: str, labels: Labels) -> Any:
    """Return the job; raises Conflict if it is of another owner, or does not have these labels."""
    info = peloton.jobs.get(job).jobInfo
    have = {(label.key, label.value) for label in info.config.labels}
    if owner and info.config.owningTeam != owner:
        raise Conflict(f"Job {job} belongs to {info.config.owningTeam}, not to {owner}")
    if not have.issuperset(labels):
        raise Conflict(f"Job {job} does not have these labels")
    return info


def is_over(info: Any) -> bool:
    from peloton.sdk.jobs import TERMINAL_STATES, state_name_of

    return state_name_of(info) in TERMINAL_STATES


def stop_named(peloton: Client, checked: Sequence[Any], *, progress: bool, dry_run: bool) -> int:
    """Tell all of these jobs to stop, also if one of them cannot be; then follow them."""
    from peloton.sdk.jobs import state_name_of

    alive = [info for info in checked if not is_over(info)]
    for info in (one for one in checked if is_over(one)):
        print_line(f"Job is in terminal state: {state_name_of(info)}")
    if dry_run:
        for info in alive:
            job = info.id.value
            would(f"would stop job {job}: {states_text(info.runtime.taskStats)}", names=[job])
        return exits.OK
    code, failed = exits.OK, dict[str, PelotonError]()
    for info in alive:
        try:
            code = stop_one(peloton, info) or code
        except PelotonError as error:
            failed[info.id.value] = error
    if len(checked) == 1:
        for error in failed.values():
            raise error
    for job, why in failed.items():
        hint(f"{job}: {why}")
    for info in alive if progress else ():
        if info.id.value not in failed:
            follow(peloton, info.id.value)
    return exits.of_error(next(iter(failed.values()))) if failed else code


def stop_one(peloton: Client, info: Any) -> int:

    job, wanted = info.id.value, info.config.instanceCount
    with refusal_texts({"notFound": "Job {id} was not found: {m}"}, id=job):
        answer = peloton.tasks.stop(job)
    ended = 0
    if len(answer.stoppedInstanceIds) == wanted:  # all are, as the job is stopped
        ended = ended_of(info.runtime.taskStats)
    show(OutputForms(answer, text=stop_text(answer, ended=ended), names=lambda: [job]))
    print_ended(answer, wanted, ended=ended)
    return exits.SOME_FAILED if answer.invalidInstanceIds else exits.OK


def would_stop(found: Any) -> None:
    """Print the jobs that match, and that they would be stopped."""
    if not found.results:
        click.echo("No matching job found")
        return
    lines = [
        f"would stop job {one.id.value} {one.name}: {states_text(one.runtime.taskStats)}"
        for one in found.results
    ]
    would(*lines, names=[one.id.value for one in found.results])


def stop_many(peloton: Client, found: Any, *, force: bool, progress: bool) -> int:
    if not found.results:
        click.echo("No matching job found")
        return exits.OK
    show(job_rows.view_of_many(found, found.results))
    if not force:
        if not sys.stdin.isatty():
            raise click.UsageError("there is no terminal to ask at: use --force to stop them all")
        hint(f"{len(found.results)} jobs will be stopped. Would you like to proceed?")
        if click.prompt("[y/n]", prompt_suffix=": ", err=True).lower() not in ("y", "yes"):
            return exits.OK
    stopped: list[str] = []
    failed: dict[str, PelotonError] = {}
    for summary in found.results:
        job = summary.id.value
        try:
            answer = peloton.tasks.stop(job)
        except PelotonError as error:
            failed[job] = error
            continue
        stopped.append(job)
        print_line(stop_text(answer))
    if stopped:
        print_line(f"Stopping jobs: {numbers(stopped)}")
    if failed:
        hint(f"Error stopping jobs: {numbers(failed)}")
        for job, why in failed.items():
            hint(f"{job}: {why}")
    for job in stopped if progress else ():
        follow(peloton, job)
    return exits.of_error(next(iter(failed.values()))) if failed else exits.OK


def print_line(text: str) -> None:
    """Print a line; on stderr if stdout has an answer for programs."""
    output = click.get_current_context().ensure_object(CliSettings).output
    click.echo(text, err=output in ("json", "yaml", "name"))


def follow(peloton: Client, job: str) -> None:
    """Print how many instances have ended, at each change, until all have."""
    from peloton.sdk.jobs import TERMINAL_STATES, state_name_of

    printed = ""
    while True:
        info = peloton.jobs.get(job).jobInfo
        ended = ended_of(info.runtime.taskStats)
        total = info.config.instanceCount
        verb = "stopped" if ended == total else "stopping"
        text = f"Job {job} {verb}, total_tasks:{total} terminated_tasks:{ended}"
        if text != printed:
            print_line(text)
            printed = text
        if state_name_of(info) in TERMINAL_STATES:
            return
        time.sleep(POLL_S)
