"""Replies that need no turn: to queries, and to repeated commands.

Answers a query from the entity's state, and a request key that was used before with its first
reply. It must not change anything. What a reply shows may not be durable yet, but it leaves only
after the frame under which it was read.
"""

from __future__ import annotations

from typing import Any

import msgspec

from peloton.runtime.core.answered import RequestLog
from peloton.runtime.core.endings import Endings
from peloton.runtime.core.envelope import AskAnswer, Envelope
from peloton.runtime.core.supervision import attempt_query
from peloton.runtime.core.turns import Turns
from peloton.runtime.vocabulary import Absent, At, Kind, Query, Unavailable


class Replies:
    """Makes the replies of one shard."""

    def __init__(self, turns: Turns, endings: Endings, *, request_log: RequestLog) -> None:
        self._turns = turns
        self._endings = endings
        self._request_log = request_log

    def query(self, kind: Kind, envelope: Envelope) -> None:
        """Answer a query from the entity's state; a cold entity stays cold."""
        key = envelope.to
        at = self._turns.at(kind, envelope)
        state = self._turns.population.cells.peek(key)
        if state is None:
            loaded = self._endings.peek(key)
            if loaded is not None:
                state, crowd = loaded
                at = msgspec.structs.replace(at, index=crowd)
        query: Any = envelope.message
        self.reply(envelope, _inspect(kind, state, query=query, at=at))

    def reply(self, envelope: Envelope, value: Any) -> None:
        """Queue a reply, if the sender waits for one."""
        if envelope.reply_to is not None:
            self._turns.outbox.replies.append(AskAnswer(envelope.reply_to, value))

    def repeat(self, envelope: Envelope) -> bool:
        """Answer a command whose request key was used before; False when it is new."""
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
            self._turns.outbox.replies.append(AskAnswer(envelope.reply_to, value))
        return True


def _inspect(kind: Kind, state: Any, *, query: Query, at: At) -> Any:
    inspect = kind.inspect.get(type(query))
    if inspect is None:
        return Unavailable(f"{kind.name} does not answer {type(query).__name__}")
    if state is None:
        return Absent(at.key)
    return attempt_query(inspect, state, query, at)
