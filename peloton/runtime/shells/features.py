"""The feature level of a daemon: read at its start, and again while its program knows a higher one.

Turns the level in the cluster record into what the codec may write. It must not raise the level of
a fleet: that takes a person, who sees that all members know it. A daemon that is alone is all the
members there are.
"""

from __future__ import annotations

from typing import Any

from peloton.runtime.core.codec import Codec
from peloton.runtime.ports import ClusterRecord, Journal, JournalRefused, Unreachable
from peloton.runtime.shells.shell import Driver, Shell
from peloton.runtime.shells.shell_messages import Ref, ShellFailed, send

LOOK_S = 15.0
"""Only between an upgrade and the word of the operator is anybody interested."""


def adopt(codec: Codec, journal: Journal, *, record: ClusterRecord, alone: bool) -> None:
    """Set the level that may be written. Raises Refused where the cluster's is not known here."""
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
    """Looks now and then whether the operator has raised the level, until it is all we know."""

    def __init__(self, driver: Driver, *, journal: Journal, codec: Codec, root: Ref) -> None:
        super().__init__("features", driver)
        self._journal = journal
        self._codec = codec
        self._root = root
        self.wake(self.now + LOOK_S)

    def handle(self, message: Any) -> None:
        """Any letter is a wake-up."""
        codec = self._codec
        try:
            # What lies above is for later versions: their facts are theirs to write.
            codec.level = max(codec.level, min(self._journal.level(), codec.known_level))
        except Unreachable:
            pass  # shards say so, in health; here it is asked again
        if codec.level < codec.known_level:
            self.wake(self.now + LOOK_S)

    def failed(self, error: BaseException) -> None:
        """A journal that raises anything else cannot be trusted with more."""
        send(self._root, ShellFailed(self.name, f"{type(error).__name__}: {error}", fatal=True))
