"""`peloton host`: the machines of the cluster.

Draining a host is refused as not supported yet. Must not conclude that a host is gone: during a
rolling restart the configs of daemons differ, so an operator removes hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from peloton.cli.lazy import LazyCommand, LazyGroup
from peloton.cli.options import OwnCommand
from peloton.cli.output import OutputForms, command, hint, show
from peloton.cli.session import connected, refusal_texts
from peloton.cli.unimplemented import entries

HEADER = ("Host", "State", "Runs", "CPU Free", "Memory Free MB", "Disk Free MB", "GPU Free", "Why")

host = LazyGroup(
    name="host",
    help="The machines of the cluster.",
    table={
        "list": LazyCommand(f"{__name__}:list_", "List hosts: state, free of total, what runs."),
        "forget": LazyCommand(f"{__name__}:forget", "Remove a host from the cluster."),
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
@click.option("--lose-runs", is_flag=True, help="Even if it still has runs: they become LOST.")
def forget(name: str, lose_runs: bool) -> None:
    """Remove the host NAME from the cluster.

    Nothing is placed there from now on. With --lose-runs the runs there become LOST, and are
    retried on other hosts if their jobs allow it. First remove the host from the configs of all
    daemons: the next daemon that starts with it in its config restores it.

    \b
    peloton host forget rack7-12
    """
    texts = {"FAILED_PRECONDITION": "{m}: `{again}` gives them up"}
    with (
        connected() as peloton,
        refusal_texts(texts, again=command("host", "forget", name, "--lose-runs")),
    ):
        answer = peloton.ops.forget_host(name, lose_runs=lose_runs)
    text = f"removed host {name}"
    if answer.runs_lost:
        text += f"; its {answer.runs_lost} runs are LOST"
    show(OutputForms(answer, text=text, names=lambda: [name]))
    hint("a daemon that starts with it in its config restores it")
