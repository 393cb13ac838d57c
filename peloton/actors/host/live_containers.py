"""The containers of a host's runs while these go on, as its backend tells of them.

Must not know of runs that have ended: what became of their containers is told with the end.
"""

from __future__ import annotations

from peloton.actors.host.container_messages import (
    ContainersNoted,
    ContainersReported,
    ContainersSeen,
    RunContainers,
)
from peloton.actors.host.ledger import RunPhase
from peloton.actors.host.run_news import RunNews
from peloton.actors.host.state import Host
from peloton.actors.task.container_messages import ContainersChanged
from peloton.runtime.vocabulary import At, Decision

_GOES_ON = frozenset((RunPhase.ACCEPTED, RunPhase.STARTED, RunPhase.KILLING))


def _told(change: RunContainers, run: int) -> ContainersChanged:
    return ContainersChanged(run, change.number, change.containers)


_NEWS = RunNews(_told, ContainersNoted, known=_GOES_ON, passed=_GOES_ON)


def containers_reported(host: Host, message: ContainersReported, at: At) -> Decision:
    """Containers have begun, or ended."""
    return _NEWS.reported(host, message.runs, at)


def containers_seen(host: Host, message: ContainersSeen, at: At) -> Decision:
    """Tasks know of it."""
    return _NEWS.seen(host, message, at)
