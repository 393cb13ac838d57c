"""`peloton admin`: the messages that were set aside, and giving them to their actors again.

Must not redrive more than it was told: one actor, by its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from peloton.cli.lazy import LazyCommand, LazyGroup
from peloton.cli.options import OwnCommand
from peloton.cli.output import OutputForms, command, show
from peloton.cli.session import connected
from peloton.cli.unimplemented import entries

HEADER = ("Actor", "Message", "Attempts", "Last Attempt", "Error")

HERE = __name__
admin = LazyGroup(
    name="admin",
    help="For whoever runs the cluster.",
    table={"quarantine": LazyCommand(f"{HERE}:quarantine", "Messages that were set aside.")}
    | entries("lock", "unlock"),
)
quarantine = LazyGroup(
    name="quarantine",
    help="Messages that were set aside because their actor failed on them too often.",
    table={
        "list": LazyCommand(f"{HERE}:list_", "List them."),
        "redrive": LazyCommand(f"{HERE}:redrive", "Give an actor its messages again."),
    },
)


@click.command("list", cls=OwnCommand)
def list_() -> None:
    """List the messages that were set aside. With `--output json` their stories as well."""
    with connected() as peloton:
        answer = peloton.ops.quarantine()
    show(
        OutputForms(
            answer,
            header=HEADER,
            rows=lambda: map(row, answer.quarantined),
            names=lambda: [f"{one.key} {one.message}" for one in answer.quarantined],
            nothing="Nothing is set aside.",
        )
    )


def row(one: Any) -> Sequence[object]:
    last = datetime.fromtimestamp(one.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return one.key, one.message, one.attempts, last, one.error


@click.command(cls=OwnCommand)
@click.argument("key")
@click.argument("message", default="")
def redrive(key: str, message: str) -> None:
    """Give the actor KEY all that was set aside of it again, in its order.

    KEY is as `list` shows it. With MESSAGE only if one of that name is among it. The instances of
    a slice are one actor here: all of them are given theirs. What fails again is set aside again.

    \b
    peloton admin quarantine redrive job/JOB
    """
    with connected() as peloton:
        answer = peloton.ops.redrive(key, message)
    text = (
        f"{key} hears again, in their order, all its messages that were set aside; what fails "
        f"once more is set aside again: see `{command('admin', 'quarantine', 'list')}`"
    )
    show(OutputForms(answer, text=text, names=lambda: [key]))
