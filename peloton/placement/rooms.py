"""What room there is, or would be if some runs ended, for those who choose which are to end.

Of single hosts it is what they have free. Whether a gang would have hosts is a trial, which turns
members and the room that hosts would have more into the part of it that they need: as much
as goes goes on what is free, and only the rest on what would be. It is the proposer of real wishes
that finds the hosts, so constraints, ports and strategies count as they will. What the runs that
would end hold of ports, and of labels that others keep away from, is not counted as free. Must
leave nothing counted as taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from peloton.actors.resources import Resources
from peloton.placement.gang_wishes import Proposer, all_of
from peloton.placement.index import HostIndex
from peloton.placement.labels import Ints
from peloton.placement.messages import AskGangRoom, AskRoom, GangRoomFound, RoomFound
from peloton.placement.needs import PORTS
from peloton.placement.proposals import Proposed
from peloton.placement.shapes import KnownShape, KnownShapes
from peloton.runtime.vocabulary import Key, Send


class _Part(NamedTuple):
    known: KnownShape
    members: int


class _Lent(NamedTuple):
    """Rows that would have more room, and how much, by column."""

    rows: Ints
    more: Ints


class _Trial(NamedTuple):
    """A gang, the room that would be freed, and the proposer that finds its hosts."""

    hosts: HostIndex
    parts: list[_Part]
    lent: _Lent
    by: Proposer
    now: float


def rooms_of(
    index: HostIndex,
    asked: Iterable[AskRoom | AskGangRoom],
    *,
    shapes: KnownShapes,
    by: Proposer,
    now: float,
) -> list[Send]:
    """Return the answers to all questions about room."""
    return [
        room_of(index, ask)
        if isinstance(ask, AskRoom)
        else gang_room_of(index, ask, shapes=shapes, by=by, now=now)
        for ask in asked
    ]


def gang_room_of(
    index: HostIndex, ask: AskGangRoom, *, shapes: KnownShapes, by: Proposer, now: float
) -> Send:
    """Return the answer to one question about room for a gang.

    If placing on free room first fails, it is tried again with all room at once.
    """
    parts = [_Part(shapes.of(part.shape), len(part.members)) for part in ask.parts]
    parts.sort(key=lambda part: (part.known.need.amounts, part.members), reverse=True)
    trial = _Trial(index, parts, _lent(index, ask), by, now)
    if all(part.known.strategy is not None for part in parts):
        for free_first in (True, False):
            lack = _try(trial, free_first=free_first)
            if lack is not None:
                hosts = tuple(index.names[row] for row in lack)
                found = GangRoomFound(ask.number, True, hosts, tuple(lack.values()))
                return Send(ask.asker, found)
    return Send(ask.asker, GangRoomFound(ask.number, False))


def _lent(index: HostIndex, ask: AskGangRoom) -> _Lent:
    rooms = {
        index.rows[host]: room.amounts()
        for host, room in zip(ask.hosts, ask.rooms, strict=True)
        if host in index.rows
    }
    more = np.array([*rooms.values()], np.int64).reshape(len(rooms), PORTS)
    return _Lent(np.array([*rooms], np.int64), more.T)


def _try(trial: _Trial, *, free_first: bool) -> dict[int, Resources] | None:
    """Return what each row lacks once all members have hosts, or None if some have none."""
    index, parts, lent, by, now = trial
    done: list[tuple[_Part, Proposed]] = []
    left = [part.members for part in parts]

    def place() -> None:
        for at, part in enumerate(parts):
            if left[at]:
                found = all_of(by, part.known, stages=[[]], count=left[at], now=now)
                left[at] -= len(found.hosts)
                done.append((part, found))

    try:
        if free_first:
            place()
        with _imagined(index, lent):
            place()
            if any(left):
                return None
            return _lacking(index, lent, used={row for _, found in done for row in found.rows})
    finally:
        for part, found in done:
            index.decline(part.known.need, found.hosts)


def _lacking(index: HostIndex, lent: _Lent, *, used: set[int]) -> dict[int, Resources]:
    """Return by how much the free resources of these rows are negative without what is lent."""
    lack = np.clip(lent.more - index.free[:PORTS, lent.rows], 0, lent.more)
    return {
        row: Resources(*amounts)
        for row, amounts in zip(lent.rows.tolist(), lack.T.tolist(), strict=True)
        if row in used and any(amounts)
    }


@contextmanager
def _imagined(index: HostIndex, lent: _Lent) -> Iterator[None]:
    """Give the rows the lent room within the context."""
    rows = lent.rows.tolist()
    index.free[:PORTS, lent.rows] += lent.more
    index.sorted_rows.touch(rows)
    try:
        yield
    finally:
        index.free[:PORTS, lent.rows] -= lent.more
        index.sorted_rows.touch(rows)


def room_of(index: HostIndex, ask: AskRoom) -> Send:
    """Return what each host has free, less what is proposed there."""
    found = tuple(_free(index, host) for host in ask.hosts)
    return Send(ask.slice, RoomFound(ask.lot, ask.number, ask.hosts, found))


def _free(index: HostIndex, host: Key) -> Resources | None:
    row = index.rows.get(host)
    if row is None or not index.up[row] or index.quarantines.left_out[row]:
        return None
    return Resources(*(int(index.free[kind, row]) for kind in range(PORTS)))
