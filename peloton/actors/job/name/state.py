"""The state of a name: the job that holds it. A free name has no state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.job.name import facts as f
from peloton.runtime.vocabulary import Key, Value


class Name(Value, frozen=True, gc=False, array_like=True):
    """The job that has the name; `claimed` once that job itself has claimed it."""

    job: Key
    claimed: bool = False
    kept_at: float = 0.0  # when it was reserved


EVOLVE: Mapping[type, Callable[[Any, Any], Name | None]] = {
    f.NameKept: lambda name, fact: Name(fact.job, kept_at=fact.at),
    f.NameClaimed: lambda name, fact: Name(fact.job, True),
    f.NameForgotten: lambda name, fact: None,
}
