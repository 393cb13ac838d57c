"""Changes in the settings of a running daemon: by field, and whether they need a restart.

Turns settings into prints of all their fields, in which a file counts with its content, and two of
them into the names of those that differ. The content of a file, which may be a secret, is not kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from peloton.settings.certificate_dates import FIELDS
from peloton.settings.daemon import DaemonSettings

FILE_BYTES_MAX = 4 * 1024 * 1024
"""No file of users, keys or certificates is larger; what is, counts with its first bytes."""
RELOADED = frozenset(
    (
        "access.file",
        "auth.file",
        "auth.token_file",
        "listen.tls.certificate",
        "listen.tls.key",
        "listen.tls.client_ca",
        "tls.ca",
        "tls.certificate",
        "tls.key",
    )
)
"""Files that are read anew while the daemon runs."""
MOVED = frozenset(("auth.file", *(name for name in RELOADED if "tls." in name)))
"""Those that may also be other files than before."""
_NO_FILE = ""


def prints_of(settings: DaemonSettings, files: Mapping[str, Path]) -> dict[str, str]:
    """Return each field by its dotted name; a file with a digest of its content.

    `files`: the default files of fields that are not given.
    """
    found = dict(_leaves(settings, ""))
    given = files | {name: value for name, value in found.items() if value is not None}
    return {name: _print(value) for name, value in (found | given).items()}


def differing(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the names of fields that differ, or are in one of them only."""
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def with_files_of(running: DaemonSettings, read: DaemonSettings) -> DaemonSettings:
    """Return the running settings, with those files of the other ones that may be others."""
    wanted = {name: value for name, value in _leaves(read, "") if name in MOVED and value}
    there = {name for name, value in _leaves(running, "") if value}
    found: Any = running
    for name in sorted(wanted.keys() & there):
        found = _with(found, name.split("."), leaf=wanted[name])
    return found  # type: ignore[no-any-return]


def certificate_files(settings: DaemonSettings) -> dict[str, Path]:
    """Return the files of certificates and authorities, by the dotted names of their fields."""
    return {
        name: value
        for name, value in _leaves(settings, "")
        if isinstance(value, Path) and name.rpartition(".")[2] in FIELDS
    }


def needs_restart(names: list[str], read: DaemonSettings, *, running: DaemonSettings) -> list[str]:
    """Return those of the names that were not read anew.

    These are all but files; and files that must not be others and are, or that are there only now,
    or not any more.
    """
    before, after = dict(_leaves(running, "")), dict(_leaves(read, ""))

    def reloaded(name: str) -> bool:
        if before.get(name) == after.get(name):
            return name in RELOADED
        return name in MOVED and bool(before.get(name) and after.get(name))

    return [name for name in names if not reloaded(name)]


def _leaves(value: Any, at: str) -> Iterator[tuple[str, Any]]:
    """Yield the fields, with dotted names; those of a list with their places."""
    if isinstance(value, msgspec.Struct):
        inner = [(name, getattr(value, name)) for name in value.__struct_fields__]
        for name, found in inner:
            yield from _leaves(found, f"{at}.{name}" if at else name)
    elif isinstance(value, list) and any(isinstance(each, msgspec.Struct) for each in value):
        for number, each in enumerate(value):
            yield from _leaves(each, f"{at}[{number}]")
    else:
        yield at, value


def _with(value: Any, names: list[str], *, leaf: Any) -> Any:
    """Return a copy with another value of one field."""
    first, *rest = names
    inner = _with(getattr(value, first), rest, leaf=leaf) if rest else leaf
    return msgspec.structs.replace(value, **{first: inner})


def _print(value: Any) -> str:
    return f"{value} {_digest(value)}" if isinstance(value, Path) else repr(value)


def _digest(path: Path) -> str:
    try:
        if not path.is_file():  # which raises where a folder above it may not be entered
            return _NO_FILE
        with path.open("rb") as file:
            return hashlib.sha256(file.read(FILE_BYTES_MAX)).hexdigest()
    except OSError:
        return _NO_FILE
