"""The error that one field of what a client sent is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class BadField(ValueError):
    """A field is invalid or not supported; `field` is its path within what was translated."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field, self.text = field, text


@contextmanager
def in_field(field: str) -> Iterator[None]:
    """Prefix the path of a field that is wrong by `field`, which contains it."""
    try:
        yield
    except BadField as bad:
        raise BadField(f"{field}.{bad.field}", bad.text) from bad
