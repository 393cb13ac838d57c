"""The feature level of a daemon: read at its start, and again while its program knows a higher one.

Sets the level of the cluster record on the codec, which then writes no newer classes. It must not
raise the level of a fleet: an operator does that, who knows that every member supports it. A
daemon that is alone is the whole cluster, and raises the level itself.
"""

from __future__ import annotations

from typing import Any

from peloton.runtime.core.codec import Codec
from peloton.runtime.ports import ClusterRecord, Journal, JournalRefused, Unreachable
from peloton.runtime.shells.shell import Driver, Shell
from peloton.runtime.shells.shell_messages import Ref, ShellFailed, send

LEVEL_POLL_S = 15.0
"""Polled only between an upgrade and the moment the operator raises the level."""


def adopt(codec: Codec, journal: Journal, *, record: ClusterRecord, alone: bool) -> None:
    """Set the level that may be written.

    Raises `JournalRefused` where the cluster's level is higher than this program knows.
    """
    level = record.level
    if level > codec.known_level:
        raise JournalRefused(
            f"the cluster's feature level is {level}, this program knows {codec.known_level}: "
            "start the version that raised it, or a later one"
        )
    if alone and level < codec.known_level:
        level = journal.raise_level(codec.known_level)
    codec.level = level


class FeatureShell(Shell):
    """Polls whether the operator has raised the level, until it is the highest known here."""

    def __init__(self, driver: Driver, *, journal: Journal, codec: Codec, root: Ref) -> None:
        super().__init__("features", driver)
        self._journal = journal
        self._codec = codec
        self._root = root
        self.wake(self.now + LEVEL_POLL_S)

    def handle(self, message: Any) -> None:
        """Every message is a wake-up."""
        codec = self._codec
        try:
            # A higher level belongs to later versions: this one cannot write their facts.
            codec.level = max(codec.level, min(self._journal.level(), codec.known_level))
        except Unreachable:
            pass  # the shards report the store as unreachable; here the next poll tries again
        if codec.level < codec.known_level:
            self.wake(self.now + LEVEL_POLL_S)

    def failed(self, error: BaseException) -> None:
        """End the daemon: any other exception of the journal is a bug."""
        send(self._root, ShellFailed(self.name, f"{type(error).__name__}: {error}", fatal=True))
