"""How a host decides reports of its backend.

Turns starts, ends and lists of runs into ledger facts. The backend may repeat reports, report runs
that nobody owns, and forget runs: the ledger is compared with its list whenever it comes up, and a
run that only one of the two knows is resolved by `runs_listed`. A list must not be applied to runs
that were accepted after it was requested; what goes wrong otherwise:

1. a list is requested; then a run is accepted and its start ordered; then its task kills it
2. the backend answers with an empty list, starts the run, and begins to end it gracefully
3. the list arrives: the run counts as lost, its resources are granted again, and it still runs

Nor may the list of another keeper be applied than the one that has the runs:

1. keeper X of this host runs R; the shard moves to a daemon whose keeper folder is another one
2. its keeper Y lists nothing: R counts as lost, and starts again at Y beside the one at X
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from peloton.actors.host import facts as f
from peloton.actors.host import messages as m
from peloton.actors.host.ledger import (
    HOLDING,
    RUN_TABLE,
    LedgerRun,
    RunEvent,
    RunPhase,
    RunStep,
    bits,
    by_crowd,
    step,
)
from peloton.actors.host.state import Host, HostStates, lost_outcome
from peloton.actors.task import messages as t
from peloton.runtime.vocabulary import At, Bits, Decision, Due, Fact, Key, Refused, Send, counted

STOP_GRACE_S = 30.0
LATE_S = 2.0
"""An end that is reported later than this carries its own time. Below it, the time at which the
task receives the end is exact enough, and many ends share one message."""
LATE_STEPS_PER_S = 10
"""Times of late ends are rounded up to this fraction of a second, so that a thousand late ends do
not become a thousand messages."""


def runs_started(host: Host, message: m.RunsStarted, at: At) -> Decision:
    """Processes have started. Those that nobody owns are killed.

    A run is unowned if the host was lost, and its runs with it, after the start was ordered. It
    uses resources that are free according to the ledger.
    """
    fresh = []
    unowned = []
    for pod in message.runs:
        run = host.runs.get(pod)
        do = RUN_TABLE[None if run is None else run.phase][RunEvent.STARTED]
        if run is not None and do == RunStep.STARTED:
            fresh.append(run)
        elif do == RunStep.KILL_UNOWNED:
            unowned.append(pod)
    stops = _orders(host, at, again=[], stops=tuple(unowned))
    because = "runs that nobody owns are killed" if unowned else ""
    sends = (*_start_reports(fresh), *stops)
    return Decision(facts=_started(fresh), sends=sends, because=because)


def runs_ended(host: Host, message: m.RunsEnded, at: At) -> Decision:
    """Processes ended; the backend may forget them once the ends are journaled."""
    forget = Send(host.backend, m.ForgetRuns(at.key, tuple(end.run for end in message.ends)))
    ends = tuple(_outcome_for_task(host, end, at) for end in message.ends if _holds(host, end.run))
    # A run that keeps the host from being up may have ended: compare again.
    poll = (list_runs(host, at),) if host.state == HostStates.RECONCILING else ()
    if not ends:
        return Decision(sends=(forget, *poll), because="ends that are known already")
    return Decision(
        facts=_ended(host, ends),
        sends=(*_end_reports(host, ends), forget, *poll),
        because="runs ended",
    )


def runs_listed(host: Host, message: m.RunsListed, at: At) -> Decision:
    """Compare the ledger with all that the backend knows; afterwards the host is up.

    - accepted, not listed: the order was lost, and is sent again (known runs ignore it);
    - started, not listed: the run is lost;
    - listed, not in the ledger: nobody owns it, so it is killed, and the host is not up before it
      is gone, because it still uses resources that are free according to the ledger.

    Runs accepted after the list was requested are skipped (see the top of this module).
    """
    if host.removed:
        return Decision(sends=_clean_up(host, message, at), because="the host was removed")
    if host.state in (HostStates.UNREACHABLE, HostStates.LOST):
        return Decision(because="a list from before the backend went away")
    if host.keeper and message.keeper and host.keeper != message.keeper:
        return _other_keeper(host, message, at)
    listed = {*message.running, *(end.run for end in message.ends)}
    ends = tuple(_outcome_for_task(host, end, at) for end in message.ends if _holds(host, end.run))
    compared = _compared(message, host, listed=listed)
    orphans = [pod for pod in message.running if _unowned(host, pod)]
    all_ends = (*ends, *compared.missing)
    facts = _reconciled(host, message, agreed=not orphans and compared.all)
    facts = (*facts, *_started(compared.started), *_ended(host, all_ends))
    sends = (*_start_reports(compared.started), *_end_reports(host, all_ends))
    orders = _orders(host, at, again=compared.again, stops=(*compared.kills, *orphans))
    if message.ends:
        ended = tuple(end.run for end in message.ends)
        orders = (*orders, Send(host.backend, m.ForgetRuns(at.key, ended)))
    killed = counted(len(orphans), "unowned run is killed", many="unowned runs are killed")
    because = f"{killed} first" if orphans else "reconciled"
    return Decision(facts=facts, sends=(*sends, *orders), because=because)


class _Compared(NamedTuple):
    """What a list implies for the runs in the ledger, and whether it could be applied to all."""

    again: list[LedgerRun]
    missing: list[m.RunEnd]
    started: list[LedgerRun]
    kills: list[str]
    all: bool


def _compared(message: m.RunsListed, host: Host, *, listed: set[str]) -> _Compared:
    outcome = lost_outcome("the backend does not know the run any more")
    running = {*message.running}
    again: list[LedgerRun] = []
    missing: list[m.RunEnd] = []
    started: list[LedgerRun] = []
    kills: list[str] = []
    skipped = False
    for pod in sorted(host.runs):
        run = host.runs[pod]
        if pod in listed:
            do = step(run, RunEvent.LISTED) if pod in running else RunStep.NOTHING
        elif run.since < message.asked_at:
            do = step(run, RunEvent.UNLISTED)
        else:
            # Accepted when the list was requested or later: the list may be older. An owner that
            # takes over in the instant of its predecessor's last frame has such a run, and the
            # order to start it may be lost: the host stays reconciling and compares again.
            skipped = True
            continue
        if do == RunStep.START_AGAIN:
            again.append(run)
        elif do == RunStep.LOST:
            missing.append(m.RunEnd(pod, outcome))
        elif do == RunStep.STARTED:
            started.append(run)
        elif do == RunStep.KILL_AGAIN:
            kills.append(pod)
    return _Compared(again, missing, started, kills, all=not skipped)


def _reconciled(host: Host, message: m.RunsListed, *, agreed: bool) -> tuple[Fact, ...]:
    """Also for a host of an earlier version that is up and has not journaled its keeper yet."""
    adopts = host.state == HostStates.UP and bool(message.keeper) and not host.keeper
    if adopts or (agreed and host.state == HostStates.RECONCILING):
        return (f.HostReconciled(message.keeper, message.keeper_at),)
    return ()


def _other_keeper(host: Host, message: m.RunsListed, at: At) -> Decision:
    """Nothing is launched, lost or killed until the keeper answers that has the runs.

    The host stays reconciling without a deadline: only a person can know whether the other keeper
    is lost for good.
    """
    name = at.key.partition("/")[2]
    text = (
        f"another keeper answers for this host: {message.keeper} in {message.keeper_at}; "
        f"its runs are with keeper {host.keeper} in {host.keeper_at}. Set backend.process.folder "
        "of this daemon to that folder; if it is lost, give its runs up with "
        f"`peloton host forget {name} --lose-runs`, and restart the daemon"
    )
    if host.state == HostStates.RECONCILING and host.because == text:
        return Decision(because=text)
    return Decision(facts=(f.HostReachable(text),), because=text)


def _unowned(host: Host, pod: str) -> bool:
    return step(host.runs.get(pod), RunEvent.LISTED) == RunStep.KILL_UNOWNED


def _clean_up(host: Host, message: m.RunsListed, at: At) -> tuple[Send, ...]:
    """End, and have forgotten, whatever a removed machine still runs."""
    stops = _orders(host, at, again=[], stops=message.running)
    ended = tuple(end.run for end in message.ends)
    return (*stops, Send(host.backend, m.ForgetRuns(at.key, ended))) if ended else stops


def recheck_backend(host: Host, message: m.RecheckBackend, at: At) -> Decision:
    """Reports of the backend may have been lost, `BackendUp` among them.

    If the backend is known to be up, its runs are listed at once; else it is pinged first, because
    to assume that it is up would restart the timeout of an unreachable machine.
    """
    if host.removed:
        return Decision(sends=(list_runs(host, at),), because="checks a removed host for runs")
    if host.state in (HostStates.UNREACHABLE, HostStates.LOST):
        ping = Send(host.backend, m.PingBackend(at.key))
        return Decision(sends=(ping,), because="pinged the backend")
    return backend_up(host, m.BackendUp(), at)


def backend_up(host: Host, message: m.BackendUp, at: At) -> Decision:
    """The backend is available: request the list of its runs."""
    if host.removed:
        return recheck_backend(host, m.RecheckBackend(), at)
    facts = (f.HostReachable(),) if host.state != HostStates.RECONCILING else ()
    return Decision(facts=facts, sends=(list_runs(host, at),), because="backend is up")


def host_left(host: Host, message: m.HostLeft, at: At) -> Decision:
    """The machine has left: as if its backend were unavailable, until it comes back."""
    return backend_down(host, m.BackendDown(message.text or "the host has left"), at)


def list_runs(host: Host, at: At) -> Send:
    """The request for the list of runs that the backend knows."""
    known = tuple(
        m.KnownRun(run.pod, run.since) for run in held_runs(host) if run.phase != RunPhase.ACCEPTED
    )
    return Send(host.backend, m.ListRuns(at.key, at.epoch, known, at.now))


def backend_down(host: Host, message: m.BackendDown, at: At) -> Decision:
    """The backend is unavailable; the runs may continue."""
    if host.state in (HostStates.UNREACHABLE, HostStates.LOST):
        return Decision()
    return Decision(facts=(f.HostUnreachable(message.text),), because=message.text)


def host_gone(host: Host, message: m.HostGone, at: At) -> Decision:
    """The machine no longer belongs to the cluster.

    Its runs are lost to their tasks, which may run again elsewhere; so they are killed where the
    backend can still reach them (a virtual host exists beyond its removal).
    """
    if host.removed:
        return Decision(reply=0, because="the host was removed already")
    held = held_runs(host)
    if held and not message.lose_runs:
        text = (
            f"{at.key.partition('/')[2]} holds {len(held)} runs, which would be lost to their tasks"
        )
        # The request may be repeated: the runs may have ended by then.
        return Decision(reply=Refused(m.HOLDS_RUNS, text, again=True), because=text)
    reason = "the host was removed from the cluster"
    lost = lost_outcome(reason)
    stops = _orders(host, at, again=[], stops=tuple(run.pod for run in held))
    reports = _end_reports(host, tuple(m.RunEnd(run.pod, lost) for run in held))
    facts, sends = (f.HostRemoved(reason),), (*reports, *stops)
    return Decision(facts=facts, sends=sends, reply=len(held), because=reason)


def unreachable(host: Host, message: Due, at: At) -> Decision:
    """The backend was unavailable for too long."""
    if host.state == HostStates.LOST:
        return Decision()
    reason = f"host unreachable for {host.unreachable_timeout_s:g} s"
    outcome = lost_outcome(reason)
    ends = tuple(m.RunEnd(run.pod, outcome) for run in held_runs(host))
    return Decision(facts=(f.HostLost(reason),), sends=_end_reports(host, ends), because=reason)


def held_runs(host: Host) -> list[LedgerRun]:
    """The runs that hold resources, by name."""
    return [host.runs[pod] for pod in sorted(host.runs) if host.runs[pod].phase in HOLDING]


def _holds(host: Host, pod: str) -> bool:
    run = host.runs.get(pod)
    return run is not None and RUN_TABLE[run.phase][RunEvent.ENDED] == RunStep.ENDED


def _outcome_for_task(host: Host, end: m.RunEnd, at: At) -> m.RunEnd:
    """The end as it is reported to the task: a run that failed after a kill order was killed."""
    run, outcome = host.runs[end.run], end.outcome
    ended_at = _late_end(end.at, since=run.since, now=at.now)
    if run.phase != RunPhase.KILLING or outcome.end != t.End.FAILED:
        return m.RunEnd(end.run, outcome, ended_at)
    killed = t.RunOutcome(
        t.End.KILLED, outcome.exit_code, outcome.signal, "killed", outcome.message
    )
    return m.RunEnd(end.run, killed, ended_at)


def _late_end(ended_at: float | None, *, since: float, now: float) -> float | None:
    """When a run ended whose end is reported late; None for just now.

    Never before it was accepted: a clock that was set back must not make a run end before it began.
    """
    if ended_at is None or now - ended_at < LATE_S:
        return None
    rounded = math.ceil(ended_at * LATE_STEPS_PER_S) / LATE_STEPS_PER_S
    return max(since, rounded)


def _alike(host: Host, ends: Iterable[m.RunEnd]) -> dict[tuple[Key, t.Ended], list[m.RunEnd]]:
    """Ends of one crowd that are reported by the same message."""
    groups: dict[tuple[Key, t.Ended], list[m.RunEnd]] = {}
    for end in ends:
        run = host.runs[end.run]
        groups.setdefault((run.crowd, t.Ended(run.run, end.outcome, end.at)), []).append(end)
    return groups


def _members(host: Host, ends: Iterable[m.RunEnd]) -> Bits:
    return bits(host.runs[end.run] for end in ends)


def _ended(host: Host, ends: tuple[m.RunEnd, ...]) -> tuple[Fact, ...]:
    """Equal ends as one set; all single ones in one fact, by name."""
    facts: list[Fact] = []
    single: list[m.RunEnd] = []
    for (crowd, report), some in _alike(host, ends).items():
        if len(some) == 1:
            single += some
        else:
            members = _members(host, some)
            facts.append(f.SetEnded(crowd, members, report.run, report.outcome, report.at))
    return (*facts, f.ProcessesEnded(tuple(single))) if single else tuple(facts)


def _started(runs: list[LedgerRun]) -> tuple[Fact, ...]:
    facts: list[Fact] = []
    single: list[str] = []
    for crowd, number, some in by_crowd(runs):
        if len(some) == 1:
            single.append(some[0].pod)
        else:
            facts.append(f.SetStarted(crowd, bits(some), number))
    return (*facts, f.ProcessesStarted(tuple(single))) if single else tuple(facts)


def _end_reports(host: Host, ends: tuple[m.RunEnd, ...]) -> tuple[Send, ...]:
    return tuple(
        Send(crowd, report, _members(host, some))
        for (crowd, report), some in _alike(host, ends).items()
    )


def _start_reports(started: Iterable[LedgerRun]) -> tuple[Send, ...]:
    return tuple(
        Send(crowd, t.Started(number), bits(runs)) for crowd, number, runs in by_crowd(started)
    )


def _orders(
    host: Host, at: At, *, again: list[LedgerRun], stops: tuple[str, ...]
) -> tuple[Send, ...]:
    orders: tuple[Send, ...] = ()
    if again:
        starts = tuple(m.StartRun(run.pod, run.spec, run.ports) for run in again if run.spec)
        orders = (Send(host.backend, m.StartRuns(at.key, at.epoch, starts, host.keeper)),)
    if stops:
        order = m.StopRuns(at.key, at.epoch, stops, STOP_GRACE_S)
        orders = (*orders, Send(host.backend, order))
    return orders
