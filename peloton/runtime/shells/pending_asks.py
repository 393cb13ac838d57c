"""Asks across daemons: those that wait here for an answer from afar, and the address of an asker.

Turns a future into a number that travels, and the number that comes back into the future's answer.
It must not lose one: whatever is opened is answered, given up, or past its time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

from peloton.runtime.shells.shell_messages import Ref, resolve, send
from peloton.runtime.vocabulary import Key, Unavailable

REMOTE_ASK_S_MAX = 30.0
"""An ask that is not answered by then is answered `Unavailable` here."""


class RemoteAnswer(NamedTuple):
    """To the peer shell: the answer to ask `number` of `peer`, from the entity `asked`."""

    peer: str
    number: int
    asked: Key
    value: Any


class RemoteReplyAddress:
    """The address of an asker elsewhere; looks like a future to whoever answers."""

    __slots__ = ("_answered", "_asked", "_number", "_peer", "_ref")

    def __init__(self, ref: Ref, peer: str, *, number: int, asked: Key) -> None:
        self._ref, self._peer, self._number, self._asked = ref, peer, number, asked
        self._answered = False

    def set_result(self, value: Any) -> None:
        """Answer, from any thread. Of two answers the asker takes the first that comes."""
        if not self._answered:
            self._answered = True
            send(self._ref, RemoteAnswer(self._peer, self._number, self._asked, value))


class PendingAsk(NamedTuple):
    """An ask that was sent and is not answered."""

    future: Any
    asked: Key
    peer: str
    until_s: float


class PendingAsks:
    """The asks that wait. Numbers are never used again, so a late answer finds nobody."""

    def __init__(self) -> None:
        self._waiting: dict[
            int, PendingAsk
        ] = {}  # the oldest first, and so the first to be given up
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._waiting)

    def open(self, future: Any, asked: Key, *, peer: str, now: float) -> int:
        """The number of an ask that is about to leave."""
        number = next(self._numbers)
        self._waiting[number] = PendingAsk(future, asked, peer, now + REMOTE_ASK_S_MAX)
        return number

    def take(self, number: int, peer: str) -> PendingAsk | None:
        """What `peer` may answer under this number; it waits no longer."""
        waits = self._waiting.get(number)
        if waits is None or waits.peer != peer:
            return None
        return self._waiting.pop(number)

    def give_up(self, numbers: Iterable[int], *, peer: str, text: str) -> None:
        """Of these, those that `peer` was asked are unavailable, and why."""
        for number in numbers:
            waits = self.take(number, peer)
            if waits is not None:
                resolve(waits.future, Unavailable(text))

    def give_up_all(self, text: str, peer: str | None = None) -> None:
        """All that `peer`, or anybody, was asked."""
        for number, waits in [*self._waiting.items()]:
            if peer in (None, waits.peer):
                self.give_up((number,), peer=waits.peer, text=text)

    def give_up_late(self, now: float) -> None:
        """Those whose time is over."""
        while self._waiting:
            number, waits = next(iter(self._waiting.items()))
            if waits.until_s > now:
                return
            text = f"{waits.peer} has not answered for {REMOTE_ASK_S_MAX:.0f} s"
            self.give_up((number,), peer=waits.peer, text=text)

    def due_s(self) -> float | None:
        """When the first of them is given up."""
        return next((waits.until_s for waits in self._waiting.values()), None)
