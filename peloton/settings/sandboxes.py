"""Which sandboxes of ended runs are kept: settings of the process backend, by one set of rules.

Turns numbers and texts into problems, or into what the keeper is told. It must not know what is
removed, nor when.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from peloton.settings.archive import NEVER, seconds

SANDBOXES_KEPT, SANDBOXES_KEPT_MAX = 100_000, 1_000_000
"""Ended runs whose files are kept: how many, and the most that may be asked for. It bounds the
memory of the keeper and the files on the disk; time and bytes are meant to decide."""
SANDBOXES_KEPT_FOR = "7d"
SANDBOXES_KEPT_MB, SANDBOXES_KEPT_MB_MAX = 10_240, 1_000_000_000
"""What they may take in all, and the most that may be asked for; 0 for no limit."""
DISK_FREE_MB = 256
"""What stays free on the disk, whoever reads files; 5 % of it at most. 0: no reserve."""


class SandboxesKept(Protocol):
    """What the file of a daemon says."""

    @property
    def keep_sandboxes(self) -> int:
        """Of how many ended runs, at most."""

    @property
    def keep_sandboxes_for(self) -> str:
        """How long after the end, at most: such as `7d`, or `never` for no limit."""

    @property
    def keep_sandboxes_mb(self) -> int:
        """How much in all, at most; 0 for no limit."""

    @property
    def keep_sandboxes_free_mb(self) -> int:
        """How much of the disk stays free; 0 for no reserve."""


def kept_for_s(found: SandboxesKept) -> float:
    """Seconds; 0 where there is no limit. Raises ValueError."""
    text = found.keep_sandboxes_for
    return 0.0 if text == NEVER else seconds(text)


def sandbox_problems(found: SandboxesKept, *, name: str) -> Iterator[str]:
    """What is wrong; `name` is that of the first, with which the others begin."""
    joint = "-" if "-" in name else "_"
    numbers = (
        (found.keep_sandboxes, name, SANDBOXES_KEPT_MAX),
        (found.keep_sandboxes_mb, f"{name}{joint}mb", SANDBOXES_KEPT_MB_MAX),
        (found.keep_sandboxes_free_mb, f"{name}{joint}free{joint}mb", SANDBOXES_KEPT_MB_MAX),
    )
    for number, field, most in numbers:
        if not 0 <= number <= most:
            yield f"{field}: {number} is not between 0 and {most:g}"
    try:
        kept_for_s(found)
    except ValueError as error:
        yield f"{name}{joint}for: {error}"
