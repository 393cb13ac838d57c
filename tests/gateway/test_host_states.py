"""The state of a host, as one word or two."""

from __future__ import annotations

import pytest

from peloton.actors.host.state import HostStates, Maintenance
from peloton.gateway.hosts import _state_of


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
    assert _state_of(state, maintenance, quarantined=quarantined) == says
