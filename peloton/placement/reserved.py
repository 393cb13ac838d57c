"""Hosts that are held for tasks: a wish of such a task is answered with its host.

What a host has for these tasks is not in the free resources by which others are placed, so nothing
is counted as taken here: the host settles it. A host that has just refused the wish is not proposed
again; the task is then placed as any other.

A member that has found no room for long gets a host held for it: else a steady load of small tasks
could take for ever what is freed. The host that lacks least is chosen. Slices order the hold, and
repeat the order with their wishes, so that a hold which nobody needs ends soon.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from peloton.placement.conditions import shape_depends_on_tasks
from peloton.placement.index import HostIndex
from peloton.placement.kept_wishes import KeptWish, KeptWishes
from peloton.placement.messages import HostDeltas, Placed, ReservedRoom, Shape, Wish
from peloton.placement.needs import PORTS, Need
from peloton.placement.reasons import HostChecks
from peloton.placement.shapes import KnownShapes
from peloton.runtime.vocabulary import Bits, Key, Send

SLICE = "slice/"
RESERVED_AFTER_S = 60.0
"""How long a member has found no room before a host is held for it."""
RESERVED_PART = 20
"""Of so many hosts one is held in this way, and one where there are fewer."""
RESERVED_FOR_S = 600.0
"""How long it is held at most: what runs there may never end. Then it is another's turn."""
FORGOTTEN_S = 130.0
"""Without another order a hold is over by then."""
CHOSEN_MAX = 4
"""Hosts chosen in one call: each choice looks at all of them."""


class _Held(NamedTuple):
    inventory: Key
    has: ReservedRoom


class _Chosen(NamedTuple):
    member: int
    host: Key
    since: float
    ordered_at: float


class ReservedHosts:
    """The hosts that are held for members of slices, as reported."""

    def __init__(self) -> None:
        self._hosts: dict[Key, _Held] = {}
        self._of_slice: dict[Key, dict[int, Key]] = {}
        self._news: dict[Key, None] = {}  # slices whose hosts have reported
        self._choices_left = CHOSEN_MAX
        self._chosen: dict[Key, _Chosen] = {}  # by slice
        self._spent: dict[Key, float] = {}  # hosts that were held in vain, and until when

    def receive(self, deltas: HostDeltas) -> None:
        """Record which of these hosts are held, and for which members."""
        if self._hosts:
            for host in deltas.gone:
                self._forget(host)
            if deltas.snapshot:
                of = [h for h, held in self._hosts.items() if held.inventory == deltas.inventory]
                for host in of:
                    self._forget(host)
        for summary in deltas.hosts:
            if summary.host in self._hosts:
                self._forget(summary.host)
            if summary.reserved is not None and summary.reserved.tasks and summary.up:
                self._hosts[summary.host] = _Held(deltas.inventory, summary.reserved)
                for crowd, member in summary.reserved.tasks:
                    slice_ = _slice_of(crowd)
                    self._of_slice.setdefault(slice_, {})[member] = summary.host
                    self._news[slice_] = None

    def _forget(self, host: Key) -> None:
        held = self._hosts.pop(host, None)
        for crowd, member in held.has.tasks if held is not None else ():
            slice_ = _slice_of(crowd)
            members = self._of_slice.get(slice_, {})
            if members.get(member) == host:
                del members[member]
                if not members:
                    del self._of_slice[slice_]

    def serve(
        self, wishes: list[Wish], kept: KeptWishes, *, shapes: KnownShapes, index: HostIndex
    ) -> tuple[list[Wish], list[Send]]:
        """Propose held hosts to the members that they are held for.

        Returns what is left of the wishes, and the proposals, for kept wishes as well.
        """
        news, self._news = self._news, {}
        self._choices_left = CHOSEN_MAX
        if not self._of_slice:
            return wishes, []
        sends: list[Send] = []
        for slice_ in news:
            for one in kept.of_slice(slice_):
                refused = {index.names[row] for row in one.excluded(index)}
                sends += self._serve_kept(one, refused, kept=kept)
        left: list[Wish] = []
        for wish in wishes:
            refused = {summary.host for summary in wish.refused}
            found = dict(self._hosts_of(wish.slice, wish.members, shape=wish.shape, but=refused))
            if found:
                number = shapes.of(wish.shape).number
                sends.append(_proposal(wish, found, shape=number))
                got = Bits.of(*found)
                for one in kept.of_slice(wish.slice):
                    kept.remove(one, got)
                wish = replace(wish, members=wish.members - got)
            if wish.members:
                left.append(wish)
        return left, sends

    def offers(self, host: Key, slice_: Key, *, member: int, shape: Shape) -> bool:
        """Return whether this host is held for the member, and has room for it."""
        held = self._hosts.get(host)
        if held is None or self._of_slice.get(slice_, {}).get(member) != host:
            return False
        return shape.resources.within(held.has.room) and shape.ports <= held.has.ports

    def chosen(
        self, kept: KeptWish, *, checks: HostChecks, index: HostIndex, now: float
    ) -> tuple[tuple[int, Key], ...]:
        """Return the host that is to be held for a member of a wish: the present one, or another.

        A slice has one such host at a time.
        """
        known = self._chosen.get(kept.slice)
        if known is not None and now < known.ordered_at + FORGOTTEN_S:
            if known.member not in kept.members:
                return ()
            if now >= known.since + RESERVED_FOR_S:
                self._spent[known.host] = now + RESERVED_FOR_S
                del self._chosen[kept.slice]
                return ()
            self._chosen[kept.slice] = known._replace(ordered_at=now)
            return ((known.member, known.host),)
        shape = kept.known.need.shape
        if now < kept.since + RESERVED_AFTER_S or shape_depends_on_tasks(shape):
            return ()
        self._chosen = {
            slice_: one
            for slice_, one in self._chosen.items()
            if now < one.ordered_at + FORGOTTEN_S
        }
        self._spent = {host: until for host, until in self._spent.items() if now < until}
        if not self._choices_left or len(self._chosen) * RESERVED_PART >= max(1, index.up.sum()):
            return ()
        self._choices_left -= 1
        row = self._least_lacking(kept.known.need, checks=checks, index=index)
        if row is None:
            return ()
        member, host = next(iter(kept.members)), index.names[row]
        self._chosen[kept.slice] = _Chosen(member, host, now, now)
        return ((member, host),)

    def _least_lacking(self, need: Need, *, checks: HostChecks, index: HostIndex) -> int | None:
        """Return the host that lacks least, of those that would take a member if they were
        empty."""
        fits = checks.fit_if_empty(need) & checks.open_to(need.shape)
        others = (*self._hosts, *self._spent, *(one.host for one in self._chosen.values()))
        fits[[index.rows[host] for host in others if host in index.rows]] = False
        rows = np.flatnonzero(fits)
        if not len(rows):
            return None
        wanted = np.array(need.least[:PORTS])[:, None]
        lacked = np.maximum(wanted - index.free[:PORTS, rows], 0) / np.maximum(wanted, 1)
        return int(rows[lacked.sum(axis=0).argmin()])

    def _serve_kept(self, one: KeptWish, refused: set[Key], *, kept: KeptWishes) -> list[Send]:
        shape = one.known.need.shape
        found = dict(self._hosts_of(one.slice, one.members, shape=shape, but=refused))
        if not found:
            return []
        kept.remove(one, Bits.of(*found))
        return [_proposal(one, found, shape=one.known.number)]

    def _hosts_of(
        self, slice_: Key, members: Bits, *, shape: Shape, but: set[Key]
    ) -> Iterator[tuple[int, Key]]:
        """Yield the members whose held hosts have room for them, ascending, with these hosts."""
        for member, host in sorted(self._of_slice.get(slice_, {}).items()):
            has = self._hosts[host].has
            fits = shape.resources.within(has.room) and shape.ports <= has.ports
            if member in members and host not in but and fits:
                yield member, host


def _slice_of(crowd: Key) -> Key:
    return Key(SLICE + crowd.partition("/")[2])


def _proposal(to: Wish | KeptWish, found: dict[int, Key], *, shape: int) -> Send:
    return Send(to.slice, Placed(to.number, Bits.of(*found), tuple(found.values()), shape))
