"""`peloton job rolling-restart`, `rolling-start` and `rolling-stop`: by calls of v0.

The service chooses the instances, a batch at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from peloton.cli.services import workflow_wait
from peloton.cli.services.stateless import JOB_TEXTS
from peloton.cli.services.update import by_the_newest
from peloton.cli.shared import exits
from peloton.cli.shared.dry_run import check_ranges, dry_run_option, instances_text, would
from peloton.cli.shared.options import PelotonCommand
from peloton.cli.shared.output import OutputForms, show
from peloton.cli.shared.session import connected, refusal_texts
from peloton.cli.shared.values import COUNT, healthy_option, ranges_option

HELP = {
    "restart": "Restart all instances of the service JOB, or those in ranges",
    "start": "Start the stopped instances of the service JOB, or those in ranges",
    "stop": "Stop all instances of the service JOB, or those in ranges",
}


def _no_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _command(verb: str) -> click.Command:
    @click.command(
        f"rolling-{verb}",
        cls=PelotonCommand,
        help=f"""{HELP[verb]}, BATCH-SIZE at a time; 0 for all at once.

        \b
        peloton job rolling-{verb} web 2 -r 0:10 --wait
        """,
    )
    @click.argument("job")
    @click.argument("batch", metavar="BATCH-SIZE", type=COUNT)
    @click.option(
        "--resourceVersion",
        "version",
        default=0,
        type=COUNT,
        help="Fail unless this is the current version of the config of JOB.",
    )
    @ranges_option
    @(healthy_option if verb != "stop" else _no_option)
    @dry_run_option
    @workflow_wait.wait_options
    def roll(
        job: str, batch: int, version: int, ranges: tuple[tuple[int, int], ...], dry_run: bool,
        wait: bool, within_s: float | None, **how: Any,
    ) -> int:  # fmt: skip
        from peloton.sdk.stateless import BatchOptions

        with connected() as peloton, refusal_texts(JOB_TEXTS, job=job):
            if dry_run:
                text = instances_text(peloton, job, ranges=ranges)
                would(f"would {verb} {text}", names=[job])
                return exits.OK
            check_ranges(peloton, job, ranges=ranges)
            options = BatchOptions(batch, **how)
            answer = by_the_newest(
                lambda: peloton.updates.roll(
                    verb, job, ranges=ranges, version=version, how=options
                ),
                version=version,
            )
            show(OutputForms(answer, default="json", names=lambda: [answer.updateID.value]))
            return workflow_wait.after(peloton, job, wait=wait, within_s=within_s)

    return roll


restart, start, stop = map(_command, HELP)
