"""The option of a minicluster that says where ends of jobs may be told.

Turns what was typed into the setting of a daemon. It must not know what is done with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from peloton.settings.notify import LOOPBACK, NotifySetting, notify_problems

Allowing = TypeVar("Allowing", bound=Callable[..., Any])


def notify_options(command: Allowing) -> Allowing:
    """Add the option to a command."""
    option = click.option(
        "--notify-allow",
        multiple=True,
        metavar="PREFIX",
        help="Allow posting ends of jobs to this URL (`run --notify`), such as "
        f"https://example.com/hooks. Repeatable.  [default: {LOOPBACK}]",
    )
    return option(command)


def notify_of(options: Mapping[str, Any], texts: list[str]) -> NotifySetting:
    """What it says; problems are added to the texts."""
    setting = NotifySetting(allow=[*options["notify_allow"]] or [LOOPBACK])
    texts += notify_problems(setting, "--notify-allow")
    return setting
