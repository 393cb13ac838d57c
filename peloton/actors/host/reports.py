"""How a host decides reports of its backend: starts, ends and lists of runs.

The backend may repeat reports, report runs that nobody owns, and forget runs: the ledger is
compared with its list whenever it comes up, and a run that only one of the two knows is resolved by
`runs_listed`. A list must not be applied to runs that were accepted after it was requested; what
goes wrong otherwise:

1. a list is requested; then a run is accepted and its start ordered; then its task kills it
2. the backend answers with an empty list, starts the run, and begins to end it gracefully
3. the list arrives: the run counts as lost, its resources are granted again, and it still runs

Nor may a list prove a run lost that started since it was written:

1. a list is requested; the machine writes it, then the late order to start run R comes
2. R is reported started, and its report overtakes the list
3. the list comes: R counts as lost, its next run starts, and R still runs

So a list proves a run lost only if it was requested after the start of that run was recorded here:
the process was there before the machine wrote the list. Nor does an older list prove that an
unowned run is gone: it may lack what was given up while the machine was out of reach, and runs on.
All are times of the host's own turns, which never fall, whatever clocks do. One time is kept for
the whole host, that of the last start recorded, or since when it is in reach (`Host.proof_from`): a
time for each run would split the sets of the ledger.

Nor may the list of another keeper be applied than the one that has the runs:

1. keeper X of this host runs R; the shard moves to a daemon whose keeper folder is another one
2. its keeper Y lists nothing: R counts as lost, and starts again at Y beside the one at X
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from peloton.actors.host import facts as f
from peloton.actors.host import messages as m
from peloton.actors.host.comparing import ListWords, compared_with, not_started, running_of
from peloton.actors.host.ends import (
    Starts,
    add_starts,
    all_ended,
    end_reports,
    ended_facts,
    joined,
    late_starts,
    occupying_ends,
    start_reports,
    started_facts,
)
from peloton.actors.host.ledger import (
    NamedRuns,
    RunEvent,
    RunSet,
    RunStep,
    by_crowd,
    names_of,
    run_names,
    step,
)
from peloton.actors.host.orders import forget_order, list_runs, start_order, starts_of, stop_order
from peloton.actors.host.stages import HostStates, Maintenance
from peloton.actors.host.state import Host, lost_outcome, occupying_runs
from peloton.actors.host.use import use_again, use_changed
from peloton.actors.host.volumes import is_removing, removals
from peloton.runtime.vocabulary import At, Decision, Due, Key, Refused, Send, counted

BACKEND_UP = "backend is up"


def runs_started(host: Host, message: m.RunsStarted, at: At) -> Decision:
    """Record that processes have started, and kill those that nobody owns.

    A run is unowned if the host was lost, and its runs with it, after the start was ordered. It
    uses resources that are free according to the ledger.
    """
    reported, unowned = by_crowd(message.runs)
    late = late_starts(message.runs, message.at, now=at.now)
    fresh: Starts = {}
    for (crowd, run), raw in reported.items():
        left = raw
        for some in host.runs.of(crowd, run):
            hit, do = some.members.raw & raw, step(some, RunEvent.STARTED)
            if hit and do == RunStep.STARTED:
                add_starts(fresh, crowd, of=some, raw=hit, late=late)
            if do != RunStep.KILL_UNOWNED:
                left &= ~hit
        unowned += names_of(crowd, left, run=run)
    because = "runs that nobody owns are killed" if unowned else ""
    sends = (*start_reports(fresh), *stop_order(host, unowned, at))
    return Decision(facts=started_facts(fresh, now=at.now), sends=sends, because=because)


def runs_ended(host: Host, message: m.RunsEnded, at: At) -> Decision:
    """Record that processes ended; the backend may forget them once the ends are journaled."""
    forget = forget_order(host, message.ends, at)
    ends = occupying_ends(host, message.ends, at)
    # A run that keeps the host from being up may have ended: compare again.
    waits = host.state == HostStates.RECONCILING or (host.removed and is_removing(host))
    poll = (list_runs(host, at),) if waits else ()
    if not ends:
        return Decision(sends=(*forget, *poll), because="ends that are known already")
    return Decision(
        facts=ended_facts(ends),
        sends=(*end_reports(ends), *forget, *poll),
        because="runs ended",
    )


def runs_listed(host: Host, message: m.RunsListed, at: At) -> Decision:
    """Compare the ledger with all that the backend knows; afterwards the host is up.

    - accepted, not listed: the order was lost, and is sent again (known runs ignore it); but the
      run is lost if the list is of another incarnation of the machine than the last one;
    - started, not listed: the run is lost;
    - listed, not in the ledger: nobody owns it, so it is killed, and the host is not up before
      it is gone, because it still uses resources that are free according to the ledger.

    Runs accepted after the list was requested are skipped (see the top of this module).
    """
    if host.removed:
        return Decision(sends=_clean_up(host, message, at), because="the host was removed")
    if host.state in (HostStates.UNREACHABLE, HostStates.LOST):
        return Decision(because="a list from before the backend went away")
    if host.keeper and message.keeper and host.keeper != message.keeper:
        return _other_keeper(host, message, at)
    running, strange = running_of(message)
    ends = occupying_ends(host, message.ends, at)
    ended, _ = by_crowd(end.run for end in message.ends)
    late = late_starts(message.running, message.started, now=at.now)
    told = ListWords(running, ended, late, not_started(message))
    compared = compared_with(message, host, told=told)
    orphans = [*strange, *_unowned(host, running)]
    all_ends = joined(ends, compared.missing)
    reconciled = _reconciled(host, message, now=at.now, agreed=not orphans and compared.all)
    facts = (*reconciled, *started_facts(compared.started, now=at.now), *ended_facts(all_ends))
    sends = (*start_reports(compared.started), *end_reports(all_ends))
    there = replace(host, incarnation=_incarnation(host, reconciled))
    # What is started at a machine that is not journaled is not missed at the next one.
    again = compared.again if message.incarnation in ("", there.incarnation) else []
    orders = (
        *start_order(there, starts_of(there, again), at),
        *stop_order(host, (*compared.kills, *orphans), at),
        *forget_order(host, message.ends, at),
        *(removals(host, at) if not orphans else ()),
    )
    killed = counted(len(orphans), "unowned run is killed", many="unowned runs are killed")
    because = f"{killed} first" if orphans else "reconciled"
    return Decision(facts=facts, sends=(*sends, *orders), because=because)


def _reconciled(
    host: Host, message: m.RunsListed, *, now: float, agreed: bool
) -> tuple[f.HostReconciled, ...]:
    """Return the fact that ledger and backend agree, if it tells anything new.

    A host that is up may not have journaled its keeper yet, nor the incarnation of its machine,
    which is journaled once all runs were judged by its list.
    """
    agreed = agreed and message.asked_at >= host.proof_from
    keeper, incarnation = message.keeper, message.incarnation if agreed else ""
    adopts = bool(keeper and not host.keeper) or incarnation not in ("", host.incarnation)
    if adopts and host.state == HostStates.UP or agreed and host.state == HostStates.RECONCILING:
        return (f.HostReconciled(keeper, message.keeper_at, now, incarnation),)
    return ()


def _incarnation(host: Host, reconciled: tuple[f.HostReconciled, ...]) -> str:
    """Return the incarnation of the machine that is journaled with these facts."""
    return reconciled[0].incarnation or host.incarnation if reconciled else host.incarnation


def _other_keeper(host: Host, message: m.RunsListed, at: At) -> Decision:
    """Stay reconciling: nothing is launched, lost or killed until the keeper answers that has the
    runs.

    There is no deadline: only a person can know whether the other keeper is lost for good.
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


def _unowned(host: Host, running: NamedRuns) -> list[str]:
    """Return the names of running runs that no task owns."""
    unowned: list[str] = []
    for (crowd, run), raw in running.items():
        for some in host.runs.of(crowd, run):
            if step(some, RunEvent.LISTED) != RunStep.KILL_UNOWNED:
                raw &= ~some.members.raw
        if raw:
            unowned += names_of(crowd, raw, run=run)
    return unowned


def _clean_up(host: Host, message: m.RunsListed, at: At) -> tuple[Send, ...]:
    """End all that a removed machine still runs, have it forgotten, and remove its volumes."""
    running, strange = running_of(message)
    names = [
        name for (crowd, run), raw in running.items() for name in names_of(crowd, raw, run=run)
    ]
    stops = stop_order(host, (*names, *strange), at) or removals(host, at)
    return (*stops, *forget_order(host, message.ends, at))


def recheck_backend(host: Host, message: m.RecheckBackend, at: At) -> Decision:
    """List the runs again, since reports of the backend, `BackendUp` among them, may have been
    lost.

    A backend that is not known to be up is pinged first, because to assume that it is up would
    restart the timeout of an unreachable machine.
    """
    if host.removed:
        return Decision(sends=(list_runs(host, at),), because="checks a removed host for runs")
    if host.state in (HostStates.UNREACHABLE, HostStates.LOST):
        ping = Send(host.backend, m.PingBackend(at.key))
        return Decision(sends=(ping,), because="pinged the backend")
    return backend_up(host, m.BackendUp(), at)


def backend_up(host: Host, message: m.BackendUp, at: At) -> Decision:
    """Request the list of runs, because the backend is available."""
    if host.removed:
        return recheck_backend(host, m.RecheckBackend(), at)
    facts = (f.HostReachable(at=at.now),) if host.state != HostStates.RECONCILING else ()
    return Decision(
        facts=facts, sends=(list_runs(host, at), *use_again(host, at)), because=BACKEND_UP
    )


def backend_down(host: Host, message: m.BackendDown, at: At) -> Decision:
    """Record that the backend is unavailable; the runs may continue."""
    if host.state in (HostStates.UNREACHABLE, HostStates.LOST):
        return Decision()
    return Decision(facts=(f.HostUnreachable(message.text),), because=message.text)


def host_gone(host: Host, message: m.HostGone, at: At) -> Decision:
    """Remove the host, because the machine no longer belongs to the cluster.

    Its runs are lost to their tasks, which may run again elsewhere; so they are killed if the
    backend can still reach them (a virtual host exists beyond its removal).
    """
    if host.removed:
        return Decision(reply=0, because="the host was removed already")
    occupying = occupying_runs(host)
    if occupying and not message.lose_runs:
        name = at.key.partition("/")[2]
        text = f"{name} holds {_count(occupying)} runs, which would be lost to their tasks"
        # The request may be repeated: the runs may have ended by then.
        return Decision(reply=Refused(m.HAS_RUNS, text, again=True), because=text)
    reason = "the host was removed from the cluster"
    lost = lost_outcome(reason)
    stops = stop_order(host, run_names(occupying), at)
    reports = end_reports(all_ended(occupying, lost))
    used, told = use_changed(host, Maintenance.NONE, at)
    facts, sends = (f.HostRemoved(reason), *used), (*reports, *stops, *told)
    return Decision(facts=facts, sends=sends, reply=_count(occupying), because=reason)


def unreachable(host: Host, message: Due, at: At) -> Decision:
    """Lose the host, because its backend was unavailable for too long."""
    if host.state == HostStates.LOST:
        return Decision()
    reason = f"host unreachable for {host.unreachable_timeout_s:g} s"
    ends = all_ended(occupying_runs(host), lost_outcome(reason))
    return Decision(facts=(f.HostLost(reason),), sends=end_reports(ends), because=reason)


def _count(runs: Iterable[tuple[Key, RunSet]]) -> int:
    return sum(len(some.members) for _, some in runs)
