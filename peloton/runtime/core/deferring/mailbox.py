"""A mailbox: mail that waits for an ended entity to be loaded, or behind a message that failed.

A mailbox has a slot for the newest goal, a queue for all other messages in order, and a flag for
`Pursue`, which is delivered once however often it came. It is bounded: a resend that waits already
is not queued twice, so internal mail is bounded by what its senders owe; client commands are
refused at `COMMANDS_MAX`. An actor that can act has no mailbox: its mail is delivered at once.
"""

from __future__ import annotations

from collections import deque

from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Goal, Pursue

COMMANDS_MAX = 256


class Mailbox:
    """The deferred mail of one cell, or of members of one crowd."""

    __slots__ = ("_commands_max", "_goal", "_known", "_pursue", "_queue", "members")

    def __init__(self, members: int = 0, *, commands_max: int = COMMANDS_MAX) -> None:
        self.members = members  # of a crowd: those whose mail waits here
        self._commands_max = commands_max
        self._queue: deque[Envelope] = deque()
        self._known: dict[Envelope, None] = {}
        self._goal: Envelope | None = None
        self._pursue = False

    def put(self, envelope: Envelope) -> bool:
        """Add an envelope; return False if it is a client command and the queue is full."""
        message = envelope.message
        if isinstance(message, Pursue):
            self._pursue = True
        elif isinstance(message, Goal) and not envelope.members:
            older = self._goal.message if self._goal is not None else None
            if not isinstance(older, Goal) or older.version <= message.version:
                self._goal = envelope
        elif envelope.reply_to is not None:
            if len(self._queue) >= self._commands_max:
                return False
            self._queue.append(envelope)
        elif envelope not in self._known:
            self._known[envelope] = None
            self._queue.append(envelope)
        return True

    def push_front(self, envelope: Envelope) -> None:
        """Add a message that failed in front of all others, so that order is kept."""
        self._queue.appendleft(envelope)

    def drain(self) -> list[Envelope]:
        """Remove and return everything, in order; the newest goal last, then a `Pursue`."""
        mail = list(self._queue)
        self._queue.clear()
        self._known = {}
        if self._goal is not None:
            mail.append(self._goal)
        if self._pursue and mail:
            mail.append(Envelope(mail[0].to, Pursue(), self.members))
        self._goal, self._pursue = None, False
        return mail
