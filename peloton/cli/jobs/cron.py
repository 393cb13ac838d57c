"""`peloton cron`: schedules, which make a job at each of their moments.

The cluster computes the moments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from peloton.cli.jobs import job_checks
from peloton.cli.shared.dry_run import dry_run_option, would
from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import OwnCommand
from peloton.cli.shared.output import OutputForms, as_yaml, show
from peloton.cli.shared.session import connected, refusal_texts, spec_in
from peloton.cli.shared.times import moment_text, span
from peloton.cli.shared.values import SPEC_FILE, duration
from peloton.sdk.errors import Conflict, NotFound

HERE = "peloton.cli.jobs.cron"
OVERLAPS = ("skip", "allow", "replace")
HEADER = ("Name", "Cron", "Time Zone", "Pool", "Next", "Made", "Skipped", "Last Job")
TEXTS = {"NOT_FOUND": "Schedule {name}: not found", "ALREADY_EXISTS": "{m}"}

cron = LazyGroup(
    name="cron",
    help="Run jobs on a schedule.",
    table={
        "create": LazyCommand(f"{HERE}:create", "Create a schedule for the job in a YAML file."),
        "list": LazyCommand(f"{HERE}:list_", "All schedules."),
        "show": LazyCommand(f"{HERE}:show_", "Print a schedule and the last jobs it made."),
        "pause": LazyCommand(f"{HERE}:pause", "Make no jobs."),
        "resume": LazyCommand(f"{HERE}:resume", "Make jobs again, from the next moment on."),
        "delete": LazyCommand(f"{HERE}:delete", "Delete a schedule; its jobs stay."),
    },
)


@click.command(cls=OwnCommand)
@click.argument("name")
@click.argument("expression")
@click.argument("respool")
@click.argument("config", type=SPEC_FILE)
@click.option("--zone", default="UTC", show_default=True, help="Time zone, such as Europe/Berlin.")
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    default=OVERLAPS[0],
    show_default=True,
    help=(
        "If the previous job is still running: skip this run, start it anyway, or stop the "
        "previous job."
    ),
)
@click.option(
    "--starting-deadline",
    "late_s",
    type=duration,
    metavar="TIME",
    help="Skip a missed run if it would start later than this.  [default: never]",
)
@click.option("--paused", is_flag=True, help="Make no jobs until it is resumed.")
@click.option("--dry-run", is_flag=True, help="Print the schedule as YAML; create nothing.")
def create(
    name: str, expression: str, respool: str, config: str, **options: Any
) -> None:  # fmt: skip
    """Make the job in the YAML file CONFIG in the pool RESPOOL at the moments of EXPRESSION.

    EXPRESSION has five fields: minute, hour, day of the month, month, day of the week.

    \b
    peloton cron create nightly '30 2 * * *' /default job.yaml
    """
    from peloton.sdk.schedules import Timing

    timing = Timing(
        cron=expression,
        zone=options["zone"],
        overlap=options["overlap"],
        starting_deadline_s=options["late_s"] or 0.0,
        paused=options["paused"],
    )
    with spec_in(config) as given, connected() as peloton, refusal_texts(TEXTS, name=name):
        job_checks.check(given)
        spec = job_checks.with_default_resource(peloton, respool, spec=given)
        if options["dry_run"]:
            click.echo(_planned(peloton, name, pool=respool, spec=spec, timing=timing), nl=False)
            return
        job_checks.warn_of_constraints(peloton, respool, spec=spec)
        answer = peloton.schedules.create(name, respool, config=spec, timing=timing)
    show(OutputForms(answer, text=f"Schedule {name} created", names=lambda: [name]))


@click.command("list", cls=OwnCommand)
def list_() -> None:
    """List all schedules."""
    with connected() as peloton:
        answer = peloton.schedules.all()
    show(
        OutputForms(
            answer,
            header=HEADER,
            rows=lambda: map(_row, answer.schedules),
            names=lambda: [one.schedule.name for one in answer.schedules],
            nothing="No schedules.",
        )
    )


@click.command("show", cls=OwnCommand)
@click.argument("name")
def show_(name: str) -> None:
    """Print the schedule NAME, and the last jobs that it made."""
    with connected() as peloton, refusal_texts(TEXTS, name=name):
        info = peloton.schedules.get(name).info
    lines = [f"{head}: {value}" for head, value in zip(HEADER, _row(info), strict=True)]
    lines.append(f"Overlap: {OVERLAPS[info.schedule.overlap]}")
    if info.schedule.starting_deadline_s:
        lines.append(f"Starting Deadline: {span(info.schedule.starting_deadline_s)}")
    if info.skipped_at:
        lines.append(f"Last Skipped: {moment_text(info.skipped_at)}, {info.skipped_because}")
    lines += [f"Job: {moment_text(one.moment)} {one.job_id}" for one in reversed(info.jobs)]
    show(OutputForms(info, lines=lines, names=lambda: [one.job_id for one in info.jobs]))


@click.command(cls=OwnCommand)
@click.argument("name")
@dry_run_option
def pause(name: str, dry_run: bool) -> None:
    """Make no jobs of the schedule NAME until it is resumed."""
    _order(name, lambda schedules: schedules.pause(name), done="paused", dry_run=dry_run)


@click.command(cls=OwnCommand)
@click.argument("name")
@dry_run_option
def resume(name: str, dry_run: bool) -> None:
    """Make jobs of the schedule NAME again; missed runs are not caught up."""
    _order(name, lambda schedules: schedules.resume(name), done="resumed", dry_run=dry_run)


@click.command(cls=OwnCommand)
@click.argument("name")
@dry_run_option
def delete(name: str, dry_run: bool) -> None:
    """Delete the schedule NAME; the jobs that it made stay."""
    _order(name, lambda schedules: schedules.delete(name), done="deleted", dry_run=dry_run)


def _planned(peloton: Any, name: str, *, pool: str, spec: Any, timing: Any) -> str:
    """Return the schedule that would be made, with its next moments."""
    try:
        peloton.schedules.get(name)
    except NotFound:
        found = peloton.schedules.check(name, pool, config=spec, timing=timing)
        upcoming = {"next": [moment_text(moment) for moment in found.moments]}
        about = {"name": name, "pool": pool, **asdict(timing), **upcoming}
        return as_yaml({**about, "job": job_checks.as_sent(spec)})
    raise Conflict(f"schedule {name} exists already")


def _order(name: str, call: Callable[[Any], Any], *, done: str, dry_run: bool) -> None:
    with connected() as peloton, refusal_texts(TEXTS, name=name):
        if dry_run:
            info = peloton.schedules.get(name).info
            upcoming = _row(info)[HEADER.index("Next")]
            would(
                f"schedule {name} would be {done}; its next job: {upcoming or 'none'}", names=[name]
            )
            return
        answer = call(peloton.schedules)
    show(OutputForms(answer, text=f"Schedule {name} {done}", names=lambda: [name]))


def _row(info: Any) -> tuple[object, ...]:
    schedule = info.schedule
    upcoming = "paused" if schedule.paused else moment_text(info.next_at)
    last = info.jobs[-1].job_id if info.jobs else ""
    return (
        schedule.name, schedule.cron, schedule.time_zone, schedule.pool, upcoming, info.made,
        info.skipped, last,
    )  # fmt: skip
