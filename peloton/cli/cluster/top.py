"""`peloton top`: pools, hosts and the newest jobs that have not ended, on one page.

It asks for one page of jobs, however many there are. A look at a large cluster costs more, so the
pauses between two looks grow with it.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.cluster.top_page import Overview, Section
from peloton.cli.shared import table
from peloton.cli.shared.options import OwnCommand
from peloton.cli.shared.output import OutputForms, show
from peloton.cli.shared.session import connected
from peloton.cli.shared.times import span
from peloton.cli.texts import task_texts
from peloton.sdk.errors import ServiceUnavailable, TryLater

if TYPE_CHECKING:
    from peloton.sdk.client import Client

ACTIVE = ("INITIALIZED", "PENDING", "RUNNING", "KILLING")
KINDS = ("cpu", "memory", "disk", "gpu")
FIELDS = ("cpu", "memory_mb", "disk_mb", "gpu")
AMOUNTS = ("CPU", "Memory MB", "Disk MB", "GPU")
EVERY_S = 2.0
COST = 10.0
"""A pause is at least so many times as long as the look before it took."""
ROWS = 15


@click.command(cls=OwnCommand)
@click.option("--once", is_flag=True, help="Print once, as plain lines, even on a terminal.")
@click.option(
    "--rows", "-n", "most", default=ROWS, show_default=True, type=click.IntRange(1, 1000),
    help="Show at most this many rows of each table.",
)  # fmt: skip
def top(once: bool, most: int) -> None:
    """Show pools, hosts and the newest jobs that have not ended, until Ctrl-C.

    An amount such as `2.5 of 4` is what is in use, and what there is. Without a terminal it is
    printed once.

    \b
    peloton top
    peloton top --once -n 5
    """
    settings = click.get_current_context().obj
    with connected() as peloton:
        if once or settings.output or not sys.stdout.isatty():
            page = look(peloton, most)
            names = [row["id"] for row in page.data["jobs"]]
            show(OutputForms(page.data, lines=[*page_lines(page)], names=lambda: names))
            return
        from peloton.cli.cluster.top_screen import screen

        with screen() as draw:
            repeat(lambda: look(peloton, most), draw)


def repeat(look: Any, draw: Any, *, pause: Any = time.sleep) -> None:
    """Draw the page until Ctrl-C; the last page stays while no server answers."""
    page = Overview("", (), {})
    try:
        while True:
            began = time.monotonic()
            try:
                page = look()
            except (ServiceUnavailable, TryLater) as error:
                page = page._replace(title=f"{error}; trying again")
            draw(page)
            pause(max(EVERY_S, COST * (time.monotonic() - began)))
    except KeyboardInterrupt:
        return


def page_lines(page: Overview) -> list[str]:
    """Return the page as plain lines."""
    lines = [page.title]
    for section in page.sections:
        lines += ["", section.title]
        lines += table.render(section.header, section.rows).splitlines() if section.rows else []
    return lines


def look(peloton: Client, most: int) -> Overview:
    """Return the page as it is now, with at most `most` rows in each table."""
    from peloton.sdk.jobs import JobQuery

    pools = peloton.pools.list().resourcePools
    hosts = peloton.ops.hosts().hosts
    wanted = JobQuery(states=ACTIVE, limit=most)
    answer = peloton.jobs.query(wanted)
    paths = {pool.id.value: pool.path.value for pool in pools}
    jobs = [job_of(one, paths) for one in answer.results]
    total = answer.pagination.total
    known = f"at least {total}" if total >= wanted.considered else str(total)
    sections = (
        pool_section(pools, most),
        host_section(hosts, most),
        Section(
            f"Jobs that have not ended: {known}" + shown_of(len(jobs), total, what="newest"),
            ("ID", "Name", "State", "Pool", "Age", "Tasks", "Pending", "Running", "Failed"),
            [tuple(map(str, one.values())) for one in jobs],
        ),
    )
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    data = {
        "time": now, "pools": as_data(sections[0]), "hosts": as_data(sections[1]),
        "jobs": jobs, "jobsNotEnded": total,
    }  # fmt: skip
    return Overview(f"{now}  {in_use(hosts)}", sections, data)


def as_data(section: Section) -> list[dict[str, str]]:
    keys = [name.split()[0].lower() for name in section.header]
    return [dict(zip(keys, row, strict=True)) for row in section.rows]


def shown_of(shown: int, total: int, *, what: str) -> str:
    return f" ({shown} {what})" if shown < total else ""


def used_of(used: float, total: float) -> str:
    return f"{used:.6g} of {total:.6g}" if used or total else ""


def pool_section(pools: Sequence[Any], most: int) -> Section:
    """Return the pools: those that use most of their limits first."""
    found = []
    for pool in pools:
        used = {one.kind: one.allocation for one in pool.usage}
        limit = {one.kind: one.limit for one in pool.config.resources}
        shares = (used.get(kind, 0.0) / limit[kind] for kind in limit if limit[kind])
        fullest = max(shares, default=0.0)
        amounts = (used_of(used.get(kind, 0.0), limit.get(kind, 0.0)) for kind in KINDS)
        found.append((-fullest, (pool.path.value, *amounts)))
    rows = [row for _, row in sorted(found)[:most]]
    title = f"Pools: {len(pools)}" + shown_of(len(rows), len(pools), what="fullest")
    return Section(title, ("Pool", *AMOUNTS), rows)


def host_section(hosts: Sequence[Any], most: int) -> Section:
    """Return the hosts: those that are not UP first, then those with the most runs."""
    states = Counter(one.state for one in hosts)
    chosen = sorted(hosts, key=lambda one: (one.state == "UP", -one.runs, one.name))[:most]
    counts = ", ".join(f"{states[name]} {name}" for name in sorted(states))
    title = f"Hosts: {counts or 'none'}" + shown_of(len(chosen), len(hosts), what="shown")
    rows = [(one.name, one.state, str(one.runs), *host_amounts(one)) for one in chosen]
    return Section(title, ("Host", "State", "Runs", *AMOUNTS), rows)


def host_amounts(host: Any) -> list[str]:
    free, total = host.free, host.capacity
    pairs = [(getattr(total, name), getattr(free, name)) for name in FIELDS]
    return [used_of(has - left, has) for has, left in pairs]


def in_use(hosts: Sequence[Any]) -> str:
    """Return text about what all hosts have, and what of it is in use."""
    found = []
    for name, unit in (("cpu", "cpus"), ("memory_mb", "MB of memory"), ("gpu", "gpus")):
        total = sum(getattr(one.capacity, name) for one in hosts)
        free = sum(getattr(one.free, name) for one in hosts)
        if total:
            found.append(f"{used_of(total - free, total)} {unit}")
    return ", ".join(found) + (" in use" if found else "no hosts")


def job_of(one: Any, paths: Mapping[str, str]) -> dict[str, Any]:
    """Return a row about a job, in the order of the columns."""
    from peloton.sdk.render import enum_name

    stats, created = one.runtime.taskStats, one.runtime.creationTime
    age_s = time.time() - task_texts.moment(created).timestamp() if created else 0.0
    return {
        "id": one.id.value, "name": one.name, "state": enum_name(one.runtime, "state"),
        "pool": paths.get(one.respoolID.value, one.respoolID.value), "age": span(age_s),
        "tasks": one.instanceCount, "pending": stats.get("PENDING", 0),
        "running": stats.get("RUNNING", 0), "failed": stats.get("FAILED", 0),
    }  # fmt: skip
