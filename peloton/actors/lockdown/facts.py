"""What the lockdown journals. A fact must not say more than which components have a lock."""

from __future__ import annotations

from peloton.runtime.vocabulary import Fact


class ComponentsLocked(Fact, frozen=True, gc=False, array_like=True):
    """These were locked."""

    components: tuple[str, ...]
    at: float
    who: str = ""


class ComponentsUnlocked(Fact, frozen=True, gc=False, array_like=True):
    """These are locked no more."""

    components: tuple[str, ...]
    at: float
    who: str = ""


FACTS: dict[int, type] = {1: ComponentsLocked, 2: ComponentsUnlocked}
