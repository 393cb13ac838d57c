"""One field of what a client sent is wrong. It must not know of which message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class BadField(ValueError):
    """It is invalid or not supported; `field` is its path within what was translated."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field, self.text = field, text


@contextmanager
def in_field(field: str) -> Iterator[None]:
    """Name a field that is wrong by its path from further outside."""
    try:
        yield
    except BadField as bad:
        raise BadField(f"{field}.{bad.field}", bad.text) from bad
