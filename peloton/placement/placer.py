"""The placer: receives host summaries and wishes, and proposes hosts.

Equal wishes of a call are decided as one. A wish is answered at once; members without a host are
kept (`waiting_wishes.py`) and proposed a host as soon as one reports room. A placer holds soft
state only: a new one gets the hosts from the inventories, and slices repeat the wishes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from peloton.actors.resources import COUNT_MAX
from peloton.placement.early_wishes import EarlyWishes, PlacerRequest
from peloton.placement.gang_wishes import GangWishes, KeptGang
from peloton.placement.index import HostIndex
from peloton.placement.inventory_feeds import InventoryFeeds
from peloton.placement.kept_wishes import KEPT_WISHES_MAX, GroupKey, KeptWishes, Turn, split
from peloton.placement.labels import Ints
from peloton.placement.lookups import Lookups
from peloton.placement.messages import (
    AskGangRoom,
    AskRoom,
    Declined,
    GangWish,
    HostDeltas,
    LaunchesStopped,
    Placed,
    SnapshotWanted,
    Wish,
)
from peloton.placement.pinned import PinnedWishes
from peloton.placement.proposals import Proposed, placed, unplaced
from peloton.placement.proposer import HostProposals
from peloton.placement.reasons import LAUNCHES_STOPPED, UNKNOWN_STRATEGY, HostChecks
from peloton.placement.reserved import ReservedHosts
from peloton.placement.rooms import rooms_of
from peloton.placement.shapes import KnownShape, KnownShapes
from peloton.placement.strategies import STRATEGIES, Strategy
from peloton.placement.unschedulable import Unschedulable, unschedulable_reason
from peloton.placement.waiting_wishes import WaitingWishes
from peloton.placement.wish_groups import AskedWish, WishGroup, decided_as_one
from peloton.runtime.vocabulary import Bits, Key, Message, Send, Value

TRIES_MAX = 64
"""Groups of kept wishes tried in one call; the next call follows at once."""
FREED_MAX = 16
"""Sets of freed rows that wait for their turn; further ones are joined."""
EXPLAINED_MAX = 16
"""Groups of kept wishes, and gangs, explained anew in one call; the next call follows at once."""


class PlacerSettings(Value, frozen=True):
    """What differs between placers, and what operators may configure."""

    part: int = 0  # this placer is number `part` of `parts`
    parts: int = 1
    scarce_gpu: bool = False  # hosts with GPUs reject members that request none
    mend_rows: int | None = None  # rows updated in an order for one member; None: by size
    kept_max: int = KEPT_WISHES_MAX  # wishes that are kept until a host has room


class FreedRows(NamedTuple):
    """Rows with more room than before, and the turn of kept wishes that was tried last for them."""

    rows: Ints
    after: Turn | None = None


class Placer:
    """A placer. Snapshots of `inventories` are requested at the first call."""

    def __init__(
        self,
        key: Key,
        settings: PlacerSettings | None = None,
        *,
        inventories: Sequence[Key] = (),
        strategies: Mapping[str, Strategy] = STRATEGIES,
    ) -> None:
        self.key = key
        of = settings or PlacerSettings()
        self.index = HostIndex(of.part, of.parts, mend_rows=of.mend_rows)
        waiting = self._waiting = WaitingWishes()
        self.kept = KeptWishes(waiting, of.kept_max)
        self._checks = HostChecks(self.index, of.scarce_gpu)
        self._feeds = InventoryFeeds(inventories)
        self._shapes = KnownShapes(strategies)
        self._proposer = HostProposals(
            self.index, self._checks, lookups=Lookups(self.index, self._checks), shapes=self._shapes
        )
        reserved = self._reserved = ReservedHosts()
        self.pinned = PinnedWishes(
            waiting, self.index, checks=self._checks, shapes=self._shapes, reserved=reserved
        )
        self.gangs = GangWishes(waiting, self.index, checks=self._checks, shapes=self._shapes)
        self._freed: deque[FreedRows] = deque()
        self._explained = self.index.layout, self._feeds.complete  # the hosts, as last explained
        self._to_explain: list[GroupKey | KeptGang] = []
        self._early = EarlyWishes()
        self._stopped = ""  # why no host is proposed at all

    @property
    def wake_at(self) -> float | None:
        """Return when to call `receive` even without messages.

        At once if kept wishes are left to try or to explain, else when a snapshot has to be
        requested again.
        """
        busy = self._freed or self._to_explain or self.gangs.untried
        return 0.0 if busy else self._feeds.wake_at

    def receive(self, messages: Sequence[tuple[Key | None, Message]], now: float) -> list[Send]:
        """Apply all messages about hosts first, then try kept wishes, then answer new ones."""
        self.index.expire(now)
        self._waiting.expire(now)
        asked: list[PlacerRequest] = []
        for _, message in messages:
            if isinstance(message, Wish | GangWish | AskRoom | AskGangRoom):
                asked.append(message)
            elif isinstance(message, HostDeltas):
                self._receive(message, now)
            elif isinstance(message, Declined):
                self._decline(message)
            elif isinstance(message, LaunchesStopped):
                self.stop_launches(message.text)
            else:
                raise TypeError(f"a placer does not know {type(message).__name__}")
        asked = self._early.sift(asked, settled=self._feeds.settled(now))
        sends = self._answer(asked, now)
        sends += [Send(each, SnapshotWanted(self.key)) for each in self._feeds.due(now)]
        return sends

    def _answer(self, asked: list[PlacerRequest], now: float) -> list[Send]:
        """Answer kept and new wishes, once all reports of hosts are applied."""
        wishes = [each for each in asked if isinstance(each, Wish) and each.members]
        rooms = [each for each in asked if isinstance(each, AskRoom | AskGangRoom)]
        wishes, sends = self.pinned.serve(wishes, now)
        if not self._stopped:
            wishes, more = self._reserved.serve(
                wishes, self.kept, shapes=self._shapes, index=self.index
            )
            sends += more
        sends += rooms_of(self.index, rooms, shapes=self._shapes, by=self, now=now)
        if self.gangs.untried or (len(self.gangs) and self.index.news):
            sends += self.gangs.try_again(by=self, news=bool(self.index.news), now=now)
        for gang in asked:
            if isinstance(gang, GangWish) and gang.parts:
                self._feeds.refresh_quiet_feeds(now)
                sends += self.gangs.answer(gang, by=self, complete=self._feeds.complete, now=now)
        groups = decided_as_one(wishes, self.index, shapes=self._shapes, kept=self.kept, now=now)
        self._try_kept(now, sends=sends)
        self._try_renewed(groups, now, sends=sends)
        for group in groups:
            self._place(group, now, sends=sends)
        self._explain_again(sends=sends)
        return sends

    def stop_launches(self, text: str) -> None:
        """Stop proposing hosts for this reason; with an empty text, propose them again, first to
        the kept wishes."""
        if text == self._stopped:
            return
        self._stopped = text
        self.pinned.stop(text)
        if not text:
            self._freed.append(FreedRows(np.arange(self.index.size)))
        self._waiting.tell_all_again()
        self.gangs.untried = len(self.gangs)
        self._explain_all()

    def hurry(self) -> None:
        """Request at once the snapshots still needed, because inventories may be reachable
        again."""
        self._feeds.hurry()

    def _receive(self, deltas: HostDeltas, now: float) -> None:
        self.index.receive(deltas.inventory, deltas.hosts, whole=deltas.snapshot)
        self.index.drop(deltas.gone)
        self._reserved.receive(deltas)
        self.pinned.receive(deltas)
        self._feeds.receive(deltas.inventory, deltas.sequence, snapshot=deltas.snapshot, now=now)

    def _decline(self, declined: Declined) -> None:
        known = self._shapes.numbered(declined.shape)
        if known is not None:
            self.index.decline(known.need, declined.hosts)
        self._waiting.retain(declined.slice, declined.wanted)

    # ---- new wishes ----

    def _place(self, group: WishGroup, now: float, *, sends: list[Send]) -> None:
        """Decide a group and answer each of its wishes, in the order in which they came."""
        known, wishes, excluded, avoided = group
        if known.strategy is None:
            why = self._no_strategy(known)
            for wish, *_ in wishes:
                sends.append(unplaced(wish.slice, wish.number, members=wish.members, why=why))
            return
        count = sum(len(asked.fresh) for asked in wishes)
        rows, hosts, shares = self.propose(known, excluded + avoided, count=count, now=now)
        if avoided and len(hosts) < count:
            used = excluded if known.strategy.shares else excluded + rows
            more = self.propose(known, used, count=count - len(hosts), now=now)
            rows, hosts, shares = rows + more.rows, hosts + more.hosts, shares + more.shares
        at = 0
        left: list[tuple[AskedWish, Bits]] = []
        for asked in wishes:
            wish, renewed, fresh = asked
            got = tuple(hosts[at : at + len(fresh)])
            members = fresh.lowest(len(got))
            if got:
                found = Placed(wish.number, members, got, known.number)
                sends += placed(wish.slice, found, shares=shares[at : at + len(got)])
            at += len(got)
            if members is fresh and not renewed:
                continue  # the usual case
            without = fresh - members
            if without or renewed & self.kept.members(wish.slice):
                left.append((asked, without))
        if left:
            self._feeds.refresh_quiet_feeds(now)
            once = not known.strategy.shares and known.need.shape.apart is None
            why = self.why(known, excluded, used=rows if once else [])
            for asked, members in left:
                kept = self._keep(asked.wish, members, group=group, why=why, now=now)
                slice_, number, without, told = asked.wish.slice, asked.wish.number, members, why
                if kept:
                    without = members | (asked.renewed & self.kept.members(slice_))
                    told = why._replace(reserve=self._to_reserve(asked, known=known, now=now))
                sends.append(unplaced(slice_, number, members=without, why=told, kept=kept))

    def _to_reserve(
        self, asked: AskedWish, *, known: KnownShape, now: float
    ) -> tuple[tuple[int, Key], ...]:
        """Return the hosts that are to be held for members whose wish was repeated."""
        return tuple(
            pair
            for kept in self.kept.of_slice(asked.wish.slice)
            if kept.known is known and kept.members & asked.renewed and not kept.told_never
            for pair in self._reserved.chosen(kept, checks=self._checks, index=self.index, now=now)
        )

    def _keep(
        self, wish: Wish, members: Bits, *, group: WishGroup, why: Unschedulable, now: float
    ) -> bool:
        """Keep the wish for these members; return whether there was space for it."""
        if not members:
            return True  # all of them are kept already
        rest = Wish(wish.slice, wish.number, members, wish.shape, priority=wish.priority)
        kept = self.kept.add(rest, group.known, never=why.never, now=now)
        if kept is not None:
            kept.refuse(group.excluded, self.index)
        return kept is not None

    def propose(
        self, known: KnownShape, excluded: list[int], *, count: int, now: float
    ) -> Proposed:
        """Return rows for up to `count` members, and a host for each member that has one."""
        if self._stopped:
            return Proposed([], [], [])
        return self._proposer.propose(known, excluded, count=count, now=now)

    def why(self, known: KnownShape, excluded: list[int], *, used: list[int]) -> Unschedulable:
        """Return why members have no host.

        A placer that does not know all hosts never answers `never`.
        """
        if self._shapes.of(known.need.shape).strategy is None:
            return self._no_strategy(known)
        if self._stopped:
            return Unschedulable(((LAUNCHES_STOPPED, 1),), self._stopped, False)
        failed = self._checks.failed(known.need, excluded, used=used)
        fit_if_empty = self._checks.fit_if_empty(known.need)
        why = unschedulable_reason(self.index, known.need, failed=failed, fit_if_empty=fit_if_empty)
        return why._replace(never=why.never and self._feeds.complete)

    def _no_strategy(self, known: KnownShape) -> Unschedulable:
        """Return the reason that no host can be ranked: the strategy is not installed here, or
        has failed."""
        name = known.need.shape.strategy
        text = self._shapes.failures.get(name, f"unknown placement strategy {name!r}")
        return Unschedulable(((UNKNOWN_STRATEGY, 1),), text, True)

    # ---- kept wishes ----

    def _try_kept(self, now: float, *, sends: list[Send]) -> None:
        """Propose hosts that report more room to the wishes that wait for it."""
        freed = self.index.news.take()
        if freed:
            self._freed.append(FreedRows(np.array(freed, np.int64)))
        if len(self._freed) > FREED_MAX:
            # Behind the turn that was reached, or those whose turn comes late were never tried;
            # and then once more from the first on.
            rows = np.unique(np.concatenate([each.rows for each in self._freed]))
            self._freed = deque((FreedRows(rows, self._freed[0].after), FreedRows(rows)))
        left = TRIES_MAX
        while self._freed and left:
            rows, after = self._freed.popleft()
            turns = deque(self.kept.candidates(self.index, rows, after=after))
            while turns and left:
                left -= 1
                after, group = turns.popleft()
                if self._place_kept(group, rows, now=now, sends=sends):
                    # Less is free now, mostly nothing: most others are not worth a try any more.
                    turns = deque(self.kept.candidates(self.index, rows, after=after))
            if turns:
                self._freed.appendleft(FreedRows(rows, after))

    def _try_renewed(self, groups: list[WishGroup], now: float, *, sends: list[Send]) -> None:
        """Try repeated wishes on all hosts, since a report of more room may have been lost."""
        renewed = {
            (asked.wish.priority, group.known.number): None
            for group in groups
            for asked in group.wishes
            if asked.renewed
        }
        for name in renewed:
            self._place_kept(name, np.arange(self.index.size), now=now, sends=sends)

    def _place_kept(self, group: GroupKey, rows: Ints, *, now: float, sends: list[Send]) -> bool:
        """Propose hosts to a group, to no more members than these rows can take; return whether
        any got one."""
        known = self.kept.shape(group)
        if known is None:
            return False
        room = self._checks.room(known.need, rows)
        any_placed = False
        for wishes, excluded in split(self.kept.of_group(group, room), self.index):
            count = min(sum(len(kept.members) for kept in wishes), room)
            _, hosts, shares = self.propose(known, excluded, count=count, now=now)
            any_placed = any_placed or bool(hosts)
            for kept in wishes:
                got, hosts = tuple(hosts[: len(kept.members)]), hosts[len(kept.members) :]
                if not got:
                    break
                members = kept.members.lowest(len(got))
                self.kept.remove(kept, members)
                found = Placed(kept.number, members, got, known.number)
                sends += placed(kept.slice, found, shares=shares[: len(got)])
                shares = shares[len(got) :]
        return any_placed

    def _explain_again(self, *, sends: list[Send]) -> None:
        """Explain kept wishes anew, because the known hosts have changed: some may now fit what
        none did, or the reverse."""
        hosts = self.index.layout, self._feeds.complete
        if hosts != self._explained:
            self._explained = hosts
            self._explain_all()
        for _ in range(min(EXPLAINED_MAX, len(self._to_explain))):
            sends += self._tell(self._to_explain.pop())

    def _explain_all(self) -> None:
        left = dict.fromkeys(self._to_explain)  # these first, or they had no turn if hosts go on
        names: list[GroupKey | KeptGang] = [*self.kept.groups(), *self.gangs.kept()]
        self._to_explain = [*(each for each in names if each not in left), *left]

    def _tell(self, name: GroupKey | KeptGang) -> Iterator[Send]:
        """Yield the reasons why the wishes of a group, or a gang, still wait, unless they were
        told the same."""
        if isinstance(name, KeptGang):
            if name.serial:
                yield from name.tell(self.gangs.why(name, by=self, complete=self._feeds.complete))
            return
        known = self.kept.shape(name)
        if known is not None:
            why = self.why(known, [], used=[])
            for kept in self.kept.of_group(name, COUNT_MAX):
                yield from kept.tell(why)
