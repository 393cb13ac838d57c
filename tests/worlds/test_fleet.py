"""Storms over whole clusters: small worlds from fresh seeds, and that a seed is one history.

Each world has its own faults, its own workload, and has to reach every goal after the calm. As many
are played as `--storm-seconds` has time for, and a failure names its seed and how to replay it.
What a seed found once stands in `regressions`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import count

import pytest

from peloton.chaos.cluster.faults import ALL_FAULTS, APART
from peloton.chaos.cluster.storm import draw
from peloton.chaos.seeds import fresh_seed, in_time
from peloton.chaos.sweep import sweep_one
from peloton.runtime.simulation.storms import LastingFault

REPLAYED = 2
"""Of the storms of a worker so many are played again elsewhere; the traces are compared."""
SAME_WORLDS = 20
FIRST_SAME = 1_000_000


@pytest.mark.timeout(900)
@pytest.mark.parametrize("outside", [False, True], ids=["any", "agents"])
def test_every_goal_is_reached_and_a_seed_is_one_history(
    storm_seconds: float, outside: bool
) -> None:
    """Here fresh storms are played one after the other, some again in a process of other hashes."""
    first, traces = fresh_seed(), dict[int, str]()
    for seed in in_time(storm_seconds, count(first)):
        played = sweep_one(seed, outside=outside)
        assert played.played, f"{played.failure}\n{replay(seed, outside=outside)}"
        traces[seed] = played.played.trace
    once = {seed: traces[seed] for seed in [*traces][:REPLAYED]}
    process = _playing(first, len(once), hash_seed="1", outside=outside)
    again = _traces(process.communicate()[0])
    assert again == once, f"not the same in another process: {replay(first, outside=outside)}"


def replay(seed: int, *, outside: bool) -> str:
    """What a person types to see the storm."""
    return f"script/replay {seed}{' --agents' if outside else ''}"


def test_seeds_are_drawn_until_the_time_is_over_and_one_at_least() -> None:
    assert [*in_time(0.0, count(7))] == [7]
    assert [*in_time(1e9, range(3))] == [0, 1, 2]


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_two_runs_of_a_seed_are_the_same_in_any_process() -> None:
    runs = [_playing(FIRST_SAME, SAME_WORLDS, hash_seed=hash_seed) for hash_seed in ("1", "2")]
    one, other = (_traces(run.communicate()[0]) for run in runs)
    assert len(one) == SAME_WORLDS
    assert one == other


def _playing(
    first: int, number: int, *, hash_seed: str, outside: bool = False
) -> subprocess.Popen[str]:
    """A process that plays some seeds and prints a hash of what happened in each."""
    command = [
        sys.executable, "-m", "peloton.chaos.sweep", "--trace-hash",
        "--seeds", str(number), "--first-seed", str(first), *(["--agents"] if outside else []),
    ]  # fmt: skip
    return subprocess.Popen(
        command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, stdout=subprocess.PIPE, text=True
    )


def _traces(text: str) -> dict[int, str]:
    """The hashes that it printed, by seed."""
    return {int(seed): trace for seed, trace in re.findall(r"^(\d+) ([0-9a-f]{64})$", text, re.M)}


def test_a_swarm_has_storms_with_one_fault_and_storms_with_all() -> None:
    """Of those that are drawn together; what was added later is drawn apart."""
    counts = [len([name for name in _faults(seed) if name not in APART]) for seed in range(300)]
    assert min(counts) == 1
    assert max(counts) == len(ALL_FAULTS) - len(APART)
    assert sum(count <= 2 for count in counts) > len(counts) / 5


def test_every_fault_is_drawn_by_some_seed() -> None:
    assert {name for seed in range(100) for name in _faults(seed)} == {*ALL_FAULTS}


def test_at_least_25_kinds_of_fault_have_a_number() -> None:
    assert len({fault.number for fault in ALL_FAULTS.values()}) >= 25
    assert all(fault.what for fault in ALL_FAULTS.values())


def _faults(seed: int) -> list[str]:
    scenario = draw(seed)
    strokes = {action.name for action in scenario.actions} & {*ALL_FAULTS}
    assert all(isinstance(ALL_FAULTS[name], LastingFault) for name in scenario.faults)
    return [*scenario.faults, *sorted(strokes)]
