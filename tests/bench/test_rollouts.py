"""The benchmark of rollouts, tiny: every instance is changed, within its batch; none is timed."""

from __future__ import annotations

import re

import pytest

from bench import rollouts
from bench.parts.follower import ENDED, STARTED
from bench.parts.up import KILLING, UpTally
from peloton.ops.v1 import ops_pb2


@pytest.mark.nightly
@pytest.mark.timeout(300)  # a process begins, on a machine that may be busy
def test_every_instance_is_changed_and_no_more_are_down_than_the_batch() -> None:
    words = "--services 2 --instances 4 --batch 2 --hosts 3 --rounds 1".split()
    lines = [*rollouts.run(rollouts.options(words))]
    (made,) = [line for line in lines if line.startswith("create 2 services of 4: ")]
    (line,) = [line for line in lines if line.startswith("update 2 services of 4, batch 2: ")]
    assert "cpu ms a instance: daemon" in made
    found = re.search(r"at most ([0-9]+) of a service down at once", line)
    assert found and 1 <= int(found[1]) <= 2


def event(fact: str, first: int, last: int) -> ops_pb2.Event:
    said = ops_pb2.Event(key="task/a", facts=[fact])
    said.instances.add(first=first, last=last)
    return said


def test_an_instance_is_down_from_the_order_to_end_until_it_runs_again() -> None:
    tally = UpTally(3)
    for said in (
        event(STARTED, 0, 1),
        event(KILLING, 0, 0),  # not all have run yet: none counts as down
        event(ENDED, 0, 0),
        event(STARTED, 0, 2),
    ):
        tally.note(said)
    assert tally.worst == 0
    tally.note(event(KILLING, 0, 1))
    tally.note(event(ENDED, 0, 1))
    tally.note(event(STARTED, 0, 0))
    tally.note(event(ENDED, 2, 2))
    assert tally.worst == 2
    tally.note(event(ENDED, 0, 0))
    assert tally.worst == 3
    assert tally.totals == {STARTED: 6, ENDED: 5}
