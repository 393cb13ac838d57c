"""The state of the lockdown: which components have a lock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.lockdown import facts as f
from peloton.actors.lockdown.messages import Lock
from peloton.runtime.vocabulary import Value


class Lockdown(Value, frozen=True, gc=False, array_like=True):
    """The locks, by the name of their component, and how often they were changed."""

    locks: tuple[Lock, ...] = ()
    version: int = 0


def _changed(lockdown: Lockdown | None, fact: f.LocksChanged) -> Lockdown:
    before = lockdown or Lockdown()
    fresh = tuple(Lock(one, fact.at, fact.who) for one in fact.components if fact.locked)
    kept = tuple(one for one in before.locks if one.component not in fact.components)
    locks = sorted((*kept, *fresh), key=lambda one: one.component)
    return Lockdown(tuple(locks), before.version + 1)


EVOLVE: Mapping[type, Callable[[Any, Any], Lockdown]] = {f.LocksChanged: _changed}
