"""The state of a host in words: those of the contract, and those for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from peloton.actors.host.inventory.messages import HostView
from peloton.actors.host.stages import HostStates, Maintenance
from peloton.placement.messages import Label

_OF_MAINTENANCE = {
    Maintenance.DRAINING: "HOST_STATE_DRAINING",
    Maintenance.DRAINED: "HOST_STATE_DRAINED",
    Maintenance.DOWN: "HOST_STATE_DOWN",
}

MESOS_CLUSTER = "mesos.cluster"
"""The label of hosts of Mesos. Its master ends the agent of a machine that is down."""
PUT_DOWN = "down for maintenance; `peloton host maintenance complete {name}` uses it again"


def wire_state(view: HostView) -> str:
    """Return the name of the state; both API versions have the same names."""
    without = "HOST_STATE_UP" if view.state == HostStates.UP else "HOST_STATE_UNKNOWN"
    return _OF_MAINTENANCE.get(view.maintenance, without)


class HostStanding(NamedTuple):
    """The values that make up the state of a host."""

    state: HostStates
    maintenance: Maintenance
    quarantined: bool
    labels: Iterable[Label] = ()


def shown_state(of: HostStanding) -> str:
    """Return how far a maintenance is, and the state of the host if it is not up."""
    if of.maintenance == Maintenance.NONE:
        return f"{of.state.name}, QUARANTINED" if of.quarantined else of.state.name
    up = of.state == HostStates.UP
    return of.maintenance.name if up else f"{of.maintenance.name}, {of.state.name}"


def state_and_text(of: HostStanding, *, name: str, text: str) -> tuple[str, str]:
    """Return the state and the text of a host, for people.

    A host that is away because it was taken down is not shown as if something was wrong with it.
    """
    on_mesos = any(label.key == MESOS_CLUSTER for label in of.labels)
    if on_mesos and of.maintenance == Maintenance.DOWN and of.state != HostStates.UP:
        return of.maintenance.name, PUT_DOWN.format(name=name)
    return shown_state(of), text
