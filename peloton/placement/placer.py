"""The placer: receives host summaries and wishes, and proposes hosts.

Turns the messages of one call into answers; equal wishes of a call are decided as one. Wishes are
answered at once and forgotten: a slice repeats those without a host. Must not hold state that
has to survive: a new placer gets all it needs from the inventories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from peloton.actors.resources import EPSILON
from peloton.placement.constraints import depends_on_tasks
from peloton.placement.index import GPU, PORTS, HostIndex, Need, need_of
from peloton.placement.inventory_feeds import InventoryFeeds
from peloton.placement.labels import Ints
from peloton.placement.messages import (
    HostDeltas,
    Placed,
    Shape,
    SnapshotWanted,
    Unplaced,
    Wish,
)
from peloton.placement.order import FEW_MAX, Search
from peloton.placement.reasons import UNKNOWN_STRATEGY, HostChecks, open_key
from peloton.placement.strategies import STRATEGIES, Strategy, choose
from peloton.placement.unschedulable import Unschedulable, unschedulable_reason
from peloton.runtime.vocabulary import Bits, Key, Message, Send, Value

SHAPES_MAX = 1024
"""Shapes whose need is cached; the oldest is evicted."""


class PlacerSettings(Value, frozen=True):
    """What differs between placers, and what operators may configure."""

    part: int = 0  # this placer is number `part` of `parts`
    parts: int = 1
    scarce_gpu: bool = False  # hosts with GPUs reject members that request none
    mend_rows: int | None = None  # rows updated in an order for one member; None: by size


class KnownShape(NamedTuple):
    """What is cached about a shape."""

    number: int
    need: Need
    strategy: Strategy | None
    among: object  # identifies the set of hosts open to it
    search: Search | None  # if a few members may be looked up in a kept order


class WishGroup(NamedTuple):
    """Wishes that are decided as one, and the rows that have just refused them."""

    known: KnownShape
    wishes: list[Wish]
    excluded: list[int]


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
        self._checks = HostChecks(self.index, of.scarce_gpu)
        self._feeds = InventoryFeeds(inventories)
        self._strategies = strategies
        self._shapes: dict[Shape, KnownShape] = {}
        self._numbers = 0

    @property
    def wake_at(self) -> float | None:
        """When to call `receive` even without messages: to request a snapshot again."""
        return self._feeds.wake_at

    def receive(self, messages: Sequence[tuple[Key | None, Message]], now: float) -> list[Send]:
        """Apply all messages about hosts first, then answer the wishes."""
        self.index.expire(now)
        wishes: list[Wish] = []
        for _, message in messages:
            if isinstance(message, Wish):
                if message.members:
                    wishes.append(message)
            elif isinstance(message, HostDeltas):
                self._receive(message, now)
            else:
                raise TypeError(f"a placer does not know {type(message).__name__}")
        sends: list[Send] = []
        if wishes:
            for group in self._groups(wishes):
                self._place(group, now, sends=sends)
        wanted = SnapshotWanted(self.key)
        sends += [Send(inventory, wanted) for inventory in self._feeds.due(now)]
        return sends

    def _receive(self, deltas: HostDeltas, now: float) -> None:
        self.index.receive(deltas.inventory, deltas.hosts, whole=deltas.snapshot)
        self.index.drop(deltas.gone)
        self._feeds.receive(deltas.inventory, deltas.sequence, snapshot=deltas.snapshot, now=now)

    def _groups(self, wishes: list[Wish]) -> list[WishGroup]:
        """Wishes decided as one, in the order in which the first of each came.

        Refusals of all wishes are applied first, so that no member is sent to a host that has just
        refused another for lack of resources.
        """
        refused = [self._refusals(wish) for wish in wishes]
        alike: dict[int, WishGroup] = {}
        groups: list[WishGroup] = []
        for wish, excluded in zip(wishes, refused, strict=True):
            known = self._known(wish.shape)
            apart = bool(excluded) or known.strategy is None or not known.strategy.shares
            group = None if apart else alike.get(known.number)
            if group is None:
                group = WishGroup(known, [], excluded)
                groups.append(group)
                if not apart:
                    alike[known.number] = group
            group.wishes.append(wish)
        return groups

    def _refusals(self, wish: Wish) -> list[int]:
        """Rows that refused this wish and have not reported since.

        If they seem to have enough free, they refused for a reason that no summary shows, and to
        propose them again at once might repeat for ever.
        """
        rows = [self.index.receive_refusal(host) for host in wish.refused]
        return [row for row in rows if row is not None]

    def _known(self, shape: Shape) -> KnownShape:
        known = self._shapes.get(shape)
        if known is None:
            need = need_of(shape)
            strategy = self._strategies.get(shape.strategy)
            known = KnownShape(
                self._numbers, need, strategy, open_key(shape), _search(need, strategy)
            )
            self._numbers += 1
            if len(self._shapes) >= SHAPES_MAX:
                del self._shapes[next(iter(self._shapes))]
            self._shapes[shape] = known
        return known

    def _place(self, group: WishGroup, now: float, *, sends: list[Send]) -> None:
        """Decide a group and answer each of its wishes, in the order in which they came."""
        known, wishes, excluded = group
        if known.strategy is None:
            name = group.wishes[0].shape.strategy
            text = f"unknown placement strategy {name!r}"
            self._refuse(
                wishes, Unschedulable(((UNKNOWN_STRATEGY, 1),), text, True), now, sends=sends
            )
            return
        count = sum(len(wish.members) for wish in wishes)
        rows, counts = self._decide(known, known.strategy, count=count, excluded=excluded)
        if len(rows):
            self.index.propose(known.need, rows, counts=counts, now=now)
        names = self.index.names
        hosts = [names[row] for row in np.repeat(rows, counts).tolist()]
        at = 0
        left: list[Wish] = []
        for wish in wishes:
            wanted = len(wish.members)
            got = tuple(hosts[at : at + wanted])
            at += len(got)
            members = wish.members.lowest(len(got))
            if got:
                sends.append(Send(wish.slice, Placed(wish.number, members, got)))
            if len(got) < wanted:
                left.append(wish if not got else _rest(wish, members))
        if left:
            used = rows.tolist() if not known.strategy.shares else []
            failed = self._checks.failed(known.need, excluded, used=used)
            fit_if_empty = self._checks.fit_if_empty(known.need)
            unschedulable = unschedulable_reason(
                self.index, known.need, failed=failed, fit_if_empty=fit_if_empty
            )
            self._refuse(left, unschedulable, now, sends=sends)

    def _decide(
        self, known: KnownShape, strategy: Strategy, *, count: int, excluded: list[int]
    ) -> tuple[Ints, Ints]:
        """Rows for up to `count` members and how many go to each."""
        if count <= FEW_MAX and known.search is not None and not excluded:
            few = self._look_up(known, known.search, strategy=strategy, count=count)
            if few is not None:
                taken = np.array(few, np.int64)
                return taken[:, 0], taken[:, 1]
        fitting = self._checks.fit(known.need, excluded)
        if not len(fitting.rows):
            return fitting.rows, fitting.rows
        return choose(self.index, known.need, fitting=fitting, strategy=strategy, count=count)

    def _look_up(
        self, known: KnownShape, search: Search, *, strategy: Strategy, count: int
    ) -> list[tuple[int, int]] | None:
        """Hosts for a few members, from a kept order; None if a scan is needed."""
        index = self.index
        order = index.kept_order(strategy.sign, known.among)
        if not order.ready(self._checks.open_to(known.need)):
            return None
        return order.take(search, count, groups=index.groups, each_max=strategy.each_max)

    def _refuse(
        self,
        wishes: Sequence[Wish],
        unschedulable: Unschedulable,
        now: float,
        *,
        sends: list[Send],
    ) -> None:
        self._feeds.refresh_quiet_feeds(now)
        for wish in wishes:
            answer = Unplaced(
                wish.number,
                wish.members,
                unschedulable.reasons,
                unschedulable.text,
                unschedulable.never,
            )
            sends.append(Send(wish.slice, answer))


def _rest(wish: Wish, placed: Bits) -> Wish:
    return Wish(wish.slice, wish.number, wish.members - placed, wish.shape)


def _search(need: Need, strategy: Strategy | None) -> Search | None:
    """What to search for in a kept order; None if the answer depends on more than the order holds:
    ports, tasks of hosts, or amounts so small that the epsilon decides.
    """
    if strategy is None or strategy.sign == 0:
        return None
    epsilon_decides = need.nothing or 0 < need.amounts[GPU] < EPSILON
    if epsilon_decides or need.amounts[PORTS] or depends_on_tasks(need.shape.constraint):
        return None
    return Search(need.amounts[:4], need.least[:4])
