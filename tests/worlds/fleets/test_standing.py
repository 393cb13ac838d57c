"""Fleets whose daemons do not reach each other, though all reach the store and the membership.

Whole daemons of toy kinds in simulated time. The rule itself is tested in
`tests/core/reach/test_standing.py`: here only who serves, how soon, and how often anything moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from peloton.runtime.ports import ShardId
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.world import World
from peloton.runtime.vocabulary import Unavailable, key
from tests.toy.levels import V1, Ask, Count

GIVEN_UP_S_MAX = 15.0
SESSION_S = 6.0  # as of real daemons
BACK_S_MAX = 30.0
SIZES = {"house": 12}
KEYS = [key("counter", f"k{number}") for number in range(24)]


class Fleet:
    """Daemons d1, d2, …; `two` in arguments are their numbers."""

    def __init__(self, daemons: int, *, seed: int = 3) -> None:
        self.world = World({"counter": V1}, seed=seed, sizes=SIZES)
        self.world.ensemble.session_s = SESSION_S
        self.logs: dict[str, list[str]] = {}
        self.world.furnish = self._listen
        for number in range(1, daemons + 1):
            self.world.start(f"d{number}", roles=("house",))
        self.wait(lambda: self.whole() and len(self.serving()) == daemons)
        self.world.run_for(5.0)

    def _listen(self, daemon: SimulatedDaemon) -> None:
        daemon.region.status.report = self.logs.setdefault(daemon.name, []).append

    def wait(self, so: Callable[[], bool], *, within_s: float = 60.0) -> float:
        return self.world.run_until(so, within_s=within_s)

    def part(self, one: int, other: int, *, one_way: bool = False) -> None:
        self.world.network.part(f"d{one}:1", f"d{other}:1", one_way=one_way)

    def part_all(
        self, some: Sequence[int], others: Sequence[int], *, one_way: bool = False
    ) -> None:
        for one in some:
            for other in others:
                self.part(one, other, one_way=one_way)

    def owners(self) -> dict[ShardId, str]:
        """By the journal: who holds the newest epoch."""
        found: dict[ShardId, tuple[int, str]] = {}
        for daemon in self.world.daemons.values():
            for shard, core in daemon.shards().items():
                found[shard] = max(found.get(shard, (0, "")), (core.epoch, daemon.name))
        return {shard: name for shard, (_, name) in found.items()}

    def serving(self) -> set[str]:
        """Who owns anything."""
        return {*self.owners().values()}

    def whole(self) -> bool:
        """Every shard has an owner."""
        return len(self.owners()) == sum(SIZES.values()) and self.world.whole()

    def serves(self, *numbers: int) -> bool:
        """Exactly these own shards, and all there are."""
        return self.whole() and self.serving() == {f"d{number}" for number in numbers}

    def failed(self, number: int) -> set[str]:
        """Why calls fail that a daemon gets for each key; empty if none does."""
        region = self.world.daemons[f"d{number}"].region
        answers = [region.ask(name, Ask()) for name in KEYS]
        self.wait(lambda: all(answer.done() for answer in answers))
        results = [answer.result() for answer in answers]
        return {result.text for result in results if isinstance(result, Unavailable)}

    def moves(self) -> int:
        """How often a shard was claimed so far."""
        return sum(self.world.store.registers.registers[shard].epoch for shard in self.owners())

    def healed(self) -> None:
        self.world.network.heal()


def all_answered(fleet: Fleet, *numbers: int) -> None:
    """Soon: views of owners come late."""
    for _ in range(20):
        failed = [fleet.failed(number) for number in numbers]
        if not any(failed):
            return
        fleet.world.run_for(0.1)
    raise AssertionError(failed)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("one", [1, 2, 3])
@pytest.mark.parametrize("way", ["both", "reaches nobody", "reached by nobody"])
def test_of_three_one_that_is_isolated_gives_its_shards_up(one: int, way: str, seed: int) -> None:
    fleet = Fleet(3, seed=seed)
    others = [number for number in (1, 2, 3) if number != one]
    if way == "reached by nobody":
        fleet.part_all(others, [one], one_way=True)
    else:
        fleet.part_all([one], others, one_way=way == "reaches nobody")
    fleet.wait(lambda: fleet.serves(*others), within_s=GIVEN_UP_S_MAX)
    all_answered(fleet, *others)
    fleet.world.run_for(60.0)
    assert fleet.serves(*others)
    fleet.healed()
    fleet.wait(lambda: fleet.serves(1, 2, 3), within_s=BACK_S_MAX)
    all_answered(fleet, 1, 2, 3)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("one_way", [False, True])
def test_of_two_that_do_not_see_each_other_one_stays(one_way: bool, seed: int) -> None:
    fleet = Fleet(2, seed=seed)
    fleet.part(1, 2, one_way=one_way)
    fleet.wait(lambda: fleet.whole() and len(fleet.serving()) == 1, within_s=GIVEN_UP_S_MAX)
    (stays,) = fleet.serving()
    all_answered(fleet, int(stays[1:]))
    before = fleet.moves()
    fleet.world.run_for(120.0)
    assert fleet.moves() == before and fleet.serving() == {stays}
    fleet.healed()
    fleet.wait(lambda: fleet.serves(1, 2), within_s=BACK_S_MAX)


def test_the_smaller_part_of_five_goes_and_nothing_else_moves() -> None:
    fleet = Fleet(5)
    held = {shard: name for shard, name in fleet.owners().items() if name in ("d3", "d4", "d5")}
    fleet.part_all([1, 2], [3, 4, 5])
    fleet.wait(lambda: fleet.serves(3, 4, 5), within_s=GIVEN_UP_S_MAX)
    assert {shard: fleet.owners()[shard] for shard in held} == held
    all_answered(fleet, 3, 4, 5)


def test_all_cut_from_all_leaves_one_that_serves_everything() -> None:
    fleet = Fleet(4)
    fleet.part_all([1, 2, 3, 4], [1, 2, 3, 4])
    fleet.wait(lambda: fleet.whole() and len(fleet.serving()) == 1, within_s=GIVEN_UP_S_MAX)


def test_a_pair_that_is_cut_gives_one_up_for_the_calls_that_need_both() -> None:
    fleet = Fleet(3)
    fleet.part(1, 2)
    fleet.wait(lambda: fleet.whole() and len(fleet.serving()) == 2, within_s=GIVEN_UP_S_MAX)
    assert "d3" in fleet.serving()
    all_answered(fleet, *(int(name[1:]) for name in fleet.serving()))


@pytest.mark.parametrize(("up_s", "down_s"), [(6.0, 2.0), (2.0, 6.0), (20.0, 20.0)])
def test_links_that_come_and_go_move_shards_a_few_times_only(up_s: float, down_s: float) -> None:
    fleet = Fleet(3)
    before = fleet.moves()
    for _ in range(int(600.0 / (up_s + down_s))):
        fleet.part_all([1], [2, 3])
        fleet.world.run_for(down_s)
        fleet.healed()
        fleet.world.run_for(up_s)
    held = sum(SIZES.values()) / 3
    assert fleet.moves() - before <= 16 * held, "ten minutes: out and back some times, ever slower"
    fleet.wait(lambda: fleet.serves(1, 2, 3), within_s=200.0)


@pytest.mark.parametrize("for_s", [1.0, 5.0])
def test_a_short_cut_moves_nothing(for_s: float) -> None:
    fleet = Fleet(3)
    before = fleet.moves()
    fleet.part_all([1], [2, 3])
    fleet.world.run_for(for_s)
    fleet.healed()
    fleet.world.run_for(60.0)
    assert fleet.moves() == before


def test_a_frozen_daemon_that_goes_on_stands_aside_for_nobody() -> None:
    fleet = Fleet(3)
    daemon = fleet.world.daemons["d1"]
    before = fleet.moves()
    daemon.freeze()
    fleet.world.run_for(3.5)
    daemon.thaw()
    fleet.world.run_for(60.0)
    assert fleet.moves() == before


def test_a_newcomer_that_nobody_reaches_never_owns_a_shard_and_says_why() -> None:
    fleet = Fleet(2)
    before = fleet.moves()
    for other in (1, 2):
        fleet.part(3, other)
    third = fleet.world.start("d3", roles=("house",))
    fleet.world.run_for(60.0)
    assert fleet.moves() == before and fleet.serves(1, 2)
    ready, reasons = third.region.health()
    assert not ready and "this daemon stands aside and owns no shard: no contact with" in reasons[0]
    assert "the daemon at d1:1 (d1.1.1)" in reasons[0] and reasons[0] in "; ".join(reasons)
    assert any("stands aside" in line for line in fleet.logs["d3"])
    assert [daemon.region.health() for daemon in fleet.world.daemons.values()][:2] == [
        (True, []), (True, []),
    ]  # fmt: skip
    fleet.healed()
    fleet.wait(lambda: fleet.serves(1, 2, 3), within_s=BACK_S_MAX)
    assert any("may own shards again" in line for line in fleet.logs["d3"])


def test_callers_health_and_log_name_address_and_reason() -> None:
    fleet = Fleet(3)
    fleet.part_all([1], [2, 3])
    region = fleet.world.daemons["d3"].region
    failed = fleet.failed(1)
    assert failed and all("is out of reach: " in text for text in failed)
    assert {text.partition(" (")[0] for text in failed} == {
        "the daemon at d2:1", "the daemon at d3:1",
    }  # fmt: skip
    named = "the daemon at d1:1 (d1.1.1) is out of reach: "

    def is_named() -> bool:
        condition = region.daemon_health()
        return any(named in one.text for one in (*condition.reasons, *condition.remarks))

    fleet.wait(is_named, within_s=15.0)
    assert any(named in line for line in fleet.logs["d3"])
    fleet.wait(lambda: fleet.serves(2, 3), within_s=GIVEN_UP_S_MAX)
    fleet.wait(lambda: region.health() == (True, []), within_s=5.0)  # it serves all there is
    assert is_named()
    assert not fleet.world.daemons["d1"].region.health()[0]


def test_health_is_ready_again_as_soon_as_all_is_served_after_the_store_was_away() -> None:
    """Who gave its shards up is unfit for a minute: where all are, they serve all the same."""
    fleet = Fleet(3)
    world = fleet.world
    regions = [daemon.region for daemon in world.daemons.values()]
    for name in world.daemons:
        world.store.cut(name)
    answers = [regions[0].ask(name, Count(1)) for name in KEYS]
    fleet.wait(lambda: all(answer.done() for answer in answers))
    assert any(" at d" in answer.result().text for answer in answers), "they name the daemon"
    world.run_for(30.0)
    assert not any(region.health()[0] for region in regions)
    assert any(node.unfit for node in world.ensemble.members.values())
    for name in world.daemons:
        world.store.mend(name)
    fleet.wait(lambda: not any(fleet.failed(number) for number in (1, 2, 3)), within_s=30.0)
    fleet.wait(lambda: all(region.health()[0] for region in regions), within_s=2.0)
