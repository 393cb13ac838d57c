"""`peloton pool`: how the pools stand, in this project's own words and messages.

Turns what the owner of the pools tells into a table. The commands of the original are `respool`.
Must not change a pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click

from peloton.cli.lazy import LazyCommand, LazyGroup
from peloton.cli.options import OwnCommand
from peloton.cli.output import OutputForms, show
from peloton.cli.session import connected
from peloton.cli.watching import watched

HEADER = (
    "Pool", "Kind", "Reservation", "Limit", "Share", "Type", "Entitlement", "Demand", "Allocation",
    "Slack",
)  # fmt: skip

pool = LazyGroup(
    name="pool",
    help="How pools stand: what each is promised, may use, uses and waits for.",
    table={
        "list": LazyCommand(
            f"{__name__}:list_", "List pools: reservation, entitlement, demand, allocation."
        ),
    },
)


@click.command("list", cls=OwnCommand)
@watched
def list_() -> None:
    """List the pools, with a line for each kind of resource.

    \b
    Reservation, Limit, Share, Type   what the config of the pool says
    Entitlement  what it may use as the capacity is divided now
    Demand       what tasks request that wait, here or in a pool below
    Allocation   what tasks hold that are admitted, here or in a pool below
    Slack        of that, what runs on what others leave unused

    cpus and gpus, and MB of memory and disk.
    """
    with connected() as peloton:
        answer = peloton.ops.pools()
    show(
        OutputForms(
            answer,
            header=HEADER,
            rows=lambda: rows(answer.pools),
            names=lambda: [one.path for one in answer.pools],
            nothing="No pools.",
        )
    )


def rows(pools: Iterable[Any]) -> Iterator[tuple[object, ...]]:
    """One line for each kind of resource of a pool."""
    for one in pools:
        for kind in one.kinds:
            # An owner of an earlier version does not tell it.
            entitled = f"{kind.entitlement:.10g}" if kind.HasField("entitlement") else ""
            yield (
                one.path, kind.kind, f"{kind.reservation:.10g}", f"{kind.limit:.10g}",
                f"{kind.share:.10g}", kind.type, entitled, f"{kind.demand:.10g}",
                f"{kind.allocation:.10g}", f"{kind.slack:.10g}",
            )  # fmt: skip
