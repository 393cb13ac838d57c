"""Which sandboxes of ended runs are kept: settings of the process backend, by one set of rules.

Turns numbers and texts into problems, or into what the keeper is told. It must not know what is
removed, nor when.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from peloton.settings.archive import NEVER, seconds

SANDBOXES_KEPT, SANDBOXES_KEPT_MAX = 1000, 1_000_000
"""Ended runs whose files are kept: how many, and the most that may be asked for."""
SANDBOXES_KEPT_FOR = "7d"
SANDBOXES_KEPT_MB, SANDBOXES_KEPT_MB_MAX = 10_240, 1_000_000_000
"""What they may take in all, and the most that may be asked for; 0 for no limit."""


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
    )
    for number, field, most in numbers:
        if not 0 <= number <= most:
            yield f"{field}: {number} is not between 0 and {most:g}"
    try:
        kept_for_s(found)
    except ValueError as error:
        yield f"{name}{joint}for: {error}"
