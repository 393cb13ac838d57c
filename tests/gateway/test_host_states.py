"""The state of a host, as one word or two."""

from __future__ import annotations

import msgspec
import pytest

from peloton.actors.host.inventory.messages import HostView
from peloton.actors.host.state import HostStates, Maintenance
from peloton.actors.resources import Resources
from peloton.gateway.hosts import _state_of
from peloton.placement.messages import HostSummary
from peloton.runtime.vocabulary import Key


@pytest.mark.parametrize(
    ("state", "maintenance", "quarantined", "says"),
    [
        (HostStates.UP, Maintenance.NONE, False, "UP"),
        (HostStates.UP, Maintenance.NONE, True, "UP, QUARANTINED"),
        (HostStates.LOST, Maintenance.NONE, True, "LOST, QUARANTINED"),
        (HostStates.UP, Maintenance.DRAINING, True, "DRAINING"),
        (HostStates.LOST, Maintenance.DOWN, False, "DOWN, LOST"),
    ],
)
def test_the_state_of_a_host(
    state: HostStates, maintenance: Maintenance, quarantined: bool, says: str
) -> None:
    summary = HostSummary(Key("host/a"), 1, Resources(), Resources())
    summary = msgspec.structs.replace(summary, quarantined=quarantined)
    assert _state_of(HostView(summary, state, 0, "", maintenance)) == says
