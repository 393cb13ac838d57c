"""What pools have to give back: which pools wait since when, which lots could give, what is coming.

Lots are ranked as victims in each pool, and pools that wait for room to which they are entitled
have a moment at which others give it back. All of it is derived or may be lost: after a recovery
the times begin anew. `reclaiming.py` decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from peloton.actors.resources import Resources
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.messages import Within
from peloton.actors.respool.moments import LaneMoments
from peloton.actors.respool.proofs import PROVING
from peloton.actors.respool.ranking import Ranking
from peloton.actors.respool.waiting import Waiting
from peloton.runtime.vocabulary import Key

ON_THE_WAY = "other pools give back what it is entitled to"
ASKED_LATER = "others are asked to give it back once it has waited for {after}"
REST_S_MIN = 1.0
"""Before somebody is asked again who could not give back, however soon others are asked."""


class PreemptionPolicy(NamedTuple):
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


class EvictionWindow(NamedTuple):
    """How many tasks of a pool were ordered to give back since when."""

    since: float
    tasks: int


class Reclaims:
    """The bookkeeping of one tree."""

    def __init__(self) -> None:
        self.coming: dict[Key, Resources] = {}  # by pool: what its tasks will give back
        self.in_flight: dict[Key, int] = {}  # by pool: how many of them
        self.verdicts: dict[Key, str] = {}  # pool that waits → why nobody gives back for it
        self._victims: dict[Key, Ranking[VictimRank]] = {}
        self._ranks: dict[Key, RankedLot] = {}
        self._unsorted: dict[Key, None] = {}  # lots whose rank may be another
        self._moments = LaneMoments()  # of pools that wait for what they are entitled to
        self._rest_until: dict[Key, float] = {}  # pools for which nobody could give back
        self._claims: dict[Key, EarmarkedRoom] = {}  # what these pools wait for, as far as it comes
        self._claimed: dict[Key, Resources] = {}  # the same in each pool above
        self._windows: dict[Key, EvictionWindow] = {}
        self._rests: dict[Key, tuple[Resources, float]] = {}  # lots without gain for a need, until
        self._spared: dict[Key, Resources] = {}  # lots that have just become such
        self._again: dict[Key, None] = {}  # pools for which others are on their way

    # ---- lots ----

    def put(self, key: Key, *, old: Lot | None, new: Lot | None) -> None:
        """Apply the new state of a lot; None if it does not exist."""
        lot = new if new is not None else old
        if lot is None:
            return
        if new is None:
            self._rests.pop(key, None)
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
        if old is not None and old.order is not None and (new is None or new.order is None):
            if new is not None and new.spared and old.order.inside is None:
                self._spared[key] = old.order.need
            # It may give back less than was ordered: then others are asked.
            for waits in self._again:
                self._moments.push(waits, 0.0)
            self._again = {}

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

    def has_victims(self, pool: Key) -> bool:
        """Return whether any lot of a pool could give back."""
        return pool in self._victims

    def _unrank(self, key: Key, known: RankedLot) -> None:
        ranking = self._victims[known.pool]
        ranking.drop(known.rank)
        if not len(ranking):
            del self._victims[known.pool]
        del self._ranks[key]
        self._rests.pop(key, None)

    def _come(self, pool: Key, more: Resources, *, tasks: int) -> None:
        count = self.in_flight.get(pool, 0) + tasks
        if count:
            self.in_flight[pool] = count
            self.coming[pool] = self.coming.get(pool, Resources()) + more
        else:
            del self.in_flight[pool], self.coming[pool]

    def forget(self, pool: Key) -> None:
        """Forget a pool that does not exist any more."""
        self._windows.pop(pool, None)

    # ---- pools that wait ----

    def follow(self, waiting: Waiting, policy: PreemptionPolicy, now: float) -> None:
        """Record pools that begin or cease to wait for what they are entitled to."""
        news, waiting.entitled_news = waiting.entitled_news, {}
        ended, waiting.entitled_ended = waiting.entitled_ended, {}
        for pool in ended:
            self._drop(pool)
        for pool in news:
            if waiting.awaits(pool) is None:
                self._drop(pool)
                continue
            since = self._moments.begin(pool, now)
            self._moments.push(
                pool, max(since + policy.sustained_s, self._rest_until.get(pool, 0.0))
            )
        for lot, need in self._spared.items():
            self._rests[lot] = need, now + policy.rest_s
        self._spared = {}

    def _drop(self, pool: Key) -> None:
        self._moments.end(pool)
        for known in (self.verdicts, self._again, self._rest_until):
            known.pop(pool, None)
        self.unclaim(pool)

    def wake(self, lane: Key) -> None:
        """Look at a waiting lane at once."""
        self._moments.push(lane, 0.0)

    def due(self, now: float) -> Key | None:
        """Return the next pool that has waited for long enough, once."""
        return self._moments.due(now)

    @property
    def wake_at(self) -> float | None:
        """Return when the next pool will have waited for long enough."""
        return self._moments.next_at

    def again(self, pool: Key, at: float, *, verdict: str) -> None:
        """Record that no lot could give back for a pool, which is looked at again at this time."""
        self.verdicts[pool] = verdict
        self._rest_until[pool] = at
        self._moments.push(pool, at)

    def verdict(self, pool: Key, waiting: Waiting) -> str:
        """Return what others do for a pool that waits for its entitlement; "" if it does not
        wait."""
        if waiting.awaits(pool) is None:
            return ""
        if pool in self.verdicts:
            return self.verdicts[pool]
        if pool in self._claims:
            return ON_THE_WAY
        return ASKED_LATER if pool in self._moments else ""

    def is_open(self, lane: Key) -> bool:
        """Return whether others give back for a lane, or may, as they have not been asked yet."""
        return lane in self._moments and self.verdicts.get(lane, "") in ("", PROVING)

    def claim(self, pool: Key, amount: Resources, *, above: list[Key]) -> None:
        """Earmark what is free or comes back, up to this amount, for a pool."""
        self._claims[pool] = EarmarkedRoom(amount, above)
        for each in above:
            self._claimed[each] = self.claimed(each) + amount

    def unclaim(self, pool: Key) -> None:
        """End the earmark of a pool."""
        known = self._claims.pop(pool, None)
        for each in known.above if known is not None else ():
            left = self.claimed(each) - (known.amount if known is not None else Resources())
            if left == Resources():
                del self._claimed[each]
            else:
                self._claimed[each] = left

    @property
    def claimants(self) -> list[Key]:
        """Return the pools with earmarks."""
        return [*self._claims]

    def claimed(self, pool: Key) -> Resources:
        """Return what is free or comes back in a pool, and is earmarked."""
        return self._claimed.get(pool, Resources())

    def on_the_way(self, pool: Key, *, until: float) -> None:
        """Record that others give back for a pool.

        It is looked at again when they have answered, or at `until`: what they free may be gone, as
        hosts are lost, or a smaller task of another pool comes first.
        """
        self._again[pool] = None
        self._moments.push(pool, until)

    # ---- limits ----

    def budget(self, pool: Key, policy: PreemptionPolicy, now: float) -> int:
        """Return how many more tasks of a pool may be ordered to give back within this window."""
        window = self._windows.get(pool)
        if window is None or now >= window.since + policy.window_s:
            return policy.evictions_max
        return policy.evictions_max - window.tasks

    def window_ends(self, pool: Key, policy: PreemptionPolicy) -> float:
        """Return when the next window of a pool begins."""
        window = self._windows.get(pool)
        return window.since + policy.window_s if window is not None else 0.0

    def count(self, pool: Key, policy: PreemptionPolicy, *, tasks: int, now: float) -> None:
        """Count tasks of a pool that were ordered to give back."""
        window = self._windows.get(pool)
        if window is None or now >= window.since + policy.window_s:
            window = EvictionWindow(now, 0)
        self._windows[pool] = EvictionWindow(window.since, window.tasks + tasks)

    def rests(self, lot: Key, need: Resources, *, now: float) -> bool:
        """Return whether a lot is left alone for a task that needs this."""
        known = self._rests.get(lot)
        return known is not None and now < known[1] and need == known[0]


def _gives(lot: Lot | None) -> bool:
    return lot is not None and (lot.order is not None or lot.leaving.raw != 0)
