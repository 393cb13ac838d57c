"""What pools have to give back: which lanes wait since when, which lots could give, what is coming.

Lots are ranked as victims in each pool. All of it is derived or may be lost: after a recovery the
times begin anew. `taking_back.py` decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from peloton.actors.resources import Resources
from peloton.actors.respool.lot.messages import Reclaim
from peloton.actors.respool.lot.state import Lot, LotOrder, takes
from peloton.actors.respool.messages import Within
from peloton.actors.respool.moments import LaneMoments
from peloton.actors.respool.ranking import Ranking
from peloton.runtime.vocabulary import Key, Value

ASKED_LATER = "others are asked to give it back once it has waited for {after}"
REST_S_MIN = 1.0
"""Before somebody is asked again who could not give back, however soon others are asked."""


class PreemptionPolicy(Value, frozen=True, gc=False, array_like=True):
    """How pools take back what they lent.

    `sustained_s`: how long an entitled pool has waited before others give back. `in_flight_max`:
    tasks of one pool that give back at a time. `evictions_max`: of one pool within `window_s`; what
    exceeds it waits for the next window. `within_reservation`: how far tasks that may not be
    preempted are admitted only within the reservation of a pool that does not say so itself, so
    that no pool lends what it cannot get back. `inside`: pools, by path, that end tasks of their
    own for others of a higher priority, and for how many seconds a run is left alone.
    """

    enabled: bool = True
    sustained_s: float = 300.0
    in_flight_max: int = 10_000
    evictions_max: int = 100_000
    window_s: float = 3600.0
    within_reservation: Within = Within.RESERVED
    inside: tuple[tuple[str, float], ...] = ()

    @property
    def rest_s(self) -> float:
        """Return how long a lot that could not give back, and a pool that waits for it, are left
        alone."""
        return max(self.sustained_s, REST_S_MIN)

    @property
    def within(self) -> Within:
        """Return the rule in force: without preemption nothing is given back anyway."""
        return self.within_reservation if self.enabled else Within.NEVER


class VictimRank(NamedTuple):
    """The position of a lot among those of its pool that could give back: lower comes first."""

    regular: bool  # revocable ones go first
    priority: int
    falling_arrival: float  # the newest first
    lot: Key


class RankedLot(NamedTuple):
    """The pool in which a lot is ranked, and its rank."""

    pool: Key
    rank: VictimRank


class EarmarkedRoom(NamedTuple):
    """What a pool waits for, and the pools in which it is counted: its own and those above."""

    amount: Resources
    above: list[Key]


class LotRest(NamedTuple):
    """Until when a lot is left alone that could not give back, and for which need."""

    need: Resources
    until: float


class EvictionWindow(NamedTuple):
    """How many tasks of a pool were ordered to give back since when."""

    since: float
    tasks: int


class Reclaims:
    """The bookkeeping of one tree."""

    def __init__(self, policy: PreemptionPolicy) -> None:
        self.policy = policy
        self.min_run_s = dict(policy.inside)  # by path of the pools that end tasks of their own
        self.coming: dict[Key, Resources] = {}  # by pool: what its tasks will give back
        self.in_flight: dict[Key, int] = {}  # by pool: how many of them
        self.owed = LaneMoments()  # lanes that wait for what their pool is entitled to
        self.inside = LaneMoments()  # lanes for which tasks of their own pool may end
        self.claims: dict[Key, EarmarkedRoom] = {}  # of `owed`: what is free or comes for them
        self._rest_until: dict[Key, float] = {}  # of `owed`: those for which nobody could give
        self._planned: dict[Key, Reclaim] = {}  # by lot: orders that it does not have yet
        self._planned_until = 0.0
        self._victims: dict[Key, Ranking[VictimRank]] = {}
        self._ranks: dict[Key, RankedLot] = {}
        self._unsorted: dict[Key, None] = {}  # lots whose rank may be another
        self._windows: dict[Key, EvictionWindow] = {}
        self._rests: dict[tuple[Key, bool], LotRest] = {}  # by lot, and whether inside of its pool
        self._spared: dict[Key, LotOrder] = {}  # lots that gave less than this order, not dated yet

    # ---- lots ----

    def put(self, key: Key, *, old: Lot | None, new: Lot | None) -> None:
        """Apply the new state of a lot; None if it does not exist."""
        lot = new if new is not None else old
        if lot is None:
            return
        if new is None:
            for inside in (False, True):
                self._rests.pop((key, inside), None)
            self._spared.pop(key, None)
        if lot.shape.preemptible:
            if new is not None or key in self._ranks:
                self._unsorted[key] = None
            else:
                self._unsorted.pop(key, None)
        if _gives(old) or _gives(new):
            more = (new.coming if new is not None else 0) - (old.coming if old is not None else 0)
            if more:
                self._come(lot.shape.pool, lot.shape.resources.times(more), tasks=more)
        planned = self._planned.get(key)
        if planned is not None and (new is None or not takes(new, planned)):
            del self._planned[key]
        if old is not None and old.order is not None and (new is None or new.order is None):
            if new is not None and new.spared:
                self._spared[key] = old.order
            self.owed.answered()
            if old.order.inside is not None:
                self.inside.answered()

    def sort(self, lots: Mapping[Key, Lot]) -> None:
        """Bring the order of victims up to date.

        It is seldom needed, and most lots end before.
        """
        changed, self._unsorted = self._unsorted, {}
        for key in changed:
            lot, rank = lots.get(key), None
            if lot is not None and lot.shape.preemptible and lot.admitted.raw:
                shape = lot.shape
                rank = VictimRank(not shape.revocable, shape.priority, -lot.arrived, key)
            known = self._ranks.get(key)
            if known is not None and known.rank != rank:
                self._unrank(key, known)
            if lot is not None and rank is not None and (known is None or known.rank != rank):
                pool = lot.shape.pool
                if pool not in self._victims:
                    self._victims[pool] = Ranking()
                self._victims[pool].put(rank, 1)
                self._ranks[key] = RankedLot(pool, rank)

    def victims(self, pool: Key) -> Iterator[Key]:
        """Yield the lots of a pool that could give back, in the order of their turn."""
        ranking = self._victims.get(pool)
        rank = ranking.first() if ranking is not None else None
        while rank is not None and ranking is not None:
            yield rank.lot
            rank = ranking.after(rank)

    def count_victims(self, pool: Key) -> int:
        """Return how many lots of a pool could give back."""
        return len(self._victims.get(pool, ()))

    def _unrank(self, key: Key, known: RankedLot) -> None:
        ranking = self._victims[known.pool]
        ranking.drop(known.rank)
        if not len(ranking):
            del self._victims[known.pool]
        del self._ranks[key]
        self._rests.pop((key, False), None)

    def _come(self, pool: Key, more: Resources, *, tasks: int) -> None:
        count = self.in_flight.get(pool, 0) + tasks
        if count:
            self.in_flight[pool] = count
            self.coming[pool] = self.coming.get(pool, Resources()) + more
        else:
            del self.in_flight[pool], self.coming[pool]

    def rests(self, lot: Key, need: Resources, *, inside: bool, now: float) -> bool:
        """Return whether a lot is left alone; outside of its pool for a task that needs this."""
        known = self._rests.get((lot, inside))
        return known is not None and now < known.until and (inside or need == known.need)

    # ---- lanes ----

    def note(self, now: float) -> None:
        """Date what lots have answered since the last call."""
        for lot, order in self._spared.items():
            rest_s, inside = self.policy.rest_s, order.inside
            if inside is not None:
                rest_s = max(REST_S_MIN, min(inside.min_run_s or rest_s, rest_s))
            self._rests[lot, inside is not None] = LotRest(order.need, now + rest_s)
        self._spared = {}

    def await_owed(self, lane: Key, now: float) -> None:
        """Record that a lane waits for what its pool is entitled to, perhaps for another reason."""
        at = self.owed.begin(lane, now, verdict=ASKED_LATER) + self.policy.sustained_s
        self.owed.push(lane, max(at, self._rest_until.get(lane, 0.0)))

    def drop_owed(self, lane: Key) -> None:
        """Record that a lane no longer waits for that."""
        self.owed.end(lane)
        self._rest_until.pop(lane, None)
        self.claims.pop(lane, None)

    def rest_owed(self, lane: Key, until: float, *, verdict: str) -> None:
        """Record that nobody could give back for a lane, which is left alone until then."""
        self.owed.again(lane, until, verdict=verdict)
        self._rest_until[lane] = until

    def claimed(self, pool: Key) -> Resources:
        """Return what is free or comes back in a pool, and is earmarked."""
        found = (each.amount for each in self.claims.values() if pool in each.above)
        return sum(found, Resources())

    @property
    def wake_at(self) -> float | None:
        """Return when the next lane will have waited for long enough."""
        moments = (self.owed.next_at, self.inside.next_at)
        return min((each for each in moments if each is not None), default=None)

    # ---- orders, and their limits ----

    def planned(self, now: float) -> list[tuple[Key, Reclaim]]:
        """Return the orders that lots do not have yet.

        They are sent again until then, as a turn that sends one may fail; but one that a lot fails
        on must not keep all others from being planned.
        """
        if now >= self._planned_until:
            self._planned = {}
        return [*self._planned.items()]

    def plan(self, key: Key, order: Reclaim, *, pool: Key, now: float) -> None:
        """Add an order, and count its tasks for the pool of the lot."""
        self._planned[key], self._planned_until = order, now + REST_S_MIN
        window = self._window(pool, now)
        self._windows[pool] = window._replace(tasks=window.tasks + order.count)

    def may_go(self, pool: Key, now: float) -> int:
        """Return how many more tasks of a pool may give back now."""
        most, flying = self.policy.in_flight_max, self.in_flight.get(pool, 0)
        if 2 * flying > most:
            return 0  # many at once cost less than one for each that has gone
        return min(most - flying, self.budget(pool, now))

    def budget(self, pool: Key, now: float) -> int:
        """Return how many more tasks of a pool may be ordered to give back within this window."""
        return self.policy.evictions_max - self._window(pool, now).tasks

    def window_ends(self, pool: Key, now: float) -> float:
        """Return when the next window of a pool begins."""
        return self._window(pool, now).since + self.policy.window_s

    def forget(self, pool: Key) -> None:
        """Forget a pool that does not exist any more."""
        self._windows.pop(pool, None)

    def _window(self, pool: Key, now: float) -> EvictionWindow:
        known = self._windows.get(pool)
        if known is None or now >= known.since + self.policy.window_s:
            return EvictionWindow(now, 0)
        return known


def _gives(lot: Lot | None) -> bool:
    return lot is not None and (lot.order is not None or lot.leaving.raw != 0)
