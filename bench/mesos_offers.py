"""What 2,000 agents of a Mesos cost its link: their offers, a launch on each, and a new beginning.

    script/bench mesos_offers                  about a minute
    script/bench mesos_offers --agents 200

The master is scripted and has a process of its own; this one has the link, and plays the actor and
the hosts. CPU is of this process. It must not gate a test, and what it prints can be compared
within one run only.
"""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from peloton.actors.host.run_spec import RunSpec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from peloton.actors.engine.messages import (  # noqa: E402
    AskSubscription,
    BackendOpen,
    OpenBackend,
    Subscribe,
)
from peloton.actors.host import messages as m  # noqa: E402
from peloton.actors.resources import UNIT, Resources  # noqa: E402
from peloton.backends.mesos.backend import MesosBackend
from peloton.backends.mesos.framework import Framework  # noqa: E402
from peloton.runtime.core.turning.envelope import Envelope  # noqa: E402
from peloton.runtime.vocabulary import Key, Message  # noqa: E402
from tests.backends.known_sets import known_sets
from tests.servers.scripted_http import Event, Reply  # noqa: E402
from tests.servers.scripted_master import ScriptedMaster  # noqa: E402

AGENTS = 2000
WAIT_S, POLL_S = 300.0, 0.05
MASTER = "--master"
CASES = ("subscribe", "one launch", "launch on each", "subscribe again", "a list of each")


class TimedMaster(ScriptedMaster):
    """Notes when it offered last, and when it was asked to launch."""

    def __init__(self, agents: int) -> None:
        self.offered_at, self.declined = 0.0, False
        self.launched_at: list[float] = []
        super().__init__(agents=agents)

    def _publish(self, events: Iterable[Event]) -> None:
        found = [*events]
        # What is left of one agent comes back by itself; all of them come when they are asked for.
        if any(len(e["offers"]["offers"]) > 1 for e in found if e["type"] == "OFFERS"):
            self.offered_at, self.launched_at, self.declined = time.monotonic(), [], False
        super()._publish(found)

    def _noted(self, call: dict[str, Any], headers: dict[str, str], reply: Reply) -> Reply:
        if call.get("type") == "ACCEPT":
            self.launched_at.append(time.monotonic())
        self.declined = self.declined or call.get("type") == "DECLINE"
        return super()._noted(call, headers, reply)


def serve(agents: int) -> None:
    """The process of the master: it says where it is, and does what it reads."""
    with TimedMaster(agents) as master:
        print(master.address, flush=True)
        for line in sys.stdin:
            if line.strip() == "drop":
                master.drop_stream()
            launches = [at - master.offered_at for at in master.launched_at]
            print(json.dumps([master.declined, launches]), flush=True)


class Master:
    """That process, from here."""

    def __init__(self, agents: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, MASTER, str(agents)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.address = self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self, word: str) -> tuple[bool, list[float]]:
        """Whether its last offers were declined, and the times from these to the launches since."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        declined, launches = json.loads(self._line())
        return bool(declined), [*map(float, launches)]

    def wait_declined(self) -> None:
        """Return when the link has given all offers back, as nobody wanted them."""
        while not self.ask("")[0]:
            time.sleep(POLL_S)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


class Player:
    """The actor and all hosts of a link."""

    def __init__(self, address: str) -> None:
        self.reports: queue.SimpleQueue[tuple[Key, Message]] = queue.SimpleQueue()
        self.hosts: list[Key] = []
        self._number = 0
        self.link = MesosBackend(Framework("mesos", address, "peloton-bench"))
        self.link.start(self._told)

    def _told(self, envelopes: Iterable[Envelope]) -> None:
        for envelope in envelopes:
            if envelope.to != self.link.key:
                self.reports.put((envelope.to, envelope.message))
            elif isinstance(envelope.message, OpenBackend | AskSubscription):
                if envelope.reply_to is not None:
                    envelope.reply_to.set_result(BackendOpen())  # type: ignore[attr-defined]
                self._number += 1
                self.order(Subscribe(self._number))

    def order(self, *orders: Message) -> None:
        """These, in one go."""
        some = [Envelope(self.link.key, one) for one in orders]
        self._told(one for one in self.link.receive(some, 0.0) if isinstance(one, Envelope))

    def wait(self, kind: type[Message], hosts: int) -> list[Key]:
        """The hosts that were told this, once there are so many."""
        found: dict[Key, None] = {}
        while len(found) < hosts:
            to, message = self.reports.get(timeout=WAIT_S)
            if isinstance(message, kind):
                found[to] = None
        return [*found]


def case(name: str, act: Callable[[], object], more: Callable[[], str] = str) -> str:
    """The line of one case."""
    cpu, began = time.process_time(), time.monotonic()
    act()
    took = time.monotonic() - began
    used = time.process_time() - cpu
    return f"{name:<18} {took:7.2f} s, cpu {used:6.2f} s{more()}"


def run_of(number: int) -> m.StartRun:
    """A task that goes on until the master ends."""
    name = f"0e1f9a3c-1111-4222-8333-444455556666-{number}-1"
    return m.StartRun(name, RunSpec(Resources(UNIT), "sleep 1000"))


def run(chosen: argparse.Namespace) -> Iterator[str]:
    """The figures, line by line."""
    agents = chosen.agents
    master = Master(agents)
    player = Player(master.address)

    def appear() -> None:
        player.hosts = player.wait(m.HostAppeared, agents)
        player.order(*(m.PingBackend(host) for host in player.hosts))
        player.wait(m.BackendUp, agents)

    def launch_one() -> None:
        player.order(m.StartRuns(player.hosts[0], 1, (run_of(0),)))
        player.wait(m.RunsStarted, 1)

    def launch() -> None:
        starts = enumerate(player.hosts[1:], 1)
        player.order(*(m.StartRuns(host, 1, (run_of(at),)) for at, host in starts))
        player.wait(m.RunsStarted, agents - 1)

    def again() -> None:
        master.ask("drop")
        player.wait(m.BackendDown, agents)
        player.wait(m.BackendUp, agents)

    def lists() -> None:
        known = {host: known_sets(run_of(at).run) for at, host in enumerate(player.hosts)}
        player.order(*(m.ListRuns(host, 1, sets=known[host]) for host in player.hosts))
        player.wait(m.RunsListed, agents)

    def since_offers() -> str:
        found = master.ask("")[1]
        return f", from offers to launch {found[0]:.3f} s, last {found[-1]:.2f} s"

    try:
        yield f"# {agents} agents, one task on each"
        acts = (appear, launch_one, launch, again, lists)
        for name, act in zip(CASES, acts, strict=True):
            if "launch" in name:
                master.wait_declined()
            yield case(name, act, since_offers if "launch" in name else str)
    finally:
        player.link.close()
        master.close()


def options(words: Sequence[str]) -> argparse.Namespace:
    """The options of the command line."""
    about, _, usage = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=usage, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=AGENTS)
    return parser.parse_args(words)


if __name__ == "__main__":
    if sys.argv[1:2] == [MASTER]:
        serve(int(sys.argv[2]))
    else:
        for text in run(options(sys.argv[1:])):
            print(text, flush=True)
