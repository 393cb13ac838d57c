"""`peloton host`: the machines of the cluster.

To drain a host is not supported yet, and says so. Must not guess that a host is gone: daemons that
are restarted one after the other differ in what they know, so a person says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from peloton.cli.lazy import LazyCommand, LazyGroup
from peloton.cli.options import OwnCommand
from peloton.cli.output import OutputForms, command, hint, show
from peloton.cli.session import connected, said
from peloton.cli.unimplemented import entries

HEADER = ("Host", "State", "Runs", "CPU Free", "Memory Free MB", "Disk Free MB", "GPU Free", "Why")

host = LazyGroup(
    name="host",
    help="The machines of the cluster.",
    table={
        "list": LazyCommand(f"{__name__}:list_", "List hosts: state, free of total, what runs."),
        "forget": LazyCommand(f"{__name__}:forget", "Say that a machine is no more."),
    }
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
        OutputForms(
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


@click.command(cls=OwnCommand)
@click.argument("name")
@click.option("--lose-runs", is_flag=True, help="Also if it still holds runs: they are lost.")
def forget(name: str, lose_runs: bool) -> None:
    """Say that the machine NAME is not part of the cluster any more.

    Nothing is placed there from now on, and the tasks of what it ran end as LOST, to begin again
    elsewhere where their jobs let them. Take it out of the configs of all daemons first: the next
    daemon that starts with it in its config brings it back.

    \b
    peloton host forget rack7-12
    """
    texts = {"FAILED_PRECONDITION": "{m}: `{again}` lets go of them"}
    with connected() as peloton, said(texts, again=command("host", "forget", name, "--lose-runs")):
        answer = peloton.ops.forget_host(name, lose_runs=lose_runs)
    text = f"{name} is not part of the cluster any more"
    if answer.runs_lost:
        text += f"; it held {answer.runs_lost} runs, which are lost"
    show(OutputForms(answer, text=text, names=lambda: [name]))
    hint("a daemon that starts with it in its config brings it back")
