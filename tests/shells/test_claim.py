"""What the claim shell relies on: the real root keeps the promises of `Controller`.

Orders and failures must not break them, in whatever order they come.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from typing import Any

import pytest

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.shells.root import Root, RootShell, assemble
from peloton.runtime.shells.shell import Shell
from peloton.runtime.shells.shell_messages import Closed, Disown, Drop, Opened, Own, ShardLost, send
from peloton.runtime.simulation.memory_rows import MemoryRows
from peloton.runtime.simulation.scheduled import begun
from peloton.runtime.simulation.stepper import Stepper
from peloton.runtime.vocabulary import key
from tests.toy import messages as w
from tests.toy.kinds import KINDS, SIZES

SEEDS = range(60)


class Probe(Shell):
    """Takes the place of the claim shell, and keeps the messages it receives."""

    def __init__(self, stepper: Stepper) -> None:
        super().__init__("probe", stepper)
        self.received: list[Any] = []

    def handle(self, message: Any) -> None:
        self.received.append(message)

    def failed(self, error: Exception) -> None:
        raise error


class Scene:
    """A real root with one toy shard, on a stepper; a rival on the same store can fence it."""

    def __init__(self, seed: int) -> None:
        self.stepper = Stepper(seed)
        store = MemoryRows()
        self.rival = FencedRows(store, process=b"r" * 16)
        self.root: Root = assemble(
            KINDS, FencedRows(store, process=b"m" * 16), sizes=SIZES, drivers=self.stepper
        )
        [self.shell] = [shell for shell in self.stepper.shells if isinstance(shell, RootShell)]
        self.probe = begun(Probe(self.stepper))
        self.shell.claim = self.probe.ref
        self.key = key("note", "x")
        self.shard = self.root.region._sharding.shard_of(self.key)

    def order(self, message: Own | Disown | Drop) -> None:
        send(self.shell.ref, message)

    def own(self) -> None:
        self.order(Own((self.shard,)))
        self.until(Opened)

    def until(self, kind: type) -> None:
        seen = len(self.probe.received)
        self.stepper.run(lambda: any(type(one) is kind for one in self.probe.received[seen:]))

    def fence(self) -> None:
        """The next commit of the shard is refused."""
        self.rival.claim(self.shard, "")
        self.root.region.ask(self.key, w.Add(1))

    def some_steps(self) -> None:
        for _ in range(self.stepper.chance.randrange(12)):
            self.stepper.step()

    def run_out(self) -> Counter[str]:
        """Run until nothing happens any more; returns how often each message was received."""
        for _ in range(500):
            self.stepper.step()
        return Counter(type(message).__name__ for message in self.probe.received)


def ending(scene: Scene, way: str) -> Disown | Drop:
    if way == "drop":
        return Drop((scene.shard,))
    return Disown((scene.shard,), Future())


def end_while_it_is_lost(seed: int, way: str) -> None:
    scene = Scene(seed)
    scene.own()
    scene.fence()
    scene.some_steps()
    scene.order(ending(scene, way))
    counts = scene.run_out()
    assert counts["Closed"] == 1, scene.probe.received
    assert type(scene.probe.received[-1]) is Closed, "the last message of this life"
    scene.own()
    assert scene.run_out()["Opened"] == 2


def test_a_disown_is_answered_once_though_the_shard_is_lost_meanwhile():
    for seed in SEEDS:
        end_while_it_is_lost(seed, "disown")


def test_a_drop_is_answered_once_though_the_shard_is_lost_meanwhile():
    for seed in SEEDS:
        end_while_it_is_lost(seed, "drop")


@pytest.mark.parametrize("way", ["drop", "disown"])
@pytest.mark.parametrize("seed", range(20))
def test_an_order_to_end_is_answered_once_while_the_shard_still_recovers(seed: int, way: str):
    scene = Scene(seed)
    scene.order(Own((scene.shard,)))
    scene.some_steps()
    scene.order(ending(scene, way))
    counts = scene.run_out()
    assert counts["Closed"] == 1 and counts["ShardLost"] == 0
    scene.own()


@pytest.mark.parametrize("way", ["drop", "disown"])
def test_an_order_to_end_what_is_not_here_is_answered_too(way: str):
    scene = Scene(1)
    scene.order(ending(scene, way))
    assert scene.run_out() == {"Closed": 1}


def test_a_lost_shard_is_removed_until_it_is_owned_again():
    scene = Scene(2)
    scene.own()
    scene.fence()
    scene.until(ShardLost)
    assert scene.run_out() == {"Opened": 1, "ShardLost": 1}
    assert scene.root.region.owned() == []
    scene.own()
    assert scene.root.region.owned() == [scene.shard]
