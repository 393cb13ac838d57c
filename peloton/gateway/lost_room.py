"""Room that the cluster lacks for now, because of what operators do with hosts.

Adds to the blockers of a full cluster which hosts drain or are in maintenance, and how much they
would give. It must not judge whether that would be enough: the blocker says how much is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from peloton.actors.host.inventory.messages import HostView
from peloton.actors.host.state import Maintenance
from peloton.actors.resources import amount
from peloton.gateway.texts import client_name
from peloton.ops.v1 import ops_pb2 as ops
from peloton.runtime.vocabulary import counted

CLUSTER_FULL = "cluster-full"
NAMED_MAX = 5
UNITS = {"memory": " MB", "disk": " MB"}


def add_lost_room(
    reasons: Iterable[ops.Reason], hosts: Callable[[], Sequence[HostView]], *, named: bool
) -> None:
    """Say so in each blocker of a full cluster, with their names where the caller may see hosts.

    `hosts` is called where there is such a blocker.
    """
    full = [
        blocker for reason in reasons for blocker in reason.blockers if blocker.code == CLUSTER_FULL
    ]
    if not full:
        return
    lost = [view for view in hosts() if view.maintenance != Maintenance.NONE]
    for blocker in full:
        text = _text(lost, blocker.resource, named=named)
        if text:
            blocker.text += f"; {text}"
            blocker.change += ", or their maintenance is completed: `peloton host maintenance`"


def _text(lost: Sequence[HostView], kind: str, *, named: bool) -> str:
    with_some = [view for view in lost if getattr(view.summary.capacity, kind, 0)]
    if not with_some:
        return ""
    whole = sum(getattr(view.summary.capacity, kind) for view in with_some)
    draining = sum(view.maintenance == Maintenance.DRAINING for view in with_some)
    names = sorted(client_name(view.summary.host) for view in with_some)
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    down = len(with_some) - draining
    parts = [counted(draining, "host drains", many="hosts drain")] if draining else []
    parts += (
        [counted(down, "host is in maintenance", many="hosts are in maintenance")] if down else []
    )
    room = f"{amount(whole):.10g}{UNITS.get(kind, '')} {kind}"
    which = f": {', '.join(names[:NAMED_MAX])}{more}" if named else ""
    return f"{' and '.join(parts)}, with {room}{which}"
