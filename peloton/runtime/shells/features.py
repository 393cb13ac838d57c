"""The feature level of a daemon: read at its start, at joins and claims, and periodically.

Sets the level of the cluster record on the codec, which then writes no newer classes. A daemon does
not raise the level of a fleet: an operator does (`raise_level`), if every member that is up
supports it. A daemon that is alone is the whole cluster, and raises the level itself.

A daemon reads the level also when its program knows no higher one. Otherwise:

1. A daemon of an earlier version is cut off from ZooKeeper, and its session ends.
2. All others are upgraded. The operator raises the level: every member knows it.
3. The first daemon joins again. It announces a lower level, and is healthy.
4. It is given shards whose facts it cannot read, and reports them as damaged.

The level is read with every claim because the shard's last owner may have read a raised level
before us: its states hold newer facts, and turns on them would fail here until the next poll.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.health import NotReadyReason
from peloton.runtime.ports import ClusterRecord, Journal, JournalRefused, MemberNode, Unreachable
from peloton.runtime.shells.shell import Driver, LastingShell
from peloton.runtime.shells.shell_messages import Ref

LEVEL_POLL_S = 15.0
"""One read of one row. An operator may raise the level while a daemon is joining, so reading it at
each join alone is not enough."""


class LevelReader:
    """Reads the cluster's level into the codec. Threads that use the codec see it at once."""

    def __init__(self, codec: Codec, journal: Journal) -> None:
        self.journal = journal
        self._codec = codec
        # Two threads that compare and set at once could lower the level, which never falls.
        self._setting = threading.Lock()

    def read(self) -> None:
        """Read the level now.

        Raises `Unreachable`, and `JournalRefused` if the level is higher than this program knows.
        """
        level = self.journal.level()
        check_level(level, known=self._codec.known_level)
        with self._setting:
            self._codec.level = max(self._codec.level, level)


def adopt(codec: Codec, journal: Journal, *, record: ClusterRecord, alone: bool) -> None:
    """Set the level that may be written.

    Raises `JournalRefused` if the cluster's level is higher than this program knows.
    """
    level = record.level
    check_level(level, known=codec.known_level)
    if alone and level < codec.known_level:
        level = journal.raise_level(codec.known_level)
    codec.level = level


def check_level(level: int, *, known: int) -> None:
    """Raise `JournalRefused` if a program that knows the level `known` cannot be in the cluster."""
    if level > known:
        raise JournalRefused(
            f"the cluster's feature level is {level}, this program knows {known}: "
            "start the version that raised it, or a later one"
        )


def check_members(members: Mapping[str, MemberNode | None], *, known: int) -> None:
    """Raise JournalRefused if a member knows less than what is known here, or none is up."""
    behind = sorted(name for name, node in members.items() if node is None or node.level < known)
    if behind:
        names = ", ".join(behind)
        raise JournalRefused(f"level {known} is not known to {names}: upgrade every daemon first")
    if not members:
        raise JournalRefused("no daemon is up, so the fleet's level is unknown: start it first")


def raise_level(journal: Journal, members: Mapping[str, MemberNode | None], *, known: int) -> int:
    """Raise the level to the one known here; return it. Raises JournalRefused."""
    check_members(members, known=known)
    return journal.raise_level(known)


def level_notes(codec: Codec) -> Iterator[NotReadyReason]:
    """Yield the health remarks of a fleet whose level is below what its daemons support."""
    level, known = codec.level, codec.known_level
    if level < known:
        text = f"the feature level is {level}, this version knows {known}: what came with the "
        text += "levels between is refused. Once every daemon runs this version, "
        yield NotReadyReason("features", f"{text}raise it with `peloton features raise`")


class FeatureShell(LastingShell):
    """Follows the level that the operator raises; ends the daemon if it is too high for it."""

    def __init__(self, driver: Driver, *, level: LevelReader, root: Ref) -> None:
        super().__init__("features", driver, root=root)
        self._level = level
        self.wake(self.now + LEVEL_POLL_S)

    def handle(self, message: Any) -> None:
        """Read the level now, at any message."""
        self.wake(self.now + LEVEL_POLL_S)
        try:
            self._level.read()
        except Unreachable:
            return  # the shards report the store as unreachable; here the next poll tries again
