"""One storm over kinds: drawn from a seed or read from a file, played, judged.

A calm until all shards are open, the storm, and a calm in which every client is answered and every
actor comes to rest. `KindStormFailed` has the scenario, which `shrink_kinds` makes smaller.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from peloton.chaos.kinds.clients import CalledCluster, KindClients, SimulatedCalls
from peloton.chaos.kinds.declaring import KindStorms
from peloton.chaos.kinds.history import KindHistory
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.simulation import shocks
from peloton.runtime.simulation.checkers import Checkers, DecodedFrame
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.scenario import StormAction, StormScenario, some_of
from peloton.runtime.simulation.shrink import shrunk
from peloton.runtime.simulation.storms import Fault, Storm, drawn_faults
from peloton.runtime.simulation.world import NotReached, World
from peloton.runtime.vocabulary import kind_of
from peloton.sdk.kit import build
from peloton.sdk.kit.calls import CLIENT, CLIENT_MESSAGES

TELL = "tell"
"""The action of a client."""
READY_S_MAX, REACHED_S_MAX, QUIET_S = 120.0, 600.0, 40.0
STEPS_MAX = 300_000
"""Beyond these something loops, and virtual time stops."""
CHECKPOINTS = (300, 2_000, 1_000_000)
SERVED = "api"


class PlayedKinds(NamedTuple):
    """A storm in which nothing was wrong."""

    scenario: StormScenario
    elapsed_s: float  # in virtual time
    steps: int
    struck: dict[str, int]
    told: int
    facts: int
    trace: str


class KindStormFailed(AssertionError):
    """A storm in which something was wrong. `sort` distinguishes failures."""

    def __init__(
        self, scenario: StormScenario, error: Exception, *, history: KindHistory, storm: Storm
    ) -> None:
        self.scenario, self.history, self.log = scenario, history, storm.log
        first = str(error).split(":", 1)[0]
        self.sort = f"{type(error).__name__} {first}"
        super().__init__(f"seed {scenario.seed}: {type(error).__name__}: {error}")


def faults_of(storms: KindStorms) -> dict[str, Fault]:
    """Return the faults by name: those of any fleet, and the package's own."""
    return {**shocks.rows(), **storms.faults}


def draw_kinds(storms: KindStorms, seed: int) -> StormScenario:
    """Draw the scenario of a seed."""
    chance = random.Random(f"{seed} plan")
    storm_s = round(chance.choice((10.0, 30.0, 60.0)) * chance.uniform(0.5, 1.0), 1)
    faults = faults_of(storms)
    names = [*some_of(chance, [*faults])]
    strengths, actions = drawn_faults(chance, (faults[name] for name in names), storm_s=storm_s)
    for _ in range(chance.randint(1, storms.commands_max)):
        at_s = round(chance.uniform(0.0, storm_s), 3)
        actions.append(StormAction(at_s=at_s, name=TELL, which=chance.randrange(10**6)))
    return StormScenario(
        seed=seed,
        daemons=chance.choice((1, 2, 3, 3, 4)),
        sizes={kind.name: chance.choice((1, 2, kind.shards)) for kind in storms.kinds},
        checkpoint_bytes_min=chance.choice(CHECKPOINTS),
        faults=strengths,
        actions=tuple(sorted(actions, key=lambda action: action.at_s)),
        storm_s=storm_s,
    )


class KindStormRun:
    """A world of these kinds with its checks and its storm."""

    def __init__(self, storms: KindStorms, scenario: StormScenario) -> None:
        self.scenario, self._storms = scenario, storms
        kinds = {kind.name: build(kind) for kind in storms.kinds}
        limits = DaemonLimits(checkpoint_bytes_min=scenario.checkpoint_bytes_min)
        self.world = World(kinds, seed=scenario.seed, sizes=scenario.sizes, limits=limits)
        self.world.services = {kind_of(CLIENT): CLIENT_MESSAGES}
        self.world.furnish = self._furnish
        self.history = KindHistory(kinds)
        self.clients = KindClients(
            self.world, self.history, chance=random.Random(f"{scenario.seed} clients")
        )
        self.calls = SimulatedCalls(self.world, storms, history=self.history)
        self.checks = Checkers(self.world)
        self.checks.poisoned = storms.may_fail
        self.checks.on_frame.append(self._committed)
        self.storm = Storm(self.world, scenario, faults=faults_of(storms), about=self)
        self.storm.actions[TELL] = self._tell
        self.world.checks.append(self._is_bounded)
        roles = (*scenario.sizes, SERVED)
        for number in range(scenario.daemons):
            self.world.start(f"d{number + 1}", roles=roles)

    def play(self) -> PlayedKinds:
        """Play the whole scenario. Raises `KindStormFailed`."""
        try:
            self._play()
        except Exception as error:
            raise KindStormFailed(
                self.scenario, error, history=self.history, storm=self.storm
            ) from error
        world = self.world
        return PlayedKinds(
            scenario=self.scenario,
            elapsed_s=world.elapsed_s,
            steps=world.stepper.steps,
            struck=dict(sorted(self.storm.struck.items())),
            told=len(self.history.told),
            facts=len(self.history.facts),
            trace=world.stepper.trace(),
        )

    # ---- inside ----

    def _play(self) -> None:
        world = self.world
        world.run_until(world.whole, within_s=READY_S_MAX)
        self.calls.raging = True
        self.storm.begin()
        world.run_for(self.scenario.storm_s)
        self.storm.calm()
        self.calls.raging = False
        world.run_until(lambda: not self.clients.waiting and world.whole(), within_s=REACHED_S_MAX)
        world.run_for(QUIET_S)
        self.checks.quiet()
        for rule in (*self._storms.always, *self._storms.at_end):
            rule(self.history)

    def _tell(self, storm: Storm, action: StormAction) -> None:
        chance = random.Random(f"{self.scenario.seed} {action.which}")
        command = self._storms.drawn_command(chance)
        storm.log.append((self.world.elapsed_s, f"{TELL} {command.key} {command.message}"))
        self.clients.tell(f"c{action.which}", command)

    def _furnish(self, daemon: SimulatedDaemon) -> None:
        region = daemon.region
        region.routes.roles[kind_of(CLIENT)] = SERVED
        service = CalledCluster(daemon, self.calls, tell=region.tell)
        region.register_service(kind_of(CLIENT), service, role=SERVED)

    def _committed(self, frame: DecodedFrame) -> None:
        self.history.add(frame)
        for rule in self._storms.always:
            rule(self.history)

    def _is_bounded(self) -> None:
        if self.world.stepper.steps > STEPS_MAX:
            raise NotReached(f"the world is not at rest after {STEPS_MAX} steps")


def play_kinds(storms: KindStorms, scenario: StormScenario) -> PlayedKinds:
    """Play one storm. Raises `KindStormFailed`."""
    stage = KindStormRun(storms, scenario)
    try:
        return stage.play()
    finally:
        stage.world.end()


def shrink_kinds(storms: KindStorms, failed: KindStormFailed) -> StormScenario:
    """Return the smallest scenario found that fails in the same way."""

    def fails(smaller: StormScenario) -> bool:
        try:
            play_kinds(storms, smaller)
        except KindStormFailed as again:
            return again.sort == failed.sort
        return False

    return shrunk(failed.scenario, fails)
