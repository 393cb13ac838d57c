"""The machines of a simulated world: they run the orders of hosts, with scripted ends.

Turns orders into starts and ends in virtual time, and keeps the true processes, which survive every
crash of a shard. Actors see them only by `ListRuns`.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable
from typing import NamedTuple

from peloton.actors.host import messages as m
from peloton.actors.host.ledger import NamedRuns, by_crowd, names_of
from peloton.actors.host.live.live_messages import ChangesNoted
from peloton.actors.host.machine_messages import (
    HostUse,
    RemoveVolumes,
    SetUse,
    UseSet,
    VolumesRemoved,
)
from peloton.actors.resources import Resources
from peloton.actors.task.messages import End, RunOutcome
from peloton.actors.task.run_messages import UNHEALTHY, HealthCheck, over_text
from peloton.backends.simulated_health import ILL, SimulatedHealth
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Bits, Key, Message, key

MACHINE_BACKEND = key("backend", "machines")
"""Reports of all machines name it as their sender."""
SUCCESS = RunOutcome(End.SUCCEEDED, 0)
FAILURE = RunOutcome(End.FAILED, 1, message="Command exited with status 1")
TERMINATED = RunOutcome(End.FAILED, signal="SIGTERM")
NOT_BEGUN = RunOutcome(End.FAILED, reason="could not be started")
CUT_SHORT = RunOutcome(End.LOST, reason="the machine was switched off")
RESCINDED = RunOutcome(End.LOST, reason="offer rescinded", system=True)


class Fate(NamedTuple):
    """The end of a run: its duration in s and its outcome; None: it runs until it is stopped."""

    duration_s: float | None = 1.0
    outcome: RunOutcome = SUCCESS


RunFates = Callable[[str], Fate]


class MachineProcess(NamedTuple):
    """A true process."""

    host: Key
    needs: Resources


class Machines:
    """All machines, by the key of their host."""

    def __init__(self, fates: RunFates, *, start_s: float = 0.0, stop_s: float = 0.0) -> None:
        self.fates = fates
        self.start_s = start_s
        self.stop_s = stop_s  # how long a process takes to die
        self.deaf = False  # launch orders are ignored: runs never start
        self.running: dict[str, MachineProcess] = {}
        self.ended: dict[str, tuple[Key, m.RunEnd]] = {}  # not yet forgotten by their host
        self.started: dict[str, Key] = {}  # every run that ever ran, or never will, and where
        self.gone: dict[str, None] = {}  # lost with their machine, which does not list them
        self.results: dict[str, RunOutcome] = {}  # how every run ended in truth
        self.first_results: dict[str, RunOutcome] = {}  # of runs that were begun once more
        self.listed_sets = 0  # sets in all lists
        self.epochs: dict[Key, int] = {}
        self.cut_off: dict[Key, None] = {}  # machines out of reach, whose runs continue
        self.spoiled: dict[Key, None] = {}  # machines that start nothing
        self.check: HealthCheck | None = None  # that services of a storm have
        self.ill = 0.0  # share of checked runs whose health check fails, at once or later
        self.unhealthy: dict[str, None] = {}  # every run whose check was told to fail for good
        self.uses: dict[Key, HostUse] = {}  # what was said of a machine last
        self._health: dict[Key, SimulatedHealth] = {}  # what this owner of the host knows
        self.volumes: dict[tuple[Key, str], list[str]] = {}  # by host and name: who has written
        self._events: list[tuple[float, int, str, RunOutcome | None]] = []
        self._count = 0

    @property
    def wake_at(self) -> float | None:
        """When the next run starts or ends, or a change of health is to be reported."""
        times = [health.wake_at for health in self._health.values()]
        times += [self._events[0][0]] if self._events else []
        return min((at for at in times if at is not None), default=None)

    def receive(self, message: Message, now: float) -> list[Envelope]:
        """Carry out one order; return its reports."""
        host: Key = message.host  # type: ignore[attr-defined]
        if host in self.cut_off:
            answers = isinstance(message, m.ListRuns | m.PingBackend)
            return [machine_report(host, m.BackendDown("out of reach"))] if answers else []
        if isinstance(message, m.PingBackend):
            return [machine_report(host, m.BackendUp())]
        epoch = getattr(message, "epoch", None)
        if epoch is not None:
            if epoch < self.epochs.get(host, 0):
                return []
            if epoch > self.epochs.get(host, 0):
                self._health.pop(host, None)  # another daemon checks them, and begins anew
            self.epochs[host] = epoch
        if isinstance(message, m.StartRuns):
            return self._start(message, now)
        if isinstance(message, ChangesNoted):
            self._health_of(host).noted(message.runs, message.number, now=now)
        elif isinstance(message, m.StopRuns):
            self._health_of(host).drop(message.runs)
            for run in message.runs:
                if run in self.running:
                    self._at(run, TERMINATED, at=now + self.stop_s)
        elif isinstance(message, m.ListRuns):
            self._check(message, now)
            return [machine_report(host, self._list(message))]
        elif isinstance(message, m.ForgetRuns):
            for run in message.runs:
                self.ended.pop(run, None)
        elif isinstance(message, SetUse):
            self.uses[host] = message.use
            return [machine_report(host, UseSet(message.number))]
        elif isinstance(message, RemoveVolumes):
            self._remove(host, message.volumes)
            return [machine_report(host, VolumesRemoved(message.volumes))]
        return []

    def due(self, now: float) -> list[Envelope]:
        """Return reports of what has started or ended by now: one of each per host."""
        starts: dict[Key, list[str]] = {}
        ends: dict[Key, list[m.RunEnd]] = {}
        while self._events and self._events[0][0] <= now:
            at, _, run, outcome = heapq.heappop(self._events)
            process = self.running.get(run)
            if process is None:
                continue
            if outcome is None:
                starts.setdefault(process.host, []).append(run)
                continue
            del self.running[run]
            self._health_of(process.host).drop((run,))
            self.results[run] = outcome
            self.ended[run] = (process.host, m.RunEnd(run, outcome, at))
            ends.setdefault(process.host, []).append(self.ended[run][1])
        reports: list[tuple[Key, Message]] = [
            (host, m.RunsStarted(tuple(runs))) for host, runs in starts.items()
        ]
        reports += [(host, m.RunsEnded(tuple(some))) for host, some in ends.items()]
        for health in [*self._health.values()]:
            for host, told in health.due(now):
                self.unhealthy.update((one.run, None) for one in told.runs if one.live.over)
                reports.append((host, told))
        return [machine_report(*each) for each in reports if each[0] not in self.cut_off]

    def truth(self, run: str) -> RunOutcome | None:
        """Return a run's end for its task: one ended for its failed check has failed."""
        found = self.results.get(run)
        if found is None or run not in self.unhealthy or found.end == End.LOST:
            return found
        code, signal = found.exit_code, found.signal
        return RunOutcome(End.FAILED, code, signal, UNHEALTHY, over_text(ILL))

    def has_ended_as(self, run: str, outcome: RunOutcome) -> bool:
        """Return whether a run ended so, the first time or when it was begun once more."""
        return outcome in (self.results.get(run), self.first_results.get(run))

    def end(self, run: str, outcome: RunOutcome, now: float) -> None:
        """End a run now, whatever its fate was."""
        self._at(run, outcome, at=now)

    def vanish(self, host: Key) -> None:
        """Switch the machine off: the ends of its runs are never reported."""
        for run in [run for run, process in self.running.items() if process.host == host]:
            del self.running[run]
            self.results[run] = CUT_SHORT
            self.gone[run] = None
        self.gone.update((run, None) for run, (at, _) in self.ended.items() if at == host)
        self.ended = {run: end for run, end in self.ended.items() if end[0] != host}

    def rescind(self, run: str, host: Key, now: float) -> m.RunEnd:
        """End a run that was ordered, and can never start: its resources are somebody else's."""
        end = m.RunEnd(run, RESCINDED, now)
        self.started[run], self.results[run], self.ended[run] = host, RESCINDED, (host, end)
        return end

    def used(self, host: Key) -> Resources:
        """Return the resources of all processes on a machine."""
        total = Resources()
        for process in self.running.values():
            if process.host == host:
                total = total + process.needs
        return total

    def _start(self, message: m.StartRuns, now: float) -> list[Envelope]:
        if self.deaf:
            return []
        for start in message.runs:
            if start.run in self.started and start.run not in self.gone:
                continue
            self.gone.pop(start.run, None)
            if start.run in self.results:  # its end is under way, and the host cannot know that
                self.first_results[start.run] = self.results[start.run]
            assert self.started.setdefault(start.run, message.host) == message.host
            self.running[start.run] = MachineProcess(message.host, start.spec.resources)
            if start.spec.volume is not None:
                volume = start.run.rpartition("-")[0]
                self.volumes.setdefault((message.host, volume), []).append(start.run)
            if message.host in self.spoiled:
                self._at(start.run, NOT_BEGUN, at=now)
                continue
            fate = self.fates(start.run)
            self._at(start.run, None, at=now + self.start_s)
            self._watch(
                message.host,
                start.run,
                check=start.spec.check,
                since=now + self.start_s,
                now=now,
            )
            if fate.duration_s is not None:
                end_s = now + self.start_s + fate.duration_s
                self._at(start.run, fate.outcome, at=end_s)
        return []

    def _check(self, message: m.ListRuns, now: float) -> None:
        for some in message.checked:
            for run in names_of(some.crowd, some.members.raw, run=some.run):
                if run in self.running:
                    self._watch(message.host, run, check=some.check, since=some.since, now=now)

    def _watch(
        self, host: Key, run: str, *, check: HealthCheck | None, since: float, now: float
    ) -> None:
        if check is not None:
            self._health_of(host).watch(host, run, check=check, since=since, now=now)

    def _health_of(self, host: Key) -> SimulatedHealth:
        found = self._health.get(host)
        if found is None:
            found = self._health[host] = SimulatedHealth(self.ill, _chance)
        found.ill = self.ill
        return found

    def _remove(self, host: Key, volumes: tuple[str, ...]) -> None:
        for volume in volumes:
            assert not any(run.rpartition("-")[0] == volume for run in self._runs_of(host))
            self.volumes.pop((host, volume), None)

    def _runs_of(self, host: Key) -> list[str]:
        return [run for run, process in self.running.items() if process.host == host]

    def _list(self, message: m.ListRuns) -> m.RunsListed:
        """Return a list, of sets if it was asked for as sets, else of names."""
        host = message.host
        running = tuple(run for run, process in self.running.items() if process.host == host)
        ends = tuple(end for at, end in self.ended.values() if at == host)
        if not message.sets:  # the host may be one that does not read sets
            return m.RunsListed(running, ends, message.asked_at)
        found, _ = by_crowd(running)
        asked: NamedRuns = {}
        for some in message.sets:
            name = (some.crowd, some.run)
            asked[name] = asked.get(name, 0) | some.members.raw & found.get(name, 0)
        sets = tuple(m.RunningSet(*name, Bits(raw)) for name, raw in asked.items() if raw)
        self.listed_sets += len(sets)
        in_sets = {run for one in sets for run in names_of(one.crowd, one.members.raw, run=one.run)}
        names = tuple(run for run in running if run not in in_sets)
        return m.RunsListed(names, ends, message.asked_at, sets=sets)

    def _at(self, run: str, outcome: RunOutcome | None, *, at: float) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, run, outcome))


def _chance(run: str, what: str) -> float:
    return zlib.crc32(f"{what}/{run}".encode()) / 2**32


def machine_report(host: Key, message: Message, *, of: Key = MACHINE_BACKEND) -> Envelope:
    """Return a report of a machine to its host."""
    return Envelope(host, message, sender=of)
