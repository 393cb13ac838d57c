"""Options of a minicluster: which sandboxes of ended runs are kept.

Turns what was typed into a setting of the process backend. It must not remove anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import click

from peloton.settings.sandboxes import (
    DISK_FREE_MB,
    SANDBOXES_KEPT,
    SANDBOXES_KEPT_FOR,
    SANDBOXES_KEPT_MB,
    sandbox_problems,
)

WithOptions = TypeVar("WithOptions", bound=Callable[..., Any])


class TypedSandboxes(NamedTuple):
    """What was typed."""

    keep_sandboxes: int
    keep_sandboxes_for: str
    keep_sandboxes_mb: int
    keep_sandboxes_free_mb: int


def sandbox_options(command: WithOptions) -> WithOptions:
    """Add the options to a command."""
    most = click.option(
        "--keep-sandboxes",
        type=int,
        default=SANDBOXES_KEPT,
        show_default=True,
        metavar="N",
        help="Keep the files of at most this many ended runs: those of the job that ended "
        "longest ago go first, failed runs last. Jobs that are read at the moment do not "
        "count, here and below.",
    )
    age = click.option(
        "--keep-sandboxes-for",
        default=SANDBOXES_KEPT_FOR,
        show_default=True,
        metavar="TIME",
        help="Keep files at most this long after the end (90s, 12h, 7d); 'never': no limit.",
    )
    size = click.option(
        "--keep-sandboxes-mb",
        type=int,
        default=SANDBOXES_KEPT_MB,
        show_default=True,
        metavar="N",
        help="Keep at most this much in all; the newest always stays. 0: no limit.",
    )
    free = click.option(
        "--keep-sandboxes-free-mb",
        type=int,
        default=DISK_FREE_MB,
        show_default=True,
        metavar="N",
        help="Keep this much of the disk free, at most 5 % of it, even if files that are being "
        "read have to go. 0: no reserve.",
    )
    return most(age(size(free(command))))


def sandboxes_of(options: Mapping[str, Any], texts: list[str]) -> TypedSandboxes:
    """What they say; problems are added to the texts."""
    typed = TypedSandboxes(*(options[name] for name in TypedSandboxes._fields))
    texts += sandbox_problems(typed, name="--keep-sandboxes")
    return typed
