"""What `peloton top` shows at one moment, as texts; `top.py` and `top_screen.py` draw it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Section(NamedTuple):
    """One table of the page. `rows` are those that are shown, the most interesting first."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Overview(NamedTuple):
    """The whole page; `data` is the same for programs."""

    title: str
    sections: Sequence[Section]
    data: Mapping[str, Any]
