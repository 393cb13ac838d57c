"""`peloton admin`: lists dead letters and redrives them, and locks parts of the cluster.

One command redrives one actor only, named by its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from peloton.cli.shared import exits
from peloton.cli.shared.dry_run import dry_run_option, would
from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import OwnCommand, PelotonCommand
from peloton.cli.shared.output import OutputForms, command, show
from peloton.cli.shared.session import connected
from peloton.cli.shared.times import moment_text
from peloton.sdk.errors import NotFound

HEADER = ("Actor", "Message", "Attempts", "Last Attempt", "Error")

HERE = __name__
admin = LazyGroup(
    name="admin",
    help="Operate the cluster.",
    table={
        "quarantine": LazyCommand(
            f"{HERE}:quarantine", "Manage dead letters: messages that failed too often."
        ),
        "lock": LazyCommand(f"{HERE}:lock", "Stop goals, reads, writes, kills or launches."),
        "unlock": LazyCommand(f"{HERE}:unlock", "Unlock stopped components."),
    },
)
quarantine = LazyGroup(
    name="quarantine",
    help="Manage dead letters: messages on which their actor failed too often.",
    table={
        "list": LazyCommand(f"{HERE}:list_", "List them."),
        "redrive": LazyCommand(f"{HERE}:redrive", "Deliver the dead letters of an actor again."),
    },
)


@click.command("list", cls=OwnCommand)
def list_() -> None:
    """List the dead letters; with `--output json`, also the stories of their actors."""
    with connected() as peloton:
        answer = peloton.ops.quarantine()
    show(
        OutputForms(
            answer,
            header=HEADER,
            rows=lambda: map(row, answer.quarantined),
            names=lambda: [f"{one.key} {one.message}" for one in answer.quarantined],
            nothing="No dead letters.",
        )
    )


def row(one: Any) -> Sequence[object]:
    last = moment_text(one.at)
    return one.key, one.message, one.attempts, last, one.error


@click.command(cls=OwnCommand)
@click.argument("key")
@click.argument("message", default="")
@dry_run_option
def redrive(key: str, message: str, dry_run: bool) -> None:
    """Deliver all dead letters of the actor KEY again, in their order.

    KEY is as in `list`. With MESSAGE, only if a message of that name is among them. The instances
    of a slice are one actor here: those of all are redriven. What fails again is kept again.

    \b
    peloton admin quarantine redrive job/JOB
    """
    with connected() as peloton:
        if dry_run:
            kept = [one for one in peloton.ops.quarantine().quarantined if one.key == key]
            if not any(one.message == message or not message for one in kept):
                raise NotFound(f"no dead letter of {key}" + (f" is a {message}" if message else ""))
            letters = ", ".join(one.message for one in kept)
            would(f"would deliver again to {key}: {letters}", names=[key])
            return
        answer = peloton.ops.redrive(key, message)
    text = (
        f"redriving all dead letters of {key}, in their order; "
        f"those that fail again are kept: see `{command('admin', 'quarantine', 'list')}`"
    )
    show(OutputForms(answer, text=text, names=lambda: [key]))


COMPONENTS = ("GoalStateEngine", "Read", "Write", "Kill", "Launch")
Component = click.Choice(COMPONENTS)


@click.command(cls=PelotonCommand)
@click.argument("components", nargs=-1, required=True, type=Component)
def lock(components: tuple[str, ...]) -> int:
    """Stop COMPONENTS in the whole cluster until they are unlocked.

    Read and Write are calls; Kill and Launch what backends do. While GoalStateEngine is locked,
    jobs keep what they are told and begin nothing by themselves.

    \b
    peloton admin lock Launch
    """
    with connected() as peloton:
        answer = peloton.services.lock(components)
    return show_locks("lock", answer)


@click.command(cls=PelotonCommand)
@click.argument("components", nargs=-1, required=True, type=Component)
def unlock(components: tuple[str, ...]) -> int:
    """Unlock COMPONENTS.

    \b
    peloton admin unlock Launch
    """
    with connected() as peloton:
        answer = peloton.services.unlock(components)
    return show_locks("unlock", answer)


def show_locks(verb: str, answer: Any) -> int:
    lines = [f"{verb} on {COMPONENTS[one]} succeeded" for one in answer.successes]
    lines += [
        f"{verb} on {COMPONENTS[one.component]} failed due to: {one.FailureMessage}"
        for one in answer.failures
    ]
    names = [COMPONENTS[one] for one in answer.successes]
    show(OutputForms(answer, lines=lines, names=lambda: names))
    return exits.SERVER_ERROR if answer.failures else exits.OK
