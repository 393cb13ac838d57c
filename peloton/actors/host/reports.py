"""What a host makes of what its backend reports.

Turns starts, ends and lists of runs into ledger facts. The backend may repeat itself, tell of runs
that nobody owns, and forget: the ledger is compared with its list whenever it comes up, and a run
that only one of the two knows is healed by the rule that is written beside it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from peloton.actors.host import facts as f
from peloton.actors.host import messages as m
from peloton.actors.host.ledger import HOLDING, Phase, Run, bits, by_crowd, start_run
from peloton.actors.host.state import Host, HostStates, lost_outcome
from peloton.actors.task import messages as t
from peloton.runtime.vocabulary import At, Bits, Decision, Due, Fact, Send

STOP_GRACE_S = 30.0


def runs_started(host: Host, message: m.RunsStarted, at: At) -> Decision:
    """Processes run."""
    known = [host.runs[pod] for pod in message.runs if pod in host.runs]
    fresh = [run for run in known if run.phase == Phase.ACCEPTED]
    if not fresh:
        return Decision()
    return Decision(
        facts=(f.ProcessesStarted(tuple(run.pod for run in fresh)),),
        sends=_tell_started(fresh),
    )


def runs_ended(host: Host, message: m.RunsEnded, at: At) -> Decision:
    """Processes are over; the backend may forget them once this is safe."""
    forget = Send(host.backend, m.ForgetRuns(at.key, tuple(end.run for end in message.ends)))
    ends = tuple(_judged(host, end) for end in message.ends if _holds(host, end.run))
    # One of the runs that keep the host from being up may be over: look again.
    look = (_list(host, at),) if host.state == HostStates.UNSURE else ()
    if not ends:
        return Decision(sends=(forget, *look), because="ends that are known already")
    return Decision(
        facts=(f.ProcessesEnded(ends),),
        sends=(*_tell(host, ends), forget, *look),
        because="runs ended",
    )


def runs_listed(host: Host, message: m.RunsListed, at: At) -> Decision:
    """Compare the ledger with all that the backend knows; afterwards the host is up.

    accepted, not listed: the order was lost before it arrived: start it now (a backend that knew
    it after all leaves it alone); started, not listed: the process is lost; listed, not in the
    ledger: nobody owns it: kill, and be up only when it is gone, because it still takes room that
    the ledger calls free.
    """
    if host.state in (HostStates.UNREACHABLE, HostStates.LOST):
        return Decision(because="a list from before the backend went away")
    listed = {*message.running, *(end.run for end in message.ends)}
    ends = tuple(_judged(host, end) for end in message.ends if _holds(host, end.run))
    outcome = lost_outcome("the backend does not know the run any more")
    missing = []
    again: list[Run] = []
    started: list[str] = []
    kills: list[str] = []
    for pod in sorted(host.runs):
        run = host.runs[pod]
        if run.phase not in HOLDING:
            continue
        if pod not in listed:
            if run.phase == Phase.ACCEPTED:
                again.append(run)
            else:
                missing.append(m.RunEnd(pod, outcome))
        elif run.phase == Phase.ACCEPTED and pod in message.running:
            started.append(pod)
        elif run.phase == Phase.KILLING and pod in message.running:
            kills.append(pod)
    orphans = [pod for pod in message.running if not _holds(host, pod)]
    agreed = host.state == HostStates.UNSURE and not orphans
    facts: tuple[Fact, ...] = (f.HostReconciled(),) if agreed else ()
    if started:
        facts = (*facts, f.ProcessesStarted(tuple(started)))
    all_ends = (*ends, *missing)
    if all_ends:
        facts = (*facts, f.ProcessesEnded(all_ends))
    heard = _tell_started(host.runs[pod] for pod in started)
    sends = (*heard, *_tell(host, all_ends))
    orders = _orders(host, at, again=again, stops=(*kills, *orphans))
    if message.ends:
        ended = tuple(end.run for end in message.ends)
        orders = (*orders, Send(host.backend, m.ForgetRuns(at.key, ended)))
    because = f"{len(orphans)} old runs are killed first" if orphans else "reconciled"
    return Decision(facts=facts, sends=(*sends, *orders), because=because)


def backend_up(host: Host, message: m.BackendUp, at: At) -> Decision:
    """The backend can be asked: what runs?"""
    facts = (f.HostReachable(),) if host.state != HostStates.UNSURE else ()
    return Decision(facts=facts, sends=(_list(host, at),), because="backend is up")


def _list(host: Host, at: At) -> Send:
    known = tuple(
        m.KnownRun(run.pod, run.since) for run in _held(host) if run.phase != Phase.ACCEPTED
    )
    return Send(host.backend, m.ListRuns(at.key, at.epoch, known))


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
    held = tuple(run.pod for run in _held(host))
    lost = _lose(host, "the host is not part of the cluster any more")
    if not held:
        return lost
    stop = Send(host.backend, m.StopRuns(at.key, at.epoch, held, STOP_GRACE_S))
    return msgspec.structs.replace(lost, sends=(*lost.sends, stop))


def unreachable(host: Host, message: Due, at: At) -> Decision:
    """The backend was silent for too long."""
    return _lose(host, f"host unreachable for {host.unreachable_timeout_s:g} s")


def _lose(host: Host, reason: str) -> Decision:
    if host.state == HostStates.LOST:
        return Decision()
    outcome = lost_outcome(reason)
    ends = tuple(m.RunEnd(run.pod, outcome) for run in _held(host))
    return Decision(facts=(f.HostLost(reason),), sends=_tell(host, ends), because=reason)


def _held(host: Host) -> list[Run]:
    """The runs that take room, by name."""
    return [host.runs[pod] for pod in sorted(host.runs) if host.runs[pod].phase in HOLDING]


def _holds(host: Host, pod: str) -> bool:
    run = host.runs.get(pod)
    return run is not None and run.phase in HOLDING


def _judged(host: Host, end: m.RunEnd) -> m.RunEnd:
    """A run that was ordered to end, and did not succeed all the same, was killed."""
    run, outcome = host.runs[end.run], end.outcome
    if run.phase != Phase.KILLING or outcome.end != t.End.FAILED:
        return end
    killed = t.Outcome(t.End.KILLED, outcome.exit_code, outcome.signal, "killed", outcome.message)
    return m.RunEnd(end.run, killed)


def _tell(host: Host, ends: tuple[m.RunEnd, ...]) -> tuple[Send, ...]:
    groups: dict[tuple[str, int, t.Outcome], list[int]] = {}
    for end in ends:
        run = host.runs[end.run]
        groups.setdefault((run.crowd, run.run, end.outcome), []).append(run.member)
    return tuple(
        Send(crowd, t.Ended(number, outcome), Bits.of(*members))
        for (crowd, number, outcome), members in groups.items()
    )


def _tell_started(started: Iterable[Run]) -> tuple[Send, ...]:
    return tuple(
        Send(crowd, t.Started(number), bits(runs)) for crowd, number, runs in by_crowd(started)
    )


def _orders(
    host: Host, at: At, *, again: list[Run], stops: tuple[str, ...]
) -> tuple[Send, ...]:
    orders: tuple[Send, ...] = ()
    if again:
        starts = tuple(start_run(run.pod, run.spec, ports=run.ports) for run in again if run.spec)
        orders = (Send(host.backend, m.StartRuns(at.key, at.epoch, starts)),)
    if stops:
        order = m.StopRuns(at.key, at.epoch, stops, STOP_GRACE_S)
        orders = (*orders, Send(host.backend, order))
    return orders
