"""The orders of a host to its backend; `backends/port.py` says what becomes of them.

Each is a tuple of messages, which is empty if there is nothing to order. The caller decides which
runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from peloton.actors.host import messages as m
from peloton.actors.host.devices import devices_told
from peloton.actors.host.ledger import RunSet, names_of
from peloton.actors.host.live.live_messages import KnownSet
from peloton.actors.host.live.run_changes import checked_sets
from peloton.actors.host.stages import RunPhase
from peloton.actors.host.state import Host, occupying_runs
from peloton.actors.host.volumes import as_made
from peloton.runtime.vocabulary import At, Key, Send

STOP_GRACE_S = 30.0


def starts_of(host: Host, runs: Iterable[tuple[Key, RunSet]]) -> tuple[m.StartRun, ...]:
    """Return how these runs of the ledger are started."""
    return tuple(
        m.StartRun(
            name,
            as_made(host, some.spec, run=name),
            some.ports,
            devices_told(host, some.resources, devices=some.devices),
        )
        for crowd, some in runs
        if some.spec is not None
        for name in names_of(crowd, some.members.raw, run=some.run)
    )


def start_order(host: Host, starts: tuple[m.StartRun, ...], at: At) -> tuple[Send, ...]:
    """Return the order to start these, valid only for the keeper that the ledger was compared
    with."""
    order = m.StartRuns(at.key, at.epoch, starts, host.keeper, host.incarnation)
    return (Send(host.backend, order),) if starts else ()


def stop_order(
    host: Host, names: Sequence[str], at: At, *, grace_s: float = STOP_GRACE_S, notice: str = ""
) -> tuple[Send, ...]:
    """Return the order to end these runs."""
    order = m.StopRuns(at.key, at.epoch, tuple(names), grace_s, notice)
    return (Send(host.backend, order),) if names else ()


def forget_order(host: Host, ends: Iterable[m.RunEnd], at: At) -> tuple[Send, ...]:
    """Return the order to forget these ends, which are journaled in the same decision."""
    names = tuple(end.run for end in ends)
    return (Send(host.backend, m.ForgetRuns(at.key, names)),) if names else ()


def list_runs(host: Host, at: At) -> Send:
    """Return the request for the list of runs that the backend knows."""
    unknown = (RunPhase.ACCEPTED, RunPhase.PREPARED)
    known = [each for each in occupying_runs(host) if each[1].phase not in unknown]
    sets = tuple(KnownSet(crowd, one.run, one.members, one.since) for crowd, one in known)
    return Send(host.backend, m.ListRuns(at.key, at.epoch, at.now, sets, checked_sets(host)))
