"""Tiny limits: drawn by the seed, met by storms, left out by shrinking, and none of them a stop.

One small storm each shows that a limit is met at all.
"""

from __future__ import annotations

from typing import Any

import pytest

from peloton.chaos.cluster import tiny
from peloton.chaos.cluster.branches import BRANCHES, limit_name
from peloton.chaos.cluster.storm import ClusterScenario, Played, draw, play, smaller
from peloton.runtime.core.journal import register, segments
from peloton.runtime.core.journal.segments import SEGMENT_FRAMES
from peloton.runtime.core.links.parcels import Link, LinkLimits
from peloton.runtime.ports import FRAME_PART_BYTES_MAX
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.simulation.scenario import StormAction, changed
from peloton.runtime.simulation.shrink import shrunk

ALONE = {"jobmgr": 1, "resmgr": 1, "hostmgr": 1}
JOBS = tuple(StormAction(at_s=at / 2, name="create", count=3) for at in range(6))
OFTEN = 7
"""Of so many storms a third and more have none, and some have all."""


def storm(**limits: float) -> Played:
    """Some jobs, two of which are asked for again when they have ended."""
    asked = [
        StormAction(at_s=20.0 + at / 10, name="all at once", which=at, other=at) for at in range(6)
    ]
    redrive = StormAction(at_s=4.0, name="redrive", which=1, for_s=8.0)
    actions = (*JOBS, redrive, *asked)
    scenario = ClusterScenario(
        seed=5, daemons=2, sizes=ALONE, limits=limits, checkpoint_bytes_min=300, actions=actions
    )
    return play(scenario)


def test_every_limit_is_drawn_and_has_a_branch() -> None:
    found: dict[str, None] = {}
    scenarios = [draw(seed) for seed in range(40)]
    for scenario in scenarios:
        found.update(dict.fromkeys(scenario.limits))
    assert sorted(found) == sorted(tiny.ALL_TINY)
    assert all(limit_name(name) in BRANCHES for name in tiny.ALL_TINY)
    assert sum(not scenario.limits for scenario in scenarios) > OFTEN


def test_each_value_is_below_what_production_has_and_is_taken_by_a_daemon() -> None:
    for name, each in tiny.ALL_TINY.items():
        assert all(value < tiny.USUAL_NUMBERS[name] for value in each.values), name
        for value in each.values:
            limits = tiny.limits({name: value}, checkpoint_bytes_min=300)
            assert name in tiny.STORE or getattr(limits, name) == value
    assert tiny.limits({}, checkpoint_bytes_min=300) == DaemonLimits(checkpoint_bytes_min=300)


@pytest.mark.parametrize(
    "name",
    [
        "part_bytes", "piece_bytes_max", "frame_bytes_soft", "turns_per_frame_max",
        "ended_rows_per_round", "ended_rows_gathered", "redriven_per_frame_max", "changes_max",
        "cold_after_s", "cold_per_check_max", "batch_bytes", "parcel_bytes", "window_parcels",
        "window_bytes", "finished_jobs_max", "segment_frames", "frame_part_bytes_max",
    ],
)  # fmt: skip
def test_a_limit_is_met_and_stops_nobody(name: str) -> None:
    assert limit_name(name) in storm(**{name: tiny.ALL_TINY[name].values[0]}).reached


def test_limits_at_their_least_all_at_once_stop_nobody() -> None:
    least: dict[str, Any] = {name: min(each.values) for name, each in tiny.ALL_TINY.items()}
    assert len([name for name in storm(**least).reached if name.startswith("limit")]) > 15


def test_shrinking_leaves_out_the_limits_that_a_failure_does_not_need() -> None:
    every = {name: each.values[0] for name, each in tiny.ALL_TINY.items()}
    scenario = changed(draw(3), limits=every, furnish_s_max=3.0)
    small = shrunk(scenario, lambda scenario: "changes_max" in scenario.limits, more=smaller)
    assert small.limits == {"changes_max": every["changes_max"]}
    assert small.furnish_s_max == 0.0


def test_the_rows_of_the_store_are_what_they_were_when_a_world_is_over() -> None:
    with tiny.rows({"segment_frames": 2, "frame_part_bytes_max": 40}):
        assert (segments.SEGMENT_FRAMES, register.FRAME_PART_BYTES_MAX) == (2, 40)
    assert segments.SEGMENT_FRAMES == SEGMENT_FRAMES
    assert register.FRAME_PART_BYTES_MAX == FRAME_PART_BYTES_MAX


def test_a_batch_above_the_bound_of_a_link_may_wait_alone() -> None:
    """Otherwise it could never be sent, however often its sender repeats it."""
    link = Link("a", "b", birth=1, limits=LinkLimits(link_bytes_max=10))
    assert link.send(bytes(50), 0)
    assert not link.send(bytes(1), 0)
