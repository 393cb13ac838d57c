"""A conversation amid a simulated master, agents and hosts, in any order of what may happen.

Each seed is a play of its own (`simulated/`): a storm, a calm, and the end of all runs. Beside
those of `PLAYED` they are fresh ones, as many as there is time for. A failure names the seed, what
of its scenario matters, and the story up to it; the seed then belongs into `PLAYED`.
"""

from __future__ import annotations

from itertools import chain, count

import pytest

from peloton.chaos.seeds import fresh_seed, in_time
from tests.backends.mesos.simulated.acts import failure, shrunk
from tests.backends.mesos.simulated.planted import PLANTED, search
from tests.backends.mesos.simulated.scenario import drawn

SHARE_OF_TIME = 0.05
PLAYED = (*range(10), 1375)
"""Each time: some, and those that have found something."""
STORY_MAX = 100
LIMIT_S = 600


@pytest.mark.timeout(LIMIT_S)
def test_whatever_happens_no_run_begins_twice_and_each_has_its_end(storm_seconds: float) -> None:
    fresh = in_time(storm_seconds * SHARE_OF_TIME, count(fresh_seed()))
    for seed in chain(PLAYED, fresh):
        if failure(drawn(seed)) is None:
            continue
        scenario, why = shrunk(drawn(seed))
        story = "\n".join((*map(str, scenario.acts), *why.story[-STORY_MAX:]))
        pytest.fail(f"seed {seed}: {why}\n{story}")


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found(name: str) -> None:
    assert search(PLANTED[name]) is not None


def test_a_play_is_the_same_each_time() -> None:
    with_name = PLANTED["an end is acknowledged at once"]
    assert search(with_name) == search(with_name)
