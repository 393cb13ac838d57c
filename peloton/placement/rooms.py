"""What single hosts have free, for a slice that has to choose whose runs make room for others.

Turns the placer's view of the hosts into an answer. Must not count anything as taken.
"""

from __future__ import annotations

from peloton.actors.resources import Resources
from peloton.placement.index import HostIndex
from peloton.placement.messages import AskRoom, RoomFound
from peloton.placement.needs import PORTS
from peloton.runtime.vocabulary import Key, Send


def room_of(index: HostIndex, ask: AskRoom) -> Send:
    """The answer: what each host has free less what is proposed there."""
    found = tuple(_free(index, host) for host in ask.hosts)
    return Send(ask.slice, RoomFound(ask.lot, ask.number, ask.hosts, found))


def _free(index: HostIndex, host: Key) -> Resources | None:
    row = index.rows.get(host)
    if row is None or not index.up[row] or index.quarantines.left_out[row]:
        return None
    return Resources(*(int(index.free[kind, row]) for kind in range(PORTS)))
