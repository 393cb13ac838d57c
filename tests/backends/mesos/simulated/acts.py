"""How each act of a scenario is carried out on a simulated cluster.

The scenario has all details of an act.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from peloton.runtime.vocabulary import Key
from tests.backends.mesos.simulated.checks import Broken
from tests.backends.mesos.simulated.cluster import MACHINES, Cluster
from tests.backends.mesos.simulated.hosts import Host
from tests.backends.mesos.simulated.scenario import STORM_S, Act, Scenario, without
from tests.servers.mesos_model.agents import Agent


def _host(on: Cluster, act: Act) -> Host:
    return on.hosts[Key(f"host/east.{MACHINES[act.which % 2]}")]


def _agent(on: Cluster, act: Act) -> Agent | None:
    living = [agent for agent in on.agents if agent.lives]
    return living[act.which % len(living)] if living else None


def _kill(on: Cluster, act: Act) -> None:
    host = _host(on, act)
    runs = [*host.runs]
    if runs:
        host.kill(runs[act.which // 2 % len(runs)])


def _overtaken(on: Cluster, act: Act, *, fresh: bool) -> None:
    before = on.owner
    on.owner = on.daemons[1 - on.daemons.index(before)]
    if fresh:
        _begin_anew(on, act)


def _begin_anew(on: Cluster, _: Act) -> None:
    owner = on.owner
    if owner.stream is not None and on.master.stream is owner.stream:
        on.master.hang_up()
    owner.begin()


def _away(on: Cluster, act: Act, *, least_s: float, most_s: float, noticed: bool) -> None:
    agent = _agent(on, act)
    if agent is not None:
        on.away(agent, least_s + act.much * (most_s - least_s), noticed=noticed)


def _renew(on: Cluster, act: Act) -> None:
    agent = _agent(on, act)
    if agent is not None:
        on.die(agent)
        on.come(agent.hostname)


def _remove(on: Cluster, act: Act) -> None:
    agent = _agent(on, act)
    if agent is not None and agent.linked:
        on.master.remove(agent)
        on.die(agent)
        on.come(agent.hostname)


def _beside(on: Cluster, act: Act) -> None:
    """Another one comes while this one is out of reach, or there."""
    agent = _agent(on, act)
    if agent is not None and len([one for one in on.agents if one.lives]) < 4:
        if act.which & 256:
            on.away(agent, 20.0 + 120.0 * act.much, noticed=bool(act.which & 512))
        on.come(agent.hostname)


def _executor_dies(on: Cluster, act: Act) -> None:
    agent = _agent(on, act)
    there = [each for each in agent.executors.values() if not each.over] if agent else []
    if agent is not None and there:
        agent.executor_dies(there[act.which // 4 % len(there)])


def _keeper_fails(on: Cluster, act: Act) -> None:
    agent = _agent(on, act)
    if agent is not None:
        agent.starts_keeper = False

        def mend() -> None:
            agent.starts_keeper = True

        on.times.later(60.0 * act.much, mend)


def _others_take(on: Cluster, act: Act) -> None:
    """Another framework has some of an agent for a while: offers have less than its host thinks."""
    agent = _agent(on, act)
    if agent is not None:
        amounts = Counter({"cpus": 500 * (act.which // 4 % 8), "mem": 512_000})
        on.master.others[agent.name] = amounts
        on.master.rescind(agent.name)

        def leave() -> None:
            on.master.others.pop(agent.name, None)

        on.times.later(50.0 * act.much, leave)


def _rescind(on: Cluster, _: Act) -> None:
    for name in [*on.master.agents]:
        on.master.rescind(name)


def _move(on: Cluster, act: Act) -> None:
    host = _host(on, act)
    on.lose(host.key)
    host.move()


ACTS: dict[str, Callable[[Cluster, Act], None]] = {
    "start": lambda on, act: on.start(act.which, act.much),
    "kill": _kill,
    "stream ends": lambda on, _: on.end_stream(),
    "overtaken": lambda on, act: _overtaken(on, act, fresh=True),
    "taken back": lambda on, act: _overtaken(on, act, fresh=False),
    "daemon begins anew": _begin_anew,
    "host moves": _move,
    "report lost": lambda on, act: on.lose(_host(on, act).key),
    "order lost": lambda on, act: on.lose(_host(on, act).key, orders=True),
    "rescinds": _rescind,
    "others take": _others_take,
    "executor dies": _executor_dies,
    "agent away": lambda on, act: _away(on, act, least_s=0.1, most_s=30.0, noticed=True),
    "agent cut": lambda on, act: _away(on, act, least_s=0.1, most_s=60.0, noticed=False),
    "agent long away": lambda on, act: _away(on, act, least_s=70.0, most_s=200.0, noticed=True),
    "agent renewed": _renew,
    "agent removed": _remove,
    "agent beside": _beside,
    "master fails over": lambda on, act: on.fail_over(0.5 + 8.0 * act.much),
    "keeper cannot start": _keeper_fails,
    "link breaks": lambda on, act: _away(on, act, least_s=0.001, most_s=0.002, noticed=True),
}


CALM_S = 700.0
"""Longer than the longest pause between two polls of a host, and two kills."""
SETTLES = 10
"""So often half a second is waited for a host that polls just then."""
QUIET_S = 2000.0
"""Longer than the pause between two questions for all tasks."""


def play(scenario: Scenario) -> Cluster:
    """A storm, a calm, and the end of all runs. Raises `Broken`."""
    on = Cluster(scenario.seed)
    try:
        _play(on, scenario)
    except Broken as broken:
        broken.story = on.times.story
        raise
    return on


def _play(on: Cluster, scenario: Scenario) -> None:
    for act in scenario.acts:
        on.until(act.at)
        on.times.note(f"-- {act.name} {act.which} {act.much:.2f}")
        ACTS[act.name](on, act)
    on.until(STORM_S + 200.0)
    on.times.note("-- calm")
    on.master.allocate_s = 20.0  # what runs wait for is offered when they ask for it
    on.until(on.times.now + CALM_S)
    for _ in range(SETTLES):
        if on.checks.is_comparing():
            on.until(on.times.now + 0.5)
    on.checks.calm()
    for host in on.hosts.values():
        for run in [*host.runs]:
            host.kill(run)
    on.until(on.times.now + CALM_S)
    on.checks.outcomes()
    on.master.allocate_s = 100.0
    on.until(on.times.now + QUIET_S)
    on.checks.over()


def shrunk(scenario: Scenario) -> tuple[Scenario, Broken]:
    """The same without what does not matter for its failure."""
    least, why = scenario, failure(scenario)
    assert why is not None
    kind = why.kind
    size = max(1, len(least.acts) // 2)
    while size:
        at = 0
        while at < len(least.acts):
            less = without(least, least.acts[at : at + size])
            found = failure(less)
            if found is None or found.kind != kind:
                at += size
            else:
                least, why = less, found
        size //= 2
    return least, why


def failure(scenario: Scenario) -> Broken | None:
    """What must not be in this play, if anything."""
    try:
        play(scenario)
    except Broken as broken:
        return broken
    return None
