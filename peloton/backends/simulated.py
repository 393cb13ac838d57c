"""Simulated runs: for tests, benchmarks and trying things out.

Turns orders of hosts into starts and ends by a seed. The fate of a run derives from (seed, run id)
and the time its host accepted it, so it survives a restart: after one, the host's ledger of runs is
all that is needed. Nothing may be held that a restart would miss.

While a machine has left (`port.py`), its runs go on unreported, like those of one out of reach.
"""

from __future__ import annotations

import heapq
import math
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from peloton.actors.host import messages as m
from peloton.actors.host.ledger import NamedRuns, names_of
from peloton.actors.host.live.live_messages import ChangesNoted, KnownSet
from peloton.actors.host.machine_messages import RemoveVolumes, SetUse, UseSet, VolumesRemoved
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.task.messages import End, RunOutcome, parse_pod, pod_id
from peloton.backends.port import POISON, HostsOrder, Report, ReportProblem, Tell, cannot_be_ordered
from peloton.backends.roster import Roster
from peloton.backends.simulated_health import SimulatedHealth
from peloton.runtime.core.turning.envelope import Envelope, Reply
from peloton.runtime.vocabulary import Bits, Key, key, members_of

SIMULATED_BACKEND = key("backend", "simulated")
DURATION_VARIABLE = "PELOTON_SIMULATED_DURATION_S"
EXIT_VARIABLE = "PELOTON_SIMULATED_EXIT_CODE"
ENDED_KEPT_MAX = 100_000
"""Ends that no host has acknowledged. Older ones can be derived again from the host's ledger, but
without the variables of their environment."""


_ORDERS = m.StartRuns | m.StopRuns | m.ListRuns | m.PingBackend | RemoveVolumes
_Set = tuple[Key, int, int]
_Runs = tuple[tuple[str, ...], _Set]
"""Runs by name, and those of one set: crowd, run number, members as bits."""
NOBODY: _Set = (Key(""), 0, 0)


class RunScript(NamedTuple):
    """Duration and outcome of runs, unless their environment sets them (`PELOTON_SIMULATED_…`)."""

    seed: int = 0
    duration_s: float = 1.0
    spread: float = 0.0  # up to this share of the duration longer, by run
    failing: float = 0.0  # share of runs that fail with exit code 1
    ill: float = 0.0  # share of checked runs whose health check fails, at once or later


DEFAULT_SCRIPT = RunScript()


class SimulatedBackend:
    """The ephemeral service behind `backend/simulated`."""

    own_thread = True
    key = prefix = SIMULATED_BACKEND

    def __init__(self, hosts: Sequence[str], fates: RunScript = DEFAULT_SCRIPT) -> None:
        self._roster = Roster(SIMULATED_BACKEND, [key("host", name) for name in hosts])
        self._fates = fates
        self._announce_up = False  # after a reset: the hosts have yet to receive `BackendUp`
        # Heap of (time, runs, host): runs that were ordered together mostly end together.
        self._ends: list[tuple[float, _Runs, Key]] = []
        self._running: dict[Key, dict[str, RunSpec | None]] = {}
        self._adopted: dict[Key, NamedRuns] = {}  # running, too: known from the ledger, as sets
        self._ended: dict[str, m.RunEnd] = {}  # until they are forgotten, oldest first
        self._epochs: dict[Key, int] = {}
        self._health = SimulatedHealth(fates.ill, self._chance)

    def start(self, tell: Tell, trouble: ReportProblem | None = None) -> None:
        """Report up to all hosts at once; there is never any trouble to report."""
        self._announce_up = False
        tell([_report(host, m.BackendUp()) for host in self._roster.hosts])

    @property
    def wake_at(self) -> float | None:
        """When the next run ends, or a host has to be reported again."""
        if self._announce_up:
            return 0.0
        others = self._roster.wake_at, self._health.wake_at
        times = [at for at in others if at is not None]
        return min([*times, self._ends[0][0]]) if self._ends else min(times, default=None)

    def reset(self) -> None:
        """Forget all runs; the hosts receive `BackendUp`, list again and bring their ledgers."""
        self._ends, self._running, self._adopted, self._ended = [], {}, {}, {}
        self._health = SimulatedHealth(self._fates.ill, self._chance)
        self._announce_up = True

    def receive(self, envelopes: Sequence[Envelope], now: float) -> Iterable[Envelope | Reply]:
        """Take orders of hosts, and report ends that are due."""
        out: list[Envelope | Reply] = []
        if self._announce_up:
            self._announce_up = False
            out += [_report(host, m.BackendUp()) for host in self._roster.hosts]
        for envelope in envelopes:
            message = envelope.message
            if isinstance(message, HostsOrder):
                report, reply = self._roster.change(envelope, now)
                out += [*reply, report] if report is not None else reply
            elif isinstance(message, m.ForgetRuns):
                for run in message.runs:
                    self._ended.pop(run, None)
            elif isinstance(message, ChangesNoted):
                self._health.noted(message.runs, message.number, now=now)
            elif isinstance(message, SetUse):  # nobody else has a share of it
                out.append(_report(message.host, UseSet(message.number)))
            elif isinstance(message, _ORDERS):
                out += self._ordered(message, now)
        out += self._due(now)
        return out

    def rename(self, member: str, *, number: int, count: int) -> None:
        """Take the daemon's place in a fleet. A run ends the same way on every daemon."""
        self._roster.in_fleet = True

    def stop_all(self, grace_s: float) -> bool:
        """Return True: nothing outlives this process."""
        return True

    def close(self) -> None:
        """Do nothing: nothing is held."""

    def _ordered(
        self,
        order: m.StartRuns | m.StopRuns | m.ListRuns | m.PingBackend | RemoveVolumes,
        now: float,
    ) -> list[Envelope]:
        host = order.host
        if self._roster.has_left(host):
            return [self._roster.left(host)]
        self._roster.ordered(host)
        if isinstance(order, m.PingBackend):
            return [_report(host, m.BackendUp())]
        if order.epoch < self._epochs.get(host, order.epoch):
            return []
        self._epochs[host] = order.epoch
        if isinstance(order, RemoveVolumes):  # there are none but in the ledgers of hosts
            return [_report(host, VolumesRemoved(order.volumes))]
        if isinstance(order, m.StartRuns):
            return self._start(order, now)
        return self._stop(order) if isinstance(order, m.StopRuns) else self._list(order, now)

    def _start(self, order: m.StartRuns, now: float) -> list[Envelope]:
        times: dict[float, list[str]] = {}
        running = self._running.setdefault(order.host, {})
        started: list[str] = []
        ends: list[m.RunEnd] = []
        for run in order.runs:
            if run.run in self._ended:
                ends.append(self._ended[run.run])
                continue
            if run.run not in running and self._adopted_run(order.host, run.run) is None:
                try:
                    ends_at = now + self._duration_s(run.run, run.spec)
                except POISON as trouble:
                    ends.append(cannot_be_ordered(run.run, trouble, reason="bad order"))
                    continue
                running[run.run] = run.spec
                times.setdefault(ends_at, []).append(run.run)
                check = run.spec.check
                if check is not None:
                    self._health.watch(order.host, run.run, check=check, since=now, now=now)
            started.append(run.run)
        for ends_at, runs in times.items():
            heapq.heappush(self._ends, (ends_at, (tuple(runs), NOBODY), order.host))
        reports: list[Envelope] = []
        if started:
            reports.append(_report(order.host, m.RunsStarted(tuple(started))))
        if ends:
            reports.append(_report(order.host, m.RunsEnded(tuple(ends))))
        return reports

    def _stop(self, order: m.StopRuns) -> list[Envelope]:
        killed = RunOutcome(End.KILLED, None, "SIGTERM", "killed", "terminated with signal SIGTERM")
        running = self._running.get(order.host, {})
        ends, unknown = [], False
        self._health.drop(order.runs)
        for run in order.runs:
            if run in running:
                del running[run]
                self._keep(m.RunEnd(run, killed))
            elif (adopted := self._adopted_run(order.host, run)) is not None:
                self._release(order.host, adopted)
                self._keep(m.RunEnd(run, killed))
            if run in self._ended:
                ends.append(self._ended[run])
            else:
                unknown = True
        reports = [_report(order.host, m.RunsEnded(tuple(ends)))] if ends else []
        if unknown:
            # The host must request the list: only it knows which runs it had accepted by then,
            # and before its ledger has come, runs may be missing here.
            reports.append(_report(order.host, m.BackendUp()))
        return reports

    def _list(self, order: m.ListRuns, now: float) -> list[Envelope]:
        """Adopt all runs of the ledger: this is how they survive a restart."""
        running = self._running.setdefault(order.host, {})
        ends = [end for some in order.sets for end in self._adopt(order.host, some, now)]
        self._check(order, now)
        sets = self._adopted_sets(order.host)
        listed = m.RunsListed(tuple(running), tuple(ends), order.asked_at, sets=sets)
        return [_report(order.host, listed)]

    def _check(self, order: m.ListRuns, now: float) -> None:
        host, running = order.host, self._running.get(order.host, {})
        for some in order.checked:
            for run in names_of(some.crowd, some.members.raw, run=some.run):
                if run in running or self._adopted_run(host, run) is not None:
                    self._health.watch(host, run, check=some.check, since=some.since, now=now)

    def _adopt(self, host: Key, some: KnownSet, now: float) -> list[m.RunEnd]:
        """Adopt the unknown runs of a set; return the ends of those that have ended."""
        adopted = self._adopted.setdefault(host, {})
        running, ends = self._running.get(host), []
        name, raw = (some.crowd, some.run), some.members.raw
        raw &= ~adopted.get(name, 0)
        if running or self._ended:
            for member in members_of(raw):
                run = pod_id(some.crowd, member, run=some.run)
                if run in self._ended:
                    ends.append(self._ended[run])
                elif not running or run not in running:
                    continue
                raw &= ~(1 << member)
        if raw:
            adopted[name] = adopted.get(name, 0) | raw
            self._end_later(host, KnownSet(some.crowd, some.run, Bits(raw), some.since), now)
        return ends

    def _end_later(self, host: Key, some: KnownSet, now: float) -> None:
        by_time: dict[float, int] = {}
        if self._fates.spread:
            for member in some.members:
                run = pod_id(some.crowd, member, run=some.run)
                ends_at = some.since + self._duration_s(run, None)
                by_time[ends_at] = by_time.get(ends_at, 0) | 1 << member
        else:
            by_time[some.since + self._fates.duration_s] = some.members.raw
        for ends_at, raw in by_time.items():
            runs = ((), (some.crowd, some.run, raw))
            heapq.heappush(self._ends, (max(ends_at, now), runs, host))

    def _adopted_sets(self, host: Key) -> tuple[m.RunningSet, ...]:
        adopted = self._adopted.get(host, {})
        return tuple(m.RunningSet(crowd, run, Bits(raw)) for (crowd, run), raw in adopted.items())

    def _adopted_run(self, host: Key, name: str) -> _Set | None:
        """Return the run of this name as a set of one, if it was adopted and runs."""
        adopted = self._adopted.get(host)
        parsed = parse_pod(name) if adopted else None
        if not adopted or parsed is None:
            return None
        crowd, member, run = parsed
        found = adopted.get((crowd, run), 0) & 1 << member
        return (crowd, run, found) if found else None

    def _release(self, host: Key, some: _Set) -> None:
        """Remove adopted runs that run no more."""
        crowd, run, raw = some
        adopted = self._adopted[host]
        adopted[crowd, run] &= ~raw
        if not adopted[crowd, run]:
            del adopted[crowd, run]

    def _due(self, now: float) -> list[Envelope]:
        by_host: dict[Key, list[m.RunEnd]] = {}
        while self._ends and self._ends[0][0] <= now:
            _, (names, (crowd, number, raw)), host = heapq.heappop(self._ends)
            running = self._running.get(host, {})
            ended = [(run, running.pop(run)) for run in names if run in running]
            adopted = self._adopted.get(host, {})
            hit = raw & adopted.get((crowd, number), 0)
            if hit:
                ended += [(run, None) for run in names_of(crowd, hit, run=number)]
                self._release(host, (crowd, number, hit))
            self._health.drop(run for run, _ in ended)
            for run, spec in ended:
                end = m.RunEnd(run, self._outcome(run, spec))
                self._keep(end)
                by_host.setdefault(host, []).append(end)
        ends = [
            _report(host, m.RunsEnded(tuple(ends)))
            for host, ends in by_host.items()
            if not self._roster.has_left(host)
        ]
        changes = [
            _report(host, reported)
            for host, reported in self._health.due(now)
            if not self._roster.has_left(host)
        ]
        return [*ends, *changes, *self._roster.due(now)]

    def _keep(self, end: m.RunEnd) -> None:
        self._ended[end.run] = end
        if len(self._ended) > ENDED_KEPT_MAX:
            del self._ended[next(iter(self._ended))]

    def _duration_s(self, run: str, spec: RunSpec | None) -> float:
        text = _variable(spec, DURATION_VARIABLE)
        duration_s = _number(text, self._fates.duration_s)
        return duration_s * (1 + self._fates.spread * self._chance(run, "duration"))

    def _outcome(self, run: str, spec: RunSpec | None) -> RunOutcome:
        text = _variable(spec, EXIT_VARIABLE)
        failed = self._chance(run, "outcome") < self._fates.failing
        code = int(_number(text, float(failed)))
        if code == 0:
            return RunOutcome(End.SUCCEEDED, 0)
        return RunOutcome(End.FAILED, code, "", "exited", f"Command exited with status {code}")

    def _chance(self, run: str, what: str) -> float:
        return zlib.crc32(f"{self._fates.seed}/{what}/{run}".encode()) / 2**32


def _report(host: Key, report: Report) -> Envelope:
    """Return an envelope from this backend: hosts ignore the reports of others."""
    return Envelope(host, report, sender=SIMULATED_BACKEND)


def _variable(spec: RunSpec | None, name: str) -> str | None:
    if spec is None:
        return None
    return dict(spec.environment).get(name)


def _number(text: str | None, otherwise: float) -> float:
    """Return the client's number, or the default: a bad one must not stop the runs of others."""
    try:
        number = float(text) if text is not None else otherwise
    except ValueError:
        return otherwise
    return number if math.isfinite(number) else otherwise
