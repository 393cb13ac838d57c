"""Redrives: orders of operators to try dead letters again, until they are carried out.

Each dead letter is taken and decided in the very frame that journals so, and becomes a dead letter
again in that frame if it fails, so that no crash can lose it in between. A frame tries at most
`REDRIVEN_PER_FRAME_MAX`, and must not become larger than the journal takes. It must not answer an
order before the frame of its last try.
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
    """One order, and the callers that wait for it."""

    __slots__ = ("error", "left", "reply_to")

    def __init__(self) -> None:
        self.reply_to: list[Any] = []  # reply addresses
        self.left: int | None = None  # dead letters still to try; None: not counted yet
        self.error = ""


class Redrives:
    """The orders of one shard."""

    def __init__(self, per_frame_max: int = REDRIVEN_PER_FRAME_MAX) -> None:
        self._per_frame_max = per_frame_max
        self.waited = 0  # orders that a frame left to the next, for metrics
        self._ordered: dict[Key, _Order] = {}
        self._loading: dict[Key, _Order] = {}

    def order(self, key: Key, reply_to: Any = None) -> None:
        """Try the dead letters of this key again; `reply_to` is the reply address, if any."""
        waiting = self._loading.get(key)
        order = self._ordered.setdefault(key, _Order()) if waiting is None else waiting
        order.left = None
        if reply_to is not None:
            order.reply_to.append(reply_to)

    def loaded(self, key: Key) -> None:
        """The `ended` row of the entity was read, or there is none."""
        order = self._loading.pop(key, None)
        if order is not None:
            self._ordered[key] = order

    def unreadable(self, key: Key) -> list[Any]:
        """The `ended` row cannot be read, so nothing was tried; returns the reply addresses."""
        order = self._loading.pop(key, None)
        return order.reply_to if order is not None else []

    def run(self, shard: Shard, *, bytes_max: int) -> dict[Key, None]:
        """Try what this frame takes, until it has so many bytes; the entities to be loaded first.

        What is left of an order waits for the next frame.
        """
        load: dict[Key, None] = {}
        tries = self._per_frame_max
        for key in [*self._ordered]:
            order = self._ordered[key]
            if not attempt_test(shard.is_mine, key):
                refused = Refused("NOT_FOUND", f"{key} does not belong to {shard.id}")
                self._done(shard, key, answer=refused)
                continue
            if shard.must_be_loaded(key):
                self._loading[key] = self._ordered.pop(key)
                if shard.deferred.load(key):
                    load[key] = None
                continue
            if order.left is None:
                order.left = len(shard.deferred.dead_letters.get(key, ()))
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
        shard.deferred.lift_quarantine(key)
        _time(shard, key)
        text = f"some dead letters of {key} cannot be redriven and are kept: {error}"
        self._done(shard, key, answer=Unavailable(text) if error else RedriveDone())

    def _done(self, shard: Shard, key: Key, *, answer: Any) -> None:
        addresses = self._ordered.pop(key).reply_to
        shard.turns.outbox.replies += [AskAnswer(reply_to, answer) for reply_to in addresses]

    def __bool__(self) -> bool:
        return bool(self._ordered)


def _time(shard: Shard, key: Key) -> None:
    """Set the deadlines that came while the quarantine kept them out."""
    crowd = shard.population.crowds.get(key)
    state = shard.population.cells.get(key)
    if crowd is not None:
        crowd.rebuild_deadlines()
        shard.turns.time_crowd(crowd)
    elif state is not None:
        shard.turns.time_cell(key, shard.kinds[kind_of(key)], old=state, new=state)
