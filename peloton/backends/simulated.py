"""Runs that only pretend: for tests, benchmarks and trying things out.

Turns orders of hosts into starts and ends by a seed. The fate of a run derives from (seed, run id)
and the time its host accepted it, so it survives a restart: after one, the ledger's list of runs
is all that is needed. It must not hold anything that a restart would miss.

While a machine has left (`port.py`), its runs go on unheard, like those of one out of reach.
"""

from __future__ import annotations

import heapq
import math
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from peloton.actors.host import messages as m
from peloton.actors.task.messages import End, RunOutcome
from peloton.backends.port import POISON, Tell, Trouble, cannot_be_ordered
from peloton.backends.roster import Roster
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.vocabulary import Key, key

SIMULATED_BACKEND = key("backend", "simulated")
DURATION_VARIABLE = "PELOTON_SIMULATED_DURATION_S"
EXIT_VARIABLE = "PELOTON_SIMULATED_EXIT_CODE"
ENDED_KEPT_MAX = 100_000
"""Ends that no host has acknowledged; of older ones the ledger's word is enough to end them anew,
though without what their environment said."""


class RunScript(NamedTuple):
    """How runs go, unless their environment says otherwise (`PELOTON_SIMULATED_…`)."""

    seed: int = 0
    duration_s: float = 1.0
    spread: float = 0.0  # up to this share of the duration longer, by run
    failing: float = 0.0  # share of runs that fail with exit code 1


DEFAULT_SCRIPT = RunScript()


class SimulatedBackend:
    """The soft machine behind `backend/simulated`."""

    own_thread = False
    key = SIMULATED_BACKEND

    def __init__(self, hosts: Sequence[str], fates: RunScript = DEFAULT_SCRIPT) -> None:
        self._roster = Roster(SIMULATED_BACKEND, [key("host", name) for name in hosts])
        self._fates = fates
        self._woken = False  # after a reset: the hosts have yet to be told that they can ask
        # Heap of (time, runs, host): runs that were ordered together mostly end together.
        self._ends: list[tuple[float, tuple[str, ...], Key]] = []
        self._running: dict[Key, dict[str, m.RunSpec | None]] = {}
        self._ended: dict[str, m.RunEnd] = {}  # until they are forgotten, oldest first
        self._compared: dict[Key, None] = {}  # hosts whose ledgers were seen
        self._epochs: dict[Key, int] = {}

    def start(self, tell: Tell, trouble: Trouble | None = None) -> None:
        """All hosts can be asked at once; there is never any trouble to tell."""
        self._woken = False
        tell([Envelope(host, m.BackendUp()) for host in self._roster.hosts])

    @property
    def wake_at(self) -> float | None:
        """When the next run ends, or a host has to be reported again."""
        if self._woken:
            return 0.0
        times = [at for at in (self._roster.wake_at,) if at is not None]
        return min([*times, self._ends[0][0]]) if self._ends else min(times, default=None)

    def reset(self) -> None:
        """Forget all runs: the hosts are told to ask anew, and bring their ledgers."""
        self._ends, self._running, self._ended, self._compared = [], {}, {}, {}
        self._woken = True

    def receive(self, envelopes: Sequence[Envelope], now: float) -> Iterable[Envelope]:
        """Orders of hosts, and ends that are due."""
        out: list[Envelope] = []
        if self._woken:
            self._woken = False
            out += [Envelope(host, m.BackendUp()) for host in self._roster.hosts]
        for envelope in envelopes:
            message = envelope.message
            if isinstance(message, m.AddHost):
                out.append(self._roster.add(message, now))
            elif isinstance(message, m.RemoveHost):
                out.append(self._roster.remove(message))
            elif isinstance(message, m.ForgetRuns):
                for run in message.runs:
                    self._ended.pop(run, None)
            elif isinstance(message, m.StartRuns | m.StopRuns | m.ListRuns | m.PingBackend):
                out += self._ordered(message, now)
        out += self._due(now)
        return out

    def rename(self, member: str, *, number: int, count: int) -> None:
        """A run comes out the same, whoever of the daemons pretends to run it."""

    def stop_all(self, grace_s: float) -> bool:
        """Nothing outlives this process anyway."""
        return True

    def close(self) -> None:
        """Nothing is held."""

    def _ordered(
        self, order: m.StartRuns | m.StopRuns | m.ListRuns | m.PingBackend, now: float
    ) -> list[Envelope]:
        host = order.host
        if self._roster.has_left(host):
            return [self._roster.left(host)]
        self._roster.ordered(host)
        if isinstance(order, m.PingBackend):
            return [Envelope(host, m.BackendUp())]
        if order.epoch < self._epochs.get(host, order.epoch):
            return []
        self._epochs[host] = order.epoch
        if isinstance(order, m.StartRuns):
            return self._start(order, now)
        return self._stop(order, now) if isinstance(order, m.StopRuns) else self._list(order, now)

    def _start(self, order: m.StartRuns, now: float) -> list[Envelope]:
        times: dict[float, list[str]] = {}
        running = self._running.setdefault(order.host, {})
        started: list[str] = []
        ends: list[m.RunEnd] = []
        for run in order.runs:
            if run.run in self._ended:
                ends.append(self._ended[run.run])
                continue
            if run.run not in running:
                try:
                    ends_at = now + self._duration_s(run.run, run.spec)
                except POISON as trouble:
                    ends.append(cannot_be_ordered(run.run, trouble, reason="bad order"))
                    continue
                running[run.run] = run.spec
                times.setdefault(ends_at, []).append(run.run)
            started.append(run.run)
        for ends_at, runs in times.items():
            heapq.heappush(self._ends, (ends_at, tuple(runs), order.host))
        told: list[Envelope] = []
        if started:
            told.append(Envelope(order.host, m.RunsStarted(tuple(started))))
        if ends:
            told.append(Envelope(order.host, m.RunsEnded(tuple(ends))))
        return told

    def _stop(self, order: m.StopRuns, now: float) -> list[Envelope]:
        killed = RunOutcome(End.KILLED, None, "SIGTERM", "killed", "terminated with signal SIGTERM")
        running = self._running.get(order.host, {})
        ends, unknown = [], False
        for run in order.runs:
            if run in running:
                del running[run]
                self._keep(m.RunEnd(run, killed))
            if run in self._ended:
                ends.append(self._ended[run])
            else:
                unknown = True
        told = [Envelope(order.host, m.RunsEnded(tuple(ends)))] if ends else []
        if unknown and order.host in self._compared:
            told.append(Envelope(order.host, m.RunsListed(tuple(running), (), now)))
        elif unknown:
            # What we know is not all there is before the host has shown its ledger.
            told.append(Envelope(order.host, m.BackendUp()))
        return told

    def _list(self, order: m.ListRuns, now: float) -> list[Envelope]:
        """What the ledger holds is what runs: this is how a restart is survived."""
        running = self._running.setdefault(order.host, {})
        self._compared.setdefault(order.host)
        ends = []
        for known in order.known:
            if known.run in self._ended:
                ends.append(self._ended[known.run])
            elif known.run not in running:
                running[known.run] = None
                ends_at = known.since + self._duration_s(known.run, None)
                heapq.heappush(self._ends, (max(ends_at, now), (known.run,), order.host))
        listed = m.RunsListed(tuple(running), tuple(ends), order.asked_at)
        return [Envelope(order.host, listed)]

    def _due(self, now: float) -> list[Envelope]:
        by_host: dict[Key, list[m.RunEnd]] = {}
        while self._ends and self._ends[0][0] <= now:
            _, runs, host = heapq.heappop(self._ends)
            running = self._running.get(host, {})
            for run in runs:
                if run in running:
                    end = m.RunEnd(run, self._outcome(run, running.pop(run)))
                    self._keep(end)
                    by_host.setdefault(host, []).append(end)
        ends = [
            Envelope(host, m.RunsEnded(tuple(ends)))
            for host, ends in by_host.items()
            if not self._roster.has_left(host)
        ]
        return [*ends, *self._roster.due(now)]

    def _keep(self, end: m.RunEnd) -> None:
        self._ended[end.run] = end
        if len(self._ended) > ENDED_KEPT_MAX:
            del self._ended[next(iter(self._ended))]

    def _duration_s(self, run: str, spec: m.RunSpec | None) -> float:
        said = _variable(spec, DURATION_VARIABLE)
        duration_s = _number(said, self._fates.duration_s)
        return duration_s * (1 + self._fates.spread * self._chance(run, "duration"))

    def _outcome(self, run: str, spec: m.RunSpec | None) -> RunOutcome:
        said = _variable(spec, EXIT_VARIABLE)
        failed = self._chance(run, "outcome") < self._fates.failing
        code = int(_number(said, float(failed)))
        if code == 0:
            return RunOutcome(End.SUCCEEDED, 0)
        return RunOutcome(End.FAILED, code, "", "exited", f"Command exited with status {code}")

    def _chance(self, run: str, what: str) -> float:
        return zlib.crc32(f"{self._fates.seed}/{what}/{run}".encode()) / 2**32


def _variable(spec: m.RunSpec | None, name: str) -> str | None:
    if spec is None:
        return None
    return dict(spec.environment).get(name)


def _number(said: str | None, otherwise: float) -> float:
    """A client's number, or ours where it said none: a bad one must not stop the runs of others."""
    try:
        number = float(said) if said is not None else otherwise
    except ValueError:
        return otherwise
    return number if math.isfinite(number) else otherwise
