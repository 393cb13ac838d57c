"""The containers of a host's runs while these go on: whom a change concerns, and who has seen it.

Turns reports into messages to tasks, and their answers into confirmations. It keeps nothing: a
change that gets lost on the way is reported again. Must not decide anything by what it passes on.
"""

from __future__ import annotations

from peloton.actors.host.container_messages import (
    ContainersNoted,
    ContainersReported,
    ContainersSeen,
)
from peloton.actors.host.foreign_names import is_foreign
from peloton.actors.host.ledger import RunPhase, names_of
from peloton.actors.host.state import Host
from peloton.actors.task.container_messages import ContainersChanged
from peloton.runtime.vocabulary import At, Bits, Decision, Key, Send

_GOES_ON = frozenset((RunPhase.ACCEPTED, RunPhase.STARTED, RunPhase.KILLING))


def containers_reported(host: Host, message: ContainersReported, at: At) -> Decision:
    """Pass changes on; those of runs that have ended, or are no task's, concern nobody."""
    changes: dict[tuple[Key, ContainersChanged], int] = {}
    nobody: dict[int, list[str]] = {}
    for change in message.runs:
        found = host.runs.find(change.run)
        if found is None or found.of.phase not in _GOES_ON or is_foreign(found.crowd):
            nobody.setdefault(change.number, []).append(change.run)
            continue
        told = ContainersChanged(found.of.run, change.number, change.containers)
        name = found.crowd, told
        changes[name] = changes.get(name, 0) | 1 << found.member
    sends = [Send(crowd, told, Bits(raw)) for (crowd, told), raw in changes.items()]
    for number, runs in nobody.items():
        sends.append(Send(host.backend, ContainersNoted(at.key, tuple(runs), number)))
    return Decision(sends=tuple(sends))


def containers_seen(host: Host, message: ContainersSeen, at: At) -> Decision:
    """Tell the backend that it need not repeat the change."""
    assert at.members is not None and at.sender is not None
    names = names_of(at.sender, at.members.raw, run=message.run)
    noted = ContainersNoted(at.key, tuple(names), message.number)
    return Decision(sends=(Send(host.backend, noted),))
