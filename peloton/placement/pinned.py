"""Wishes whose members may each run on one host only: the instances of daemon jobs.

Turns such a wish, or a report of its host, into a proposal of that host, and keeps the rest by
host: a report is looked up, however many wait elsewhere. It must not propose any other host, nor
keep anything that has to survive: slices repeat their wishes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from peloton.placement.index import HostIndex
from peloton.placement.kept_wishes import KEPT_LOST_S
from peloton.placement.messages import NOT_UP, HostDeltas, Placed, Wish
from peloton.placement.needs import PORTS
from peloton.placement.proposals import unplaced
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
from peloton.runtime.vocabulary import Bits, Key, Send

Member = tuple[Key, int]
"""A slice, and one of its members."""


class _Pin(NamedTuple):
    """A member that waits for its host. `refused`: the number of the report by which the host has
    refused it; -1 if it has not. `never`: what its slice was told of that; None: nothing yet."""

    slice: Key
    member: int
    host: Key
    number: int
    known: KnownShape
    refused: int
    never: bool | None = None


class PinnedWishes:
    """The members that wait for one host each, of one placer."""

    def __init__(
        self, index: HostIndex, checks: HostChecks, *, shapes: KnownShapes, reserved: ReservedHosts
    ) -> None:
        self._index, self._checks, self._shapes = index, checks, shapes
        self._reserved = reserved
        self._by_host: dict[Key, dict[Member, _Pin]] = {}
        self._hosts: dict[Key, dict[int, Key]] = {}  # by slice and member
        self._seen: dict[Member, float] = {}  # when their slice last wished, the oldest first
        self._news: dict[Key, None] = {}  # hosts with pins that have reported
        self._stopped = ""  # why no host is proposed at all

    def __len__(self) -> int:
        return sum(map(len, self._hosts.values()))

    def receive(self, deltas: HostDeltas) -> None:
        """Note which of these hosts somebody waits for."""
        if self._by_host:
            for summary in deltas.hosts:
                if summary.host in self._by_host:
                    self._news[summary.host] = None

    def stop(self, text: str) -> None:
        """Propose no host, for this reason; "": propose them again. All are told so."""
        self._stopped = text
        for host, pins in self._by_host.items():
            self._news[host] = None
            for name, pin in pins.items():
                pins[name] = pin._replace(never=None)

    def retain(self, slice_: Key, wanted: Bits) -> None:
        """Of this slice only these members still want hosts."""
        for member in [one for one in self._hosts.get(slice_, ()) if one not in wanted]:
            self._drop(slice_, member)

    def _expire(self, now: float) -> None:
        """Drop those whose slices did not repeat them in time; their host may be gone for good."""
        while self._seen:
            (slice_, member), seen_at = next(iter(self._seen.items()))
            if now < seen_at + KEPT_LOST_S:
                return
            self._drop(slice_, member)

    def serve(self, wishes: list[Wish], now: float) -> tuple[list[Wish], list[Send]]:
        """The wishes whose members may run anywhere; and proposals to whoever waits and to the
        others, of what there is room for now."""
        self._expire(now)
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
        rows = [self._index.receive_refusal(summary) for summary in wish.refused]
        refused = {
            self._index.names[row]: self._index.news.report_number(row)
            for row in rows
            if row is not None
        }
        for member, host in zip(wish.members, wish.hosts, strict=True):
            self._drop(wish.slice, member)
            at = refused.get(host, -1)
            self._seen[wish.slice, member] = now
            sends += self._try(_Pin(wish.slice, member, host, wish.number, known, at), now)
        return sends

    def _try(self, pin: _Pin, now: float) -> list[Send]:
        """Propose the host, or keep the member and say why, unless its slice was told so."""
        why, members = self._why_not(pin), Bits.of(pin.member)
        if why is None:
            row, need = self._index.rows[pin.host], pin.known.need
            if not self._is_held(pin):
                self._index.propose_few(need, [row], counts=[1], now=now)
            self._drop(pin.slice, pin.member)
            return [Send(pin.slice, Placed(pin.number, members, (pin.host,), pin.known.number))]
        self._hosts.setdefault(pin.slice, {})[pin.member] = pin.host
        here = self._by_host.setdefault(pin.host, {})
        here[pin.slice, pin.member] = pin._replace(never=why.never)
        if pin.never == why.never:
            return []
        return [unplaced(pin.slice, pin.number, members=members, why=why, kept=True)]

    def _is_held(self, pin: _Pin) -> bool:
        """Whether the host is held for the member, and has room for it."""
        shape = pin.known.need.shape
        return self._reserved.offers(pin.host, pin.slice, member=pin.member, shape=shape)

    def _why_not(self, pin: _Pin) -> Unschedulable | None:
        """Why its host cannot have the member now; None if it can."""
        if self._stopped:
            return Unschedulable(((LAUNCHES_STOPPED, 1),), self._stopped, False)
        index, need, name = self._index, pin.known.need, pin.host.partition("/")[2]
        row = index.rows.get(pin.host)
        if row is None:
            text = f"the placer does not know its host {name} yet"
            return Unschedulable(((MISMATCH_STATUS, 1),), text, False)
        if pin.refused == index.news.report_number(row):
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
        """Whether a host with nothing free is not asked for nothing."""
        need, free = known.need, self._index.free
        return not need.nothing or bool((free[:PORTS, row] > 0).any())

    def _drop(self, slice_: Key, member: int) -> None:
        host = self._hosts.get(slice_, {}).pop(member, None)
        self._seen.pop((slice_, member), None)
        if host is None:
            return
        if not self._hosts[slice_]:
            del self._hosts[slice_]
        del self._by_host[host][slice_, member]
        if not self._by_host[host]:
            del self._by_host[host]
