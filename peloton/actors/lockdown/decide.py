"""How the lockdown decides orders of operators.

A repeat changes nothing: the principal that locked first, and the time, stay. Daemons stop their
components by what they read here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.lockdown import facts as f
from peloton.actors.lockdown import messages as m
from peloton.actors.lockdown.state import Lockdown
from peloton.runtime.vocabulary import At, Decision, Refused


def set_locks(lockdown: Lockdown, message: m.SetLocks, at: At) -> Decision:
    """Lock what is not locked yet, or unlock what is."""
    for name in message.components:
        if name not in m.COMPONENTS:
            return Decision(reply=Refused(m.BAD_COMPONENT, f"no component {name}", "components"))
    locked = {one.component for one in lockdown.locks}
    named = dict.fromkeys(message.components)
    some = tuple(one for one in named if (one in locked) != message.locked)
    if not some:
        return Decision(reply=m.LocksSet(lockdown.version), because="it is so already")
    fact = f.LocksChanged(some, at.now, at.who, message.locked)
    return Decision(facts=(fact,), reply=m.LocksSet(lockdown.version + 1), because="ordered")


def set_first(message: m.SetLocks, at: At) -> Decision:
    """Lock components while nothing has ever been locked."""
    return set_locks(Lockdown(), message, at)


def get_locks(lockdown: Lockdown, query: m.GetLocks, at: At) -> m.Locks:
    return m.Locks(lockdown.locks, lockdown.version)


DECIDE: Mapping[type, Callable[[Any, Any, At], Decision]] = {m.SetLocks: set_locks}
ABSENT: Mapping[type, Callable[[Any, At], Decision]] = {m.SetLocks: set_first}
