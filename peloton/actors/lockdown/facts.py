"""The facts of the lockdown: which components were locked and unlocked."""

from __future__ import annotations

from peloton.runtime.vocabulary import Fact


class LocksChanged(Fact, frozen=True, gc=False, array_like=True):
    """These were locked, or are locked no more."""

    components: tuple[str, ...]
    at: float
    who: str = ""
    locked: bool = True


FACTS: dict[int, type] = {1: LocksChanged}
