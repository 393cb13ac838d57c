"""Three enemies of every goal loop: each message missed, each process stopped, old glasses on.

A history in which every kind speaks to other shards has to reach its goals whatever single word of
it is lost for good, and whoever dies at saying it. `script/points --nemeses` tries more of each.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peloton.chaos.cluster.aftermath import faults_of
from peloton.chaos.cluster.cluster import SimulatedCluster
from peloton.chaos.cluster.nemeses import (
    SIZES,
    Ear,
    Missed,
    OldGlasses,
    Stopped,
    Troubles,
    every_other,
    first,
    second,
)
from peloton.chaos.cluster.points import (
    WANTED_AFTER_CRASH,
    Deaths,
    Point,
    ScriptedHistory,
    Side,
    play,
    points,
    short_segments,
)
from peloton.kinds import SOFTS, kinds
from peloton.runtime.simulation.membership import MembershipFaults

NOT_SAID = {
    ("job", "AddOverrides"): "a client's, who says it again until it is answered",
    ("job", "DropPieces"): "to itself",
    ("slice", "HostRefused"): "of its own tasks, in its own shard",
    ("task", "SetTaskGoal"): "of its slice, in its own shard",
    ("task", "Place"): "of its slice, in its own shard",
    ("task", "Shelve"): "a slice's to its own tasks, in the shard they share",
    ("task", "Gone"): "only after a kill of a run that its host has forgotten: storms have it",
    ("respool", "UpdatePool"): "a client's",
    ("respool", "DeletePool"): "a client's",
    ("lot", "Admit"): "of its pool, in its own shard",
    ("host", "LookAgain"): "of its inventory, in its own shard",
    ("host", "HostGone"): "an operator's",
    ("host", "HostAppeared"): "of a backend that repeats it until the host gives an order",
    ("host", "HostLeft"): "of a backend that answers every order with it",
    ("backend", "AddHost"): "an operator's",
    ("backend", "RemoveHost"): "an operator's",
    ("task", "RunRefused"): "placers that hear all at once choose no host that is full; storms' do",
}
"""Messages that do not travel in this history, and why."""

TABLES = [(kind.name, cls.__name__) for kind in kinds(SIZES).values() for cls in
          kind.messages.values()]  # fmt: skip
TABLES += [(prefix, cls.__name__) for prefix, heard in SOFTS.items() for cls in heard.values()]
NAMES = [name for name in TABLES if name not in NOT_SAID]
NAMED = pytest.mark.parametrize("name", NAMES, ids=".".join)


def test_the_history_says_everything_that_can_be_said() -> None:
    ear = Ear()
    assert Troubles().play(ear) == []
    heard = {name for name in ear.heard if name[1] != "Seen"}
    assert heard - {*TABLES} == {("job", "GetJob")}, "a message that stands in no table"
    assert not heard & NOT_SAID.keys(), "it is said after all: take it in"
    assert {*NAMES} <= heard, "the history lost a message"


@NAMED
def test_every_other_word_is_missed(name: tuple[str, str]) -> None:
    _heals(Missed(*name, which=every_other))


@NAMED
def test_the_second_word_is_missed(name: tuple[str, str]) -> None:
    _heals(Missed(*name, which=second))


def _heals(missed: Missed) -> None:
    trouble = Troubles()
    wrong = trouble.play(missed)
    if missed.name == ("backend", "ForgetRuns"):
        # Nobody's goal: a backend may keep the ends of an idle host until that looks again.
        wrong = trouble.reconnect()
    assert not wrong, f"{missed.name}, {missed.struck} missed: " + "; ".join(wrong)
    assert missed.struck or missed.which is second


@pytest.mark.parametrize("behind", [False, True], ids=["unsaid", "said"])
def test_who_says_it_stops_in_the_middle(behind: bool) -> None:
    """Each class has its turn; half of them with either side, the other halves by the script."""
    for name in NAMES[behind::2]:
        stopped = Stopped(*name, which=first, behind=behind)
        wrong = Troubles().play(stopped)
        assert not wrong, f"{name}: " + "; ".join(wrong)
        assert stopped.struck


@pytest.fixture(scope="module")
def effects() -> Iterator[list[Point]]:
    """Every moment right after an effect on the world outside."""
    with short_segments():
        table = points()
        yield [each for each in table if each.call.port == "backend" and each.side is Side.AFTER]


def test_a_stop_right_after_each_external_effect(effects: list[Point]) -> None:
    assert {point.path for point in effects} == {"launch", "kill", "end", "reconcile"}
    for point in effects:
        deaths = Deaths(point)
        wrong = play(deaths)
        assert not wrong, f"{point}: " + "; ".join(wrong)
        assert not deaths.missed


DELTAS, WISH = ("placer", "HostDeltas"), ("placer", "Wish")
CAPACITY, TALLY = ("respool", "Capacity"), ("job", "SliceTally")


@pytest.mark.parametrize("behind", [1, 3, 10])
@pytest.mark.parametrize(
    "names",
    [(DELTAS,), (CAPACITY, TALLY), (DELTAS, WISH, CAPACITY, TALLY)],
    ids=["placers", "readers", "all"],
)
def test_old_glasses(names: tuple[tuple[str, str], ...], behind: int) -> None:
    glasses = OldGlasses(*names, behind=behind)
    wrong = Troubles().play(glasses)
    assert not wrong, "; ".join(wrong)
    assert glasses.struck


@pytest.mark.parametrize("watch_s_max", [5.0, 20.0])
def test_old_glasses_of_members(watch_s_max: float) -> None:
    """Everybody sees who owns what long after it was so, and all between as one."""
    story = ScriptedHistory(seed=9)
    story.cluster.world.ensemble.storm(MembershipFaults(way_s_max=0.5, watch_s_max=watch_s_max))
    story.run()
    _all_is_well(story.cluster)


def _all_is_well(cluster: SimulatedCluster) -> None:
    wrong = [*faults_of(cluster, WANTED_AFTER_CRASH)]
    assert not wrong, "; ".join(wrong)
