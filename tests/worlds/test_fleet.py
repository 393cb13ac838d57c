"""Storms over whole clusters: many small worlds from seeds, and that a seed is one history.

Each world has its own faults, its own workload, and has to reach every goal after the calm. It
must not know which seed does what: what a seed found once stands in `regressions`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from peloton.chaos.cluster.faults import ALL_FAULTS, APART
from peloton.chaos.cluster.storm import draw
from peloton.chaos.sweep import sweep_one
from peloton.runtime.simulation.storms import LastingFault

WORLDS = 200
CHUNK = 25
REPLAYED = 2
"""Of each chunk so many are played again elsewhere, each time others; the traces are compared."""
SAME_WORLDS = 20
FIRST_SAME = 1_000_000


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, WORLDS, CHUNK))
def test_every_goal_is_reached_and_a_seed_is_one_history(first: int) -> None:
    """Here the storms are played one after the other, there in a new process with other hashes."""
    played = [sweep_one(seed) for seed in range(first, first + CHUNK)]
    assert len(played) == CHUNK
    assert not [one.failure for one in played if one.played is None]
    at = first // CHUNK * REPLAYED
    here = {one.seed: one.played.trace for one in played[at : at + REPLAYED] if one.played}
    assert len(here) == REPLAYED
    assert here == _traces(_playing(first + at, REPLAYED, hash_seed="1").communicate()[0])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_runs_of_a_seed_are_the_same_in_any_process() -> None:
    runs = [_playing(FIRST_SAME, SAME_WORLDS, hash_seed=hash_seed) for hash_seed in ("1", "2")]
    one, other = (_traces(run.communicate()[0]) for run in runs)
    assert len(one) == SAME_WORLDS
    assert one == other


def _playing(first: int, count: int, *, hash_seed: str) -> subprocess.Popen[str]:
    """A process that plays some seeds and prints a hash of what happened in each."""
    command = [
        sys.executable, "-m", "peloton.chaos.sweep", "--trace-hash",
        "--seeds", str(count), "--first-seed", str(first),
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
    plan = draw(seed)
    strokes = {action.name for action in plan.actions} & {*ALL_FAULTS}
    assert all(isinstance(ALL_FAULTS[name], LastingFault) for name in plan.faults)
    return [*plan.faults, *sorted(strokes)]
