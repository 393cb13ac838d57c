"""When a host is suspected of failing every run, and left out by placers for a time.

The rule: without a success between, and within `WINDOW_S`, runs of at least `JOBS_MIN` jobs ended
within `QUICK_S` of their launch so that the signs have twice as many points as the setting says. A
run that the host could not start, or lost, gives two points, once for each job and report; a run
whose program failed gives one, once for each job, as it may be the program's fault. A run that was
killed gives none.

The host still grants what it is asked for: placers decide what the quarantine means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from peloton.actors.host import facts as f
from peloton.actors.host import messages as m
from peloton.actors.host.ledger import RunEvent, RunStep, step
from peloton.actors.host.stages import HostStates, Maintenance, RunPhase
from peloton.actors.host.state import Host
from peloton.actors.task.messages import End
from peloton.runtime.vocabulary import At, Decision, Due, Fact, counted

QUARANTINE = "quarantine"
"""The name of the deadline."""
QUICK_S = 10.0
WINDOW_S = 600.0
QUARANTINE_S = 1800.0
JOBS_MIN = 3
FAULT_POINTS, FAILURE_POINTS = 2, 1
HOST_FAULTS = frozenset(("could not be started", "limits cannot be held"))
"""Reasons of runs that failed before their program began, for the machine's sake."""

QUARANTINE_OVER = Decision(
    facts=(f.QuarantineEnded(),), because="the time of its quarantine is over"
)
Deciding = Callable[[Host, Any, At], Decision]


def watching(decide: Deciding, *, after: int) -> Deciding:
    """Wrap the decision on a report with ends of runs, so that signs of trouble are counted; 0:
    never."""

    def decided(host: Host, message: Any, at: At) -> Decision:
        decision = decide(host, message, at)
        facts = _judged(host, message.ends, at=at, after=after) if after else ()
        return replace(decision, facts=(*decision.facts, *facts)) if facts else decision

    return decided


def quarantine_over(host: Host, message: Due, at: At) -> Decision:
    """End the quarantine."""
    if host.quarantine is None:
        return Decision()
    return QUARANTINE_OVER


def end_quarantine(host: Host, at: At) -> Decision | None:
    """End it once its time has passed, though other deadlines may have come in between."""
    found = host.quarantine
    return QUARANTINE_OVER if found is not None and at.now >= found.at + found.seconds else None


def _judged(host: Host, ends: Iterable[m.RunEnd], *, at: At, after: int) -> tuple[Fact, ...]:
    if host.quarantine is not None:
        return ()
    if host.state != HostStates.UP or host.maintenance != Maintenance.NONE:
        return ()
    found: dict[str, int] = {}
    for end in ends:
        if end.outcome.end == End.SUCCEEDED:
            if _is_own(host, end):
                return (f.TroubleOver(),) if host.trouble else ()
            continue
        points = _points(host, end, now=at.now)
        if points:
            job = end.run.rpartition("-")[0].rpartition("-")[0]
            found[job] = max(found.get(job, 0), points)
    since = at.now - WINDOW_S
    recent = [sign for sign in host.trouble if sign.at >= since]
    known = {sign.job for sign in recent}
    fresh = tuple(
        f.TroubleSign(at.now, job, points)
        for job, points in found.items()
        if points == FAULT_POINTS or job not in known
    )
    if not fresh:
        return ()
    signs = (*recent, *fresh)
    jobs = len({sign.job for sign in signs})
    if jobs < JOBS_MIN or sum(sign.points for sign in signs) < FAULT_POINTS * after:
        return (f.TroubleNoted(fresh, since),)
    what = counted(len(signs), "failure", many="failures")
    text = f"quarantined: {what} of {jobs} jobs at their start within {WINDOW_S / 60:g} minutes"
    return (f.HostQuarantined(at.now, QUARANTINE_S, text),)


def _is_own(host: Host, end: m.RunEnd) -> bool:
    found = host.runs.find(end.run)
    return found is not None and step(found.of, RunEvent.ENDED) == RunStep.ENDED


def _points(host: Host, end: m.RunEnd, *, now: float) -> int:
    """Return the points for the end of a run; none if it was killed, or ran for a while."""
    found = host.runs.find(end.run)
    if found is None or not _is_own(host, end) or found.of.phase == RunPhase.KILLING:
        return 0
    began = end.started_at or found.of.started_at or found.of.since
    if (end.at or now) - began >= QUICK_S or end.outcome.end == End.KILLED:
        return 0
    fault = end.outcome.end == End.LOST or end.outcome.reason in HOST_FAULTS
    return FAULT_POINTS if fault else FAILURE_POINTS
