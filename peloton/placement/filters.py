"""Checks whether one host suits a client that asks for whole hosts, and why not.

The result is one of the names of the original's host filter. The gateway filters lists with it, and
the host uses it for the final decision.
"""

from __future__ import annotations

from peloton.actors.resources import Resources
from peloton.placement.conditions import EXCLUSIVE, accepts, depends_on_tasks, opens_exclusive
from peloton.placement.messages import Constraint, HostSummary
from peloton.runtime.vocabulary import Value

SUITS = "MATCH"
NOT_READY = "MISMATCH_STATUS"
NOTHING_FREE = "NO_OFFER"
TOO_SMALL = "INSUFFICIENT_OFFER_RESOURCES"
SCARCE = "SCARCE_RESOURCES"
UNSUITABLE = "MISMATCH_CONSTRAINTS"
BEYOND_MOST = "MISMATCH_MAX_HOST_LIMIT"
RESULTS = frozenset((SUITS, NOT_READY, NOTHING_FREE, TOO_SMALL, SCARCE, UNSUITABLE, BEYOND_MOST))


class HostWant(Value, frozen=True, gc=False, array_like=True):
    """What a host must have.

    `revocable`: its cpu must be revocable, which no host holds for clients: slack is for tasks of
    pools.
    """

    resources: Resources = Resources()
    ports: int = 0
    constraint: Constraint | None = None
    revocable: bool = False


def suits(
    summary: HostSummary,
    want: HostWant,
    *,
    ready: bool,
    room: Resources,
    ports: int | None = None,
) -> str:
    """Return the name of the first check that a host with this `room` fails, or `SUITS`.

    `ports`: how many ports are free, if it is not the number in the summary. A condition on tasks
    is left to the host if the summary does not have the labels of its tasks.
    """
    if not ready:
        return NOT_READY
    if not any(each > 0 for each in room.amounts()):
        return NOTHING_FREE
    if not want.resources.within(room) or (want.revocable and want.resources.cpu):
        return TOO_SMALL
    if summary.capacity.gpu and not want.resources.gpu:
        return SCARCE
    if want.ports > (summary.ports if ports is None else ports):
        return TOO_SMALL
    return SUITS if _allowed(summary, want.constraint) else UNSUITABLE


def _allowed(summary: HostSummary, constraint: Constraint | None) -> bool:
    exclusive = any(label.key == EXCLUSIVE for label in summary.labels)
    if exclusive and not opens_exclusive(constraint):
        return False
    if constraint is None or (summary.running is None and depends_on_tasks(constraint)):
        return True
    place, running = (summary.host, summary.labels), dict(summary.running or ())
    return accepts(constraint, (), host=place, running=running, most=1) > 0
