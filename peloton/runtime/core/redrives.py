"""Orders of people to try again what was set aside, until they are carried out.

Turns "redrive this key" into tries: each message is taken back and decided by the very frame that
says so, and what fails again is set aside by it again, so that no crash can lose it in between. A
frame tries so many, for it must not become larger than the journal takes. It must not answer
before the frame of the last try, nor let an order that cannot be carried out harm the shard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peloton.runtime.core.envelope import AskAnswer
from peloton.runtime.core.inspection import RedriveDone
from peloton.runtime.core.supervision import Failure, attempt_test
from peloton.runtime.vocabulary import Key, Refused, Unavailable, kind_of

if TYPE_CHECKING:
    from peloton.runtime.core.shard import Shard

REDRIVEN_PER_FRAME_MAX = 256


class _Order:
    """One order, and who waits for it."""

    __slots__ = ("asks", "error", "left")

    def __init__(self) -> None:
        self.asks: list[Any] = []
        self.left: int | None = None  # messages still to be tried; None: all that there are
        self.error = ""


class Redrives:
    """The orders of one shard."""

    def __init__(self, per_frame_max: int = REDRIVEN_PER_FRAME_MAX) -> None:
        self._per_frame_max = per_frame_max
        self.waited = 0  # orders that a frame left to the next: storms ask whether any did
        self._wanted: dict[Key, _Order] = {}
        self._loading: dict[Key, _Order] = {}

    def want(self, key: Key, reply_to: Any = None) -> None:
        """Try again; `reply_to` is whom to answer."""
        waiting = self._loading.get(key)
        order = self._wanted.setdefault(key, _Order()) if waiting is None else waiting
        order.left = None
        if reply_to is not None:
            order.asks.append(reply_to)

    def loaded(self, key: Key) -> None:
        """The entity was looked for."""
        order = self._loading.pop(key, None)
        if order is not None:
            self._wanted[key] = order

    def unreadable(self, key: Key) -> list[Any]:
        """The entity is there and cannot be read: who has to be told that nothing was tried."""
        order = self._loading.pop(key, None)
        return order.asks if order is not None else []

    def run(self, shard: Shard, *, bytes_max: int) -> dict[Key, None]:
        """Try what this frame takes, until it has so many bytes; the entities to be loaded first.

        What is left of an order waits for the next frame.
        """
        load: dict[Key, None] = {}
        tries = self._per_frame_max
        for key in [*self._wanted]:
            order = self._wanted[key]
            if not attempt_test(shard.is_mine, key):
                refused = Refused("NOT_FOUND", f"{key} is nothing that lives in {shard.id}")
                self._done(shard, key, answer=refused)
                continue
            if shard.must_be_loaded(key):
                self._loading[key] = self._wanted.pop(key)
                if shard.deferred.load(key):
                    load[key] = None
                continue
            if order.left is None:
                order.left = len(shard.deferred.aside.get(key, ()))
            while order.left and tries and shard.turns.bytes < bytes_max:
                tries -= 1
                order.left -= 1
                self._try(shard, key, order=order)
            self.waited += bool(order.left)
            if not order.left:
                self._end(shard, key, error=order.error)
        return load

    def _try(self, shard: Shard, key: Key, *, order: _Order) -> None:
        envelope = shard.deferred.redrive(key)
        if isinstance(envelope, Failure):
            order.error = envelope.error
        else:
            shard.deliver(envelope)

    def _end(self, shard: Shard, key: Key, *, error: str) -> None:
        if key not in shard.deferred.aside:
            shard.deferred.lift(key)
        _time(shard, key)
        text = f"some of {key} cannot be tried and stays aside: {error}"
        self._done(shard, key, answer=Unavailable(text) if error else RedriveDone())

    def _done(self, shard: Shard, key: Key, *, answer: Any) -> None:
        asks = self._wanted.pop(key).asks
        shard.turns.outbox.replies += [AskAnswer(reply_to, answer) for reply_to in asks]

    def __bool__(self) -> bool:
        return bool(self._wanted)


def _time(shard: Shard, key: Key) -> None:
    """Deadlines that came while nobody was let in."""
    crowd = shard.population.crowds.get(key)
    state = shard.population.cells.get(key)
    if crowd is not None:
        crowd.rebuild_deadlines()
        shard.turns.time_crowd(crowd)
    elif state is not None:
        shard.turns.time_cell(key, shard.kinds[kind_of(key)], old=state, new=state)
