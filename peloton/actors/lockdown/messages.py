"""Messages the lockdown of the cluster receives from operators, its query and its answers.

None must say how a component is stopped: daemons do that, each from what it reads here.
"""

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
    """Operator: these components are to be locked, or not to be any more."""

    components: tuple[str, ...]
    locked: bool


class GetLocks(Query, frozen=True, gc=False, array_like=True):
    """What is locked, as `Locks`."""


class Lock(Value, frozen=True, gc=False, array_like=True):
    """One component is locked: since when, and by which principal."""

    component: str
    at: float
    who: str = ""


class Locks(Value, frozen=True, gc=False, array_like=True):
    """What is locked. `version` grows with each change."""

    locks: tuple[Lock, ...] = ()
    version: int = 0

    def of(self, component: str) -> Lock | None:
        """The lock of a component; None where it has none."""
        return next((one for one in self.locks if one.component == component), None)


class LocksSet(Value, frozen=True, gc=False, array_like=True):
    """Answer to `SetLocks`: it is journaled, with this version."""

    version: int


MESSAGES: dict[int, type] = {1: SetLocks}
QUERIES: dict[int, type] = {501: GetLocks}
ANSWERS: dict[int, type] = {501: Locks, 502: LocksSet}
