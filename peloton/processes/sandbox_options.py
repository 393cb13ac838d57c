"""Options of a minicluster: which sandboxes of ended runs are kept.

Turns what was typed into a setting of the process backend. It must not remove anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import click

from peloton.settings.sandboxes import (
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


def sandbox_options(command: WithOptions) -> WithOptions:
    """Add the options to a command."""
    most = click.option(
        "--keep-sandboxes",
        type=int,
        default=SANDBOXES_KEPT,
        show_default=True,
        metavar="N",
        help="Ended runs whose files are kept. While tasks run, the three of their start count.",
    )
    age = click.option(
        "--keep-sandboxes-for",
        default=SANDBOXES_KEPT_FOR,
        show_default=True,
        metavar="TIME",
        help="How long after the end at most (90s, 12h, 7d); 'never': no limit.",
    )
    size = click.option(
        "--keep-sandboxes-mb",
        type=int,
        default=SANDBOXES_KEPT_MB,
        show_default=True,
        metavar="N",
        help="How much they take in all at most; the newest stays in any case. 0: no limit.",
    )
    return most(age(size(command)))


def sandboxes_of(options: Mapping[str, Any], texts: list[str]) -> TypedSandboxes:
    """What they say; problems are added to the texts."""
    typed = TypedSandboxes(*(options[name] for name in TypedSandboxes._fields))
    texts += sandbox_problems(typed, name="--keep-sandboxes")
    return typed
