"""Replies that need no turn: to repeated commands, and to queries.

`RequestLog` remembers replies by the request keys of clients: a repeated command gets its first
reply, the same key with another body a refusal. The part after `SCOPE` in a key names the client:
equal keys of two clients differ. At most `KEYS_PER_CELL_MAX` per cell, for `KEEP_S`; the oldest are
forgotten first.

`Replies` answers those repeats, and queries from the entity's state. What a reply shows may not be
durable yet, but it leaves only after the frame under which it was read.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import msgspec

from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.entities.crowd import Crowd
from peloton.runtime.core.entities.population import Population
from peloton.runtime.core.entities.records import RequestAnswered
from peloton.runtime.core.turning.envelope import Envelope, Outbox, Reply
from peloton.runtime.core.turning.supervision import attempt_query
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import Absent, At, Key, Query, Refused, Unavailable

SCOPE = "\n"
"""Ends what the client has chosen of a key."""
KEYS_PER_CELL_MAX = 64
KEEP_S = 24 * 3600.0
REFUSED_KEEP_S = 600.0
"""A refusal is kept only as long as another copy of the request may be under way: anybody can be
refused, for any id, so these must not pile up."""


class Repeat(NamedTuple):
    """The reply to a repeat: the bytes of the first one, or a refusal."""

    answer: bytes | None
    refused: Refused | None


class RequestLog:
    """The remembered replies of one shard."""

    def __init__(self) -> None:
        self.by_cell: dict[Key, dict[str, RequestAnswered]] = {}

    def find(self, key: Key, request: tuple[str, bytes], now: float) -> Repeat | None:
        """Return the reply to a request that was made before, or None if the request is new."""
        name, digest = request
        found = self.by_cell.get(key, {}).get(name)
        if found is None or found.at + KEEP_S < now:
            return None
        if found.digest != digest:
            text = f"request key {name.partition(SCOPE)[0]!r} was used with another body"
            return Repeat(None, Refused("REQUEST_KEY_REUSED", text, "peloton-request-key"))
        return Repeat(found.answer, None)

    def remember(self, key: Key, fact: RequestAnswered) -> None:
        """Remember one reply."""
        cell = self.by_cell.setdefault(key, {})
        cell.pop(fact.request, None)
        cell[fact.request] = fact
        while len(cell) > KEYS_PER_CELL_MAX:
            del cell[next(iter(cell))]

    def forget(self, key: Key) -> None:
        """Drop all replies of an entity."""
        self.by_cell.pop(key, None)

    def expire(self, now: float) -> None:
        """Drop the replies older than `KEEP_S`."""
        for key in [*self.by_cell]:
            kept = {name: f for name, f in self.by_cell[key].items() if f.at + KEEP_S >= now}
            if kept:
                self.by_cell[key] = kept
            else:
                del self.by_cell[key]


class TurnContext(Protocol):
    """The part of the running turns that replies need."""

    now: float
    codec: Codec
    population: Population
    outbox: Outbox

    def at(self, kind: Kind, envelope: Envelope) -> At:
        """Return the context of a turn on this envelope."""


class LoadedRows(Protocol):
    """The part of the ended entities that replies need."""

    def peek(self, key: Key) -> tuple[Any, Crowd | None] | None:
        """Return state and crowd of a loaded row."""

    def revive(self, key: Key) -> None:
        """Put the entity of a loaded row, if there is one, back into memory."""


class Replies:
    """Makes the replies of one shard."""

    def __init__(self, turns: TurnContext, endings: LoadedRows, *, request_log: RequestLog) -> None:
        self._turns = turns
        self._endings = endings
        self._request_log = request_log

    def query(self, kind: Kind, envelope: Envelope) -> None:
        """Answer a query from the entity's state; a cold entity stays cold."""
        self.reply(envelope, self.answer(kind, envelope)[0])

    def answer(self, kind: Kind, envelope: Envelope) -> tuple[Any, Any]:
        """Return the answer to a query, and its state; None if there is no entity."""
        key = envelope.to
        at = self._turns.at(kind, envelope)
        state = self._turns.population.cells.peek(key)
        if state is None:
            loaded = self._endings.peek(key)
            if loaded is not None:
                state, crowd = loaded
                at = msgspec.structs.replace(at, index=crowd)
        query: Any = envelope.message
        return _inspect(kind, state, query=query, at=at), state

    def reply(self, envelope: Envelope, value: Any) -> None:
        """Queue a reply, if the sender waits for one."""
        if envelope.reply_to is not None:
            self._turns.outbox.replies.append(Reply(envelope.reply_to, value))

    def repeat(self, envelope: Envelope) -> bool:
        """Answer a command whose request key was used before; return False if it is new."""
        if envelope.request is None:
            return False
        self._endings.revive(envelope.to)
        repeat = self._request_log.find(envelope.to, envelope.request, self._turns.now)
        if repeat is None:
            return False
        value: Any = repeat.refused
        if repeat.answer is not None:
            value = self._turns.codec.decode_answer(envelope.to, repeat.answer)
        if envelope.reply_to is not None:
            self._turns.outbox.replies.append(Reply(envelope.reply_to, value))
        return True


def _inspect(kind: Kind, state: Any, *, query: Query, at: At) -> Any:
    inspect = kind.inspect.get(type(query))
    if inspect is None:
        return Unavailable(f"{kind.name} does not answer {type(query).__name__}")
    if state is None:
        return Absent(at.key)
    return attempt_query(inspect, state, query, at)
