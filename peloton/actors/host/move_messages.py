"""Messages of a host that moves to another pool of hosts once its runs have ended.

The pools are the first inventory's; these are the orders to the host, and its refusal there. None
may concern a single run.
"""

from __future__ import annotations

from peloton.runtime.vocabulary import Message

IN_MAINTENANCE = "IN_MAINTENANCE"


class MoveToPool(Message, frozen=True, gc=False, array_like=True):
    """Gateway to host: leave this pool for that one, as soon as nothing runs here.

    Answered `MaintenanceSet`, as the start of a maintenance is.
    """

    source: str
    destination: str


class PoolMoveRefused(Message, frozen=True, gc=False, array_like=True):
    """First inventory to host: it cannot join this pool."""

    destination: str
    text: str


MOVE_MESSAGES: dict[int, type] = {23: MoveToPool, 24: PoolMoveRefused}
"""Those of the host, beyond `MESSAGES`."""
