"""Three nemeses of every goal loop: a lost message, stale messages, a process stopped midway.

Turns the messages between entities into fewer, into older ones, or into the end of the process that
sends them; and plays a second scripted history, in which every kind sends something to another
shard. Every goal must be reached all the same. The targets of a nemesis are named (this class, this
occurrence), never drawn. Sends within a frame are left alone: they are no messages.

    trouble = Troubles()
    Missed("lot", "Enqueue", which=first).attach(trouble.cluster)
    trouble.run()
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from peloton.actors.host.messages import CompleteMaintenance, StartMaintenance
from peloton.actors.host.stages import Maintenance
from peloton.actors.job.messages import AddChange, StartInstances, UpdateJob
from peloton.actors.job.slice.task_config import Command, Override, TaskConfig
from peloton.actors.job.stages import JobStates
from peloton.actors.resources import UNIT, Resources
from peloton.chaos.cluster.rules.aftermath import WantedJobs, faults_of
from peloton.chaos.cluster.world.cluster import ClusterSetup, SimulatedCluster, job_spec
from peloton.chaos.cluster.world.history import Operation
from peloton.chaos.cluster.world.machines import Fate
from peloton.runtime.core.turning.envelope import Envelope, Stamp
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.world import NotReached
from peloton.runtime.vocabulary import Key, Message, kind_of

Occurrences = Callable[[int], bool]
"""Of the occurrences of a message class for one receiver, counted from 1, which are struck."""

SCENE_S_MAX = 1500.0
"""In s: several times the longest interval after which a lost message is requested again, which is
that of a host that checks its backend though nothing seems wrong."""
QUIET_S = 60.0
STALE_S_MAX = 12.0
"""A message held back is delivered after so long, even if no newer one releases it."""


def first(count: int) -> bool:
    """Return True for the first message of each receiver."""
    return count == 1


def second(count: int) -> bool:
    """Return True for the second message of each receiver."""
    return count == 2


def every_other(count: int) -> bool:
    """Return True for the first message, the third, and so on, as long as the history lasts."""
    return count % 2 == 1


class Nemesis:
    """Filters all that leaves a shard, a machine or a client, in every life of every daemon."""

    def attach(self, cluster: SimulatedCluster) -> None:
        """Filter the messages of this cluster from now on."""
        for daemon in cluster.world.daemons.values():
            self._attach(daemon)

    def _attach(self, daemon: SimulatedDaemon) -> None:
        daemon.outlet = lambda envelopes, stamp: self.filtered(daemon, envelopes, stamp=stamp)

    def filtered(
        self, daemon: SimulatedDaemon, envelopes: list[Envelope], *, stamp: Stamp | None
    ) -> list[Envelope]:
        """Return the envelopes that are really sent; for this nemesis, all."""
        return envelopes


class MessageCounter(Nemesis):
    """A nemesis that counts what is sent, by (receiving kind, message class)."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def filtered(
        self, daemon: SimulatedDaemon, envelopes: list[Envelope], *, stamp: Stamp | None
    ) -> list[Envelope]:
        self.counts.update(map(name_of, envelopes))
        return envelopes


class Missed(Nemesis):
    """A nemesis by which some occurrences of one message class are lost silently."""

    def __init__(self, kind: str, message: str, *, which: Occurrences) -> None:
        self.name = (kind, message)
        self.which = which
        self.counts: Counter[str] = Counter()
        self.struck = 0

    def __str__(self) -> str:
        return f"{type(self).__name__} {'.'.join(self.name)}, {self.which.__name__}"

    def filtered(
        self, daemon: SimulatedDaemon, envelopes: list[Envelope], *, stamp: Stamp | None
    ) -> list[Envelope]:
        return [envelope for envelope in envelopes if not self._strikes(envelope)]

    def _strikes(self, envelope: Envelope) -> bool:
        if name_of(envelope) != self.name:
            return False
        self.counts[envelope.to] += 1
        struck = self.which(self.counts[envelope.to])
        self.struck += struck
        return struck


class Stopped(Missed):
    """A nemesis that ends the sender's process: before the message, or right after."""

    def __init__(self, kind: str, message: str, *, which: Occurrences, behind: bool) -> None:
        super().__init__(kind, message, which=which)
        self.behind = behind

    def filtered(
        self, daemon: SimulatedDaemon, envelopes: list[Envelope], *, stamp: Stamp | None
    ) -> list[Envelope]:
        if not sum(self._strikes(envelope) for envelope in envelopes):
            return envelopes
        world = daemon.world
        if self.behind:
            world.later.at(world.now, lambda: world.kill(daemon))
            return envelopes
        daemon.dying = True
        return []


class StaleMessages(Nemesis):
    """A nemesis by which messages arrive when `behind` newer ones were sent."""

    def __init__(self, *names: tuple[str, str], behind: int) -> None:
        self.names = names
        self.behind = behind
        self.struck = 0
        self._delayed: dict[tuple[str, Stamp | None, str], deque[Envelope]] = {}
        self._releasing = False

    def filtered(
        self, daemon: SimulatedDaemon, envelopes: list[Envelope], *, stamp: Stamp | None
    ) -> list[Envelope]:
        if self._releasing:
            return envelopes
        sent: list[Envelope] = []
        for envelope in envelopes:
            if name_of(envelope) not in self.names:
                sent.append(envelope)
                continue
            assert daemon.process is not None
            route = (daemon.process.name, stamp, envelope.to)
            late = self._delayed.setdefault(route, deque())
            late.append(envelope)
            self._deliver_at_last(daemon, route, envelope=envelope)
            if len(late) > self.behind:
                sent.append(late.popleft())
        return sent

    def _deliver_at_last(
        self, daemon: SimulatedDaemon, route: tuple[str, Stamp | None, str], *, envelope: Envelope
    ) -> None:
        def deliver() -> None:
            late = self._delayed[route]
            waits = any(each is envelope for each in late)
            if not waits or daemon.process is None or daemon.process.name != route[0]:
                return
            self.struck += 1
            sent = [late.popleft()]
            while sent[-1] is not envelope:
                sent.append(late.popleft())
            self._releasing = True
            daemon.region.tell(sent, route[1])
            self._releasing = False

        daemon.world.later.at(daemon.world.now + STALE_S_MAX, deliver)


def name_of(envelope: Envelope) -> tuple[str, str]:
    """Return the receiving kind, and the class of the message."""
    return kind_of(envelope.to), type(envelope.message).__name__


# ---- the second history ----

SIZES = {"jobmgr": 3, "resmgr": 1, "hostmgr": 2}
"""With these the second slices of jobs n and i live in other shards than their jobs."""
SMALL = Resources(UNIT // 100, UNIT, 0, 0)
LARGE = Resources(6 * UNIT, UNIT, 0, 0)
WANTED_AFTER_SCENE: WantedJobs = {"n": (JobStates.SUCCEEDED, 1002), "h": (JobStates.SUCCEEDED, 12)}


def fates(run: str) -> Fate:
    """Return the fate of a run: those of job f run until it is stopped."""
    return Fate(None) if run.rsplit("-", 2)[0].endswith("f") else Fate(1.0)


class Troubles:
    """A history with too few resources, a host out of reach, and jobs of two slices."""

    def __init__(self, *, seed: int = 5) -> None:
        setup = ClusterSetup(
            DaemonLimits(checkpoint_bytes_min=3000), fates, unreachable_timeout_s=20.0
        )
        self.cluster = SimulatedCluster(seed=seed, daemons=2, hosts=2, sizes=SIZES, setup=setup)

    def play(self, nemesis: Nemesis) -> list[str]:
        """Play the history with this nemesis; return what is wrong, one line for each fault."""
        nemesis.attach(self.cluster)
        try:
            self.run()
        except AssertionError as error:
            return [f"{type(error).__name__}: {error}"]
        return [*faults_of(self.cluster, WANTED_AFTER_SCENE)]

    def run(self) -> None:
        """Run from the first claim until nothing happens any more. Raises `NotReached`."""
        cluster = self.cluster
        self._until("ready", cluster.ready)
        cluster.create(1002, name="n", resources=SMALL)
        self._until("n is over: two slices, which do not fit all at once", cluster.over)
        cluster.create(12, name="h")
        self._until("h is over: a queue", cluster.over)
        self._lose_a_host()
        self._request_too_much()
        self._change_a_job()
        self._maintain_a_host()
        cluster.world.run_for(QUIET_S)
        for job in cluster.jobs:
            cluster.clients.get("c2", job)
        self._until("over", cluster.over)

    def _lose_a_host(self) -> None:
        """Lose a host: its runs are given up, and killed when it is back; then stop the job."""
        cluster = self.cluster
        job = cluster.create(3, name="f").job
        self._until("f runs", lambda: len(cluster.machines.running) >= 3)
        host = next(iter(cluster.machines.running.values())).host
        cluster.backend.cut(host)
        lost = {run for run, at in cluster.machines.running.items() if at.host == host}
        anew = lambda: len({*cluster.machines.running} - lost) >= 3  # noqa: E731
        self._until("f runs elsewhere", anew)
        cluster.backend.mend(host)
        self._until(
            "the runs that were given up are killed", lambda: not {*cluster.machines.running} & lost
        )
        cluster.clients.stop("c1", job)
        self._until("f is stopped", cluster.over)
        cluster.clients.delete("c1", job)
        self._until("f is gone", lambda: cluster.over() and not self._lives(job))

    def _request_too_much(self) -> None:
        """Delete a job that fits no host, and with it another job of two slices."""
        cluster = self.cluster
        made = [
            cluster.create(1, name="g", resources=LARGE),
            cluster.create(1002, name="i", resources=SMALL),
        ]
        self._until("g and i are made", lambda: all(each.known for each in made))
        cluster.world.run_for(5.0)
        for each in made:
            cluster.clients.delete("c1", each.job)
        gone = lambda: cluster.over() and not any(map(self._lives, self._deleted()))  # noqa: E731
        self._until("g and i are gone", gone)

    def _change_a_job(self) -> None:
        """Give a job of one instance another, with its own config; then restart it."""
        cluster = self.cluster
        job = cluster.create(1, name="f2f").job
        self._until("f2f runs", lambda: self._runs_of(job) == 1)
        piece = Override(1, TaskConfig(command=Command("y"), resources=SMALL))
        given = self._commanded(job, AddChange(0, (piece,)))
        self._until("a piece is given", lambda: given.known)
        self._commanded(job, UpdateJob(job_spec(2), pieces=1))
        self._until("f2f has grown", lambda: self._runs_of(job) == 2)
        cluster.clients.stop("c1", job)
        self._until("f2f is stopped", cluster.over)
        self._commanded(job, StartInstances())
        self._until("f2f runs again", lambda: self._runs_of(job) == 2)

    def _maintain_a_host(self) -> None:
        """Drain a host with a run, and bring it back; then stop the job of the runs."""
        cluster = self.cluster
        host = next(iter(cluster.machines.running.values())).host
        cluster.clients.command("c1", host, message=StartMaintenance())
        self._until("a host is down", lambda: self._maintenance(host) == Maintenance.DOWN)
        cluster.clients.command("c1", host, message=CompleteMaintenance())
        self._until("a host is back", lambda: self._maintenance(host) == Maintenance.NONE)
        job = cluster.jobs[-1]
        cluster.clients.stop("c1", job)
        self._until("f2f is stopped at last", cluster.over)

    def _commanded(self, job: Key, message: Message) -> Operation:
        return self.cluster.clients.change("c1", job, message=message)

    def _runs_of(self, job: Key) -> int:
        name = job.partition("/")[2]
        return sum(run.startswith(name) for run in self.cluster.machines.running)

    def _maintenance(self, host: Key) -> Maintenance | None:
        state = self.cluster.cells("host").get(host)
        return state.maintenance if state is not None else None

    def _deleted(self) -> list[str]:
        return [job for job in self.cluster.jobs if job[-1] in "gi"]

    def reconnect(self) -> list[str]:
        """Remove the nemesis, and let hosts list their runs; return what is wrong then."""
        cluster = self.cluster
        Nemesis().attach(cluster)
        for host in cluster.hosts:
            cluster.backend.cut(host)
            cluster.backend.mend(host)
        cluster.world.run_for(QUIET_S)
        return [*faults_of(cluster, WANTED_AFTER_SCENE)]

    def _lives(self, job: str) -> bool:
        return job in self.cluster.world.cells("job")

    def _until(self, scene: str, reached: Callable[[], bool]) -> None:
        try:
            self.cluster.world.run_until(reached, within_s=SCENE_S_MAX)
        except NotReached as error:
            raise NotReached(f"{scene}: {error}") from error
