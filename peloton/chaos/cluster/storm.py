"""One storm over a whole cluster: drawn from a seed or read from a file, played, judged.

Turns a scenario into a history: a calm until the cluster is ready, the storm, a calm in which every
goal must be reached within a bounded time, and a quiet point at which nothing may be left behind. A
failure raises `StormFailed`, which has the scenario and the cluster as it was. Nothing is repaired,
nor continued after a failure.

    played = play(draw(7))
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from peloton.actors.job.kind import FINISHED_JOBS_MAX
from peloton.actors.respool.messages import Within
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.actors.task.messages import SLICE_SIZE
from peloton.chaos.cluster import tiny
from peloton.chaos.cluster.checks import ClusterChecks, outcomes_are_true
from peloton.chaos.cluster.faults import (
    ADDED,
    ALL_FAULTS,
    APART,
    CLUSTER_ACTIONS,
    SLOW,
    calm,
)
from peloton.chaos.cluster.observer import Observer
from peloton.chaos.cluster.rules.liveness import reach
from peloton.chaos.cluster.work import (
    agents,
    changing,
    displacing,
    everywhere,
    ganging,
    gpu_work,
    host_holds,
    host_pooling,
    larger,
    lending,
    noticing,
    ordering,
    overcommit,
    pacing,
    placing,
    pool_work,
    quarantining,
    reading,
    rolling,
    scheduling,
    servicing,
    sparing,
    stateful,
    workload,
)
from peloton.chaos.cluster.work.drawing import drawn_from
from peloton.chaos.cluster.world.cluster import ClusterSetup, SimulatedCluster
from peloton.chaos.cluster.world.machines import FAILURE, SUCCESS, Fate, RunFates
from peloton.runtime.simulation import decay, single
from peloton.runtime.simulation.partitions import drawn as parted
from peloton.runtime.simulation.scenario import StormAction, StormScenario, changed, some_of
from peloton.runtime.simulation.shrink import shrunk
from peloton.runtime.simulation.storms import STRENGTHS, Storm, drawn_faults
from peloton.runtime.simulation.world import NotReached

READY_S_MAX = 120.0
REACHED_S_MAX = 600.0
"""In s, without batch work getting done. A lost report of an end is found by the host's own check,
five minutes after its last one; a lost host, a takeover after a slow session and a few slow
re-sends fit into the rest."""
MOVING_S_MAX = 30.0
QUIET_S = 40.0
"""In s: longer than the longest re-send interval."""
STEPS_MAX = 300_000
"""A hundred times an ordinary storm: beyond it something loops, and virtual time stops."""
CHECKPOINTS = (300, 1_000, 5_000, 1_000_000)
TWICE_EVERY = 3
"""In one of so many storms each message is decided twice: that costs time, and changes nothing."""
POISON = ("poison", "redrive")
ADDED_SHARE = 0.12
SLOW_SHARE = 0.25
DRAWS = (changing.DRAWN, ordering.DRAWN, pool_work.DRAWN, placing.DRAWN)
"""What clients do in a part of the storms. The order is part of every seed."""
LATER_DRAWS = (
    host_holds.DRAWN, pacing.DRAWN, noticing.DRAWN, scheduling.DRAWN, host_pooling.DRAWN,
    quarantining.DRAWN, lending.DRAWN, ganging.DRAWN, gpu_work.DRAWN,
    overcommit.DRAWN, displacing.DRAWN, servicing.DRAWN, rolling.DRAWN,
    sparing.DRAWN, everywhere.DRAWN, rolling.RESIZED, stateful.DRAWN, rolling.STEADY,
)  # fmt: skip
"""As `DRAWS`, and added later."""
CLOCK_FAULTS = ("clocks differ", "clocks drift")


class ClusterScenario(StormScenario, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scenario over a cluster; runs last at most `duration_s`."""

    hosts: int = 3
    duration_s: float = 2.0
    failing: float = 0.0
    unreachable_timeout_s: float = 60.0
    quarantine_after: int = 0  # failures of a host; 0: never
    outside: bool = False  # the machines exist once, as those of a Mesos cluster


class Played(NamedTuple):
    """A storm in which nothing was wrong."""

    scenario: ClusterScenario
    elapsed_s: float  # in virtual time
    calm_s: float  # until every goal was reached
    steps: int
    struck: dict[str, int]
    operations: int
    trace: str
    reached: tuple[str, ...]


class StormFailed(AssertionError):
    """A storm in which something was wrong. `sort` distinguishes failures."""

    def __init__(self, storm: Storm, error: Exception) -> None:
        self.storm = storm
        self.scenario = storm.scenario
        self.sort = sort_of(error)
        super().__init__(f"seed {storm.scenario.seed}: {self.sort}: {error}")


def sort_of(error: Exception) -> str:
    """Return what shrinking must keep: the class of the error, and its rule if it names one."""
    first = str(error).split(" ", 1)[0]
    is_rule = len(first) <= 4 and first[:1] == "R" and first[1:2].isdigit()
    return f"{type(error).__name__} {first}" if is_rule else type(error).__name__


def draw(seed: int, *, outside: bool = False) -> ClusterScenario:
    """Draw the scenario of a seed: first which faults, then their strengths, then their times.

    `outside`: over a cluster of agents, whatever the seed has.
    """
    chance = random.Random(f"{seed} plan")
    storm_s = round(chance.choice((10.0, 30.0, 60.0)) * chance.uniform(0.5, 1.0), 1)
    names = [*some_of(chance, [name for name in ALL_FAULTS if name not in APART])]
    faults, actions = _faults(chance, names, storm_s=storm_s)
    actions += workload.drawn(chance, actions=chance.randint(3, 14), storm_s=storm_s)
    # What was added later has a generator of its own: older seeds keep their storms.
    more = random.Random(f"{seed} added")
    added = _faults(more, [name for name in ADDED if more.random() < ADDED_SHARE], storm_s=storm_s)
    actions += [*added[1], *larger.drawn(seed, storm_s=storm_s)]
    actions += workload.timed(seed, storm_s=storm_s)
    actions += drawn_from(DRAWS, seed=seed, storm_s=storm_s)
    actions += reading.drawn(seed, storm_s=storm_s)
    actions += drawn_from(LATER_DRAWS, seed=seed, storm_s=storm_s) + parted(seed, storm_s=storm_s)
    decaying = decay.drawn(seed, storm_s=storm_s)
    actions += decaying[1]
    limits = tiny.drawn(seed)
    if any(action.count > SLICE_SIZE for action in actions):
        # A thousand messages, a few at a time and half a minute apart, would never end the job.
        limits.pop("link_bytes_max", None)
    scenario = ClusterScenario(
        seed=seed,
        daemons=chance.choice((1, 2, 2, 3, 3, 3, 4, 5, 7)),
        hosts=chance.choice((2, 2, 3, 3, 4, 5, 8, 40)),
        sizes={
            "jobmgr": chance.choice((1, 2, 2, 3, 8)),
            "resmgr": 1,
            "hostmgr": chance.choice((1, 2, 2, 3, 8)),
        },
        checkpoint_bytes_min=chance.choice(CHECKPOINTS),
        limits=limits,
        furnish_s_max=_late(seed),
        faults={**faults, **added[0], **single.drawn(seed), **_slow(seed), **decaying[0]},
        actions=tuple(sorted(actions, key=lambda action: action.at_s)),
        storm_s=storm_s,
        duration_s=chance.choice((0.5, 2.0, 15.0)),
        failing=chance.choice((0.0, 0.0, 0.3)),
        unreachable_timeout_s=chance.choice((10.0, 60.0)),
    )
    if any(action.name in quarantining.WORK for action in actions):
        after, hosts = quarantining.QUARANTINED_AFTER, max(scenario.hosts, quarantining.HOSTS_MIN)
        scenario = changed(scenario, hosts=hosts, quarantine_after=after)
    return agents.over_agents(scenario) if outside or agents.is_drawn(seed) else scenario


def _faults(
    chance: random.Random, names: list[str], *, storm_s: float
) -> tuple[dict[str, float], list[StormAction]]:
    return drawn_faults(chance, (ALL_FAULTS[name] for name in names), storm_s=storm_s)


def _late(seed: int) -> float:
    """Draw how late services are registered; separately, so that older seeds keep their storms."""
    return random.Random(f"{seed} furnish").choice((0.0, 0.0, 0.05, 3.0))


def _slow(seed: int) -> dict[str, float]:
    """Draw whether commits are slow; separately, so that older seeds keep their storms."""
    chance = random.Random(f"{seed} slow")
    return {SLOW: chance.choice(STRENGTHS)} if chance.random() < SLOW_SHARE else {}


def _fates(scenario: ClusterScenario) -> RunFates:
    def fate(run: str) -> Fate:
        chance = random.Random(f"{scenario.seed} {run}")
        outcome = FAILURE if chance.random() < scenario.failing else SUCCESS
        if larger.LARGE_NAME in run:
            return Fate(chance.choice((0.5, 1.0, scenario.duration_s)), outcome)
        if sparing.BOUNDED_NAME in run:
            return Fate(chance.uniform(*sparing.LASTS_S), outcome)
        return Fate(chance.uniform(0.1, scenario.duration_s), outcome)

    return fate


class StormRun:
    """A cluster, its checks and its storm: all that one scenario needs."""

    def __init__(self, scenario: ClusterScenario) -> None:
        self.scenario = scenario
        finished = scenario.limits.get("finished_jobs_max", FINISHED_JOBS_MAX)
        setup = ClusterSetup(
            tiny.limits(scenario.limits, checkpoint_bytes_min=scenario.checkpoint_bytes_min),
            _fates(scenario),
            scenario.unreachable_timeout_s,
            int(finished),
            scenario.quarantine_after,
            scenario.furnish_s_max,
            host_capacity=gpu_work.capacity(scenario.actions)
            + overcommit.slack_of(scenario.actions),
            outside=scenario.outside,
            twice=scenario.seed % TWICE_EVERY == 0,
            preemption=PreemptionPolicy(
                sustained_s=lending.GIVEN_BACK_AFTER_S,
                inside=displacing.ALLOWED if scenario.seed % 2 else (),
                # Else a firm job of a pool that reserves less waits for ever, as it is told.
                within_reservation=Within.NEVER,
            ),
        )
        self.cluster = SimulatedCluster(
            seed=scenario.seed,
            daemons=scenario.daemons,
            hosts=scenario.hosts,
            sizes=scenario.sizes,
            setup=setup,
        )
        machines = self.cluster.machines
        machines.check, machines.ill = servicing.health_of(scenario.seed)
        self.checks = ClusterChecks(self.cluster)
        struck = (*scenario.faults, *(action.name for action in scenario.actions))
        agree = not {*struck}.intersection(CLOCK_FAULTS)
        self.checks.promises.pace.clocks_agree = self.checks.promises.steady.clocks_agree = agree
        self.checks.core.poisoned = any(action.name in POISON for action in scenario.actions)
        self.storm = Storm(self.cluster.world, scenario, faults=ALL_FAULTS, about=self.cluster)
        self.storm.actions.update(CLUSTER_ACTIONS)
        self.cluster.world.checks.append(self._is_bounded)
        self.observer = Observer(self.storm, self.cluster, checks=self.checks)

    def play(self) -> Played:
        """Play the whole scenario. Raises `StormFailed`."""
        try:
            with tiny.rows(self.scenario.limits):
                calm_s = self._play()
        except Exception as error:
            raise StormFailed(self.storm, error) from error
        world, storm = self.cluster.world, self.storm
        return Played(
            scenario=self.scenario,
            elapsed_s=world.elapsed_s,
            calm_s=calm_s,
            steps=world.stepper.steps,
            struck=dict(sorted(storm.struck.items())),
            operations=len(self.cluster.clients.requests),
            trace=world.stepper.trace(),
            reached=self.observer.reached(calm_s),
        )

    def _is_bounded(self) -> None:
        if self.cluster.world.stepper.steps > STEPS_MAX:
            raise NotReached(f"the world is not at rest after {STEPS_MAX} steps")

    def _play(self) -> float:
        world = self.cluster.world
        world.run_until(self.cluster.ready, within_s=READY_S_MAX)
        self.storm.begin()
        world.run_for(self.scenario.storm_s)
        self.storm.calm()
        self.observer.calm_at_s = self.checks.promises.quarantines.calm_at = world.now
        calm(self.cluster)
        self.checks.processes.calm(world.later)
        if everywhere.MAINTAIN in self.storm.struck:
            everywhere.end_maintenance(self.cluster, world.now + REACHED_S_MAX)
        if stateful.CREATE in self.storm.struck:
            stateful.free_homes(self.cluster, world.now + REACHED_S_MAX)
        rolling.settle(self.cluster, within_s=REACHED_S_MAX)
        sparing.settle(self.cluster, within_s=REACHED_S_MAX)
        servicing.end_all(self.cluster, within_s=REACHED_S_MAX)
        everywhere.end_all(self.cluster, within_s=REACHED_S_MAX)
        calm_s = reach(self.cluster, self.cluster.over, within_s=REACHED_S_MAX)
        if scheduling.end_all(self.cluster, self.checks.promises.schedules):
            reach(self.cluster, self.cluster.over, within_s=REACHED_S_MAX)
        world.run_for(QUIET_S)
        # A daemon that was unfit for a while takes its shards back now, which takes a moment.
        reach(self.cluster, self.cluster.over, within_s=MOVING_S_MAX)
        self.checks.quiet()
        outcomes_are_true(self.cluster)
        ordering.begun_in_order(self.cluster)
        ordering.names_are_free(self.cluster)
        assert not self.storm.broken, f"{self.storm.broken[0]}"
        return calm_s


def play(scenario: ClusterScenario) -> Played:
    """Play one storm. Raises `StormFailed`."""
    stage = StormRun(scenario)
    try:
        return stage.play()
    finally:
        stage.cluster.world.end()


def smaller(scenario: ClusterScenario) -> Iterator[ClusterScenario]:
    """Yield smaller scenarios, by what only a cluster has."""
    for hosts in (1, scenario.hosts // 2, scenario.hosts - 1):
        if 1 <= hosts < scenario.hosts:
            yield changed(scenario, hosts=hosts)
    if scenario.failing:
        yield changed(scenario, failing=0.0)
    if scenario.outside:
        yield changed(scenario, outside=False)
    if scenario.checkpoint_bytes_min < CHECKPOINTS[-1]:
        yield changed(scenario, checkpoint_bytes_min=CHECKPOINTS[-1])


def shrink(scenario: ClusterScenario, sort: str) -> ClusterScenario:
    """Return the smallest scenario found that fails in the same way."""

    def fails(smaller: ClusterScenario) -> bool:
        try:
            play(smaller)
        except StormFailed as failed:
            return failed.sort == sort
        return False

    return shrunk(scenario, fails, more=smaller)
