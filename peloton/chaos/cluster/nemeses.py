"""Three enemies of every goal loop: a missed event, old glasses, a stop in the middle.

Turns what entities say to each other into less of it, into something older, or into the end of the
process that says it; and tells a second history, in which every kind has something to say to
another shard. Whoever pursues a goal must get there all the same. What a nemesis strikes is named
(this class, this occurrence), never drawn; and it must not touch what is in a frame, because that
is no message any more.

    trouble = Troubles()
    Missed("lot", "Ask", which=FIRST).haunt(trouble.cluster)
    trouble.run()
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from peloton.actors.job.messages import JobStates
from peloton.actors.resources import UNIT, Resources
from peloton.chaos.cluster.aftermath import WantedJobs, faults_of
from peloton.chaos.cluster.cluster import ClusterSetup, SimulatedCluster
from peloton.chaos.cluster.machines import Fate
from peloton.runtime.core.envelope import Envelope, Stamp
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.world import NotReached
from peloton.runtime.vocabulary import kind_of

Occurrences = Callable[[int], bool]
"""Of the occurrences of a message class for one receiver, counted from 1, which are struck."""

SCENE_S_MAX = 1500.0
"""Several times the longest interval after which a lost word is asked for again: that of a host
that looks at its backend though nothing seems wrong."""
QUIET_S = 60.0
GLASSES_S_MAX = 12.0
"""What glasses hold back comes at last, even if nothing new pushes it out."""


def first(count: int) -> bool:
    """Only the first, of each receiver's."""
    return count == 1


def second(count: int) -> bool:
    """Only the second, of each receiver's."""
    return count == 2


def every_other(count: int) -> bool:
    """The first, the third, and so on: for good, as long as the history lasts."""
    return count % 2 == 1


class Nemesis:
    """Listens to all that leaves a shard, a machine or a client, in every life of every daemon."""

    def haunt(self, cluster: SimulatedCluster) -> None:
        """From now on, in this cluster."""
        for daemon in cluster.world.daemons.values():
            self._stand_behind(daemon)

    def _stand_behind(self, daemon: SimulatedDaemon) -> None:
        daemon.through = lambda envelopes, stamp: self.hear(daemon, envelopes, stamp=stamp)

    def hear(
        self, daemon: SimulatedDaemon, envelopes: list[Envelope], *, stamp: Stamp | None
    ) -> list[Envelope]:
        """What is said in the end; of this one, all that was to be said."""
        return envelopes


class Ear(Nemesis):
    """Harms nobody: counts what is said to whom, by (kind, message class)."""

    def __init__(self) -> None:
        self.heard: Counter[tuple[str, str]] = Counter()

    def hear(
        self, daemon: SimulatedDaemon, envelopes: list[Envelope], *, stamp: Stamp | None
    ) -> list[Envelope]:
        self.heard.update(map(name_of, envelopes))
        return envelopes


class Missed(Nemesis):
    """Some occurrences of one message class reach nobody, and nobody is told."""

    def __init__(self, kind: str, message: str, *, which: Occurrences) -> None:
        self.name = (kind, message)
        self.which = which
        self.counts: Counter[str] = Counter()
        self.struck = 0

    def __str__(self) -> str:
        return f"{type(self).__name__} {'.'.join(self.name)}, {self.which.__name__}"

    def hear(
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
    """The process that says it ends: before the word has left it, or right behind it."""

    def __init__(self, kind: str, message: str, *, which: Occurrences, behind: bool) -> None:
        super().__init__(kind, message, which=which)
        self.behind = behind

    def hear(
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


class OldGlasses(Nemesis):
    """Words of these classes come when `behind` newer ones are there, in their order."""

    def __init__(self, *names: tuple[str, str], behind: int) -> None:
        self.names = names
        self.behind = behind
        self.struck = 0
        self._held: dict[tuple[str, Stamp | None, str], deque[Envelope]] = {}
        self._through = False

    def hear(
        self, daemon: SimulatedDaemon, envelopes: list[Envelope], *, stamp: Stamp | None
    ) -> list[Envelope]:
        if self._through:
            return envelopes
        said: list[Envelope] = []
        for envelope in envelopes:
            if name_of(envelope) not in self.names:
                said.append(envelope)
                continue
            assert daemon.process is not None
            line = (daemon.process.name, stamp, envelope.to)
            held = self._held.setdefault(line, deque())
            held.append(envelope)
            self._come_at_last(daemon, line, envelope=envelope)
            if len(held) > self.behind:
                said.append(held.popleft())
        return said

    def _come_at_last(
        self, daemon: SimulatedDaemon, line: tuple[str, Stamp | None, str], *, envelope: Envelope
    ) -> None:
        def come() -> None:
            held = self._held[line]
            waits = any(each is envelope for each in held)
            if not waits or daemon.process is None or daemon.process.name != line[0]:
                return
            self.struck += 1
            said = [held.popleft()]
            while said[-1] is not envelope:
                said.append(held.popleft())
            self._through = True
            daemon.region.tell(said, line[1])
            self._through = False

        daemon.world.later.at(daemon.world.now + GLASSES_S_MAX, come)


def name_of(envelope: Envelope) -> tuple[str, str]:
    """The kind that is spoken to, and the class of the message."""
    return kind_of(envelope.to), type(envelope.message).__name__


# ---- the second history ----

SIZES = {"jobmgr": 3, "resmgr": 1, "hostmgr": 2}
"""So that the second slices of jobs n and i live in other shards than their jobs."""
SMALL = Resources(UNIT // 100, UNIT, 0, 0)
LARGE = Resources(6 * UNIT, UNIT, 0, 0)
WANTED_AFTER_SCENE: WantedJobs = {"n": (JobStates.SUCCEEDED, 1002), "h": (JobStates.SUCCEEDED, 12)}


def fates(run: str) -> Fate:
    """Job f runs until it is stopped."""
    return Fate(None) if run.rsplit("-", 2)[0].endswith("f") else Fate(1.0)


class Troubles:
    """A history in which there is too little room, a host out of reach, and a job of two slices."""

    def __init__(self, *, seed: int = 5) -> None:
        setup = ClusterSetup(
            DaemonLimits(checkpoint_bytes_min=3000), fates, unreachable_timeout_s=20.0
        )
        self.cluster = SimulatedCluster(seed=seed, daemons=2, hosts=2, sizes=SIZES, setup=setup)

    def play(self, nemesis: Nemesis) -> list[str]:
        """The history with this nemesis in it: what is wrong with it, a line for each fault."""
        nemesis.haunt(self.cluster)
        try:
            self.run()
        except AssertionError as error:
            return [f"{type(error).__name__}: {error}"]
        return [*faults_of(self.cluster, WANTED_AFTER_SCENE)]

    def run(self) -> None:
        """From the first claim to silence; raises `NotReached`."""
        cluster = self.cluster
        self._until("ready", cluster.ready)
        cluster.create(1002, name="n", resources=SMALL)
        self._until("n is over: two slices, and not room for all at once", cluster.over)
        cluster.create(12, name="h")
        self._until("h is over: a queue", cluster.over)
        self._lose_a_host()
        self._want_too_much()
        cluster.world.run_for(QUIET_S)
        for job in cluster.jobs:
            cluster.clients.look("c2", job)
        self._until("over", cluster.over)

    def _lose_a_host(self) -> None:
        """Its runs are given up, and killed when it is back; then the job is stopped."""
        cluster = self.cluster
        job = cluster.create(3, name="f").job
        self._until("f runs", lambda: len(cluster.machines.running) >= 3)
        host = next(iter(cluster.machines.running.values())).host
        cluster.floor.cut(host)
        lost = {run for run, at in cluster.machines.running.items() if at.host == host}
        anew = lambda: len({*cluster.machines.running} - lost) >= 3  # noqa: E731
        self._until("f runs elsewhere", anew)
        cluster.floor.mend(host)
        self._until("what was given up is killed", lambda: not {*cluster.machines.running} & lost)
        cluster.clients.stop("c1", job)
        self._until("f is stopped", cluster.over)
        cluster.clients.delete("c1", job)
        self._until("f is gone", lambda: cluster.over() and not self._lives(job))

    def _want_too_much(self) -> None:
        """No host is large enough; then the job is deleted, and two slices of another with it."""
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

    def _deleted(self) -> list[str]:
        return [job for job in self.cluster.jobs if job[-1] in "gi"]

    def reconnect(self) -> list[str]:
        """No nemesis any more, and every host lists its runs anew: what is wrong after that."""
        cluster = self.cluster
        Nemesis().haunt(cluster)
        for host in cluster.hosts:
            cluster.floor.cut(host)
            cluster.floor.mend(host)
        cluster.world.run_for(QUIET_S)
        return [*faults_of(cluster, WANTED_AFTER_SCENE)]

    def _lives(self, job: str) -> bool:
        return job in self.cluster.world.cells("job")

    def _until(self, scene: str, reached: Callable[[], bool]) -> None:
        try:
            self.cluster.world.run_until(reached, within_s=SCENE_S_MAX)
        except NotReached as error:
            raise NotReached(f"{scene}: {error}") from error
