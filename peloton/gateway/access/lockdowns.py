"""Which calls a lockdown refuses, and how it is described to people.

The lists are those that the original shipped, by the beginnings of names, whatever the service; own
calls are reads or writes by what they do. AdminService, health and reflection are neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from peloton.actors.lockdown.messages import ENGINE, KILL, LAUNCH, READ, WRITE, Lock, Locks
from peloton.gateway.access.access_table import AccessRow
from peloton.gateway.translate.texts import rfc3339
from peloton.ops.v1 import ops_pb2 as ops
from peloton.runtime.core.health import NotReadyReason
from peloton.runtime.core.principal import principal_of

REFUSALS = {
    READ: "All read APIs are locked down",
    WRITE: "All write APIs are locked down",
}
READS = ("Get", "Query", "List", "Browse")
WRITES = (
    "Create", "Delete", "Start", "Stop", "Restart", "Refresh", "Update", "Pause", "Resume",
    "Rollback", "Abort", "Replace", "Patch",
)  # fmt: skip
WATCH, OURS = "WatchService", "peloton.ops."
NEVER = ("grpc.", "peloton.api.v1alpha.admin.")
SUBJECTS = {
    READ: "reads are",
    WRITE: "writes are",
    KILL: "kills are",
    LAUNCH: "launches are",
    ENGINE: "the goal state engine is",
}


class FollowedLocks(Protocol):
    """The cluster's lockdown, as far as a daemon knows it."""

    @property
    def now(self) -> Locks:
        """Return what is locked."""

    def reached(self, version: int, *, within_s: float) -> bool:
        """Wait until this version is obeyed here; return whether it is."""


class NoLocks:
    """The locks of a server that follows no lockdown."""

    now = Locks()

    def reached(self, version: int, *, within_s: float) -> bool:
        return True


NO_LOCKS = NoLocks()


def component_of(method: str, row: AccessRow | None) -> str:
    """Return whether a call, by its full name, is a read or a write; "" for neither."""
    service, _, name = method.rpartition(".")
    if method.startswith(NEVER):
        return ""
    if method.startswith(OURS):
        return READ if row is None or row.objects is None else WRITE
    if name.startswith(READS) or service.endswith(f".{WATCH}"):
        return READ
    return WRITE if name.startswith(WRITES) else ""


def refusing(locks: FollowedLocks, table: Mapping[str, AccessRow]) -> Callable[[str], str]:
    """Return a function from the full name of a call to the text of its refusal, "" if it may
    pass."""

    def refused(method: str) -> str:
        now = locks.now
        if not now.locks:
            return ""
        component = component_of(method, table.get(method))
        lock = now.of(component) if component else None
        return "" if lock is None else f"{REFUSALS[component]} {_since(lock)}"

    return refused


def lock_notes(locks: Locks) -> tuple[NotReadyReason, ...]:
    """Return what health says; a lock is no reason against being ready."""
    return tuple(NotReadyReason("lockdown", lock_text(one)) for one in locks.locks)


def unlocking(component: str) -> str:
    """Return what has to be done to unlock a component."""
    return f"have an operator unlock it: `peloton admin unlock {component}`"


def engine_reasons(locks: Locks, state: str) -> list[ops.Reason]:
    """Return why nothing of a job goes on, whatever else may be the matter."""
    lock = locks.of(ENGINE)
    if lock is None:
        return []
    text = lock_text(lock)
    blocker = ops.Blocker(code="lockdown", text=text, change=unlocking(ENGINE))
    return [ops.Reason(state=state, code="lockdown", text=text, blockers=[blocker])]


def lock_text(lock: Lock) -> str:
    """Return what is locked, by whom and since when, for people."""
    return f"{SUBJECTS[lock.component]} locked down {_since(lock)}"


def _since(lock: Lock) -> str:
    who = principal_of(lock.who).shown if lock.who else ""
    return f"by {who or 'an operator'} since {rfc3339(lock.at)}"
