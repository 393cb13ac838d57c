"""The state of a host, as one word or two."""

from __future__ import annotations

import pytest

from peloton.actors.host.stages import HostStates, Maintenance
from peloton.gateway.translate.host_states import HostStanding, shown_state, state_and_text
from peloton.placement.messages import Label


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
    assert shown_state(HostStanding(state, maintenance, quarantined)) == says


MESOS = (Label("rack", "a"), Label("mesos.cluster", "west"))
AWAY = "its agent is not registered"
DOWN = "down for maintenance; `peloton host maintenance complete west.h` uses it again"


@pytest.mark.parametrize(
    ("state", "maintenance", "labels", "says"),
    [
        (HostStates.UNREACHABLE, Maintenance.DOWN, MESOS, ("DOWN", DOWN)),
        (HostStates.LOST, Maintenance.DOWN, MESOS, ("DOWN", DOWN)),
        (HostStates.UP, Maintenance.DOWN, MESOS, ("DOWN", AWAY)),
        (HostStates.UNREACHABLE, Maintenance.DRAINING, MESOS, ("DRAINING, UNREACHABLE", AWAY)),
        (HostStates.UNREACHABLE, Maintenance.NONE, MESOS, ("UNREACHABLE", AWAY)),
        (HostStates.UNREACHABLE, Maintenance.DOWN, MESOS[:1], ("DOWN, UNREACHABLE", AWAY)),
    ],
)
def test_a_host_of_mesos_that_is_down_is_away_for_that(
    state: HostStates, maintenance: Maintenance, labels: tuple[Label, ...], says: tuple[str, str]
) -> None:
    of = HostStanding(state, maintenance, False, labels)
    assert state_and_text(of, name="west.h", text=AWAY) == says
