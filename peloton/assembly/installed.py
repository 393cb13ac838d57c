"""What other distributions bring to this process: objects behind their entry points.

Turns the entry points of a group into objects with the text that names each of them, for errors.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from traceback import extract_tb
from typing import Any, NamedTuple

from peloton.failures import CannotStart


class BadInstalled(CannotStart):
    """Something installed that cannot be used; the text names it and its distribution."""


class Installed(NamedTuple):
    """One loaded entry point. `owner` is its distribution; `source` says what it is."""

    name: str
    owner: str
    value: str
    source: str
    found: Any


def load(
    group: str, noun: str, *, wanted: type, found: Iterable[EntryPoint] | None = None
) -> list[Installed]:
    """Return what is registered under a group, by name. Raises BadInstalled.

    Of an entry point that is registered twice there is one. `found`: these in place of those of
    this process.
    """
    every = entry_points(group=group) if found is None else found
    ordered = sorted(set(every), key=lambda each: (each.name, _owner(each), each.value))
    return [_loaded(entry, noun, wanted=wanted) for entry in ordered]


def _owner(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unknown distribution"


def _place_in(error: Exception) -> str:
    """Return where an import failed, of what is not the import system itself."""
    frames = [frame for frame in extract_tb(error.__traceback__) if frame.name == "<module>"]
    return f", at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _loaded(entry: EntryPoint, noun: str, *, wanted: type) -> Installed:
    version = f" {entry.dist.version}" if entry.dist is not None else ""
    source = f"{noun} {entry.name!r} of {_owner(entry)}{version} ({entry.value})"
    try:
        one = entry.load()
    except Exception as error:  # whatever the import of somebody else's module raises
        text = f"cannot be loaded{_place_in(error)}: {type(error).__name__}: {error}"
        raise BadInstalled(f"{source} {text}") from error
    if not isinstance(one, wanted):
        text = f"is a {type(one).__name__}, not a {wanted.__name__} of {wanted.__module__}"
        raise BadInstalled(f"{source} {text}")
    return Installed(entry.name, _owner(entry), entry.value, source, one)
