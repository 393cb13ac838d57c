"""Prints an answer in the form that was asked for.

Data goes to stdout; hints and errors go to stderr, so that a pipe never carries them. The command
defines the forms of its answer as a table, as names and as text. In those, control characters are
printed as their escapes; JSON and YAML stay exact.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from peloton.cli.shared import table
from peloton.cli.shared.options import CliSettings
from peloton.printable import escaped, shortened

RowSource = Callable[[], Iterable[Sequence[object]]]


@dataclass(frozen=True)
class OutputForms:
    """The forms of one answer. `text` is for commands that print a sentence, `lines` for several,
    not a table."""

    answer: Any
    default: str = "table"
    text: str = ""
    lines: Sequence[str] = ()
    header: Sequence[str] = ()
    rows: RowSource = tuple
    # More columns, for `wide`: for each row, in the same order.
    wide_header: Sequence[str] = ()
    wide_rows: RowSource = tuple
    names: Callable[[], Iterable[str]] = tuple
    # Printed instead of an empty table.
    nothing: str = ""
    # Columns with nothing in them are left out: for tables of ours, which no script cuts up yet.
    compact: bool = False
    # Printed below the table, on stdout: what does not fit into its cells.
    below: Sequence[str] = ()


def show(view: OutputForms) -> None:
    settings = click.get_current_context().ensure_object(CliSettings)
    match settings.output or view.default:
        case "json":
            click.echo(as_json(plain(view.answer)))
        case "yaml":
            click.echo(as_yaml(plain(view.answer)), nl=False)
        case "name":
            for name in view.names():
                click.echo(escaped(name))
        case "wide":
            show_table(widened(view) if view.wide_header else view, whole=True)
        case _:
            show_table(view)


def show_table(view: OutputForms, *, whole: bool = False) -> None:
    """Print a table: for people one that fits their terminal, for pipes the plain one."""
    if not view.header:
        for text in view.lines or (view.text,):
            click.echo(escaped(text))
        return
    header, rows = view.header, list(view.rows())
    if not rows and view.nothing:
        click.echo(view.nothing)
        return
    if rows and view.compact:
        used = [at for at in range(len(header)) if any(str(row[at]) for row in rows)]
        header, rows = pick(header, used), [pick(row, used) for row in rows]
    if not (sys.stdout.isatty() and on_screen(header, rows, whole=whole)):
        click.echo(table.render(header, rows))
    for text in view.below:
        click.echo(escaped(text))


def widened(view: OutputForms) -> OutputForms:
    """Return the forms with more columns."""
    return replace(
        view,
        header=(*view.header, *view.wide_header),
        rows=lambda: [
            (*row, *more) for row, more in zip(view.rows(), view.wide_rows(), strict=True)
        ],
    )


def on_screen(header: Sequence[str], rows: Sequence[Sequence[object]], *, whole: bool) -> bool:
    # Loaded late: a tenth of a second, for terminals only.
    from peloton.cli.shared import screen

    return screen.show_table(header, rows, whole=whole)


def pick(row: Sequence[object], columns: Sequence[int]) -> list[str]:
    return [str(row[at]) for at in columns]


def plain(answer: Any) -> Any:
    """Return plain Python from a message; what is plain already stays."""
    if isinstance(answer, dict | list):
        return answer
    from peloton.sdk.render import to_dict

    return to_dict(answer)


def as_json(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False)


def as_yaml(data: Any) -> str:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump(data, Dumper=dumper, sort_keys=False, allow_unicode=True)


def hint(text: str) -> None:
    click.echo(escaped(shortened(text)), err=True)


def command(*args: str) -> str:
    """Return what to type next, for the cluster that this command line was for."""
    return click.get_current_context().ensure_object(CliSettings).command(*args)
