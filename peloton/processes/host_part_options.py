"""The options of a minicluster that say how much of its hosts is kept from tasks, or lent to them.

Must not know settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Optioned = TypeVar("_Optioned", bound=Callable[..., Any])


def host_part_options(command: _Optioned) -> _Optioned:
    """Add them to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.option(
        "--host-revocable-cpus",
        type=float,
        metavar="N",
        help="Give revocable jobs this many cpus of each host that others are not expected to use.",
    ),
    click.option(
        "--measured-slack",
        is_flag=True,
        help="Give revocable jobs the cpu that other tasks hold and do not use. It is measured.",
    ),
    click.option(
        "--host-reserved-cpus",
        type=float,
        default=0.0,
        metavar="N",
        help="Keep this many cpus of each host from all tasks.",
    ),
    click.option(
        "--host-reserved-memory-mb",
        type=float,
        default=0.0,
        metavar="N",
        help="Keep this much memory of each host from all tasks.",
    ),
)
