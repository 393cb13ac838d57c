"""A fleet that is upgraded daemon by daemon: new facts wait for the operator, new groups do not.

Simulated daemons of toy kinds in two versions on one store.
"""

from __future__ import annotations

from typing import Any

import pytest

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.owning.ownership import ranked
from peloton.runtime.ports import Journal, ShardId
from peloton.runtime.shells.features import LEVEL_POLL_S, raise_level
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.scan import Scan
from peloton.runtime.simulation.world import World
from peloton.runtime.vocabulary import key
from tests.toy.fleet import GRID, METER
from tests.toy.levels import V1, V2, Ask, Count, Total
from tests.toy.messages import Build, Done

OLD, NEW = {"counter": V1}, {"counter": V2}
SIZES = {"house": 2}
NAMES = ("d1", "d2")
KEYS = [key("counter", name) for name in "abcd"]


class Fleet:
    """Two daemons, and what they have journaled."""

    def __init__(self, kinds: Any) -> None:
        self.world = World(kinds, seed=5, sizes=SIZES)
        self.scan = Scan(self.world.store)
        for name in NAMES:
            self.world.start(name, roles=("house",))
        self.settle()

    def settle(self) -> None:
        """Every shard is open with its first in rank, once all daemons have met."""
        shards = [ShardId("house", number) for number in range(SIZES["house"])]

        def settled() -> bool:
            members, daemons = self.world.ensemble.members, self.world.daemons
            return (
                bool(members)
                and not any(node.aside for node in members.values())
                and all(
                    shard in daemons[ranked(shard, members)[0].partition(".")[0]].shards()
                    for shard in shards
                )
            )

        self.world.run_until(settled, within_s=120)

    def owned(self) -> dict[ShardId, SimulatedDaemon]:
        daemons = self.world.daemons.values()
        return {shard: daemon for daemon in daemons for shard in daemon.shards()}

    def upgrade(self, name: str, kinds: Any = NEW) -> None:
        daemon = self.world.daemons[name]
        self.world.kinds = kinds
        daemon.die()
        self.world.restart(daemon)
        self.world.run_for(30.0)  # until the session of the last life is over
        self.settle()

    def journal(self) -> Journal:
        """As an operator's command opens it."""
        return FencedRows(self.world.store.rows("operator"), process=bytes(15) + b"o")

    def count(self, times: int) -> None:
        for name in KEYS:
            self.answer(name, Count(times))

    def answer(self, name: Any, message: Any) -> Any:
        daemon = self.world.daemons["d1"]
        for _ in range(50):
            future = daemon.region.ask(name, message)
            self.world.run_until(future.done, within_s=60)
            if isinstance(future.result(), Total):
                return future.result()
            self.world.run_for(1.0)
        raise AssertionError(future.result())

    def facts(self) -> list[str]:
        """Names of all facts since the last call, of whichever version."""
        codec = Codec(NEW)
        bodies = [frame.body for _, frame in self.scan.poll()]
        entries = [entry for body in bodies for entry in codec.decode_frame(body)[1]]
        names = (type(fact).__name__ for entry in entries for fact in entry.facts)
        return sorted({name for name in names if name.startswith("Count")})

    def notes(self) -> list[str]:
        """What health of all daemons says besides."""
        regions = [daemon.region for daemon in self.world.daemons.values()]
        return [note.text for region in regions for note in region.daemon_health().remarks]

    def known(self) -> list[int]:
        """What the members announce."""
        return sorted(node.level for node in self.world.ensemble.members.values())


def test_new_facts_wait_for_the_last_member_and_for_the_operator() -> None:
    fleet = Fleet(OLD)
    fleet.count(2)
    assert fleet.facts() == ["Counted"]
    fleet.upgrade("d1")
    fleet.count(2)
    assert fleet.facts() == ["Counted"], "one of the two would not know the other fact"
    assert fleet.known() == [0, 1]
    fleet.upgrade("d2")
    fleet.count(2)
    assert fleet.facts() == ["Counted"], "the way back is open until the operator closes it"
    assert ["the feature level is 0, this version knows 1" in text for text in fleet.notes()] == [
        True, True,
    ]  # fmt: skip
    assert fleet.journal().raise_level(1) == 1
    fleet.world.run_for(2 * LEVEL_POLL_S)
    assert fleet.notes() == []
    fleet.count(2)
    assert fleet.facts() == ["CountedMany"]
    assert [fleet.answer(name, Ask()) for name in KEYS] == [Total(8)] * 4


def test_one_that_is_of_the_version_before_does_not_start_any_more() -> None:
    fleet = Fleet(NEW)
    fleet.journal().raise_level(1)
    daemon = fleet.world.daemons["d2"]
    daemon.die()
    fleet.world.kinds = OLD
    lives = daemon.lives
    fleet.world.restart(daemon)
    assert daemon.lives == lives + 1 and daemon.process is None, "it refuses, and is watched"
    fleet.world.kinds = NEW
    fleet.world.run_until(lambda: daemon.process is not None, within_s=60)


def refused(fleet: Fleet, old: SimulatedDaemon, *, within_s: float) -> None:
    """The process ends, names the levels, and its supervisor's restarts are refused as well."""
    root, lives = old.root, old.lives
    assert root is not None and not root.exited.done()
    fleet.world.kinds = OLD
    fleet.world.run_until(root.exited.done, within_s=within_s)
    assert "feature level is 1, this program knows 0" in root.exited.result()
    fleet.world.run_for(60.0)
    assert old.process is None and old.lives > lives
    assert fleet.known() == [1]
    assert {daemon.name for daemon in fleet.owned().values()} == {"d1"}
    fleet.count(1)


def test_a_daemon_of_the_version_before_that_joins_again_reads_the_level_and_ends() -> None:
    """It was cut off from all servers while the level was raised."""
    fleet = Fleet(OLD)
    fleet.count(1)
    old, store = fleet.world.daemons["d2"], fleet.world.store
    assert old.client is not None
    old.client.cut()
    store.cut(old.name)
    fleet.world.run_for(60.0)
    fleet.upgrade("d1")
    members: dict[str, Any] = dict(fleet.world.ensemble.members)
    assert raise_level(fleet.journal(), members, known=1) == 1, "it is no member"
    fleet.world.run_for(2 * LEVEL_POLL_S)
    fleet.count(2)
    store.mend(old.name)
    old.client.heal()
    fleet.world.run_until(lambda: fleet.known() == [0, 1], within_s=60)
    refused(fleet, old, within_s=1.0)


def test_a_daemon_of_the_version_before_ends_when_the_level_rises_while_it_is_a_member() -> None:
    """It joined after `features raise` had read the members."""
    fleet = Fleet(OLD)
    fleet.upgrade("d1")
    members: dict[str, Any] = dict(fleet.world.ensemble.members)
    old = fleet.world.daemons["d2"]
    before = {name: node for name, node in members.items() if node.level == 1}
    assert raise_level(fleet.journal(), before, known=1) == 1
    refused(fleet, old, within_s=LEVEL_POLL_S + 1.0)


def test_a_store_that_does_not_answer_is_asked_for_the_level_again() -> None:
    fleet = Fleet(OLD)
    fleet.upgrade("d1")
    old, store = fleet.world.daemons["d2"], fleet.world.store
    store.cut(old.name)
    fleet.journal().raise_level(1)
    fleet.world.run_for(LEVEL_POLL_S + 1.0)
    assert old.root is not None and not old.root.exited.done()
    store.mend(old.name)
    refused(fleet, old, within_s=LEVEL_POLL_S + 1.0)


@pytest.mark.parametrize("level", [0, 1])
def test_a_daemon_that_starts_knows_the_level_at_once(level: int) -> None:
    fleet = Fleet(OLD)
    fleet.journal().raise_level(level)
    fleet.upgrade("d1")
    fleet.upgrade("d2")
    fleet.count(1)
    assert fleet.facts() == (["CountedMany"] if level else ["Counted"])


@pytest.mark.parametrize("passed", [0.0, 4.0, 8.0, 12.0])
def test_an_owner_reads_the_level_when_it_takes_a_shard_over(passed: float) -> None:
    """The last owner may have polled first. Some of these take-overs lie between two polls."""
    fleet = Fleet(NEW)
    fleet.count(2)
    assert "CountedMany" not in fleet.facts()
    [first] = {*fleet.owned().values()}
    [other] = {*fleet.world.daemons.values()} - {first}
    moved = {*first.shards()}
    fleet.world.run_for(passed)
    fleet.journal().raise_level(1)
    first.die()
    fleet.world.run_until(lambda: moved <= {*other.shards()}, within_s=LEVEL_POLL_S)
    for name in KEYS:
        future = other.region.ask(name, Count(2))
        fleet.world.run_until(future.done, within_s=1.0)
        assert isinstance(future.result(), Total)
    assert {*fleet.facts()} == {"CountedMany"}


def test_a_group_that_a_later_version_brings_is_served_by_its_daemons() -> None:
    fleet = Fleet(NEW)
    before = fleet.owned()
    fleet.world.kinds = {**NEW, "meter": METER, "grid": GRID}
    fleet.world.sizes = {**SIZES, "city": 2}
    later = fleet.world.start("d3", roles=("city",))
    new = [ShardId("city", number) for number in range(2)]
    fleet.world.run_until(lambda: {*new} <= {*fleet.owned()}, within_s=120)
    assert {fleet.owned()[shard] for shard in new} == {later}
    assert {shard: fleet.owned()[shard] for shard in before} == before, "the others go on"
    future = later.region.ask(key("meter", "0"), Build(5))
    fleet.world.run_until(future.done, within_s=60)
    assert future.result() == Done(1)
    fleet.count(1)

    # A daemon of the version before starts again: it does not know the group, and leaves it alone.
    fleet.world.kinds, fleet.world.sizes = NEW, SIZES
    fleet.upgrade("d2")
    fleet.count(1)
    assert {fleet.owned()[shard] for shard in new} == {later}
