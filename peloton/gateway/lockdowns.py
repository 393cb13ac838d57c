"""Which calls a lockdown refuses, and what it is called to people.

The lists are those that the original shipped, by the beginnings of names, whatever the service;
calls of our own are reads or writes by what they do. AdminService, health and reflection are
neither. It must not know what else a lockdown stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from peloton.actors.lockdown.messages import KILL, LAUNCH, READ, WRITE, Lock, Locks
from peloton.gateway.access_table import AccessRow
from peloton.gateway.texts import rfc3339
from peloton.runtime.core.condition import NotReadyReason
from peloton.runtime.core.principal import parse

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
NOUNS = {READ: "reads", WRITE: "writes", KILL: "kills", LAUNCH: "launches"}


class FollowedLocks(Protocol):
    """What a daemon knows of the cluster's lockdown."""

    @property
    def now(self) -> Locks:
        """What is locked."""

    def reached(self, version: int, *, within_s: float) -> bool:
        """Wait until this version is obeyed here; whether it is."""


class NoLocks:
    """Of a server that follows no lockdown."""

    now = Locks()

    def reached(self, version: int, *, within_s: float) -> bool:
        """There is nothing to wait for."""
        return True


def component_of(method: str, row: AccessRow | None) -> str:
    """Whether a call, by its full name, is a read or a write; "" for neither."""
    service, _, name = method.rpartition(".")
    if method.startswith(NEVER):
        return ""
    if method.startswith(OURS):
        return READ if row is None or row.objects is None else WRITE
    if name.startswith(READS) or service.endswith(f".{WATCH}"):
        return READ
    return WRITE if name.startswith(WRITES) else ""


def refusing(locks: FollowedLocks, table: Mapping[str, AccessRow]) -> Callable[[str], str]:
    """What has the text with which a call is refused, by its full name; "" where it may pass."""

    def refused(method: str) -> str:
        now = locks.now
        if not now.locks:
            return ""
        component = component_of(method, table.get(method))
        return REFUSALS[component] if component and now.of(component) is not None else ""

    return refused


def lock_notes(locks: Locks) -> tuple[NotReadyReason, ...]:
    """What health says; it is no reason against being ready."""
    return tuple(NotReadyReason("lockdown", lock_text(one)) for one in locks.locks)


def lock_text(lock: Lock) -> str:
    """What is locked, by whom and since when, for people."""
    who = parse(lock.who).shown if lock.who else ""
    what, since = NOUNS[lock.component], rfc3339(lock.at)
    return f"{what} are locked down by {who or 'an operator'} since {since}"
