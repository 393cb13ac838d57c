"""Mail that waits: for an ended entity to be loaded, or behind a message that failed.

A mailbox is a slot, a queue and a bell. The slot holds the newest goal, whatever came before; all
else queues in order; the bell (`Pursue`) rings once however often asked. So a mailbox is bounded
by its shape: what is said again and still lies here is not put twice, so internal mail is bounded
by what its senders owe, and client commands are refused at `COMMANDS_MAX`. An actor that can act
has no mailbox: its mail is taken at once. It must not decide what a message means.
"""

from __future__ import annotations

from collections import deque

from peloton.runtime.core.envelope import Envelope
from peloton.runtime.vocabulary import Goal, Pursue

COMMANDS_MAX = 256


class Mailbox:
    """What waits for one cell, or for the held members of one crowd."""

    __slots__ = ("_commands_max", "_known", "_queue", "_rung", "_slot", "members")

    def __init__(self, members: int = 0, *, commands_max: int = COMMANDS_MAX) -> None:
        self.members = members  # of a crowd: those whose mail waits here
        self._commands_max = commands_max
        self._queue: deque[Envelope] = deque()
        self._known: dict[Envelope, None] = {}
        self._slot: Envelope | None = None
        self._rung = False

    def put(self, envelope: Envelope) -> bool:
        """Let an envelope wait; False when a client command found the queue full."""
        message = envelope.message
        if isinstance(message, Pursue):
            self._rung = True
        elif isinstance(message, Goal) and not envelope.members:
            held = self._slot.message if self._slot is not None else None
            if not isinstance(held, Goal) or held.version <= message.version:
                self._slot = envelope
        elif envelope.reply_to is not None:
            if len(self._queue) >= self._commands_max:
                return False
            self._queue.append(envelope)
        elif envelope not in self._known:
            self._known[envelope] = None
            self._queue.append(envelope)
        return True

    def push_front(self, envelope: Envelope) -> None:
        """What failed stays first, so that order is kept."""
        self._queue.appendleft(envelope)

    def drain(self) -> list[Envelope]:
        """Everything that waits, in order; the goal last, for it is the newest word."""
        mail = list(self._queue)
        self._queue.clear()
        self._known = {}
        if self._slot is not None:
            mail.append(self._slot)
        if self._rung and mail:
            mail.append(Envelope(mail[0].to, Pursue(), self.members))
        self._slot, self._rung = None, False
        return mail
