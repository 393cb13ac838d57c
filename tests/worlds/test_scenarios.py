"""Scenarios as data, how a failing one is made smaller, and that what fails is told.

Whole storms are in `test_fleet`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from peloton.chaos.cluster.faults import ALL_FAULTS
from peloton.chaos.cluster.storm import ClusterScenario, StormFailed, StormRun, draw, smaller
from peloton.chaos.replay import replay
from peloton.chaos.sweep import Sometimes
from peloton.runtime.simulation.scenario import (
    StormAction,
    StormScenario,
    changed,
    load_scenario,
    save,
)
from peloton.runtime.simulation.shrink import shrunk

SMALL = ClusterScenario(
    seed=3,
    daemons=1,
    sizes={"jobmgr": 1, "resmgr": 1, "hostmgr": 1},
    actions=(
        StormAction(at_s=1.0, name="create", count=3),
        StormAction(at_s=2.0, name="look"),
        StormAction(at_s=2.0, name="kill"),
    ),
    storm_s=5.0,
)


@pytest.mark.parametrize("seed", range(20))
def test_a_scenario_comes_back_from_its_file(seed: int, tmp_path: Path) -> None:
    scenario = draw(seed)
    save(scenario, tmp_path / "scenario.json")
    assert load_scenario(ClusterScenario, tmp_path / "scenario.json") == scenario


def test_a_scenario_with_a_name_nobody_knows_is_refused(tmp_path: Path) -> None:
    save(SMALL, tmp_path / "scenario.json")
    with pytest.raises(msgspec.ValidationError):
        load_scenario(StormScenario, tmp_path / "scenario.json")


def test_a_scenario_is_the_same_each_time_it_is_drawn() -> None:
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_shrinking_keeps_what_the_failure_needs_and_nothing_else() -> None:
    needed = StormAction(at_s=3.0, name="delete")
    faults = dict.fromkeys(list(ALL_FAULTS)[:20], 0.5)
    actions = (*(StormAction(at_s=float(at), name="look", count=9) for at in range(30)), needed)
    scenario = changed(
        SMALL, daemons=7, hosts=40, faults={**faults, "parcels lost": 1.0}, actions=actions
    )

    def fails(smaller: ClusterScenario) -> bool:
        return (
            "parcels lost" in smaller.faults and needed in smaller.actions and smaller.daemons > 1
        )

    small = shrunk(scenario, fails, more=smaller)
    assert small.faults == {"parcels lost": 1.0}
    assert small.actions == (needed,)
    assert (small.daemons, small.hosts) == (2, 1)


def test_shrinking_stops_after_so_many_tries() -> None:
    tried: list[ClusterScenario] = []

    def fails(smaller: ClusterScenario) -> bool:
        tried.append(smaller)
        return False

    assert shrunk(draw(7), fails, tries=5) == draw(7)
    assert len(tried) == 5


def _deaf(scenario: ClusterScenario) -> StormRun:
    """Orders arrive and nothing is done: no run ever starts."""
    stage = StormRun(scenario)
    stage.cluster.machines.deaf = True
    return stage


def test_a_goal_that_is_never_reached_fails_and_shrinks_to_one_job() -> None:
    def fails(scenario: ClusterScenario) -> bool:
        try:
            _deaf(scenario).play()
        except StormFailed as failed:
            return failed.sort == "Contradiction R7"
        return False

    small = shrunk(SMALL, fails, more=smaller)
    assert [action.name for action in small.actions] == ["create"]
    assert small.actions[0].count == 1
    assert small.hosts == 1


def test_a_replay_tells_the_story_of_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(SMALL, only="job/") is None
    told = capsys.readouterr().out
    assert "j1 <- CreateJob: JobMade" in told
    assert "--- kill d1" in told
    assert "nothing was wrong" in told


def test_a_branch_is_missing_until_it_is_reached() -> None:
    sometimes = Sometimes({"a": "first", "b": "second"})
    sometimes.reach("a")
    assert sometimes.missing() == ["b"]
    with pytest.raises(KeyError):
        sometimes.reach("c")
