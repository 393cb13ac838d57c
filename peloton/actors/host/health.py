"""The health of a host's runs: what its backend is to check, and whom changes concern.

Turns reports into messages to tasks, one for all members with the same change, and their answers
into confirmations. It keeps nothing: a change that gets lost on the way is reported again. Must not
decide what becomes of a run that is not well; its task does.
"""

from __future__ import annotations

from peloton.actors.host.health_messages import (
    CheckedSet,
    HealthNoted,
    HealthReported,
    HealthSeen,
    RunHealth,
)
from peloton.actors.host.ledger import RunPhase, names_of
from peloton.actors.host.state import Host
from peloton.actors.task.health_messages import HealthChanged
from peloton.runtime.vocabulary import At, Bits, Decision, Key, Send

_CHECKED = frozenset((RunPhase.ACCEPTED, RunPhase.STARTED))


def checked_sets(host: Host) -> tuple[CheckedSet, ...]:
    """The runs that are to be checked while they run; not those that are to end."""
    return tuple(
        CheckedSet(crowd, some.run, some.members, some.spec.check, some.since)
        for crowd, some in host.runs.sets()
        if some.phase in _CHECKED and some.spec is not None and some.spec.check is not None
    )


def health_reported(host: Host, message: HealthReported, at: At) -> Decision:
    """Pass changes on; those of runs that are not checked any more concern nobody."""
    changes: dict[tuple[Key, HealthChanged], int] = {}
    nobody: dict[int, list[str]] = {}
    for change in message.runs:
        found = host.runs.find(change.run)
        if found is None or found.of.phase not in _CHECKED:
            nobody.setdefault(change.number, []).append(change.run)
        elif found.of.phase == RunPhase.STARTED:  # else its start is reported first
            name = found.crowd, _told(change, run=found.of.run)
            changes[name] = changes.get(name, 0) | 1 << found.member
    sends = [Send(crowd, told, Bits(raw)) for (crowd, told), raw in changes.items()]
    for number, runs in nobody.items():
        sends.append(Send(host.backend, HealthNoted(at.key, tuple(runs), number)))
    return Decision(sends=tuple(sends))


def _told(change: RunHealth, *, run: int) -> HealthChanged:
    return HealthChanged(
        run,
        change.number,
        change.healthy,
        change.text,
        change.over,
        change.unknown,
        change.ready,
        change.unready_text,
        change.unchecked,
        change.ungated,
    )


def health_seen(host: Host, message: HealthSeen, at: At) -> Decision:
    """Tell the backend that it need not repeat the change."""
    assert at.members is not None and at.sender is not None
    names = names_of(at.sender, at.members.raw, run=message.run)
    noted = HealthNoted(at.key, tuple(names), message.number)
    return Decision(sends=(Send(host.backend, noted),))
