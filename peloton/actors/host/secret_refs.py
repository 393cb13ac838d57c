"""What a config says of a secret: which one, and where its run finds it. Never what it holds.

These values are journaled and shown to everybody who may see the job. The data lies in a store of
its own, and is read only where a run is started.
"""

from __future__ import annotations

from collections.abc import Sequence

from peloton.runtime.vocabulary import Value

SECRETS_MAX = 64
"""Of one job."""
PATH_CHARS_MAX = 1024
_LOGS = (("stdout",), ("stderr",))


class SecretRef(Value, frozen=True, gc=False, array_like=True):
    """A secret by its id in the store of secrets, and the path of its file."""

    id: str
    path: str


def place(path: str) -> tuple[str, ...]:
    """The parts of a path below a sandbox: an absolute one begins there as well."""
    return tuple(part for part in path.split("/") if part not in ("", "."))


def path_problem(path: str) -> str:
    """Why a file cannot have this path below a sandbox; empty if it can."""
    parts = place(path)
    if not parts or path.endswith("/"):
        return "names no file"
    if ".." in parts:
        return "leaves the sandbox"
    if not path.isprintable():
        return "has a character that cannot be printed"
    if len(path) > PATH_CHARS_MAX:
        return f"has {len(path)} characters, the limit is {PATH_CHARS_MAX}"
    return "is the log of a run" if parts in _LOGS else ""


def clash(paths: Sequence[str]) -> str:
    """What two of these files cannot have together; empty if all can be there."""
    known: dict[tuple[str, ...], str] = {}
    for path in paths:
        if place(path) in known:
            return f"{path} and {known[place(path)]} are the same file"
        known[place(path)] = path
    for path in paths:
        parts = place(path)
        for length in range(1, len(parts)):
            if parts[:length] in known:
                return f"{path} lies below {known[parts[:length]]}, which is a file"
    return ""
