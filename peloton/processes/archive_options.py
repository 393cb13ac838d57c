"""Options of a minicluster: which ended jobs are kept how long, which hosts are left out.

Turns what was typed into settings of a daemon. It must not know what is done with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from peloton.settings.archive import (
    ARCHIVE_AFTER,
    FORGET_AFTER,
    KEEP_BYTES,
    ArchiveSetting,
    archive_problems,
)
from peloton.settings.limits import (
    QUARANTINE_AFTER,
    QUARANTINE_AFTER_MAX,
    SCARCE_TYPES,
    LimitSettings,
)
from peloton.settings.preemption import WITHIN, PreemptionSetting

OFF = "off"
PREEMPTION = PreemptionSetting(after="30s")
"""A person at a terminal waits for less than a fleet does."""
Optioned = TypeVar("Optioned", bound=Callable[..., Any])


def archive_options(command: Optioned) -> Optioned:
    """Add the options to a command."""
    forget = click.option(
        "--forget-after",
        default=FORGET_AFTER,
        show_default=True,
        metavar="TIME",
        help="Delete a job this long after it ended; 'never' keeps it until you delete it.",
    )
    archive = click.option(
        "--archive-after",
        default=ARCHIVE_AFTER,
        show_default=True,
        metavar="TIME",
        help="Move an ended job out of memory this long after its end at the latest (90s, 12h, "
        "30d); it is still found.",
    )
    by_bytes = click.option(
        "--keep-ended-bytes",
        default=KEEP_BYTES,
        show_default=True,
        metavar="BYTES",
        help="Keep at most this much of ended jobs in memory (500kB, 64MB, 1GB), as stored; "
        "beyond it the oldest leave sooner.",
    )
    return archive(by_bytes(forget(command)))


def archive_of(options: Mapping[str, object], texts: list[str]) -> ArchiveSetting:
    """What they say; problems are added to the texts."""
    archive = ArchiveSetting(
        after=str(options["archive_after"]),
        forget_after=str(options["forget_after"]),
        keep_bytes=str(options["keep_ended_bytes"]),
    )
    texts += archive_problems(
        archive,
        after="--archive-after",
        forget_after="--forget-after",
        keep_bytes="--keep-ended-bytes",
    )
    return archive


def quarantine_option(command: Optioned) -> Optioned:
    """Add the options to a command."""
    command = click.option(
        "--scarce-gpus",
        is_flag=True,
        help="Keep hosts that have gpus for tasks that ask for one.",
    )(command)
    return click.option(
        "--quarantine-after",
        default=str(QUARANTINE_AFTER),
        show_default=True,
        metavar="N",
        help="Leave a host out for half an hour after so many failed starts in a row, of several "
        "jobs; 'off': never.",
    )(command)


def within_option(command: Optioned) -> Optioned:
    """Add the option to a command."""
    return click.option(
        "--within-reservation",
        type=click.Choice(WITHIN),
        default=PREEMPTION.within_rule,
        show_default=True,
        help="Admit tasks that may not be preempted only within the reservation of their pool, "
        "in the kinds it reserves, unless the pool says otherwise.",
    )(command)


def preemption_of(options: Mapping[str, Any]) -> PreemptionSetting:
    """What it says."""
    within = options["within_reservation"]
    return PreemptionSetting(after=PREEMPTION.after, within_reservation=within)


def limits_of(options: Mapping[str, object], texts: list[str]) -> LimitSettings:
    """What it says; a problem is added to the texts."""
    text = str(options["quarantine_after"])
    count = 0 if text == OFF else int(text) if text.isdecimal() and text.isascii() else -1
    if text != OFF and not 1 <= count <= QUARANTINE_AFTER_MAX:
        texts.append(
            f"--quarantine-after: {text!r} is neither a number from 1 to {QUARANTINE_AFTER_MAX} "
            f"nor {OFF!r}"
        )
        return LimitSettings()
    scarce = [*SCARCE_TYPES] if options.get("scarce_gpus") else []
    return LimitSettings(quarantine_after=count, scarce_resource_types=scarce)
