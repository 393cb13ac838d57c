"""What happens to a cluster of a test, as values: steps that are drawn, played, and shrunk.

played = play(cluster, history)      hosts come and go, jobs come, daemons are killed
played.settle()                      all of it is put right, and every job comes to its end
assert_sound(cluster)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from peloton.testing.behaviour import Does, succeeds
from peloton.testing.cluster import Cluster, HostSize
from peloton.testing.jobs import JobHandle, JobShape

SETTLE_S = 3600.0
"""Virtual seconds in which every job of a history ends once nothing more happens to it."""
SLACK = 1e-6


@dataclass(frozen=True)
class HostComes:
    """A host comes."""

    size: HostSize = field(default_factory=lambda: HostSize())

    def play(self, played: PlayedHistory) -> None:
        """Let it happen."""
        if played.is_up:
            played.cluster.add_host(**self.size)


@dataclass(frozen=True)
class HostSwitchedOff:
    """One of the machines that are there is switched off: this one, counted round."""

    number: int = 0

    def play(self, played: PlayedHistory) -> None:
        """Let it happen."""
        there = [host for host in played.cluster.hosts if host not in played.lost]
        if there:
            host = there[self.number % len(there)]
            played.lost[host] = None
            played.cluster.lose_host(host)


@dataclass(frozen=True)
class HostSwitchedOn:
    """The machine that is off for longest is switched on."""

    def play(self, played: PlayedHistory) -> None:
        """Let it happen."""
        if played.lost:
            host = next(iter(played.lost))
            del played.lost[host]
            played.cluster.return_host(host)


@dataclass(frozen=True)
class JobComes:
    """A job comes, whose tasks do this."""

    shape: JobShape = field(default_factory=lambda: JobShape())
    does: Does = field(default_factory=succeeds)

    def play(self, played: PlayedHistory) -> None:
        """Let it happen."""
        if played.is_up and played.cluster.hosts:  # before there is no pool
            played.jobs.append(played.cluster.submit(does=self.does, **self.shape))


@dataclass(frozen=True)
class StopComes:
    """One of the jobs so far is stopped: this one, counted round."""

    number: int = 0

    def play(self, played: PlayedHistory) -> None:
        """Let it happen."""
        if played.is_up and played.jobs:
            played.jobs[self.number % len(played.jobs)].stop()


@dataclass(frozen=True)
class TimePasses:
    """So many virtual seconds pass."""

    seconds: float = 1.0

    def play(self, played: PlayedHistory) -> None:
        """Let it happen."""
        played.cluster.advance(self.seconds)


@dataclass(frozen=True)
class DaemonsCrash:
    """All daemons are killed; hosts, jobs and stops of later steps come once they are back."""

    def play(self, played: PlayedHistory) -> None:
        """Let it happen."""
        played.cluster.crash()
        played.is_up = False


@dataclass(frozen=True)
class DaemonsRestart:
    """Daemons that were killed begin again."""

    def play(self, played: PlayedHistory) -> None:
        """Let it happen."""
        if not played.is_up:
            played.cluster.restart()
            played.is_up = True


class HistoryStep(Protocol):
    """One thing that happens."""

    def play(self, played: PlayedHistory) -> None:
        """Let it happen."""


class PlayedHistory:
    """A history that was played in a cluster, and what there is of it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.jobs: list[JobHandle] = []
        self.lost: dict[str, None] = {}
        """The machines that are off, those that are so for longest first."""
        self.is_up = True
        """Whether daemons run."""

    def settle(self, *, within_s: float = SETTLE_S) -> None:
        """Switch all machines on, begin all daemons, and wait until every job has ended.

        Raises AssertionError, with what the jobs wait for, if one does not end.
        """
        DaemonsRestart().play(self)
        while self.lost:
            HostSwitchedOn().play(self)
        self.cluster.run_until(lambda: all(job.has_ended for job in self.jobs), within_s=within_s)


def play(cluster: Cluster, history: Sequence[HistoryStep]) -> PlayedHistory:
    """Let a history happen to a cluster; return what there is of it. Steps that cannot be now, such
    as a stop without a job, are left out."""
    played = PlayedHistory(cluster)
    for step in history:
        step.play(played)
    return played


def assert_sound(cluster: Cluster) -> None:
    """Fail if a host gives more than it has, or a task runs twice at once."""
    __tracebackhide__ = True
    inside = cluster.inside
    for host, state in inside.world.cells("host").items():
        used = inside.machines.used(host)
        for kind in ("cpu", "memory", "disk", "gpu"):
            has, given = getattr(state.capacity, kind), getattr(used, kind)
            if given > has * (1 + SLACK):
                raise AssertionError(f"{host} runs {given} of {has} millionths of its {kind}")
    tasks: dict[str, str] = {}
    for run in inside.machines.running:
        task = run.rpartition("-")[0]
        first = tasks.setdefault(task, run)
        reachable = inside.machines.cut_off
        if first != run and not {inside.machines.running[one].host for one in (first, run)} & {
            *reachable
        }:
            raise AssertionError(f"task {task} runs twice at once: as {first} and as {run}")
