"""`peloton job query`: the jobs that match, newest first.

A hint is printed when the limits left something out.
"""

from __future__ import annotations

from typing import Any

import click

from peloton.cli.shared.options import PelotonCommand
from peloton.cli.shared.output import hint, show
from peloton.cli.shared.session import connected
from peloton.cli.shared.values import COUNT, DAYS, LIMIT, F, labels, words
from peloton.cli.shared.watching import watched
from peloton.cli.texts import job_rows

QUERY_OPTIONS = (
    click.option("-l", "--labels", type=labels, default=(), help="Match all of these labels."),
    click.option("-r", "--respool", "pool", default="", help="Path of the pool."),
    click.option("-k", "--keywords", type=words, default=(), help="Keywords in the config."),
    click.option("-s", "--states", type=words, default=(), help="Match any of these states."),
    click.option("--owner", default="", help="Owning team."),
    click.option("--name", default="", help="Part of the name."),
    click.option(
        "-d", "--timerange", "days", default=0, type=DAYS,
        help="Match jobs created in the last DAYS.",
    ),
    click.option(
        "-n", "--limit", default=100, type=LIMIT, show_default=True,
        help="Print at most this many jobs.",
    ),
    click.option(
        "-q", "--total", "total_max", default=0, type=COUNT,
        help="Consider at most this many jobs. Default: 100, or as many as the limit needs.",
    ),
    click.option("-o", "--offset", default=0, type=COUNT, show_default=True, help="Jobs to skip."),
    click.option("-p", "--sort", type=words, default="creation_time", show_default=True),
    click.option(
        "-a", "--sortorder", "order", default="DESC", show_default=True, help="ASC or DESC."
    ),
)  # fmt: skip


def query_options(command: F) -> F:
    """Add the options of a query for jobs, batch or services; each is a field of `JobQuery`."""
    for option in reversed(QUERY_OPTIONS):
        command = option(command)
    return command


@click.command(cls=PelotonCommand)
@query_options
@click.option("--archived", is_flag=True, help="Include ended jobs that left memory, of any age.")
@watched
def query(**wanted: Any) -> None:
    """List the jobs that match all of the options.

    \b
    peloton job query --states RUNNING,PENDING --respool /HelloWorldPool
    """
    with connected() as peloton:
        from peloton.sdk.jobs import JobQuery

        asked = JobQuery(**wanted)
        answer = peloton.jobs.query(asked)
    show(job_rows.view_of_many(answer, answer.results))
    shown = len(answer.results)
    total = answer.pagination.total
    if shown and wanted["offset"] + shown < total:
        more = wanted["offset"] + shown
        hint(f"{shown} of at least {total} jobs; go on with --offset {more}")
    elif total and total >= asked.considered:
        hint(f"only {total} jobs were considered; raise --total")
