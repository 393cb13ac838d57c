"""Grants: whatever slices report in whatever order, no more may run than the job's limit allows.

A slice is a number of instances under way and a number that ended.
"""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from peloton.actors.job.grants import (
    Use,
    bound,
    count_of,
    first,
    higher,
    limited,
    lowered,
    shared,
    use_of,
)
from peloton.actors.job.slice.messages import Tally
from peloton.actors.job.slice.task_config import TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.runtime.vocabulary import Key


def spec(instances: int, most: int) -> JobSpec:
    return JobSpec("j", "me", Key("respool/p"), instances, TaskConfig(), maximum_running=most)


def used(job: JobSpec, grants: Mapping[int, int], over: Mapping[int, int]) -> dict[int, Use]:
    """What slices report of which so many instances have ended, and that use their grants."""
    left = {number: count_of(job, number) - count for number, count in over.items()}
    return {k: Use(min(grants.get(k, 0), some), some) for k, some in left.items()}


def test_the_lowest_slices_begin() -> None:
    assert dict(first(spec(2500, 1500))) == {0: 1000, 1: 500}
    assert dict(first(spec(2500, 10))) == {0: 10}


def test_a_limit_that_nobody_can_feel_is_none() -> None:
    assert [limited(spec(10, most)) for most in (0, 1, 9, 10)] == [False, True, True, False]


def test_what_a_slice_cannot_use_any_more_goes_to_the_next() -> None:
    job, grants = spec(2500, 10), {0: 10}
    assert higher(job, grants, uses=used(job, grants, {0: 990})) == ()
    assert higher(job, grants, uses=used(job, grants, {0: 994})) == ((1, 4),)
    grants = {0: 10, 1: 4}
    assert higher(job, grants, uses=used(job, grants, {0: 994})) == ()
    assert higher(job, grants, uses=used(job, grants, {0: 1000})) == ((1, 10),)


def test_who_is_to_run_again_does_not_get_back_what_was_given_away() -> None:
    job, grants, use = spec(2500, 10), {0: 10, 1: 4}, Use(6, 6)
    grant, after = lowered(grants[0], use, more=4)
    assert (grant, bound(grant, after)) == (6, 6)
    uses = used(job, grants, {1: 0, 2: 0}) | {0: after}
    assert higher(job, {0: grant, 1: 4}, uses=uses) == ()
    uses[1] = Use(3, 3)
    assert higher(job, {0: grant, 1: 4}, uses=uses) == ((0, 7),)


def test_a_lower_limit_ends_nobody_but_gives_nothing_away_before_enough_have_ended() -> None:
    job, grants = spec(2500, 3), {0: 10}
    less = shared(job, grants, uses=used(job, grants, {0: 0}), most=3)
    assert less == {0: (3, Use(10, 1000))}
    assert higher(job, {0: 3}, uses={0: Use(10, 1000)}) == ()
    assert higher(job, {0: 3}, uses={0: Use(2, 2)}) == ((1, 1),)


def test_a_tally_of_an_older_version_says_at_least_who_has_ended() -> None:
    assert use_of(Tally((("RUNNING", 3), ("SUCCEEDED", 997))), 10) == Use(3, 3)
    assert use_of(Tally((("RUNNING", 30),), active=12), 10) == Use(12, 30)


@given(
    instances=st.integers(2, 3500),
    most=st.integers(1, 3499),
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 1000)), max_size=40),
)
def test_never_more_than_the_limit_and_always_as_many(
    instances: int, most: int, steps: list[tuple[int, int]]
) -> None:
    job = spec(instances, min(most, instances - 1))
    grants, over = dict(first(job)), dict.fromkeys(range(-(-instances // 1000)), 0)
    for number, count in steps:
        if number in over:
            under_way = min(grants.get(number, 0), count_of(job, number) - over[number])
            over[number] += min(count, under_way)  # only what runs can end
        grants |= dict(higher(job, grants, uses=used(job, grants, over)))
        left = {k: count_of(job, k) - v for k, v in over.items()}
        under_way = sum(min(grants.get(k, 0), left[k]) for k in left)
        assert under_way == min(job.maximum_running, sum(left.values()))
