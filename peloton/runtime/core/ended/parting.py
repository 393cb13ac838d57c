"""The last messages of ended entities before they leave memory (`Retention.parting`).

Turns an entity that is to leave into the message that it decides first; once the kind returns None
for it, `endings` removes it. Who was asked is forgotten with the process; after a recovery the
entity is in memory, and is asked again when it is to leave.
"""

from __future__ import annotations

from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.core.turning.supervision import Failure, attempt
from peloton.runtime.core.turning.turns import Turns
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import Key, Message


class Partings:
    """The partings of one shard."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._asked: dict[Key, None] = {}
        self._mail: list[Envelope] = []

    def may_leave(self, kind: Kind, key: Key) -> bool:
        """Return whether the entity may leave as it is; ask it once if not."""
        message = self._message(kind, key)
        if message is None:
            self._asked.pop(key, None)
            return True
        if key not in self._asked:
            self._asked[key] = None
            self._mail.append(Envelope(key, message))
        return False

    def is_over(self, kind: Kind, key: Key) -> bool:
        """Return whether the entity has done what was asked of it."""
        asks = kind.retention is not None and kind.retention.parting is not None
        return asks and self._message(kind, key) is None

    def forget(self, key: Key) -> None:
        """Forget an entity that is gone, or has not ended any more."""
        self._asked.pop(key, None)

    def take(self) -> list[Envelope]:
        """Remove and return the messages to deliver."""
        mail, self._mail = self._mail, []
        return mail

    def __contains__(self, key: Key) -> bool:
        return key in self._asked

    def _message(self, kind: Kind, key: Key) -> Message | None:
        state = self._turns.population.cells.get(key)
        parting = kind.retention.parting if kind.retention is not None else None
        if state is None or parting is None:
            return None
        found = attempt(parting, key, state)
        if isinstance(found, Failure):
            self._turns.record_failure(key, "whether it may leave memory", failure=found)
            return None
        return found
