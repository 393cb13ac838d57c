"""`--watch`: a listing is printed again and again, until Ctrl-C.

If the output is no terminal, a listing is printed only when it has changed.
"""

from __future__ import annotations

import contextlib
import functools
import io
import sys
import time
from collections.abc import Callable
from typing import Any

import click

EVERY_S = 2.0


def watched(listing: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that prints a listing, with the option `--watch`."""

    @click.option("--watch", is_flag=True, help="Print it again every two seconds, until Ctrl-C.")
    @functools.wraps(listing)
    def command(*args: Any, watch: bool, **kwargs: Any) -> Any:
        show = functools.partial(listing, *args, **kwargs)
        return repeat(show) if watch else show()

    return command


def repeat(show: Callable[[], Any], pause: Callable[[float], object] = time.sleep) -> None:
    """Call `show` until Ctrl-C; an error ends it as it would end the command."""
    last = ""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            if sys.stdout.isatty():
                click.clear()
                show()
            else:
                last = _show_changes(show, last)
            pause(EVERY_S)


def _show_changes(show: Callable[[], Any], last: str) -> str:
    found = io.StringIO()
    with contextlib.redirect_stdout(found):
        show()
    text = found.getvalue()
    if text != last:
        click.echo(text if not last else f"\n{text}", nl=False)
    return text
