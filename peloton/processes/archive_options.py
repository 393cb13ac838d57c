"""Options of a minicluster that say how long ended jobs are kept.

Turns what was typed into the setting of a daemon. It must not know what is done with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from peloton.settings.archive import (
    ARCHIVE_AFTER,
    FORGET_AFTER,
    ArchiveSetting,
    archive_problems,
)

Optioned = TypeVar("Optioned", bound=Callable[..., Any])


def archive_options(command: Optioned) -> Optioned:
    """Add the options to a command."""
    forget = click.option(
        "--forget-after",
        default=FORGET_AFTER,
        show_default=True,
        metavar="TIME",
        help="A job is deleted so long after its end; 'never': only by you.",
    )
    archive = click.option(
        "--archive-after",
        default=ARCHIVE_AFTER,
        show_default=True,
        metavar="TIME",
        help="An ended job leaves memory at the latest so long after its end (90s, 12h, 30d); it "
        "is still found.",
    )
    return archive(forget(command))


def archive_of(options: Mapping[str, object], texts: list[str]) -> ArchiveSetting:
    """What they say; problems are added to the texts."""
    archive = ArchiveSetting(
        after=str(options["archive_after"]), forget_after=str(options["forget_after"])
    )
    texts += archive_problems(archive, after="--archive-after", forget_after="--forget-after")
    return archive
