"""How fast agents of Mesos launch batch tasks: by the keeper as executor, and by one of Mesos each.

    script/bench mesos_launches                     4 agents, three rounds of either: a minute
    script/bench mesos_launches --agents 1 --tasks 400 --by-command 20

Rounds of the two ways alternate in one run, on one cluster, and ratios are of neighbours: on a
busy machine a rate alone says little. A task is `true`. The rate is that of tasks that had begun,
from the order to the last start, with 64 under way on each agent: what master and agent do for one
grows with those that there are. CPU is that of master, agents, executors and tasks together, by
task. The backend is the daemon's own, its hosts are not (`tests/servers/mesos_hosts.py`): what a
daemon costs is measured elsewhere. Each run must succeed once; a figure of lost ones would be worth
nothing. It needs a Mesos (`tests/servers/mesos_home.py`), and must not gate a test.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts.measure import cpu_of_children_s, cpu_s, machine, ratio, tree  # noqa: E402
from peloton.actors.task.messages import End  # noqa: E402
from tests.servers.cache import NotInstalled  # noqa: E402
from tests.servers.mesos import Mesos, ask, until  # noqa: E402
from tests.servers.mesos_home import home  # noqa: E402
from tests.servers.mesos_hosts import MesosHosts, framework, order  # noqa: E402

CPUS, MEMORY_MB = 0.01, 1
KEEPER, COMMAND = "keeper", "command"


class Round(NamedTuple):
    """Of one way: tasks a second until all had begun, and CPU seconds a task."""

    rate: float
    task_s: float


def used_s(mesos: Mesos) -> float:
    """CPU of all that belongs to the cluster, ended or not."""
    servers = [server.process for server in (*mesos.masters, *mesos.agents)]
    pids = [pid for one in servers if one is not None for pid in tree(one.pid)]
    found = 0.0
    for pid in pids:
        try:
            found += cpu_s(pid) + cpu_of_children_s(pid)
        except FileNotFoundError:  # it has ended, and its parent has what it used
            continue
    return found


def no_others(mesos: Mesos) -> bool | None:
    """Whether the executors of single tasks are gone."""
    for agent in mesos.agents:
        state = ask(agent.port, "/state") or {"frameworks": []}
        alive = [one for each in state["frameworks"] for one in each["executors"]]
        if any(not one["id"].startswith("peloton-keeper-") for one in alive):
            return None
    return True


def measured(mesos: Mesos, hosts: MesosHosts, tasks: int, *, at_once: int) -> Round:
    """One round: the tasks go to all agents alike, so many at once for each."""
    places = [hosts.host(number + 1) for number in range(len(mesos.agents))]
    orders = [order("true", cpus=CPUS, memory_mb=MEMORY_MB) for _ in range(tasks)]
    before, begun = used_s(mesos), time.monotonic()
    names: list[str] = []
    ended, wave = len(hosts.ends), max(1, at_once // 2)
    for first in range(0, tasks, wave * len(places)):
        few = len(names) - (at_once - wave) * len(places)
        hosts.wait(lambda few=few: len(hosts.ends) - ended >= few)
        for number, host in enumerate(places):
            some = orders[first + number * wave : first + (number + 1) * wave]
            if some:
                names += hosts.start(host, *some)
    ends = hosts.wait_ended(names)
    took_s = max(hosts.started[name] for name in names) - begun
    if any(end.outcome.end is not End.SUCCEEDED for end in ends) or len({*names}) != tasks:
        raise SystemExit("a task was lost: the figures say nothing")
    until(lambda: no_others(mesos), "executors of single tasks stay")
    return Round(tasks / took_s, (used_s(mesos) - before) / tasks)


def run(asked: argparse.Namespace) -> Iterator[str]:
    """The lines of the run."""
    try:
        home()
    except NotInstalled as missing:
        yield f"# {missing}"
        return
    with tempfile.TemporaryDirectory(prefix="peloton-bench-") as name:
        folder = Path(name)
        yield from machine(folder)
        mesos = Mesos.start(folder / "mesos", agents=asked.agents)
        try:
            ways = {KEEPER: asked.tasks, COMMAND: asked.by_command}
            found: dict[str, list[Round]] = {way: [] for way in ways}
            with (
                MesosHosts(framework(mesos.address, idle_s=600.0)) as by_keeper,
                MesosHosts(framework(mesos.address, keeper=False)) as by_command,
            ):
                # The executors begin.
                measured(mesos, by_keeper, 2 * asked.agents, at_once=2)
                for _ in range(asked.rounds):
                    for way, hosts in ((KEEPER, by_keeper), (COMMAND, by_command)):
                        one = measured(mesos, hosts, ways[way], at_once=asked.at_once)
                        found[way].append(one)
                        text = f"{one.rate:6.1f} launches/s, {one.task_s * 1e3:6.2f} ms of CPU"
                        yield f"{way:<8} {ways[way]:>5} tasks on {asked.agents} agents  {text}"
        finally:
            mesos.stop()
    pairs = [*zip(found[KEEPER], found[COMMAND], strict=True)]
    rates = ratio([(keeper.rate, command.rate) for keeper, command in pairs])
    costs = ratio([(keeper.task_s, command.task_s) for keeper, command in pairs])
    yield f"# keeper / command: rate {rates}, CPU {costs}"


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--agents", type=int, default=4, help="[default: %(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="[default: %(default)s]")
    text = "tasks of an agent that are under way; %(default)s"
    parser.add_argument("--at-once", type=int, default=64, help=text)
    parser.add_argument("--tasks", type=int, default=800, help="by the keeper; %(default)s")
    parser.add_argument("--by-command", type=int, default=40, help="by Mesos; %(default)s")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    for line in run(options(sys.argv[1:])):
        print(line, flush=True)
