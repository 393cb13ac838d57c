"""Wishes whose members may each run on one host only: the instances of daemon jobs.

They are kept by host, so that a report of a host is looked up, however many members wait for
others. They are soft state: slices repeat their wishes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from peloton.placement.index import HostIndex
from peloton.placement.messages import NOT_UP, HostDeltas, Placed, Wish
from peloton.placement.needs import PORTS
from peloton.placement.reasons import (
    INSUFFICIENT,
    LAUNCHES_STOPPED,
    MISMATCH_CONSTRAINTS,
    MISMATCH_STATUS,
    QUARANTINED,
    HostChecks,
)
from peloton.placement.reserved import ReservedHosts
from peloton.placement.shapes import KnownShape, KnownShapes
from peloton.placement.unschedulable import Unschedulable, lacks_text
from peloton.placement.waiting_wishes import WaitingWish, WaitingWishes
from peloton.runtime.vocabulary import Bits, Key, Send

Member = tuple[Key, int]
"""A slice, and one of its members."""


@dataclass(eq=False, kw_only=True)
class PinnedWish(WaitingWish):
    """A member that waits for its host."""

    member: int
    host: Key
    known: KnownShape


class PinnedWishes:
    """The members of one placer that each wait for one host."""

    def __init__(
        self,
        waiting: WaitingWishes,
        index: HostIndex,
        *,
        checks: HostChecks,
        shapes: KnownShapes,
        reserved: ReservedHosts,
    ) -> None:
        self._waiting = waiting
        self._index, self._checks, self._shapes = index, checks, shapes
        self._reserved = reserved
        self._pins: dict[Member, PinnedWish] = {}
        self._by_host: dict[Key, dict[Member, PinnedWish]] = {}
        self._news: dict[Key, None] = {}  # hosts with pins that have reported
        self._stopped = ""  # why no host is proposed at all

    def __len__(self) -> int:
        return len(self._pins)

    def receive(self, deltas: HostDeltas) -> None:
        """Record which of the reported hosts a member waits for."""
        if self._by_host:
            for summary in deltas.hosts:
                if summary.host in self._by_host:
                    self._news[summary.host] = None

    def stop(self, text: str) -> None:
        """Stop proposing hosts for this reason; with an empty text, propose them again."""
        self._stopped = text
        self._news |= dict.fromkeys(self._by_host)

    def _left(self, wish: PinnedWish) -> None:
        del self._pins[wish.slice, wish.member]
        here = self._by_host[wish.host]
        del here[wish.slice, wish.member]
        if not here:
            del self._by_host[wish.host]

    def serve(self, wishes: list[Wish], now: float) -> tuple[list[Wish], list[Send]]:
        """Propose hosts to pinned members, of these wishes and of those that waited.

        Returns the wishes whose members may run anywhere, and the answers.
        """
        sends: list[Send] = []
        news, self._news = self._news, {}
        if self._by_host:  # a proposal to another may be over, of which the host reports nothing
            news |= dict.fromkeys(self._index.names[row] for row in self._index.news.rows)
        for host in news:
            for pin in [*self._by_host.get(host, {}).values()]:
                sends += self._try(pin, now)
        mine = False
        for wish in wishes:
            if wish.hosts:
                mine = True
                sends += self._answer(wish, now)
        return ([wish for wish in wishes if not wish.hosts] if mine else wishes), sends

    def _answer(self, wish: Wish, now: float) -> list[Send]:
        known, sends = self._shapes.of(wish.shape), list[Send]()
        rows = self._index.receive_refusals(wish.refused)
        for member, host in zip(wish.members, wish.hosts, strict=True):
            before = self._pins.get((wish.slice, member))
            if before is not None:
                self._waiting.remove(before, before.members)
            pin = PinnedWish(
                left=self._left, slice=wish.slice, number=wish.number, members=Bits.of(member),
                member=member, host=host, known=known,
            )  # fmt: skip
            pin.refuse([row for row in rows if row == self._index.rows.get(host)], self._index)
            sends += self._try(pin, now)
        return sends

    def _try(self, pin: PinnedWish, now: float) -> list[Send]:
        """Propose the host, or keep the member and say why, unless its slice was told so."""
        why = self._why_not(pin)
        if why is None:
            row, need = self._index.rows[pin.host], pin.known.need
            if not self._is_held(pin):
                self._index.propose_few(need, [row], counts=[1], now=now)
            found = Placed(pin.number, pin.members, (pin.host,), pin.known.number)
            if pin.serial:
                self._waiting.remove(pin, pin.members)
            return [Send(pin.slice, found)]
        if not pin.serial:
            self._waiting.add(pin, now)
            name = pin.slice, pin.member
            self._pins[name] = self._by_host.setdefault(pin.host, {})[name] = pin
        return pin.tell(why)

    def _is_held(self, pin: PinnedWish) -> bool:
        """Return whether the host is held for the member, and has room for it."""
        shape = pin.known.need.shape
        return self._reserved.offers(pin.host, pin.slice, member=pin.member, shape=shape)

    def _why_not(self, pin: PinnedWish) -> Unschedulable | None:
        """Return why the host cannot take the member now, or None if it can."""
        if self._stopped:
            return Unschedulable(((LAUNCHES_STOPPED, 1),), self._stopped, False)
        index, need, name = self._index, pin.known.need, pin.host.partition("/")[2]
        row = index.rows.get(pin.host)
        if row is None:
            text = f"the placer does not know its host {name} yet"
            return Unschedulable(((MISMATCH_STATUS, 1),), text, False)
        if row in pin.excluded(index):
            text = f"its host {name} has just refused it"
            return Unschedulable(((MISMATCH_STATUS, 1),), text, False)
        if not index.up[row]:
            return Unschedulable(((MISMATCH_STATUS, 1),), f"its host {name} {NOT_UP}", True)
        if index.quarantines.left_out[row]:
            text = f"its host {name} is quarantined after failures of several jobs"
            return Unschedulable(((QUARANTINED, 1),), text, False)
        if not self._checks.open_to(need.shape)[row]:
            text = f"its host {name} is not open to it"
            return Unschedulable(((MISMATCH_CONSTRAINTS, 1),), text, True)
        if self._is_held(pin):
            return None
        if self._checks.room(need, np.array([row])) and self._fits(row, pin.known):
            return None
        never = bool((index.capacity[:, row] < np.array(need.lasting)).any())
        text = f"its host {name} {lacks_text(index, need, row=row)}"
        return Unschedulable(((INSUFFICIENT, 1),), text, never)

    def _fits(self, row: int, known: KnownShape) -> bool:
        """Return False only for a member that needs nothing, on a host that has nothing free."""
        need, free = known.need, self._index.free
        return not need.nothing or bool((free[:PORTS, row] > 0).any())
