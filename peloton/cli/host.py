"""`peloton host`: the machines of the cluster.

Must not change one: to drain a host is not supported yet, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from peloton.cli.later import entries
from peloton.cli.lazy import Entry, LazyGroup
from peloton.cli.options import OwnCommand
from peloton.cli.output import View, show
from peloton.cli.session import connected

HEADER = ("Host", "State", "Runs", "CPU Free", "Memory Free MB", "Disk Free MB", "GPU Free", "Why")

host = LazyGroup(
    name="host",
    help="The machines of the cluster.",
    table={"list": Entry(f"{__name__}:list_", "List hosts: state, free of total, what runs.")}
    | entries("query", "maintenance", "pool"),
)


@click.command("list", cls=OwnCommand)
def list_() -> None:
    """List the hosts: their state, how much of what they have is free, and how many runs they hold.

    A number such as `2.5 of 4` is what is free, and what there is.
    """
    with connected() as peloton:
        answer = peloton.ops.hosts()
    show(
        View(
            answer,
            header=HEADER,
            rows=lambda: map(row, answer.hosts),
            names=lambda: [one.name for one in answer.hosts],
            nothing="No hosts.",
            compact=True,
        )
    )


def row(one: Any) -> Sequence[object]:
    free, total = one.free, one.capacity
    return (
        one.name, one.state, one.runs, share(free.cpu, total.cpu),
        share(free.memory_mb, total.memory_mb), share(free.disk_mb, total.disk_mb),
        share(free.gpu, total.gpu) if total.gpu else "", one.text,
    )  # fmt: skip


def share(free: float, total: float) -> str:
    return f"{free:.10g} of {total:.10g}"
