"""Instances of a slice that match a query: counted, and the first of them in its order as views.

Members are matched by the classes and columns of the crowd, so that a view is made only of what may
be on the page. The same rules hold for instances that exist only in the job's count (`passes`,
`first_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from peloton.actors.job.slice.counts import INITIALIZED, client_state
from peloton.actors.job.slice.messages import (
    FindInstances,
    InstancesFound,
    InstanceSort,
    InstanceView,
)
from peloton.actors.job.slice.state import Slice
from peloton.actors.job.slice.tally import views_of
from peloton.actors.task.messages import SLICE_SIZE
from peloton.runtime.vocabulary import At, Bits

SORT_FIELDS: Mapping[str, Callable[[InstanceView], Any]] = {
    "started_at": lambda view: view.started_at or 0.0,
    "host": lambda view: view.host,
    "instance": lambda view: view.instance,
    "message": lambda view: view.because or (view.outcome.message if view.outcome else ""),
    "name": lambda view: view.config.name,
    "reason": lambda view: view.code or (view.outcome.reason if view.outcome else ""),
}
"""By what instances may be ordered, besides by their state."""


def find_instances(slice_: Slice, query: FindInstances, at: At) -> InstancesFound:
    """Return what matches in this slice."""
    members = _by_state(slice_, query, at)
    if query.names:
        rows = [number for number, row in enumerate(slice_.specs) if row.config.name in query.names]
        members = members & _with_rows(slice_, rows, members=members, at=at)
    if query.hosts:
        read = at.index.columns.read
        home = slice_.homes.hosts.get if slice_.homes is not None else lambda member: ""
        members = Bits.of(
            *(one for one in members if (read("host", one) or home(one)) in query.hosts)
        )
    count = len(members)
    if not query.limit:
        return InstancesFound(count)
    if by_instance(query.order):
        listed = [*members]
        if query.order and query.order[0].down:
            listed.reverse()
        members = Bits.of(*islice(listed, query.limit))
    views = views_of(slice_, members, at)
    return InstancesFound(count, tuple(first_of(query, views)))


def up_to(query: FindInstances, limit: int) -> FindInstances:
    """Return the same query for at most `limit` views."""
    return msgspec.structs.replace(query, limit=limit)


def passes(query: FindInstances, view: InstanceView) -> bool:
    """Return whether an instance matches."""
    return (
        (not query.states or view.state in query.states)
        and (not query.names or view.config.name in query.names)
        and (not query.hosts or view.host in query.hosts)
    )


def by_instance(order: Sequence[InstanceSort]) -> bool:
    """Return whether instances come by their numbers."""
    return not order or order[0].field == "instance"


def first_of(query: FindInstances, views: Iterable[InstanceView]) -> list[InstanceView]:
    """Return the first views in order, up to the limit; equal ones come by their numbers."""
    found = sorted(views, key=SORT_FIELDS["instance"])
    for order in reversed(query.order):
        found.sort(key=_key_of(order), reverse=order.down)
    return found[: query.limit]


def _key_of(order: InstanceSort) -> Callable[[InstanceView], Any]:
    if order.field != "state":
        return SORT_FIELDS[order.field]
    ranks = {state: rank for rank, state in enumerate(order.states)}
    return lambda view: ranks.get(view.state, len(ranks))


def _by_state(slice_: Slice, query: FindInstances, at: At) -> Bits:
    first = slice_.number * SLICE_SIZE
    wanted = Bits.span(max(query.start - first, 0), min(query.stop - first, slice_.count))
    if slice_.homes is not None:
        wanted = wanted & slice_.homes.placed
    found = 0
    for state, raw in at.index.split(wanted.raw & at.index.present):
        if not query.states or client_state(state) in query.states:
            # Those that are to run again are shown as not begun.
            found |= raw & ~slice_.awaiting_restart.raw
    if not query.states or INITIALIZED in query.states:
        unadded = slice_.unadded
        found |= wanted.raw & (slice_.waiting.raw & ~unadded.raw | slice_.awaiting_restart.raw)
    return Bits(found)


def _with_rows(slice_: Slice, rows: list[int], *, members: Bits, at: At) -> Bits:
    """Return the members whose config is one of these rows."""
    if len(rows) == len(slice_.specs):
        return members
    waiting = slice_.waiting
    found = [one for one in members - waiting if (at.index.columns.read("spec", one) or 0) in rows]
    closed = Bits()
    for number in rows:
        closed = closed | (slice_.closed[number] if slice_.closed else Bits())
    return Bits.of(*found) | (members & closed)
