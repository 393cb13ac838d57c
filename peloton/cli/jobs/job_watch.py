"""`peloton job progress` and `job logs`: how far a job is, and what its instances print.

Counts come from the job, and rows from limited pages, so that not all instances are read.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.shared import exits
from peloton.cli.shared.options import OwnCommand
from peloton.cli.shared.output import OutputForms, hint, show
from peloton.cli.shared.session import connected, refusal_texts
from peloton.cli.shared.times import span
from peloton.cli.shared.values import range_option
from peloton.cli.texts import task_texts
from peloton.cli.texts.outputs import Collected, Live, Printed, gone_text
from peloton.cli.texts.progress import progress, progress_line
from peloton.cli.texts.task_texts import OVER, TASK_TEXTS

if TYPE_CHECKING:
    from peloton.sdk.client import Client

SLOWEST = 5
RUNNING_LOOKED_AT = 1000
LOGS_MAX = 100
FAILED = ("FAILED", "LOST")


@click.command(cls=OwnCommand)
@click.argument("job")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job has ended, or Ctrl-C.")
@click.option(
    "--slowest", default=SLOWEST, show_default=True, type=click.IntRange(0, 100),
    help="List this many of the instances that run longest.",
)  # fmt: skip
def progress_(job: str, follow: bool, slowest: int) -> int:
    """Show how far JOB is: what has ended and how, the rate, the time that is left, the slowest.

    \b
    peloton job progress JOB
    peloton job progress JOB --follow
    """
    with connected() as peloton, refusal_texts(TASK_TEXTS, job=job, instance=""):
        info = peloton.jobs.get(job).jobInfo
        if follow:
            with progress(info.config.instanceCount) as shown:
                ended = peloton.ops.wait(
                    job, silent=hint, seen=lambda now: shown.seen(now.state, now.counts)
                )
            info = peloton.jobs.get(job).jobInfo
            show_progress(peloton, info, slowest=slowest)
            return exits.of_job(ended)
        show_progress(peloton, info, slowest=slowest)
    return exits.OK


def show_progress(peloton: Client, info: Any, *, slowest: int) -> None:
    from peloton.sdk.render import enum_name

    counts = {name: int(count) for name, count in info.runtime.taskStats.items() if count}
    state = enum_name(info.runtime, "state")
    begun = info.runtime.startTime or info.runtime.creationTime
    ended_at = seconds(info.runtime.completionTime) if state in OVER else time.time()
    elapsed_s = max(ended_at - seconds(begun), 0.0) if begun else 0.0
    longest = slowest_of(peloton, info.id.value, most=slowest) if counts.get("RUNNING") else []
    text = progress_line(info.config.instanceCount, counts, elapsed_s=elapsed_s)
    lines = [f"Job {info.id.value} {info.config.name} {state} after {span(elapsed_s)}", text]
    lines += [f"  instance {one} runs for {span(for_s)} on {host}" for one, for_s, host in longest]
    answer = {
        "job_id": info.id.value, "state": state, "counts": dict(sorted(counts.items())),
        "instances": info.config.instanceCount, "elapsed_s": round(elapsed_s, 3),
        "slowest": [
            {"instance": one, "running_s": round(for_s, 3), "host": host}
            for one, for_s, host in longest
        ],
    }  # fmt: skip
    show(OutputForms(answer, lines=lines, names=lambda: [info.id.value]))


def seconds(stamp: str) -> float:
    """Return the Unix time of a time in an answer."""
    return task_texts.moment(stamp).timestamp()


def slowest_of(peloton: Client, job: str, *, most: int) -> list[tuple[int, float, str]]:
    """Return the instances that run longest, of the first thousand that run."""
    from peloton.sdk.tasks import TaskQuery

    if not most:
        return []
    wanted = TaskQuery(states=("RUNNING",), page=(0, RUNNING_LOOKED_AT))
    now = time.time()
    running = [
        (now - seconds(one.runtime.startTime), one.instanceId, one.runtime.host)
        for one in peloton.tasks.query(job, wanted).records
        if one.runtime.startTime
    ]
    return [(number, for_s, host) for for_s, number, host in sorted(running, reverse=True)[:most]]


@click.command(cls=OwnCommand)
@click.argument("job")
@click.option("--failed", is_flag=True, help="Print only instances that have failed.")
@range_option("Instances")
@click.option(
    "--file",
    "names",
    multiple=True,
    default=("stdout", "stderr"),
    show_default=True,
    metavar="NAME",
    help="Print these files; repeatable.",
)
@click.option(
    "-n",
    "--limit",
    default=LOGS_MAX,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Print at most this many instances.",
)
@click.option("--follow", "-f", is_flag=True, help="With one instance: go on until it has ended.")
def logs(
    job: str, failed: bool, only: tuple[int, int], names: tuple[str, ...], limit: int, follow: bool
) -> int:  # fmt: skip
    """Print what the instances of JOB have printed, each line behind the instance's number.

    Exits with 74 where the output of an instance is gone.

    \b
    peloton job logs JOB --failed
    peloton job logs JOB -r 7 --follow
    """
    with connected() as peloton, refusal_texts(TASK_TEXTS, job=job, instance=""):
        count = peloton.jobs.get(job).jobInfo.config.instanceCount
        first, last = only[0], min(only[1], count)
        if follow:
            if last - first != 1:
                raise click.UsageError("--follow prints one instance: name it with --range")
            with peloton.outputs.held(job), Live(peloton, job, instance=first) as live:
                pass
            return said_gone(1 if live.gone else 0, live.gone)
        numbers = wanted_instances(peloton, job, only=(first, last), failed=failed)
        files = Collected(peloton, job, count=count, sink=Printed(str if count > 1 else None))
        with peloton.outputs.held(job):
            files.read(numbers[:limit], names)
    if failed and not numbers:
        hint(f"no instance of job {job} has failed")
    if len(numbers) > limit:
        hint(f"{len(numbers) - limit} more instances; go on with --range {numbers[limit]}:")
    return said_gone(files.missing, files.why)


def said_gone(count: int, why: str) -> int:
    """Print what output is gone; return the exit code."""
    if not count:
        return exits.OK
    hint(gone_text(count, why))
    return exits.OUTPUT_GONE


def wanted_instances(
    peloton: Client, job: str, *, only: tuple[int, int], failed: bool
) -> list[int]:
    if not failed:
        return list(range(*only))
    from peloton.cli.jobs.failed import failed_tasks

    found = failed_tasks(peloton, job, states=FAILED, most=RUNNING_LOOKED_AT)
    return [one.instanceId for one in found if only[0] <= one.instanceId < only[1]]
