"""Room that the cluster lacks for now, because hosts are absent.

The blockers of a full cluster say which hosts drain, are in maintenance, out of reach or lost, and
how much they would give. Whether that would be enough follows from how much is missing, which the
blocker says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from peloton.actors.host.inventory.messages import OUT_OF_REACH, HostView
from peloton.actors.host.stages import HostStates, Maintenance
from peloton.actors.resources import amount
from peloton.gateway.translate.texts import client_name
from peloton.ops.v1 import ops_pb2 as ops
from peloton.runtime.vocabulary import counted

CLUSTER_FULL = "cluster-full"
NAMED_MAX = 5
UNITS = {"memory": " MB", "disk": " MB"}


class Absence(NamedTuple):
    """Why hosts are absent, for one and for many, and what would bring their room back."""

    one: str
    many: str
    change: str


_COMPLETED = "complete their maintenance: `peloton host maintenance`"
_BACK = "bring them back: `peloton host list`"
DRAINS = Absence("host drains", "hosts drain", _COMPLETED)
MAINTAINED = Absence("host is in maintenance", "hosts are in maintenance", _COMPLETED)
UNREACHED = Absence("host is out of reach", "hosts are out of reach", _BACK)
LOST = Absence("host is lost", "hosts are lost", _BACK)


def add_lost_room(
    reasons: Iterable[ops.Reason], hosts: Callable[[], Sequence[HostView]], *, named: bool
) -> None:
    """Add absent hosts to each blocker of a full cluster, with their names if the caller may see
    hosts.

    `hosts` returns those that are out of reach, lost or in maintenance; it is called only if there
    is such a blocker.
    """
    for reason in reasons:
        for blocker in reason.blockers:
            if blocker.code == CLUSTER_FULL:
                _add(blocker, hosts(), named=named)


def _add(blocker: ops.Blocker, hosts: Sequence[HostView], *, named: bool) -> None:
    kind = blocker.resource
    with_some = [view for view in hosts if getattr(view.summary.capacity, kind, 0)]
    if not with_some:
        return
    groups = [*_grouped(with_some)]
    whole = sum(getattr(view.summary.capacity, kind) for view in with_some)
    names = sorted(map(_named, with_some))
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    parts = [counted(count, why.one, many=why.many) for why, count in groups]
    room = f"{amount(whole):.10g}{UNITS.get(kind, '')} {kind}"
    which = f": {', '.join(names[:NAMED_MAX])}{more}" if named else ""
    blocker.text += f"; {' and '.join(parts)}, with {room}{which}"
    changes = dict.fromkeys(why.change for why, _ in groups)
    blocker.change += "".join(f", or {change}" for change in changes)


def _named(view: HostView) -> str:
    """Return the host, and why it cannot be reached: whose keeper or agent does not answer."""
    name = client_name(view.summary.host)
    return f"{name} ({view.because})" if view.because and view.state in OUT_OF_REACH else name


def _grouped(hosts: Sequence[HostView]) -> Iterator[tuple[Absence, int]]:
    found = [_absence(view) for view in hosts]
    for why in (DRAINS, MAINTAINED, UNREACHED, LOST):
        if why in found:
            yield why, found.count(why)


def _absence(view: HostView) -> Absence:
    if view.maintenance != Maintenance.NONE:
        return DRAINS if view.maintenance == Maintenance.DRAINING else MAINTAINED
    return LOST if view.state == HostStates.LOST else UNREACHED
