"""Tables as the original prints them: right aligned, a bar after each column.

They are never coloured nor cut: people pipe them into cut and awk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from peloton.printable import escaped

PADDING = 2
SHORT_ID = 8
"""So many characters of an id are shown, and are enough to name it."""


def cell(value: object) -> str:
    """Return the text as one line, as a line break would tear the row apart.

    Names come from other users: what would steer a terminal is shown as its escape.
    """
    return escaped(str(value).strip())


def render(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [list(header), *([cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) + PADDING for column in zip(*lines, strict=True)]
    return "\n".join(
        "".join(text.rjust(width) + "|" for text, width in zip(line, widths, strict=True))
        for line in lines
    )
