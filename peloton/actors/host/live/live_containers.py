"""A host's runs while they go on: what their containers do, and how long they may take.

The first its backend tells, the second their tasks.

Must not know of runs that have ended: what became of their containers is told with the end.
"""

from __future__ import annotations

from peloton.actors.host.ledger import RunPhase, names_of
from peloton.actors.host.live.container_messages import (
    ContainersNoted,
    ContainersReported,
    ContainersSeen,
    LimitRun,
    LimitRuns,
    RunContainers,
)
from peloton.actors.host.live.run_news import RunNews
from peloton.actors.host.state import Host
from peloton.actors.task.container_messages import ContainersChanged
from peloton.runtime.vocabulary import At, Decision, Send

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


def run_limited(host: Host, message: LimitRun, at: At) -> Decision:
    """Runs may take longer, or not so long: their backend is told, which may end them itself."""
    assert at.members is not None and at.sender is not None
    names = [
        name
        for some in host.runs.of(at.sender, message.run)
        if some.phase in _GOES_ON and some.members & at.members
        for name in names_of(at.sender, (some.members & at.members).raw, run=message.run)
    ]
    if not names:
        return Decision(because="none of these runs is here")
    order = LimitRuns(at.key, at.epoch, tuple(names), message.max_running_s)
    return Decision(sends=(Send(host.backend, order),))
