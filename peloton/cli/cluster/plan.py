"""`peloton plan`: what a job, or another config of a pool, would bring about. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from peloton.cli.shared import exits
from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import OwnCommand
from peloton.cli.shared.output import OutputForms, show
from peloton.cli.shared.session import connected, pool_typed, spec_in
from peloton.cli.shared.values import SPEC_FILE

POOL = "/default"
AMOUNTS = (
    ("cpu", "cpu", ""),
    ("memory_mb", "memory", " MB"),
    ("disk_mb", "disk", " MB"),
    ("gpu", "gpu", ""),
    ("slack", "slack", ""),
)
"""Field, name and unit of each kind."""
HOSTS_SHOWN = 10
HEADER = ("Pool", "Resource", "Entitled", "Would Be", "In Use", "Wanted")
CODES = (exits.OK, exits.PLAN_WAITS, exits.PLAN_NEVER, exits.PLAN_PREEMPTS)
"""By verdict: starts, waits, never, preempts."""

plan = LazyGroup(
    name="plan",
    help="Show what a change would do, without making it.",
    table={
        "job": LazyCommand(f"{__name__}:job", "Show what would become of a job created now."),
        "pool": LazyCommand(f"{__name__}:pool", "Show what a new or changed pool would change."),
    },
)


@click.command(cls=OwnCommand)
@click.argument("config", type=SPEC_FILE)
@click.argument("respool", required=False, default=POOL)
def job(config: str, respool: str) -> int:
    """Show what would become of the job in the YAML file CONFIG in the pool at the path RESPOOL.

    It says how many instances would be admitted at once and on which hosts, which would wait and
    why, whose tasks would be ended for them, and an estimate of when. Nothing is made.
    Without RESPOOL it is /default.

    \b
    peloton plan job job.yaml
    peloton plan job job.yaml /research -o json

    \b
    Exits with
      0   all that may begin would start now
      80  some would wait
      81  some could never run as things are
      82  some would wait, and tasks of other pools would be ended for them
    """
    from peloton.cli.jobs import job_checks

    with spec_in(config) as given, connected() as peloton, pool_typed(respool):
        job_checks.check(given)
        spec = job_checks.with_default_resource(peloton, respool, spec=given)
        found = peloton.plans.job(respool, spec)
    show(OutputForms(found, lines=[*job_lines(found)], names=lambda: [h.name for h in found.hosts]))
    return CODES[found.verdict]


def job_lines(found: Any) -> Iterator[str]:
    """Yield a plan for people."""
    from peloton.cli.jobs.ops import about_so_long, blocker_lines, estimate_text

    yield (
        f"of {found.instances} instances {found.admitted} would be admitted by pool {found.pool} "
        f"at once, and {found.placed} would get a host"
    )
    if found.hosts:
        shown = [f"{host.name} ({host.instances})" for host in found.hosts[:HOSTS_SHOWN]]
        rest = found.hosts_in_all - len(shown)
        yield f"hosts: {', '.join(shown)}" + (f" and {rest} more" if rest > 0 else "")
    for each in found.waits:
        yield f"{each.instances} would wait: {each.code}: {each.text}"
        yield from blocker_lines(each.blockers)
        yield f"  {estimate_text(each.estimate)}"
    yield from given_lines(found)
    if found.admitted_later:
        yield (
            f"{found.admitted_later} more would be admitted once these have ended: they are asked "
            f"after {about_so_long(found.preempts_after_s)}"
        )
    if found.nobody_because:
        yield found.nobody_because


def given_lines(found: Any) -> Iterator[str]:
    """Yield whose tasks would be ended."""
    for each in found.given_back:
        whose = f"{whose_job(each.job)} in pool {each.pool}" if each.pool else "a pool of others"
        yield f"preempted: {each.instances} of {whose}, which hold {amounts_text(each.amount)}"


def whose_job(job_id: str) -> str:
    """Return text for a job; its id is told only to callers who may see the job."""
    return f"job {job_id}" if job_id else "a job of others"


def amounts_text(of: Any) -> str:
    texts = [
        f"{name} {getattr(of, field):.10g}{unit}"
        for field, name, unit in AMOUNTS
        if getattr(of, field)
    ]
    return ", ".join(texts) or "nothing"


@click.command(cls=OwnCommand)
@click.argument("config", type=SPEC_FILE)
@click.argument("path", required=False, default="")
def pool(config: str, path: str) -> None:
    """Show what the YAML file CONFIG would change, of the pool at PATH or of a new one.

    It says what it, its siblings and its children would be entitled to, which waiting work would be
    admitted, and whose tasks would be ended. Nothing is changed. Without PATH it is the pool below
    the root with the name in the file.

    \b
    peloton plan pool pool.yaml
    peloton plan pool vision.yaml /research/vision
    """
    with spec_in(config) as spec, connected() as peloton:
        found = peloton.plans.pool(spec, path=path)
    show(
        OutputForms(
            found,
            header=HEADER,
            rows=lambda: [*share_rows(found)],
            names=lambda: [share.path for share in found.shares],
            below=[*pool_lines(found)],
        )
    )


def share_rows(found: Any) -> Iterator[tuple[object, ...]]:
    """Yield one row for each kind of each pool that has any of it, or would have."""
    for share in found.shares:
        for field, name, _ in AMOUNTS:
            columns = share.before, share.after, share.used, share.wanted
            values = [getattr(column, field) for column in columns]
            if any(values):
                yield (share.path, name, *map(number, values))


def number(of: float) -> str:
    """Return an amount, to a thousandth."""
    return f"{round(of, 3):.10g}"


def pool_lines(found: Any) -> Iterator[str]:
    from peloton.cli.jobs.ops import about_so_long

    for each in found.admitted:
        yield f"admitted: {each.instances} of {whose_job(each.job)} in pool {each.pool}"
    yield from given_lines(found)
    if found.given_back:
        yield f"they are asked after {about_so_long(found.preempts_after_s)}"
    if not found.admitted and not found.given_back:
        yield "nobody who waits would be admitted, and nobody would be ended"
