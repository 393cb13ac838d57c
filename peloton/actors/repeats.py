"""Pure functions that are called twice in a row with the same arguments.

Some decisions fold their own facts, to send what follows from the new state; the turn then folds
the same facts onto the same state. The second call gets the result of the first. It must only be
used for pure functions, and keeps no more than one result of each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")
Result = TypeVar("Result")


def kept_for_repeat(of: Callable[[A, B], Result]) -> Callable[[A, B], Result]:
    """The function, which gives its last result again for the very same two objects."""
    last: tuple[Any, Any, Any] = (None, None, None)

    @functools.wraps(of)
    def call(one: A, other: B) -> Result:
        nonlocal last
        known = last  # read once: threads may share the function
        if known[1] is other and known[0] is one and other is not None:
            result: Result = known[2]
            return result
        result = of(one, other)
        last = one, other, result
        return result

    return call
