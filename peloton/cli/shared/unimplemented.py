"""Commands of the original that are not implemented yet and answer so.

They fail at once, so that a script that needs one learns why.
"""

from __future__ import annotations

import click

from peloton.cli.shared.lazy import LazyCommand
from peloton.sdk.errors import Unsupported

ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def command() -> click.Command:
    return click.Command(
        "later",
        callback=refuse,
        context_settings=dict(ANYTHING),
        help="Not supported yet.",
        add_help_option=False,
    )


# A noun that is missing as a whole refuses whatever verb follows.
group = command


def refuse() -> None:
    raise Unsupported(f"{click.get_current_context().command_path}: not supported yet")


def entries(*names: str) -> dict[str, LazyCommand]:
    """Return rows of a group's table; hidden, since help shows what can be used."""
    where = f"{__name__}:command"
    return {name: LazyCommand(where, "Not supported yet.", hidden=True) for name in names}
