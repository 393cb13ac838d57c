"""The state of a host, and how facts change it.

Turns (state, fact) into the next state. Must not refuse a fact: what was journaled has happened.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import immutables
import msgspec

from peloton.actors.host import facts as f
from peloton.actors.host.ledger import HOLDING, LedgerRun, RunPhase, pods
from peloton.actors.resources import Resources
from peloton.actors.task.messages import End, RunOutcome
from peloton.placement.messages import HostSummary, Label
from peloton.runtime.vocabulary import Fact, Key, Value


class HostStates(enum.IntEnum):
    """How far the host and its backend agree."""

    RECONCILING = 1  # the backend answers, but the ledger has not been compared yet
    UP = 2
    UNREACHABLE = 3
    LOST = 4


class Host(Value, frozen=True, gc=False, array_like=True):
    """A machine and its ledger. `version` rises with every change of resources or labels.

    `keeper` is the identity of the keeper that the ledger was first compared with; the list of
    another keeper is not applied. Empty: none was met yet, and the next one is adopted.
    """

    state: HostStates
    capacity: Resources
    labels: tuple[Label, ...]
    backend: Key
    ports: tuple[int, int]
    unreachable_timeout_s: float
    runs: immutables.Map[str, LedgerRun] = immutables.Map()
    used: Resources = Resources()
    version: int = 0
    because: str = ""
    removed: bool = False  # not part of the cluster any more; messages about its runs are answered
    ports_taken: int | None = None  # of `ports`; None in states of versions that did not count them
    launches: int = 0  # members whose launch was decided here, accepted or refused; never falls
    keeper: str = ""
    keeper_at: str = ""  # its folder when it was compared last, for people

    @property
    def free(self) -> Resources:
        """The resources that no run holds."""
        return self.capacity - self.used

    @property
    def free_ports(self) -> int:
        """How many ports of its range no run holds."""
        first, end = self.ports
        return max(0, end - first - ports_taken(self))

    def summary(self, key: Key) -> HostSummary:
        """The host as placers see it."""
        return HostSummary(
            host=key,
            position=self.version,
            capacity=self.capacity,
            free=self.free,
            labels=self.labels,
            up=self.state == HostStates.UP,
            ports=self.free_ports,
            launches=self.launches,
        )


def configuration(host: Host) -> f.HostConfigured:
    """The configuration of the host as a fact, to compare a new one with."""
    return f.HostConfigured(
        host.capacity, host.labels, host.backend, host.ports, host.unreachable_timeout_s
    )


def ports_taken(host: Host) -> int:
    """How many ports of the host's range its runs hold; counted if the state has no number."""
    if host.ports_taken is not None:
        return host.ports_taken
    return len({port for run in host.runs.values() for port in run.ports if in_range(host, port)})


def in_range(host: Host, port: int) -> bool:
    """Whether a port is in the range that the host picks from; a run may name any other."""
    first, end = host.ports
    return first <= port < end


replace = msgspec.structs.replace


def _configured(host: Host | None, fact: f.HostConfigured) -> Host:
    if host is None:
        return Host(
            state=HostStates.UNREACHABLE,
            capacity=fact.capacity,
            labels=fact.labels,
            backend=fact.backend,
            ports=fact.ports,
            unreachable_timeout_s=fact.unreachable_timeout_s,
            ports_taken=0,
        )
    same = host.backend == fact.backend
    host = replace(
        host,
        keeper=host.keeper if same else "",
        keeper_at=host.keeper_at if same else "",
        capacity=fact.capacity,
        labels=fact.labels,
        backend=fact.backend,
        ports=fact.ports,
        unreachable_timeout_s=fact.unreachable_timeout_s,
        version=host.version + 1,
        removed=False,
        ports_taken=None,  # of the new range
    )
    return replace(host, ports_taken=ports_taken(host))


def _accepted(host: Host, fact: f.RunsAccepted) -> Host:
    need = fact.spec.resources
    with host.runs.mutate() as runs:
        for at, (member, pod) in enumerate(pods(fact.crowd, fact.members, run=fact.run)):
            ports = fact.ports[at] if fact.ports else ()
            runs[pod] = LedgerRun(
                crowd=fact.crowd,
                member=member,
                run=fact.run,
                phase=RunPhase.ACCEPTED,
                resources=need,
                spec=fact.spec,
                ports=ports,
                since=fact.at,
            )
        ledger = runs.finish()
    picked = sum(in_range(host, port) for ports in fact.ports for port in ports)
    return replace(
        host,
        runs=ledger,
        used=host.used + need.times(len(fact.members)),
        version=host.version + 1,
        ports_taken=ports_taken(host) + picked,
        launches=host.launches + len(fact.members),
    )


def _refused(host: Host, fact: f.RunsRefused) -> Host:
    with host.runs.mutate() as runs:
        for member, pod in pods(fact.crowd, fact.members, run=fact.run):
            runs[pod] = LedgerRun(
                fact.crowd, member, fact.run, RunPhase.REFUSED, Resources(), reason=fact.reason
            )
        ledger = runs.finish()
    return replace(host, runs=ledger, launches=host.launches + len(fact.members))


def _names(fact: f.SetStarted | f.SetEnded | f.SetForgotten) -> Iterable[str]:
    return (pod for _, pod in pods(fact.crowd, fact.members, run=fact.run))


def _phase(phase: RunPhase) -> Callable[[Host, Any], Host]:
    def evolve(host: Host, fact: f.ProcessesStarted | f.SetStarted | f.KillOrdered) -> Host:
        with host.runs.mutate() as runs:
            for pod in _names(fact) if isinstance(fact, f.SetStarted) else fact.runs:
                spec = None if phase == RunPhase.STARTED else runs[pod].spec
                runs[pod] = replace(runs[pod], phase=phase, spec=spec)
            ledger = runs.finish()
        return replace(host, runs=ledger)

    return evolve


def _end(host: Host, ends: Iterable[tuple[str, RunOutcome, float | None]]) -> Host:
    used, taken = host.used, ports_taken(host)
    with host.runs.mutate() as runs:
        for pod, outcome, at in ends:
            run = runs[pod]
            used = used - run.resources
            if run.ports:
                taken -= sum(in_range(host, port) for port in run.ports)
            runs[pod] = replace(
                run,
                phase=RunPhase.ENDED,
                outcome=outcome,
                spec=None,
                resources=Resources(),
                ports=(),
                ended_at=at,
            )
        ledger = runs.finish()
    return replace(host, runs=ledger, used=used, version=host.version + 1, ports_taken=taken)


def _ended(host: Host, fact: f.ProcessesEnded) -> Host:
    return _end(host, ((end.run, end.outcome, end.at) for end in fact.ends))


def _set_ended(host: Host, fact: f.SetEnded) -> Host:
    return _end(host, ((pod, fact.outcome, fact.at) for pod in _names(fact)))


def _forgotten(host: Host, fact: f.RunsForgotten | f.SetForgotten) -> Host:
    with host.runs.mutate() as runs:
        for pod in _names(fact) if isinstance(fact, f.SetForgotten) else fact.runs:
            del runs[pod]
        ledger = runs.finish()
    return replace(host, runs=ledger)


def lost_outcome(reason: str) -> RunOutcome:
    """The outcome of a run whose host is lost."""
    return RunOutcome(End.LOST, reason="host lost", message=f"Task LOST: {reason}", system=True)


def _lost(host: Host, fact: f.HostLost) -> Host:
    outcome = lost_outcome(fact.reason)
    held = [pod for pod in sorted(host.runs) if host.runs[pod].phase in HOLDING]
    host = _end(host, ((pod, outcome, None) for pod in held))
    return replace(host, state=HostStates.LOST, because=fact.reason, version=host.version + 1)


def _removed(host: Host, fact: f.HostRemoved) -> Host:
    # A person gave the runs up, so if the host comes back any keeper may have its next ones.
    host = replace(_lost(host, f.HostLost(fact.reason)), removed=True)
    return replace(host, keeper="", keeper_at="")


def _reconciled(host: Host, fact: f.HostReconciled) -> Host:
    if fact.keeper:
        host = replace(host, keeper=fact.keeper, keeper_at=fact.keeper_at)
    return _state(HostStates.UP)(host, fact)


def _state(state: HostStates) -> Callable[[Host, Any], Host]:
    return lambda host, fact: replace(
        host, state=state, because=getattr(fact, "text", ""), version=host.version + 1
    )


EVOLVE: Mapping[type, Callable[[Any, Any], Host]] = {
    f.HostConfigured: _configured,
    f.RunsAccepted: _accepted,
    f.RunsRefused: _refused,
    f.ProcessesStarted: _phase(RunPhase.STARTED),
    f.KillOrdered: _phase(RunPhase.KILLING),
    f.ProcessesEnded: _ended,
    f.RunsForgotten: _forgotten,
    f.HostUnreachable: _state(HostStates.UNREACHABLE),
    f.HostReachable: _state(HostStates.RECONCILING),
    f.HostReconciled: _reconciled,
    f.HostLost: _lost,
    f.HostRemoved: _removed,
    f.SetStarted: _phase(RunPhase.STARTED),
    f.SetEnded: _set_ended,
    f.SetForgotten: _forgotten,
}


def folded(host: Host, facts: Iterable[Fact]) -> Host:
    """The host as it will be once these facts are journaled."""
    for fact in facts:
        host = EVOLVE[type(fact)](host, fact)
    return host
