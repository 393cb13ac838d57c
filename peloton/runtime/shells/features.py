"""The feature level of a daemon: read at its start, whenever it joins, and from time to time.

Sets the level of the cluster record on the codec, which then writes no newer classes. A daemon must
not raise the level of a fleet: an operator does that (`raise_level`), if every member that is up
supports it. A daemon that is alone is the whole cluster, and raises the level itself.

A daemon reads the level also when its program knows no higher one. What goes wrong otherwise:

1. A daemon of an earlier version is cut off from ZooKeeper, and its session ends.
2. All others are upgraded. The operator raises the level: every member knows it.
3. The first daemon joins again. It announces a lower level, and is healthy.
4. It is given shards whose facts it cannot read, and reports them as damaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peloton.runtime.core.codec import Codec
from peloton.runtime.ports import ClusterRecord, Journal, JournalRefused, MemberNode, Unreachable
from peloton.runtime.shells.shell import Driver, Shell
from peloton.runtime.shells.shell_messages import Ref, ShellFailed, send

LEVEL_POLL_S = 15.0
"""One read of one row. An operator may raise the level while a daemon is joining, so reading it at
each join alone is not enough."""


def adopt(codec: Codec, journal: Journal, *, record: ClusterRecord, alone: bool) -> None:
    """Set the level that may be written.

    Raises `JournalRefused` where the cluster's level is higher than this program knows.
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


def raise_level(journal: Journal, members: Mapping[str, MemberNode | None], *, known: int) -> int:
    """Raise the level to what is known here. Raises JournalRefused if a member knows less."""
    behind = sorted(name for name, node in members.items() if node is None or node.level < known)
    if behind:
        names = ", ".join(behind)
        raise JournalRefused(f"level {known} is not known to {names}: upgrade every daemon first")
    if not members:
        raise JournalRefused("no daemon is up, so the fleet's level is unknown: start it first")
    return journal.raise_level(known)


class FeatureShell(Shell):
    """Follows the level that the operator raises; ends the daemon if it is too high for it."""

    def __init__(self, driver: Driver, *, journal: Journal, codec: Codec, root: Ref) -> None:
        super().__init__("features", driver)
        self._journal = journal
        self._codec = codec
        self._root = root
        self.wake(self.now + LEVEL_POLL_S)

    def handle(self, message: Any) -> None:
        """Every message means: read the level now."""
        codec = self._codec
        self.wake(self.now + LEVEL_POLL_S)
        try:
            level = self._journal.level()
        except Unreachable:
            return  # the shards report the store as unreachable; here the next poll tries again
        check_level(level, known=codec.known_level)
        codec.level = max(codec.level, level)

    def failed(self, error: BaseException) -> None:
        """End the daemon: the level is too high, or the exception is a bug."""
        send(self._root, ShellFailed(self.name, f"{type(error).__name__}: {error}", fatal=True))
