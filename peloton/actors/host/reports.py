"""What a host makes of what its backend reports.

Turns starts, ends and lists of runs into ledger facts. The backend may repeat itself, tell of runs
that nobody owns, and forget: the ledger is compared with its list whenever it comes up, and a run
that only one of the two knows is healed by the rule that is written beside it. It must not judge by
a list what was accepted after that was asked for; what goes wrong otherwise:

1. we ask; then a run is accepted and its start ordered; then its task kills it
2. the backend answers ("nothing"), starts the run, and begins to end it politely
3. the answer arrives: the run is "lost", its room is granted again, and it still runs

Nor must it judge by the list of another keeper than the one that has the runs:

1. keeper X of this host runs R; the shard moves to a daemon whose keeper folder is another one
2. its keeper Y lists nothing: R is "lost", and starts again at Y beside the one at X
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
    About,
    LedgerRun,
    RunPhase,
    RunStep,
    bits,
    by_crowd,
    step,
)
from peloton.actors.host.state import Host, HostStates, configuration, folded, lost_outcome
from peloton.actors.task import messages as t
from peloton.runtime.vocabulary import At, Bits, Decision, Due, Fact, Key, Refused, Send

STOP_GRACE_S = 30.0
LATE_S = 2.0
"""An end heard of so long after it is told with its own time. Earlier, the moment at which the
task hears of it will do, and many ends are one word."""
LATE_STEPS_PER_S = 10
"""Times of late ends are rounded up to such a part of a second, so that a thousand of them are
not a thousand words."""


def runs_started(host: Host, message: m.RunsStarted, at: At) -> Decision:
    """Processes run. Those that nobody owns (the order was given, then the host was lost and its
    runs with it) are killed: they take room that the ledger calls free."""
    fresh = []
    strange = []
    for pod in message.runs:
        run = host.runs.get(pod)
        do = RUN_TABLE[None if run is None else run.phase][About.STARTED]
        if run is not None and do == RunStep.STARTED:
            fresh.append(run)
        elif do == RunStep.KILL_STRANGER:
            strange.append(pod)
    stops = _orders(host, at, again=[], stops=tuple(strange))
    because = "runs that nobody owns are killed" if strange else ""
    sends = (*_tell_started(fresh), *stops)
    return Decision(facts=_started(fresh), sends=sends, because=because)


def runs_ended(host: Host, message: m.RunsEnded, at: At) -> Decision:
    """Processes are over; the backend may forget them once this is safe."""
    forget = Send(host.backend, m.ForgetRuns(at.key, tuple(end.run for end in message.ends)))
    ends = tuple(_judged(host, end, at) for end in message.ends if _holds(host, end.run))
    # One of the runs that keep the host from being up may be over: look again.
    look = (list_runs(host, at),) if host.state == HostStates.RECONCILING else ()
    if not ends:
        return Decision(sends=(forget, *look), because="ends that are known already")
    return Decision(
        facts=_ended(host, ends),
        sends=(*_tell(host, ends), forget, *look),
        because="runs ended",
    )


def runs_listed(host: Host, message: m.RunsListed, at: At) -> Decision:
    """Compare the ledger with all that the backend knows; afterwards the host is up.

    accepted, not listed: the order was lost before it arrived: start it now (a backend that knew
    it after all leaves it alone); started, not listed: the process is lost; listed, not in the
    ledger: nobody owns it: kill, and be up only when it is gone, because it still takes room that
    the ledger calls free. What must not be judged by a list is told at the top of the file.
    """
    if host.removed:
        return Decision(sends=_bury(host, message, at), because="the host is no more")
    if host.state in (HostStates.UNREACHABLE, HostStates.LOST):
        return Decision(because="a list from before the backend went away")
    if host.keeper and message.keeper and host.keeper != message.keeper:
        return _other_keeper(host, message, at)
    listed = {*message.running, *(end.run for end in message.ends)}
    ends = tuple(_judged(host, end, at) for end in message.ends if _holds(host, end.run))
    judged = _judged_by(message, host, listed=listed)
    strange = RunStep.KILL_STRANGER
    orphans = [pod for pod in message.running if step(host.runs.get(pod), About.LISTED) == strange]
    all_ends = (*ends, *judged.missing)
    facts = _reconciled(host, message, agreed=not orphans and judged.all)
    facts = (*facts, *_started(judged.started), *_ended(host, all_ends))
    sends = (*_tell_started(judged.started), *_tell(host, all_ends))
    orders = _orders(host, at, again=judged.again, stops=(*judged.kills, *orphans))
    if message.ends:
        ended = tuple(end.run for end in message.ends)
        orders = (*orders, Send(host.backend, m.ForgetRuns(at.key, ended)))
    because = f"{len(orphans)} old runs are killed first" if orphans else "reconciled"
    return Decision(facts=facts, sends=(*sends, *orders), because=because)


class _Judged(NamedTuple):
    """What a list says of the runs in the ledger, and whether it says something of each."""

    again: list[LedgerRun]
    missing: list[m.RunEnd]
    started: list[LedgerRun]
    kills: list[str]
    all: bool


def _judged_by(message: m.RunsListed, host: Host, *, listed: set[str]) -> _Judged:
    outcome = lost_outcome("the backend does not know the run any more")
    running = {*message.running}
    again: list[LedgerRun] = []
    missing: list[m.RunEnd] = []
    started: list[LedgerRun] = []
    kills: list[str] = []
    unjudged = False
    for pod in sorted(host.runs):
        run = host.runs[pod]
        if pod in listed:
            do = step(run, About.LISTED) if pod in running else RunStep.NOTHING
        elif run.since < message.asked_at:
            do = step(run, About.UNLISTED)
        else:
            # Accepted with the question or after it: the list may be older. An owner that takes
            # over in the instant of its predecessor's last frame has such a run, and its start may
            # be lost with the predecessor: the host stays unsure and compares again.
            unjudged = True
            continue
        if do == RunStep.START_AGAIN:
            again.append(run)
        elif do == RunStep.LOST:
            missing.append(m.RunEnd(pod, outcome))
        elif do == RunStep.STARTED:
            started.append(run)
        elif do == RunStep.KILL_AGAIN:
            kills.append(pod)
    return _Judged(again, missing, started, kills, all=not unjudged)


def _reconciled(host: Host, message: m.RunsListed, *, agreed: bool) -> tuple[Fact, ...]:
    """A host of an earlier version is up, and has not written down yet which keeper it knows."""
    adopts = host.state == HostStates.UP and bool(message.keeper) and not host.keeper
    if adopts or (agreed and host.state == HostStates.RECONCILING):
        return (f.HostReconciled(message.keeper, message.keeper_at),)
    return ()


def _other_keeper(host: Host, message: m.RunsListed, at: At) -> Decision:
    """Nothing is launched, lost or killed until the keeper answers that has the runs.

    The host waits as one that was not compared: for that there is no time limit, and only a person
    can tell whether the other keeper was lost for good.
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


def _bury(host: Host, message: m.RunsListed, at: At) -> tuple[Send, ...]:
    """Whatever a machine still runs that is not part of the cluster is to end, and is forgotten."""
    stops = _orders(host, at, again=[], stops=message.running)
    ended = tuple(end.run for end in message.ends)
    return (*stops, Send(host.backend, m.ForgetRuns(at.key, ended))) if ended else stops


def recheck_backend(host: Host, message: m.RecheckBackend, at: At) -> Decision:
    """Words of the backend may have been lost, its own that it is up among them.

    Who heard last that it is up asks at once what runs; who did not, asks whether it is up: to
    take it for up unasked would forget since when the machine has been out of reach.
    """
    if host.removed:
        return Decision(sends=(list_runs(host, at),), because="does anything run here still?")
    if host.state in (HostStates.UNREACHABLE, HostStates.LOST):
        return Decision(sends=(Send(host.backend, m.PingBackend(at.key)),), because="looked again")
    return backend_up(host, m.BackendUp(), at)


def backend_up(host: Host, message: m.BackendUp, at: At) -> Decision:
    """The backend can be asked: what runs?"""
    if host.removed:
        return recheck_backend(host, m.RecheckBackend(), at)
    facts = (f.HostReachable(),) if host.state != HostStates.RECONCILING else ()
    return Decision(facts=facts, sends=(list_runs(host, at),), because="backend is up")


def host_appeared(host: Host, message: m.HostAppeared, at: At) -> Decision:
    """The machine is there: what does it run? A repeat is answered, and changes nothing."""
    facts: tuple[Fact, ...] = ()
    configured = f.HostConfigured(
        message.capacity,
        message.labels,
        message.backend,
        message.ports,
        host.unreachable_timeout_s,
    )
    if host.removed or configured != configuration(host):
        facts = (configured,)
    if host.state in (HostStates.UNREACHABLE, HostStates.LOST):
        facts = (*facts, f.HostReachable())
    sends = (list_runs(folded(host, facts), at),)
    return Decision(facts=facts, sends=sends, because="the host is there")


def new_host_appeared(message: m.HostAppeared, at: At) -> Decision:
    """A machine that nobody configured begins to exist, and is up once its runs were compared."""
    configured = f.HostConfigured(
        message.capacity, message.labels, message.backend, message.ports, m.UNREACHABLE_TIMEOUT_S
    )
    ticket = Send(message.backend, m.ListRuns(at.key, at.epoch, (), at.now))
    return Decision((configured, f.HostReachable()), (ticket,), because="the host appeared")


def host_left(host: Host, message: m.HostLeft, at: At) -> Decision:
    """The machine is not there: as if its backend could not be asked, until it comes back."""
    return backend_down(host, m.BackendDown(message.text or "the host has left"), at)


def list_runs(host: Host, at: At) -> Send:
    """Ask the backend what runs here, by its own knowledge."""
    known = tuple(
        m.KnownRun(run.pod, run.since) for run in _held(host) if run.phase != RunPhase.ACCEPTED
    )
    return Send(host.backend, m.ListRuns(at.key, at.epoch, known, at.now))


def backend_down(host: Host, message: m.BackendDown, at: At) -> Decision:
    """Nothing is known for now; the runs may go on."""
    if host.state in (HostStates.UNREACHABLE, HostStates.LOST):
        return Decision()
    return Decision(facts=(f.HostUnreachable(message.text),), because=message.text)


def host_gone(host: Host, message: m.HostGone, at: At) -> Decision:
    """The machine is not part of the cluster any more.

    Its runs are lost to their tasks, which may start anew elsewhere: where the backend can still
    reach them (a virtual host does not go away with its name), they are killed.
    """
    if host.removed:
        return Decision(reply=0, because="it is known to be no more")
    held = _held(host)
    if held and not message.lose_runs:
        text = (
            f"{at.key.partition('/')[2]} holds {len(held)} runs, which would be lost to their tasks"
        )
        # Not for good: the runs may have ended when the same is said again.
        return Decision(reply=Refused(m.HOLDS_RUNS, text, again=True), because=text)
    reason = "the host is not part of the cluster any more"
    lost = lost_outcome(reason)
    stops = _orders(host, at, again=[], stops=tuple(run.pod for run in held))
    told = _tell(host, tuple(m.RunEnd(run.pod, lost) for run in held))
    facts, sends = (f.HostRemoved(reason),), (*told, *stops)
    return Decision(facts=facts, sends=sends, reply=len(held), because=reason)


def unreachable(host: Host, message: Due, at: At) -> Decision:
    """The backend was silent for too long."""
    if host.state == HostStates.LOST:
        return Decision()
    reason = f"host unreachable for {host.unreachable_timeout_s:g} s"
    outcome = lost_outcome(reason)
    ends = tuple(m.RunEnd(run.pod, outcome) for run in _held(host))
    return Decision(facts=(f.HostLost(reason),), sends=_tell(host, ends), because=reason)


def _held(host: Host) -> list[LedgerRun]:
    """The runs that take room, by name."""
    return [host.runs[pod] for pod in sorted(host.runs) if host.runs[pod].phase in HOLDING]


def _holds(host: Host, pod: str) -> bool:
    run = host.runs.get(pod)
    return run is not None and RUN_TABLE[run.phase][About.ENDED] == RunStep.ENDED


def _judged(host: Host, end: m.RunEnd, at: At) -> m.RunEnd:
    """The end as the task is told it.

    A run that was ordered to end, and did not succeed all the same, was killed.
    """
    run, outcome = host.runs[end.run], end.outcome
    ended_at = _late(end.at, since=run.since, now=at.now)
    if run.phase != RunPhase.KILLING or outcome.end != t.End.FAILED:
        return m.RunEnd(end.run, outcome, ended_at)
    killed = t.RunOutcome(
        t.End.KILLED, outcome.exit_code, outcome.signal, "killed", outcome.message
    )
    return m.RunEnd(end.run, killed, ended_at)


def _late(ended_at: float | None, *, since: float, now: float) -> float | None:
    """When a run ended of which we hear late; None for just now. Never before it was accepted:
    a clock that was set back must not make a run end before it began."""
    if ended_at is None or now - ended_at < LATE_S:
        return None
    rounded = math.ceil(ended_at * LATE_STEPS_PER_S) / LATE_STEPS_PER_S
    return max(since, rounded)


def _alike(host: Host, ends: Iterable[m.RunEnd]) -> dict[tuple[Key, t.Ended], list[m.RunEnd]]:
    """Ends of one crowd of which the same is to be said."""
    groups: dict[tuple[Key, t.Ended], list[m.RunEnd]] = {}
    for end in ends:
        run = host.runs[end.run]
        groups.setdefault((run.crowd, t.Ended(run.run, end.outcome, end.at)), []).append(end)
    return groups


def _members(host: Host, ends: Iterable[m.RunEnd]) -> Bits:
    return bits(host.runs[end.run] for end in ends)


def _ended(host: Host, ends: tuple[m.RunEnd, ...]) -> tuple[Fact, ...]:
    """Many alike as one set; those that are alone, all together by name."""
    facts: list[Fact] = []
    single: list[m.RunEnd] = []
    for (crowd, word), some in _alike(host, ends).items():
        if len(some) == 1:
            single += some
        else:
            members = _members(host, some)
            facts.append(f.SetEnded(crowd, members, word.run, word.outcome, word.at))
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


def _tell(host: Host, ends: tuple[m.RunEnd, ...]) -> tuple[Send, ...]:
    return tuple(
        Send(crowd, word, _members(host, some))
        for (crowd, word), some in _alike(host, ends).items()
    )


def _tell_started(started: Iterable[LedgerRun]) -> tuple[Send, ...]:
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
