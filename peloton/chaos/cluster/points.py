"""Every moment at which a daemon can die, numbered, and one death at each of them.

Turns a small scripted history into a table of its port calls, by the path they belong to, and each
of them into a replay of the same history in which a process ends exactly there. The result is what
is wrong afterwards: a goal not reached, a contradictory answer, something left behind. No point is
drawn at random: points that are not tried are known by their numbers.

    table = points()                       the history once, nobody dies
    play(Deaths(table[17]))                once more, and one process ends at call 17
    play(Deaths(table[17], again=5))       and its next life at that life's fifth call

Beside *before* and *after* a call a write has a third side, *under way*: it has left the process
that dies, and is applied later, if its condition still holds.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from peloton.actors.job.messages import CreateJob
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobStates
from peloton.actors.task.messages import SLICE_SIZE
from peloton.chaos.cluster import tiny
from peloton.chaos.cluster.rules.aftermath import WantedJobs, faults_of
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL, ClusterSetup, SimulatedCluster
from peloton.chaos.cluster.world.machines import FAILURE, Fate
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.simulation.daemon import Moment, PortCall, SimulatedDaemon
from peloton.runtime.simulation.store import StoreFaults
from peloton.runtime.simulation.world import NotReached

SEED = 4
SCENE_S_MAX = 150.0
"""In s: a session timeout, a restart and its re-sends. More than that is a hang."""
QUIET_S = 40.0
"""In s: longer than the longest re-send interval."""
TINY = DaemonLimits(checkpoint_bytes_min=300)
WANTED_AFTER_CRASH = {
    "a": (JobStates.SUCCEEDED, 3),
    "c": (JobStates.SUCCEEDED, 2),
    "e": (JobStates.KILLED, SLICE_SIZE + 1),
}
SECOND_MAX = 60
"""A life begins with about so many calls: membership, claims, recovery, first batches."""
UNDER_WAY = StoreFaults(hold=1.0, reorder_plain=1.0, late_s=15.0)

PATHS = {
    ("store", "InsertRow FrameRow"): "append",
    ("store", "Advance"): "append",
    ("store", "WriteTogether"): "append",
    ("store", "InsertRow PartRow"): "checkpoint",
    ("store", "MoveFloor"): "floor",
    ("store", "DeleteSegment"): "cut",
    ("store", "DeleteBucket"): "cut",
    ("store", "InsertRow EndedRow"): "ended",
    ("store", "ReadEnded"): "ended",
    ("store", "ReadRegister"): "claim",
    ("store", "Bump"): "claim",
    ("store", "ReadBucket"): "recovery",
    ("store", "ReadSegment"): "recovery",
    ("store", "Free"): "release",
    ("store", "CreateCluster"): "bootstrap",
    ("store", "ReadCluster"): "bootstrap",
    ("store", "ReadName"): "bootstrap",
    ("store", "CreateRegister"): "bootstrap",
    ("backend", "StartRuns"): "launch",
    ("backend", "StopRuns"): "kill",
    ("backend", "ForgetRuns"): "end",
    ("backend", "ListRuns"): "reconcile",
    ("backend", "PingBackend"): "reconcile",
}
"""Calls of these ports are on one path only, named after the port's purpose."""
PORTS = {"exchange": "parcels", "membership": "membership"}
READS = ("sure_for_s",)
"""Calls that leave no trace anywhere: a death there equals a death at the next call."""
WRITES = ("append", "checkpoint", "floor", "cut", "claim", "release")


class Side(enum.Enum):
    """The side of a call on which the process ends."""

    BEFORE = "before"
    UNDER_WAY = "under way"
    AFTER = "after"


class Point(NamedTuple):
    """A crash point: the number of a port call's moment in the history, and the call."""

    number: int
    call: PortCall
    path: str
    side: Side

    def __str__(self) -> str:
        call = self.call
        return f"{self.number} {call.daemon} {self.path}: {self.side.value} {call.name}"


def path_of(call: PortCall) -> str:
    """Return the path a port call belongs to."""
    return PORTS.get(call.port) or PATHS.get((call.port, call.name), f"{call.port} {call.name}")


# ---- deaths ----


class Deaths:
    """A death at one point; `again` counts calls from it to a second death, in the next life.

    `all_at_once`: every other daemon dies at the same moment, as in a power cut.
    """

    def __init__(
        self, first: Point | None = None, *, again: int = 0, all_at_once: bool = False
    ) -> None:
        self.first = first
        self.again = again
        self.all_at_once = all_at_once
        self.struck: list[PortCall] = []
        self._since = 0
        self._cluster: SimulatedCluster | None = None

    def watch(self, cluster: SimulatedCluster) -> None:
        """Watch the port calls of this cluster."""
        self._cluster = cluster
        cluster.world.on_call = self.strikes

    def __str__(self) -> str:
        more = f", then call {self.again} of its next life" if self.again else ""
        return f"{self.first}{more}{', and all others' if self.all_at_once else ''}"

    @property
    def missed(self) -> bool:
        """Whether the history was over before the last death was due."""
        due = (self.first is not None) + bool(self.again)
        return len(self.struck) < due

    def strikes(self, call: PortCall) -> bool:
        """Return whether the process dies here; used as `World.on_call`."""
        assert self._cluster is not None
        world, first = self._cluster.world, self.first
        world.store.faults = StoreFaults()
        if first is None:
            return False
        if not self.struck:
            if world.calls != first.number:
                return False
            assert call == first.call, f"another history: {call} in place of {first}"
            if first.side is Side.UNDER_WAY:
                world.daemons[call.daemon].sends_last = True
                world.store.faults = UNDER_WAY
            if self.all_at_once:
                world.later.at(world.now, self._end_all)
        elif call.daemon == first.call.daemon and len(self.struck) == 1 and self.again:
            self._since += 1
            if self._since < self.again:
                return False
        else:
            return False
        self.struck.append(call)
        return True

    def _end_all(self) -> None:
        assert self._cluster is not None
        world = self._cluster.world
        for daemon in world.daemons.values():
            world.kill(daemon)


# ---- the history ----


@contextmanager
def short_segments(frames: int = 2) -> Iterator[None]:
    """Make segments of few frames, so that even a small history has segments to delete."""
    with tiny.rows({"segment_frames": frames}):
        yield


def fates(run: str) -> Fate:
    """Return a run's fate: one of job a fails at first; job b runs until it is stopped."""
    job, instance, number = run.rsplit("-", 2)
    if job.endswith("a") and (instance, number) == ("1", "1"):
        return Fate(1.0, FAILURE)
    return Fate(None) if job.endswith("b") else Fate(1.0)


class ScriptedHistory:
    """The history: one scene after the other, each until its condition holds."""

    setup = ClusterSetup(TINY, fates)
    wanted: WantedJobs = WANTED_AFTER_CRASH

    def __init__(
        self,
        *,
        seed: int = SEED,
        on_scene: Callable[[str], None] = lambda scene: None,
        scene_s_max: float = SCENE_S_MAX,
    ) -> None:
        self.cluster = SimulatedCluster(seed=seed, daemons=2, hosts=2, setup=self.setup)
        self.scene_s_max = scene_s_max
        self._on_scene = on_scene

    def run(self) -> None:
        """Run from the first bootstrap until nothing happens any more. Raises `NotReached`."""
        self._until("ready", self.cluster.ready)
        self.scenes()
        self._on_scene("quiet")
        self.cluster.world.run_for(QUIET_S)
        for job in self.cluster.jobs:
            self.cluster.clients.get("c2", job)
        self._until("over", self.cluster.over)

    def scenes(self) -> None:
        """Play the scenes between the bootstrap and the quiet."""
        self._fail_and_retry()
        self._stop_and_delete()
        self._stop_before_all_began()
        self._hand_over()

    def _fail_and_retry(self) -> None:
        cluster = self.cluster
        job = cluster.create(3, name="a", max_failures=2).job
        cluster.clients.get("c2", job)
        self._until("a is over", cluster.over)
        cluster.clients.get("c2", job)

    def _stop_and_delete(self) -> None:
        cluster = self.cluster
        job = cluster.create(2, name="b").job
        self._until("b runs", lambda: len(cluster.machines.running) >= 2)
        cluster.clients.stop("c1", job)
        cluster.clients.get("c2", job)
        self._until("b is stopped", cluster.over)
        cluster.clients.delete("c1", job)
        self._until("b is gone", lambda: cluster.over() and not self._lives(job))

    def _stop_before_all_began(self) -> None:
        """Stop a job of two slices before an instance of the second has begun."""
        cluster = self.cluster
        job = cluster.draw_job("e")
        default = TaskConfig(command=Command("x"), resources=NEED)
        spec = JobSpec("e", "me", STORM_POOL, SLICE_SIZE + 1, default, maximum_running=1)
        cluster.clients.create("c1", job, message=CreateJob(spec))
        self._until("e runs", lambda: bool(cluster.machines.running))
        cluster.clients.stop("c1", job)
        self._until("e is stopped", cluster.over)

    def _hand_over(self) -> None:
        """Let a daemon hand over, come back, and get its shards again, while jobs run."""
        cluster, world = self.cluster, self.cluster.world
        daemon = world.daemons["d1"]
        made = [cluster.create(2, name="c"), cluster.create(2, name="d")]
        self._until("c and d are made", lambda: all(each.known for each in made))
        daemon.leave()
        cluster.clients.delete("c1", made[1].job)
        left = lambda: daemon.leaving is None or daemon.leaving.done()  # noqa: E731
        self._until("d1 has left", left)
        world.kill(daemon)
        self._until("c is over", lambda: cluster.over() and not self._lives(made[1].job))
        self._until("d1 is back", lambda: world.whole() and all(map(_owns, _all(cluster))))

    def _lives(self, job: str) -> bool:
        return job in self.cluster.world.cells("job")

    def _until(self, scene: str, reached: Callable[[], bool]) -> None:
        self._on_scene(scene)
        try:
            self.cluster.world.run_until(reached, within_s=self.scene_s_max)
        except NotReached as error:
            raise NotReached(f"{scene}: {error}") from error


def _all(cluster: SimulatedCluster) -> list[SimulatedDaemon]:
    return [*cluster.world.daemons.values()]


def _owns(daemon: SimulatedDaemon) -> bool:
    return bool(daemon.shards())


def points(seed: int = SEED, history: type[ScriptedHistory] = ScriptedHistory) -> list[Point]:
    """Play the history without deaths; return every moment at which a process could end."""
    story, found = history(seed=seed), list[Point]()

    def note(call: PortCall) -> bool:
        path, number = path_of(call), story.cluster.world.calls
        if call.name in READS:
            return False
        side = Side.BEFORE if call.moment is Moment.BEFORE else Side.AFTER
        found.append(Point(number, call, path, side))
        if call.port == "store" and side is Side.BEFORE and not call.name.startswith("Read"):
            found.append(Point(number, call, path, Side.UNDER_WAY))
        return False

    # The first calls are made while the cluster is built: those of the very first bootstrap are
    # repeated by every restart, and so by every second death.
    story.cluster.world.on_call = note
    story.run()
    wrong = [*faults_of(story.cluster, story.wanted)]
    assert not wrong, wrong
    return found


def play(
    deaths: Deaths,
    *,
    seed: int = SEED,
    prepare: Callable[[SimulatedCluster], None] = lambda cluster: None,
    history: type[ScriptedHistory] = ScriptedHistory,
) -> list[str]:
    """Play the history with these deaths; return what is wrong, one line for each fault."""
    story = history(seed=seed)
    deaths.watch(story.cluster)
    prepare(story.cluster)
    try:
        story.run()
    except AssertionError as error:
        return [f"{type(error).__name__}: {error}"]
    return [*faults_of(story.cluster, story.wanted)]


def share(table: Sequence[Point], *, every: int) -> list[Point]:
    """Return every n-th point, at another offset for each kind of call."""
    kinds: dict[tuple[str, str, Side], list[Point]] = {}
    for point in table:
        kinds.setdefault((point.path, point.call.name, point.side), []).append(point)
    chosen: list[Point] = []
    for start, some in enumerate(kinds.values()):
        chosen += some[min(start % every, len(some) - 1) :: every]
    return sorted(chosen, key=lambda point: (point.number, point.side.value))


def seconds(table: Sequence[Point], *, every: int, until: int = SECOND_MAX) -> Iterator[Deaths]:
    """Yield second deaths: for each kind of first death every n-th call of the next life.

    Each first death starts at another offset, so that together they cover nearly every call.
    """
    firsts = share(table, every=len(table))
    for start, first in enumerate(firsts):
        for again in range(1 + start % every, until, every):
            yield Deaths(first, again=again)
