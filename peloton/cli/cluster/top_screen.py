"""The page of `peloton top` on a terminal. Loaded only there: rich takes a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from peloton.cli.cluster.top_page import Overview
from peloton.cli.shared.screen import flat_table
from peloton.cli.shared.table import cell

FRAME_ROWS = 4
"""Rows that a table takes beside its own: a blank, its title, its header and the line below."""


@contextmanager
def screen(console: Console | None = None) -> Iterator[Callable[[Overview], None]]:
    """Use the whole terminal; call the result with each page.

    What was there before comes back at the end.
    """
    shown = console or Console(highlight=False)
    with Live(console=shown, screen=True, auto_refresh=False) as live:
        yield lambda page: live.update(drawn(page, shown.size), refresh=True)


def drawn(page: Overview, size: ConsoleDimensions) -> Group:
    """Return the page in so many lines: each table gets as many rows as it needs, while there
    are any."""
    width, height = size
    parts: list[Text | Table] = [Text(cell(page.title), style="bold")]
    left = height - 1 - FRAME_ROWS * len(page.sections)
    for at, section in enumerate(page.sections):
        fair = max(left // (len(page.sections) - at), 1)
        rows = section.rows[:fair]
        left -= len(rows)
        made, left_out = flat_table(section.header, rows, width=width)
        hidden = len(section.rows) - len(rows)
        more = f" (of these {hidden} do not fit here)" if hidden else ""
        more += f"; not shown: {', '.join(left_out)}" if left_out else ""
        title = Text(cell(section.title) + more, style="bold", no_wrap=True, overflow="ellipsis")
        parts += [Text(""), title, made]
    return Group(*parts)
