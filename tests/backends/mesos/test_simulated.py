"""A conversation amid a simulated master, agents and hosts, in any order of what may happen.

Each seed is a play of its own (`simulated/`): a storm, a calm, and the end of all runs. A failure
names the seed, what of its plan matters, and the story up to it. Must not answer for the master.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.backends.mesos.simulated.acts import failure, shrunk
from tests.backends.mesos.simulated.plan import drawn
from tests.backends.mesos.simulated.planted import PLANTED, search

SEEDS, MORE_SEEDS = 40, 150
FOUND = (383, 441, 623)
"""Those that have found something."""
STORY_MAX = 100
LIMIT_S = 600


def _check(seeds: Iterable[int]) -> None:
    for seed in seeds:
        if failure(drawn(seed)) is None:
            continue
        plan, why = shrunk(drawn(seed))
        story = "\n".join((*map(str, plan.acts), *why.story[-STORY_MAX:]))
        pytest.fail(f"seed {seed}: {why}\n{story}")


@pytest.mark.timeout(LIMIT_S)
def test_whatever_happens_no_run_begins_twice_and_each_has_its_end() -> None:
    _check((*FOUND, *range(SEEDS)))


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
def test_the_same_in_more_plays() -> None:
    _check(range(10_000, 10_000 + MORE_SEEDS))


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found(name: str) -> None:
    assert search(PLANTED[name]) is not None


def test_a_play_is_the_same_each_time() -> None:
    with_name = PLANTED["an end is acknowledged at once"]
    assert search(with_name) == search(with_name)
