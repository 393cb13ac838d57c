"""Pools that may end tasks of their own for waiting ones: which lanes wait, and since when.

For each lane with a waiting head there is a moment at which room is made for it, and lots that
could not make room are left alone for a while. All of it is derived or may be lost: after a
recovery the times begin anew. `displacing.py` decides.
"""

from __future__ import annotations

from collections.abc import Callable

from peloton.actors.respool.lanes import is_slack, pool_of_lane
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.moments import LaneMoments
from peloton.actors.respool.reclaims import REST_S_MIN, PreemptionPolicy
from peloton.actors.respool.waiting import Waiting
from peloton.runtime.vocabulary import Key

ASKED_LATER = "tasks of its pool are asked to give it back once it has waited for {after}"


class Displacements:
    """The bookkeeping of one tree."""

    def __init__(self, policy: PreemptionPolicy) -> None:
        self.min_run_s = dict(policy.inside)  # by path of the pools that may
        self._rest_s = policy.rest_s
        self.verdicts: dict[Key, str] = {}  # lane that waits → what comes of it
        self._moments = LaneMoments()
        self._numbers: dict[Key, int] = {}  # of the waiting: another one begins anew
        self._asked: dict[Key, None] = {}  # lanes for which lots have orders
        self._on_slack: dict[Key, int] = {}  # pool → its lots on slack that hold something
        self._rests: dict[Key, float] = {}  # lots that could not give back, until
        self._spared: dict[Key, float] = {}  # those that have just become such, for how long

    def put(self, key: Key, *, old: Lot | None, new: Lot | None) -> None:
        """Apply the new state of a lot; None if it does not exist."""
        self._count_slack(old, -1)
        self._count_slack(new, 1)
        if new is None:
            self._rests.pop(key, None)
            self._spared.pop(key, None)
        if old is None or old.order is None or old.order.inside is None:
            return
        if new is None or new.order is None:
            if new is not None and new.spared:
                self._spared[key] = old.order.inside.min_run_s
            for lane in self._asked:  # it may give less than was ordered: then others are asked
                self._moments.push(lane, 0.0)
            self._asked = {}

    def _count_slack(self, lot: Lot | None, more: int) -> None:
        if lot is None or not lot.shape.on_slack or not lot.admitted.raw:
            return
        pool = lot.shape.pool
        count = self._on_slack.get(pool, 0) + more
        if count:
            self._on_slack[pool] = count
        else:
            del self._on_slack[pool]

    def _may_end(self, lane: Key, path: Callable[[Key], str]) -> bool:
        """Return whether tasks of its pool may end for a lane: those on slack, or of a lower
        priority."""
        pool = pool_of_lane(lane)
        return (not is_slack(lane) and pool in self._on_slack) or path(pool) in self.min_run_s

    def follow(self, waiting: Waiting, *, path: Callable[[Key], str], now: float) -> None:
        """Record heads that begin or cease to wait, in pools that may end tasks of their own."""
        for key, rest_s in self._spared.items():
            self._rests[key] = now + max(REST_S_MIN, min(rest_s or self._rest_s, self._rest_s))
        self._spared = {}
        if not waiting.head_news:
            return
        news, waiting.head_news = waiting.head_news, {}
        for lane in news:
            number = waiting.numbers.get(lane)
            waits = waiting.head(lane) is not None
            if number is None or not waits or not self._may_end(lane, path):
                self._drop(lane)
                continue
            if self._numbers.get(lane, number) != number:
                self._drop(lane)
            self._numbers[lane] = number
            self.verdicts.setdefault(lane, ASKED_LATER)
            self._moments.push(lane, self._moments.begin(lane, now) + self._rest_s)

    def _drop(self, lane: Key) -> None:
        self._moments.end(lane)
        for known in (self.verdicts, self._numbers, self._asked):
            known.pop(lane, None)

    def wake(self, lane: Key) -> None:
        """Look at a waiting lane at once."""
        self._moments.push(lane, 0.0)

    def due(self, now: float) -> Key | None:
        """Return the next lane that has waited for long enough, once."""
        return self._moments.due(now)

    @property
    def wake_at(self) -> float | None:
        """Return when the next lane will have waited for long enough."""
        return self._moments.next_at

    def again(self, lane: Key, at: float, *, verdict: str) -> None:
        """Record that no room is made for a lane, which is looked at again at this time."""
        self.verdicts[lane] = verdict
        self._moments.push(lane, at)

    def ordered(self, lane: Key, at: float, *, verdict: str) -> None:
        """Record that lots were ordered to give back for a lane.

        It is looked at again when they have answered, or at this time, as a lot that has just ended
        does not answer.
        """
        self.again(lane, at, verdict=verdict)
        self._asked[lane] = None

    def rests(self, lot: Key, now: float) -> bool:
        """Return whether a lot is left alone."""
        return now < self._rests.get(lot, 0.0)
