"""Answers that need no turn: to queries, and to commands that were said before.

Turns a query into what the entity's state says, and a request key that was used into its first
answer. It must not change anything: what an answer shows may not be safe yet, but it leaves only
with the frame that it was seen under.
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
    """The answers of one shard."""

    def __init__(self, turns: Turns, endings: Endings, *, request_log: RequestLog) -> None:
        self._turns = turns
        self._endings = endings
        self._answered = request_log

    def query(self, kind: Kind, envelope: Envelope) -> None:
        """What an entity's state says; nobody is woken for it."""
        key = envelope.to
        at = self._turns.at(kind, envelope)
        state = self._turns.population.cells.peek(key)
        if state is None:
            loaded = self._endings.peek(key)
            if loaded is not None:
                state, crowd = loaded
                at = msgspec.structs.replace(at, index=crowd)
        query: Any = envelope.message
        self.say(envelope, _look(kind, state, query=query, at=at))

    def say(self, envelope: Envelope, value: Any) -> None:
        """The answer to a query."""
        if envelope.reply_to is not None:
            self._turns.outbox.replies.append(AskAnswer(envelope.reply_to, value))

    def repeat(self, envelope: Envelope) -> bool:
        """Whether a command was said before under its request key, and is answered by that."""
        if envelope.request is None:
            return False
        self._endings.revive(envelope.to)
        repeat = self._answered.look(envelope.to, envelope.request, self._turns.now)
        if repeat is None:
            return False
        value: Any = repeat.refused
        if repeat.answer is not None:
            value = self._turns.codec.decode_answer(envelope.to, repeat.answer)
        if envelope.reply_to is not None:
            self._turns.outbox.replies.append(AskAnswer(envelope.reply_to, value))
        return True


def _look(kind: Kind, state: Any, *, query: Query, at: At) -> Any:
    look = kind.inspect.get(type(query))
    if look is None:
        return Unavailable(f"{kind.name} does not answer {type(query).__name__}")
    if state is None:
        return Absent(at.key)
    return attempt_query(look, state, query, at)
