"""The state of a host in the words of the contract.

Turns how far a host and its maintenance are into the name of a HostState. It must not read the
cluster.
"""

from __future__ import annotations

from peloton.actors.host.inventory.messages import HostView
from peloton.actors.host.state import HostStates, Maintenance

_OF_MAINTENANCE = {
    Maintenance.DRAINING: "HOST_STATE_DRAINING",
    Maintenance.DRAINED: "HOST_STATE_DRAINED",
    Maintenance.DOWN: "HOST_STATE_DOWN",
}


def wire_state(view: HostView) -> str:
    """The name of the state; both generations have the same names."""
    without = "HOST_STATE_UP" if view.state == HostStates.UP else "HOST_STATE_UNKNOWN"
    return _OF_MAINTENANCE.get(view.maintenance, without)
