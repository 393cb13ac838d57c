"""Compares a backend's list of runs with the ledger of the host.

The result is what is to be ordered again, what is lost, what has started and what is to be killed.
`reports.py` decides before whether a list may be applied at all.

A machine may come back as another one under the same name, its next *incarnation*: then what was
accepted at the one before is lost with it, also if its start was never reported. What goes wrong
otherwise:

1. run R is accepted, and incarnation X starts it; nothing is heard of R before X is out of
   reach, and whoever passed the order on is gone as well
2. incarnation Y lists nothing: R, which only seems not to have been ordered, is started there
3. X is back, and R runs twice
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from peloton.actors.host import messages as m
from peloton.actors.host.ends import Ends, LateStarts, Starts, add_starts
from peloton.actors.host.ledger import (
    NamedRuns,
    RunEvent,
    RunSet,
    RunStep,
    by_crowd,
    names_of,
    step,
)
from peloton.actors.host.stages import RunPhase
from peloton.actors.host.state import Host, lost_outcome
from peloton.actors.task import messages as t
from peloton.runtime.vocabulary import Bits, Key


def running_of(message: m.RunsListed) -> tuple[NamedRuns, list[str]]:
    """Return the runs that a list names as running, and the names that are of no task's run."""
    running, strange = by_crowd(message.running)
    for some in message.sets:
        name = (some.crowd, some.run)
        running[name] = running.get(name, 0) | some.members.raw
    return running, strange


def not_started(message: m.RunsListed) -> NamedRuns:
    """Return the runs of the list whose process is yet to start."""
    if not message.started or min(message.started):
        return {}
    times = zip(message.running, message.started, strict=True)
    return by_crowd(name for name, time in times if not time)[0]


class ListWords(NamedTuple):
    """What a list says, by crowd and run: which runs are there, and which of these have not
    started."""

    running: NamedRuns
    ended: NamedRuns
    late: LateStarts
    waiting: NamedRuns


class RunsCompared(NamedTuple):
    """What a list implies for the runs in the ledger, and whether it could be applied to all."""

    again: list[tuple[Key, RunSet]]
    missing: Ends
    started: Starts
    kills: list[str]
    all: bool


def compared_with(message: m.RunsListed, host: Host, *, told: ListWords) -> RunsCompared:
    """Return what a list implies for the runs in the ledger.

    `told` is the list by crowd and run.
    """
    outcome = lost_outcome("the backend does not know the run any more")
    other = message.incarnation not in ("", host.incarnation) and host.incarnation != ""
    again: list[tuple[Key, RunSet]] = []
    missing: Ends = {}
    started: Starts = {}
    kills: list[str] = []
    skipped = False
    for crowd, some in host.runs.sets():
        if some.phase == RunPhase.PREPARED:
            continue  # the backend does not know it yet
        raw, name = some.members.raw, (crowd, some.run)
        listed = raw & told.running.get(name, 0)
        unlisted = raw & ~listed & ~told.ended.get(name, 0)
        if unlisted and message.asked_at < host.proof_from and some.phase != RunPhase.ACCEPTED:
            # Its start may have been noted since the list was requested: the next list tells.
            skipped, unlisted = True, 0
        if unlisted and some.since >= message.asked_at:
            # Accepted when the list was requested or later: the list may be older. An owner that
            # takes over in the instant of its predecessor's last frame has such a run, and the
            # order to start it may be lost: the host stays reconciling and compares again.
            skipped, unlisted = True, 0
        if listed:
            do = step(some, RunEvent.LISTED)
            begun = listed & ~told.waiting.get(name, 0)
            if do == RunStep.STARTED and begun:
                add_starts(started, crowd, of=some, raw=begun, late=told.late)
            elif do == RunStep.KILL_AGAIN:
                kills += names_of(crowd, listed, run=some.run)
        if unlisted:
            do = step(some, RunEvent.UNLISTED)
            if do == RunStep.START_AGAIN and not other:
                again.append((crowd, replace(some, members=Bits(unlisted))))
            elif do in (RunStep.LOST, RunStep.START_AGAIN):
                lost = (crowd, t.Ended(some.run, outcome))
                missing[lost] = missing.get(lost, 0) | unlisted
    return RunsCompared(again, missing, started, kills, all=not skipped)
