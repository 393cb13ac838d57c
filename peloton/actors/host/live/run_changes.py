"""Changes of running runs that a backend reports, and how long runs may take.

A report becomes one message for all members with the same change, and the answer of the tasks a
confirmation to the backend. Nothing is kept: a change that is lost on the way is reported again.
The task decides what becomes of a run.
"""

from __future__ import annotations

from peloton.actors.host.holds.foreign_names import is_foreign
from peloton.actors.host.ledger import names_of
from peloton.actors.host.live.live_messages import (
    ChangeSeen,
    ChangesNoted,
    CheckedSet,
    LimitRun,
    LimitRuns,
    RunsChanged,
)
from peloton.actors.host.stages import RunPhase
from peloton.actors.host.state import Host
from peloton.actors.task.run_messages import LiveRun, RunChanged
from peloton.runtime.vocabulary import At, Bits, Decision, Key, Message, Send

_CHECKED = frozenset((RunPhase.ACCEPTED, RunPhase.STARTED))
_GOES_ON = _CHECKED | {RunPhase.KILLING}


def checked_sets(host: Host) -> tuple[CheckedSet, ...]:
    """Return the runs whose health is to be checked while they run; not those that are to end."""
    return tuple(
        CheckedSet(crowd, some.run, some.members, some.spec.check, some.since)
        for crowd, some in host.runs.sets()
        if some.phase in _CHECKED and some.spec is not None and some.spec.check is not None
    )


def runs_changed(host: Host, message: RunsChanged, at: At) -> Decision:
    """Forward changes to tasks.

    Changes of runs that have ended or are of no task are ignored, and so is the health of a run
    that is to end.
    """
    told: dict[tuple[Key, Message], int] = {}
    nobody: dict[int, list[str]] = {}
    for change in message.runs:
        found, live = host.runs.find(change.run), LiveRun()
        if found is not None and found.of.phase in _GOES_ON and not is_foreign(found.crowd):
            live = change.live if found.of.phase in _CHECKED else change.live.unjudged
        if found is None or live == LiveRun():
            nobody.setdefault(change.number, []).append(change.run)
        else:
            name = found.crowd, RunChanged(found.of.run, change.number, live)
            told[name] = told.get(name, 0) | 1 << found.member
    sends = [Send(crowd, changed, Bits(raw)) for (crowd, changed), raw in told.items()]
    noted = [ChangesNoted(at.key, tuple(runs), number) for number, runs in nobody.items()]
    return Decision(sends=(*sends, *(Send(host.backend, one) for one in noted)))


def change_seen(host: Host, message: ChangeSeen, at: At) -> Decision:
    """Tell the backend that it need not repeat the change."""
    assert at.members is not None and at.sender is not None
    names = names_of(at.sender, at.members.raw, run=message.run)
    noted = ChangesNoted(at.key, tuple(names), message.number)
    return Decision(sends=(Send(host.backend, noted),))


def run_limited(host: Host, message: LimitRun, at: At) -> Decision:
    """Tell the backend the new time limit of runs, which it may enforce itself."""
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
