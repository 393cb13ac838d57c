"""Grants: whatever slices report in whatever order, no more may run than the job's limit allows.

Must not step a slice: a slice is a number of instances under way and a number that ended.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peloton.actors.job.grants import count_of, first, higher, limited
from peloton.actors.job.slice.messages import Tally
from peloton.actors.job.spec import JobSpec, TaskConfig
from peloton.runtime.vocabulary import Key


def spec(instances: int, most: int) -> JobSpec:
    return JobSpec("j", "me", Key("respool/p"), instances, TaskConfig(), maximum_running=most)


def ended(count: int) -> Tally:
    return Tally((("FAILED", count // 2), ("RUNNING", 7), ("SUCCEEDED", count - count // 2)))


def test_the_lowest_slices_begin() -> None:
    assert dict(first(spec(2500, 1500))) == {0: 1000, 1: 500}
    assert dict(first(spec(2500, 10))) == {0: 10}


def test_a_limit_that_nobody_can_feel_is_none() -> None:
    assert [limited(spec(10, most)) for most in (0, 1, 9, 10)] == [False, True, True, False]


def test_what_a_slice_cannot_use_any_more_goes_to_the_next() -> None:
    job, grants = spec(2500, 10), {0: 10}
    assert higher(job, grants, tallies={0: ended(990)}) == ()
    assert higher(job, grants, tallies={0: ended(994)}) == ((1, 4),)
    assert higher(job, {0: 10, 1: 4}, tallies={0: ended(994)}) == ()
    assert higher(job, {0: 10, 1: 4}, tallies={0: ended(1000)}) == ((1, 10),)


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
        tallies = {k: ended(v) for k, v in over.items() if v}
        grants |= dict(higher(job, grants, tallies=tallies))
        left = {k: count_of(job, k) - v for k, v in over.items()}
        under_way = sum(min(grants.get(k, 0), left[k]) for k in left)
        assert under_way == min(job.maximum_running, sum(left.values()))
