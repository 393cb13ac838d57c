"""A simulated cluster: hosts, daemons of which one should be subscribed, a master and its agents.

Plays a scenario, then a calm, then the end of all runs. What must not be is collected in `broken`.
"""

from __future__ import annotations

import json
import random
from functools import partial

from peloton.actors.host import messages as m
from peloton.actors.host.run_spec import Container, MesosWords, RunSpec
from peloton.actors.resources import UNIT, Resources
from peloton.backends.mesos.framework import Framework
from peloton.backends.port import Order
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Key
from tests.backends.mesos.bench import JOB
from tests.backends.mesos.simulated.checks import Checks
from tests.backends.mesos.simulated.daemons import Daemon
from tests.backends.mesos.simulated.hosts import Host
from tests.backends.mesos.simulated.scenario import KINDS
from tests.backends.mesos.simulated.streams import Stream
from tests.backends.mesos.words import ROLE, Json
from tests.servers.mesos_model.agents import Agent
from tests.servers.mesos_model.master import UNREACHABLE_S, Master
from tests.servers.mesos_model.offers import counted
from tests.servers.mesos_model.programs import Program, Programs
from tests.servers.mesos_model.times import Times, Wire

MACHINES = ("h0", "h1")
ORDER_S = 0.4
TRIES_S = 2.0
IDLE_MAX = 100
"""So often something may be due that was due already."""
HAS = counted({"cpus": 4.0, "mem": 2048.0, "disk": 100.0})
"""Of each agent."""
FRAMEWORK = Framework("east", "", "f-east", ROLE)
EXECUTOR = json.dumps({"type": "CUSTOM", "data": "eA=="})


class Planned(Programs):
    """What was drawn for each run."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self._planned: dict[str, Program] = {}

    def expect(self, run: str, program: Program) -> None:
        """The containers of a run do alike, but the first one ends first."""
        self._planned[run] = program

    def of(self, info: Json) -> Program:
        """Of this task."""
        run, _, at = info["task_id"]["value"].partition(".")
        found = self._planned.get(run, Program())
        if at and found.runs_s is not None:
            return Program(found.runs_s + self._chance.random() * 5.0, 0, found.deaf)
        return found


class Cluster:
    """All of it, for one seed."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(f"{seed} chance")
        self.times = Times(chance)
        self.programs = Planned(chance)
        self.master = Master(self.times, HAS, framework=FRAMEWORK.info)
        self.agents: list[Agent] = []
        self.checks = Checks(self)
        self.daemons = [self._daemon(), self._daemon()]
        self.owner = self.daemons[0]
        self.losses = 0
        """How often an agent, or what the master knew, was lost."""
        self._tries = self._idle = 0
        self._instances = 0
        self._orders: dict[Key, Wire] = {}
        self._reports: dict[tuple[int, Key], Wire] = {}
        self.hosts = {
            key: Host(self.times, key, order=partial(self._order, key), lost=self.checks.lost)
            for key in (Key(f"host/east.{name}") for name in MACHINES)
        }
        for name in MACHINES:
            self.come(name)
        self._try_to_subscribe()

    def _daemon(self) -> Daemon:
        return Daemon(self.times, self.master, tell=self._tell, checks=self.checks)

    # ---- between hosts and daemons ----

    def _order(self, host: Key, order: Order) -> None:
        owner = self.owner
        wire = self._orders.setdefault(host, Wire(self.times, delay_s=ORDER_S))
        wire.send(lambda: owner.order(order))

    def _tell(self, daemon: Daemon, report: Envelope) -> None:
        self.checks.reported(daemon, report)
        pair = (id(daemon), report.to)
        wire = self._reports.setdefault(pair, Wire(self.times, delay_s=ORDER_S))
        wire.send(lambda: self.hosts[report.to].told(report.message))

    def lose(self, host: Key, *, orders: bool = False) -> None:
        """What is under way to a host is lost, or what it has ordered."""
        for (_, to), wire in self._reports.items():
            if to == host and not orders:
                wire.cut()
        if orders and host in self._orders:
            self._orders[host].cut()

    # ---- subscriptions ----

    def _try_to_subscribe(self) -> None:
        self._tries += 1
        count = self._tries
        self.owner.subscribe(self._overtaken)
        after_s = 1.0 + self.times.upto(TRIES_S)
        self.times.later(after_s, lambda: self._again(count))

    def _again(self, count: int) -> None:
        if count == self._tries:
            self._try_to_subscribe()

    def _overtaken(self, stream: Stream) -> None:
        for daemon in self.daemons:
            if daemon.stream is stream:
                daemon.ended(stream, quiet=daemon is not self.owner)

    def end_stream(self) -> None:
        """The connection of the daemon that is subscribed ends."""
        stream = self.master.hang_up()
        for daemon in self.daemons:
            if stream is not None and daemon.stream is stream:
                daemon.ended(stream, quiet=False)

    # ---- agents ----

    def come(self, machine: str) -> Agent:
        """Another agent is there."""
        agent = Agent(self.times, self.programs, name=f"S{len(self.agents)}", hostname=machine)
        agent.master = self.master
        self.agents.append(agent)
        self.times.later(self.times.upto(3.0), lambda: self.register(agent))
        return agent

    def register(self, agent: Agent) -> None:
        """It registers, if it can."""
        agent.linked = agent.lives
        agent.tell_master("register")

    def away(self, agent: Agent, for_s: float, *, noticed: bool) -> None:
        """It is out of reach for a while, which the master notices at once, or by its pings."""
        if not agent.lives or not agent.linked:
            return
        self.times.note(f"{agent.name} is cut for {for_s:.1f} s")
        agent.cut()
        self.losses += 1
        if noticed:
            self.master.disconnected(agent)
        self._until_unreachable(agent)
        self.times.later(for_s, lambda: self.back(agent))

    def back(self, agent: Agent) -> None:
        """It is in reach again."""
        if agent.lives and not agent.linked:
            self.master.disconnected(agent)
            self.register(agent)

    def die(self, agent: Agent) -> None:
        """Its machine ends."""
        agent.die()
        self.losses += 1
        self.master.disconnected(agent)
        self._until_unreachable(agent)

    def _until_unreachable(self, agent: Agent) -> None:
        cuts = agent.cuts

        def over() -> None:
            if agent.cuts == cuts and not agent.linked:
                self.master.mark_unreachable(agent)

        self.times.later(UNREACHABLE_S, over)

    def fail_over(self, for_s: float) -> None:
        """Another master leads after a while."""
        self.losses += 1
        stream = self.master.fail_over(self.agents)
        for daemon in self.daemons:
            if stream is not None and daemon.stream is stream:
                daemon.ended(stream, quiet=False)
        self.times.later(for_s, self._next_master)

    def _next_master(self) -> None:
        self.master.here = True
        for agent in self.agents:
            if agent.lives and agent.linked:
                self.times.later(self.times.upto(10.0), partial(self.register, agent))
            self.times.later(UNREACHABLE_S, partial(self._not_back, agent))

    def _not_back(self, agent: Agent) -> None:
        if agent.name in self.master.recovered:
            self.master.recovered.discard(agent.name)
            self.master.unreachable[agent.name] = {}
            self.master.tell("FAILURE", agent_id={"value": agent.name})

    # ---- runs ----

    def start(self, which: int, much: float) -> None:
        """A task launches somewhere."""
        host = self.hosts[Key(f"host/east.{MACHINES[which % 2]}")]
        kind = KINDS[which // 2 % len(KINDS)]
        self._instances += 1
        run = f"{JOB}-{self._instances}-1"
        containers = (Container("a", "x"), Container("b", "x")) if kind == "group" else ()
        spec = RunSpec(
            Resources(UNIT * (1 + which // 16 % 3) // 2, 256 * UNIT),
            "x",
            asks=kind == "command",
            containers=containers,
            mesos=MesosWords(EXECUTOR) if kind == "custom" else None,
        )
        runs_s = None if much > 0.8 else 120.0 * much**3
        self.programs.expect(run, Program(runs_s, which // 64 % 3, deaf=kind == "custom"))
        if host.start(m.StartRun(run, spec)):
            self.times.note(f"{host.key} accepts {run[-4:]} of {kind} for {runs_s}")

    # ---- time ----

    def until(self, when: float) -> None:
        """Time passes."""
        times = self.times
        while True:
            wakes = [daemon.wake_at for daemon in self.daemons]
            next_at = min(times.next_at, *wakes)
            if next_at > when:
                break
            if times.next_at <= min(wakes):
                times.step()
            else:
                self._idle = self._idle + 1 if min(wakes) <= times.now else 0
                if self._idle > IDLE_MAX:
                    self.checks.broken("a daemon wakes for nothing")
                times.now = max(times.now, min(wakes))
                self.daemons[wakes.index(min(wakes))].due()
            self.checks.step()
        times.now = max(times.now, when)
