"""Rare branches by name, and how many storms ever reached them.

Turns "this happened" into a list of what never did: a sweep that reaches nothing rare proves
little. Nothing that runs in a storm may read the counts, or its history would depend on them.

    sometimes = Sometimes({"two owners at once": "an old owner is open beside a new one"})
    sometimes.reach("two owners at once")
    sometimes.missing()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


class Sometimes:
    """The branches that should be reached at times, and how many storms reached each."""

    def __init__(self, branches: Mapping[str, str]) -> None:
        self.branches = dict(branches)
        self.reached: Counter[str] = Counter()

    def reach(self, name: str, times: int = 1) -> None:
        """Count a branch that was reached. Raises `KeyError` for a name that was not declared."""
        if name not in self.branches:
            raise KeyError(f"no branch {name!r} was declared")
        if times:
            self.reached[name] += times

    def missing(self) -> list[str]:
        """Return the branches that were never reached."""
        return [name for name in self.branches if not self.reached[name]]
