"""Groups of commands that are loaded when they are called.

A table has the module of each command and its line of help, so that `--help` loads nothing. A name
that is nearly right is answered with the right one.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from peloton.cli.shared.options import Globals


class LazyCommand(NamedTuple):
    """Where a command lives (`module:attribute`) and what it does, in a line.

    The attribute is a command, or a function that makes one.
    """

    where: str
    help: str
    hidden: bool = False


class LazyGroup(Globals, click.Group):
    """A group over a table of entries."""

    def __init__(
        self,
        *args: Any,
        table: Mapping[str, LazyCommand] | None = None,
        meant: Mapping[str, str] | None = None,
        **rest: Any,
    ) -> None:
        """Take the table; `meant` maps other names of commands to those here."""
        super().__init__(*args, **rest)
        self.table = dict(table or {})
        self._meant = dict(meant or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.table.get(cmd_name)
        return load(entry, cmd_name) if entry else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, entry.help) for name, entry in self.table.items() if not entry.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.table and not args[0].startswith("-"):
            names = [name for name, entry in self.table.items() if not entry.hidden]
            ctx.fail(no_such(args[0], names, meant=self._meant.get(args[0])))
        return super().resolve_command(ctx, args)


def load(entry: LazyCommand, name: str) -> click.Command:
    module, _, attribute = entry.where.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    command = found if isinstance(found, click.Command) else found()
    if command.name != name:
        # One command may have several names, and is shown under the one that was typed.
        command.name = name
    return command


def no_such(name: str, names: list[str], *, meant: str | None = None) -> str:
    near = [meant] if meant else difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    said = f", did you mean {near[0]}?" if near else "."
    return f"no such command: {name}{said} There are {', '.join(names)}"
