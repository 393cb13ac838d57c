"""How far a workflow is, as lines: at each change, until it is over.

The lines go to stderr, whether that is a terminal or not: they belong into a log as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.shared import exits
from peloton.cli.shared.output import command, hint
from peloton.cli.shared.values import duration

if TYPE_CHECKING:
    from peloton.sdk.client import Client

PAUSE_S = 0.5
"""How often it is looked at."""


def wait_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of commands that begin a workflow."""
    for option in (
        click.option(
            "--within", "within_s", type=duration, metavar="TIME", help="Wait at most this long."
        ),
        click.option("--wait", is_flag=True, help="Print how far it is, until it is over."),
    ):
        function = option(function)
    return function


def after(peloton: Client, job: str, *, wait: bool, within_s: float | None) -> int:
    """Wait for the workflow that was begun, if these options say so; return the exit code."""
    if not wait and within_s is None:
        return exits.OK
    return follow(peloton, job, within_s=within_s)


def text_of(info: Any) -> str:
    """Return how far a workflow is, in a line."""
    from peloton.cli.texts.stateless_rows import short

    status = info.status
    done, left = status.num_instances_completed, status.num_instances_remaining
    failed = status.num_instances_failed
    parts = [f"{done} of {done + left + failed} pods done"]
    parts += [f"{failed} failed"] if failed else []
    kind, state = short(status, "type"), short(status, "state")
    to = status.version.value.partition("-")[0]
    return f"{kind} to version {to} {state}: {', '.join(parts)}"


def follow(
    peloton: Client,
    job: str,
    *,
    within_s: float | None = None,
    say: Callable[[str], object] = hint,
    pause: Callable[[float], object] = time.sleep,
) -> int:
    """Say how far the newest workflow of a service is, until it is over; return the exit code."""
    until = None if within_s is None else time.monotonic() + within_s
    info, last = newest(peloton, job), ""
    if info is None:
        say("no workflow: nothing is under way")
        return exits.OK
    begun = info.status.creation_time
    try:
        while True:
            text = text_of(info)
            if text != last:
                say(text)
                last = text
            if is_over(info):
                return exits.OK if is_well(info) else exits.SOME_FAILED
            if until is not None and time.monotonic() >= until:
                hint(f"the time is over; it goes on: {command(*STATUS, job)}")
                return exits.WAIT_OVER
            pause(PAUSE_S)
            found = begun_at(peloton, job, begun=begun)
            if found is None:
                hint("it is not kept any more: others came after it")
                return exits.NO_EXIT_CODE
            info = found
    except KeyboardInterrupt:
        hint(f"it goes on; `{command('job', 'stateless', 'workflow', 'pause', job)}` pauses it")
        raise


STATUS = ("job", "stateless", "workflow", "status")


def newest(peloton: Client, job: str) -> Any:
    """Return the newest workflow of a service, or None."""
    found = peloton.stateless.workflows(job, limit=1).workflow_infos
    return found[0] if found else None


def begun_at(peloton: Client, job: str, *, begun: str) -> Any:
    """Return the workflow of a service that began at this time, which identifies it."""
    found = peloton.stateless.workflows(job).workflow_infos
    return next((one for one in found if one.status.creation_time == begun), None)


def is_over(info: Any) -> bool:
    from peloton.sdk import stateless

    return stateless.is_over(info.status)


def is_well(info: Any) -> bool:
    from peloton.sdk import stateless

    return stateless.state_of(info.status) == "SUCCEEDED"
