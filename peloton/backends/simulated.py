"""Runs that only pretend: for tests, benchmarks and trying things out.

Turns orders of hosts into starts and ends by a seed. The fate of a run derives from (seed, run id)
and the time its host accepted it, so it survives a restart: after one, the ledger's list of runs
is all that is needed. It must not hold anything that a restart would miss.
"""

from __future__ import annotations

import heapq
import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from peloton.actors.host import messages as m
from peloton.actors.task.messages import End, Outcome
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.vocabulary import Key, key

BACKEND = key("backend", "simulated")
DURATION_VARIABLE = "PELOTON_SIMULATED_DURATION_S"
EXIT_VARIABLE = "PELOTON_SIMULATED_EXIT_CODE"


class Fates(NamedTuple):
    """How runs go, unless their environment says otherwise (`PELOTON_SIMULATED_…`)."""

    seed: int = 0
    duration_s: float = 1.0
    spread: float = 0.0  # up to this share of the duration longer, by run
    failing: float = 0.0  # share of runs that fail with exit code 1


USUAL = Fates()


class SimulatedBackend:
    """The soft machine behind `backend/simulated`."""

    own_thread = False

    def __init__(self, hosts: Sequence[str], fates: Fates = USUAL) -> None:
        self._hosts = dict.fromkeys(key("host", name) for name in hosts)
        self._fates = fates
        self._woken = False  # after a reset: the hosts have yet to be told that they can ask
        # Heap of (time, runs, host): runs that were ordered together mostly end together.
        self._ends: list[tuple[float, tuple[str, ...], Key]] = []
        self._running: dict[str, m.RunSpec | None] = {}

    def start(
        self,
        tell: Callable[[Iterable[Envelope]], None],
        trouble: Callable[[str, str], None] | None = None,
    ) -> None:
        """All hosts can be asked at once; there is never any trouble to tell."""
        self._woken = False
        tell([Envelope(host, m.BackendUp()) for host in self._hosts])

    @property
    def wake_at(self) -> float | None:
        """When the next run ends."""
        if self._woken:
            return 0.0
        return self._ends[0][0] if self._ends else None

    def reset(self) -> None:
        """Forget all: the hosts are told to ask anew, and bring their ledgers."""
        self._ends, self._running, self._woken = [], {}, True

    def receive(self, envelopes: Sequence[Envelope], now: float) -> Iterable[Envelope]:
        """Orders of hosts, and ends that are due."""
        out: list[Envelope] = []
        if self._woken:
            self._woken = False
            out += [Envelope(host, m.BackendUp()) for host in self._hosts]
        for envelope in envelopes:
            message = envelope.message
            if isinstance(message, m.StartRuns):
                out.append(self._start(message, now))
            elif isinstance(message, m.StopRuns):
                out.append(self._stop(message))
            elif isinstance(message, m.ListRuns):
                out.append(self._list(message, now))
            elif isinstance(message, m.AskBackend) and message.host in self._hosts:
                out.append(Envelope(message.host, m.BackendUp()))
        out += self._due(now)
        return out

    def rename(self, member: str, *, number: int, count: int) -> None:
        """A run comes out the same, whoever of the daemons pretends to run it."""

    def stop_all(self, grace_s: float) -> bool:
        """Nothing outlives this process anyway."""
        return True

    def close(self) -> None:
        """Nothing is held."""

    def _start(self, message: m.StartRuns, now: float) -> Envelope:
        ends: dict[float, list[str]] = {}
        for run in message.runs:
            if run.run not in self._running:
                self._running[run.run] = run.spec
                ends_at = now + self._duration_s(run.run, run.spec)
                ends.setdefault(ends_at, []).append(run.run)
        for ends_at, runs in ends.items():
            heapq.heappush(self._ends, (ends_at, tuple(runs), message.host))
        started = m.RunsStarted(tuple(run.run for run in message.runs))
        return Envelope(message.host, started)

    def _stop(self, message: m.StopRuns) -> Envelope:
        killed = Outcome(End.KILLED, None, "SIGTERM", "killed", "terminated with signal SIGTERM")
        ends = tuple(m.RunEnd(run, killed) for run in message.runs)
        for run in message.runs:
            self._running.pop(run, None)
        return Envelope(message.host, m.RunsEnded(ends))

    def _list(self, message: m.ListRuns, now: float) -> Envelope:
        """What the ledger holds is what runs: this is how a restart is survived."""
        running = []
        for known in message.known:
            if known.run not in self._running:
                self._running[known.run] = None
                ends_at = known.since + self._duration_s(known.run, None)
                heapq.heappush(self._ends, (max(ends_at, now), (known.run,), message.host))
            running.append(known.run)
        return Envelope(message.host, m.RunsListed(tuple(running), (), message.asked_at))

    def _due(self, now: float) -> list[Envelope]:
        by_host: dict[Key, list[m.RunEnd]] = {}
        while self._ends and self._ends[0][0] <= now:
            _, runs, host = heapq.heappop(self._ends)
            for run in runs:
                if run in self._running:
                    spec = self._running.pop(run)
                    by_host.setdefault(host, []).append(m.RunEnd(run, self._outcome(run, spec)))
        return [Envelope(host, m.RunsEnded(tuple(ends))) for host, ends in by_host.items()]

    def _duration_s(self, run: str, spec: m.RunSpec | None) -> float:
        said = _variable(spec, DURATION_VARIABLE)
        duration_s = _number(said, self._fates.duration_s)
        return duration_s * (1 + self._fates.spread * self._chance(run, "duration"))

    def _outcome(self, run: str, spec: m.RunSpec | None) -> Outcome:
        said = _variable(spec, EXIT_VARIABLE)
        failed = self._chance(run, "outcome") < self._fates.failing
        code = int(_number(said, float(failed)))
        if code == 0:
            return Outcome(End.SUCCEEDED, 0)
        return Outcome(End.FAILED, code, "", "exited", f"Command exited with status {code}")

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
