"""Messages the lockdown of the cluster receives from operators, its query and its answers."""

from __future__ import annotations

from peloton.runtime.vocabulary import Key, Message, Query, Value

LOCKDOWN = Key("lockdown/cluster")
"""The only one."""
READ, WRITE, KILL, LAUNCH = "Read", "Write", "Kill", "Launch"
ENGINE = "GoalStateEngine"
COMPONENTS = (ENGINE, READ, WRITE, KILL, LAUNCH)
"""What can be locked, as clients call it."""

# Code of a refusal.
BAD_COMPONENT = "BAD_COMPONENT"


class SetLocks(Message, frozen=True, gc=False, array_like=True):
    """Operator to the lockdown: lock these components, or unlock them."""

    components: tuple[str, ...]
    locked: bool


class GetLocks(Query, frozen=True, gc=False, array_like=True):
    """Asks what is locked, answered `Locks`."""


class Lock(Value, frozen=True, gc=False, array_like=True):
    """One component is locked: since when, and by which principal."""

    component: str
    at: float
    who: str = ""


class Locks(Value, frozen=True, gc=False, array_like=True):
    """What is locked. `version` rises with each change."""

    locks: tuple[Lock, ...] = ()
    version: int = 0

    def of(self, component: str) -> Lock | None:
        """Return the lock of a component, or None."""
        return next((one for one in self.locks if one.component == component), None)


class LocksSet(Value, frozen=True, gc=False, array_like=True):
    """Answer to `SetLocks`: the order is journaled, with this version."""

    version: int


MESSAGES: dict[int, type] = {1: SetLocks}
QUERIES: dict[int, type] = {501: GetLocks}
ANSWERS: dict[int, type] = {501: Locks, 502: LocksSet}
