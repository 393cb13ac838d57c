"""Tables and progress as people like them, for a terminal only.

A table fits the width of the terminal, and a bar on stderr shows how far a wait is. Loaded only for
a terminal, as rich takes a while to load. Scripts get the plain table of `table.py` instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from peloton.cli.shared.table import SHORT_ID, cell

COLUMN_MIN = 12
"""No column is folded to fewer characters than this, or than its header."""
WORD_MAX = 24
"""No word up to so many characters is torn, such as the name of a host."""
GAP = 3
"""Between two columns."""
STYLES = {
    "RUNNING": "green", "SUCCEEDED": "green", "UP": "green",
    "FAILED": "red", "LOST": "red", "UNREACHABLE": "red",
    "KILLED": "yellow", "KILLING": "yellow", "RECONCILING": "yellow",
}  # fmt: skip
TableLines = list[list[str]]
ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.ASCII)
STAMP = re.compile(r"\d{4}-(\d\d-\d\d)T(\d\d:\d\d)(?::\d\d)?Z", re.ASCII)
NAME_MAX, TEXT_MAX = 32, 240
"""So many characters are shown of a name, and of any other text."""
NOTHING = ("", "--", "0")
COLUMNS_MIN = 3
OVER = ("SUCCEEDED", "FAILED", "KILLED", "LOST", "DELETED")


def show_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, whole: bool = False
) -> bool:
    """Print a table; return False, with nothing printed, if the terminal is too narrow for it.

    Unless it is to be `whole`, ids of jobs are shortened, long texts cut, and what does not fit is
    left out.
    """
    console = Console(highlight=False)
    lines = [[cell(value) for value in row] for row in rows]
    left_out: list[str] = []
    if not whole:
        lines = _cut(header, _with_short_ids(lines))
        header, lines, left_out = _fitting(header, lines, width=console.width)
    narrow = _narrow(header, lines)
    if _width(narrow) > console.width:
        return False
    widths = _widened(narrow, header, lines=lines, width=console.width)
    console.print(_table(header, lines, widths=widths))
    if left_out:
        console.print(f"not shown: {', '.join(left_out)}; -o wide has all", markup=False)
    return True


def flat_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, width: int
) -> tuple[Table, list[str]]:
    """Return a table of one line per row that is not wider, and the columns that are left out."""
    lines = _cut(header, _with_short_ids([[cell(value) for value in row] for row in rows]))
    header, lines, left_out = _fitting(header, lines, width=width)
    widths = _widened(_narrow(header, lines), header, lines=lines, width=width)
    return _table(header, lines, widths=widths, flat=True), left_out


def _table(
    header: Sequence[str], lines: TableLines, *, widths: Sequence[int], flat: bool = False
) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, width in zip(header, widths, strict=True):
        table.add_column(name, width=width, overflow="ellipsis" if flat else "fold", no_wrap=flat)
    for line in lines:
        table.add_row(*(Text(text, style=STYLES.get(text, "")) for text in line))
    return table


def _narrow(header: Sequence[str], lines: TableLines) -> list[int]:
    """Return the least width of each column."""
    columns = [*zip(header, *lines, strict=True)]
    found = [
        min(max(map(len, column)), max(len(column[0]), COLUMN_MIN, *map(_longest_word, column)))
        for column in columns
    ]
    # What comes first is a name that people copy: in one piece.
    return [max(map(len, column)) for column in columns[:1]] + found[1:]


def _longest_word(text: str) -> int:
    """Return the length of the longest word that people copy; a path is longer, and may be
    broken."""
    return max((len(word) for word in text.split() if len(word) <= WORD_MAX), default=0)


def _widened(
    narrow: Sequence[int], header: Sequence[str], *, lines: TableLines, width: int
) -> list[int]:
    """Return the widths of the columns.

    What the terminal has beyond the least goes first to those that lack the least. Rich would take
    it from columns that have no more than they need.
    """
    found, spare = [*narrow], max(width - _width(narrow), 0)
    full = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
    for column in sorted(range(len(found)), key=lambda column: full[column] - found[column]):
        more = min(full[column] - found[column], spare)
        found[column], spare = found[column] + more, spare - more
    return found


def _width(narrow: Sequence[int]) -> int:
    """Return the least width of a table whose columns have these."""
    return sum(narrow) + GAP * (len(narrow) - 1)


def _with_short_ids(lines: TableLines) -> TableLines:
    """Shorten the ids of jobs to as many characters as tell the shown ones apart."""
    known = {found for line in lines for text in line for found in ID.findall(text)}
    size = SHORT_ID
    while len({one[:size] for one in known}) < len(known):
        size += 1
    return [[ID.sub(lambda found: found[0][:size], text) for text in line] for line in lines]


def _cut(header: Sequence[str], lines: TableLines) -> TableLines:
    most = [NAME_MAX if name in ("Name", "Owner") else TEXT_MAX for name in header]
    return [
        [
            text if len(text) <= size else f"{text[: size - 1]}…"
            for text, size in zip(line, most, strict=True)
        ]
        for line in lines
    ]


def _fitting(
    header: Sequence[str], lines: TableLines, *, width: int
) -> tuple[Sequence[str], TableLines, list[str]]:
    """Return a table that fits, and the columns that are left out of it: first those that say
    nothing."""

    def fits() -> bool:
        return _width(_narrow(header, lines)) <= width

    def without(column: int) -> None:
        nonlocal header, lines
        header = [*header[:column], *header[column + 1 :]]
        lines = [[*line[:column], *line[column + 1 :]] for line in lines]

    left_out: list[str] = []
    if fits():
        return header, lines, left_out
    lines = [[STAMP.sub(r"\1 \2", text) for text in line] for line in lines]
    for column in range(len(header) - 1, 0, -1):
        if not fits() and all(line[column] in NOTHING for line in lines):
            without(column)
    while not fits() and len(header) > COLUMNS_MIN:
        left_out.insert(0, header[-1])
        without(len(header) - 1)
    return header, lines, left_out


@contextmanager
def progress(job: str) -> Iterator[Callable[[str, Mapping[str, int]], None]]:
    """Show a progress bar on stderr; call it with the job's state and its instances by state."""
    columns: tuple[Any, ...] = (
        TextColumn("{task.description}", markup=False), BarColumn(),
        MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        bar = shown.add_task(cell(job), total=None)

        def seen(state: str, counts: Mapping[str, int]) -> None:
            ended = sum(counts.get(name, 0) for name in OVER)
            total = sum(counts.values()) or None
            text = cell(state) or "?"
            shown.update(bar, description=text, total=total, completed=ended, refresh=True)

        yield seen


class Bar:
    """A bar for a number of instances: with their states, the rate and the time that is left.

    A context manager. Nothing else may be printed on the terminal except while it is `paused`.
    """

    def __init__(self, total: int) -> None:
        columns: tuple[Any, ...] = (
            BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        )  # fmt: skip
        console = Console(stderr=True)
        self._shown = Progress(*columns, console=console, transient=True, redirect_stdout=False)
        self._task = self._shown.add_task("", total=total)

    def __enter__(self) -> Bar:
        self._shown.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._shown.stop()

    def seen(self, state: str, counts: Mapping[str, int]) -> None:
        """Show the state of the job, and its instances by state."""
        ended = sum(counts.get(name, 0) for name in OVER)
        known = ", ".join(f"{counts[name]} {name}" for name in sorted(counts) if counts[name])
        self._shown.update(self._task, description=cell(known), completed=ended, refresh=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the bar while others print; after an error it is not shown again."""
        self._shown.stop()
        yield
        self._shown.start()
