"""The feature level of a daemon: read at its start, and again while its program knows a higher one.

Turns the level in the cluster record into what the codec may write. It must not raise the level of
a fleet: that takes a person, who sees that all members know it. A daemon that is alone is all the
members there are.
"""

from __future__ import annotations

from typing import Any

from peloton.runtime.core.codec import Codec
from peloton.runtime.ports import Cluster, Journal, Refused, Unreachable
from peloton.runtime.shells.letters import Broke, Ref, tell
from peloton.runtime.shells.shell import Driver, Shell

LOOK_S = 15.0
"""Only between an upgrade and the word of the operator is anybody interested."""


def adopt(codec: Codec, journal: Journal, *, record: Cluster, alone: bool) -> None:
    """Set the level that may be written. Raises Refused where the cluster's is not known here."""
    level = record.level
    if level > codec.known_level:
        raise Refused(
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

    def handle(self, letter: Any) -> None:
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
        tell(self._root, Broke(self.name, f"{type(error).__name__}: {error}", fatal=True))
