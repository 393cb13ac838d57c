"""Instances of a slice that match: against a naive filter of all of them, and what it costs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from peloton.actors.job.slice import messages as m
from peloton.actors.job.slice.configs import spec_rows
from peloton.actors.job.slice.finding import SORT_FIELDS, find_instances
from peloton.actors.job.slice.state import Slice
from peloton.actors.job.slice.tally import list_instances
from peloton.actors.job.slice.task_config import Override, TaskConfig
from peloton.actors.task.kind import KIND as TASK
from peloton.actors.task.messages import Policy, TaskGoals
from peloton.actors.task.state import Admission, Task, TaskStates
from peloton.runtime.core.entities.crowd import Crowd
from peloton.runtime.vocabulary import At, Bits, Key

COUNT, FIRST = 200, 3000
STATES = ("INITIALIZED", "PENDING", "RUNNING", "SUCCEEDED", "LAUNCHED")
CLASSES = [
    Task(TaskGoals.SUCCEEDED, state, Policy(), 1, 1, admission)
    for state, admission in (
        (TaskStates.WAITING, Admission.NONE),
        (TaskStates.WAITING, Admission.QUEUED),
        (TaskStates.WAITING, Admission.ADMITTED),
        (TaskStates.LAUNCHING, Admission.ADMITTED),
        (TaskStates.RUNNING, Admission.ADMITTED),
        (TaskStates.SUCCEEDED, Admission.NONE),
    )
]


def made(chance: random.Random, *, limited: bool) -> tuple[Slice, At]:
    """A slice with several configs; where limited, some members do not exist yet."""
    names = ["", "one", "two"]
    overrides = tuple(
        Override(FIRST + n, TaskConfig(name=chance.choice(names)))
        for n in sorted(chance.sample(range(COUNT), 60))
    )
    opening = m.SliceOpening(
        "j", "name", Key("respool/p"), COUNT, TaskConfig(name="most"), overrides
    )
    rows, of_rows = spec_rows(3, opening)
    begun = Bits.of(*(n for n in range(COUNT) if not limited or chance.random() < 0.6))
    closed = tuple(members - begun for members in of_rows) if limited else ()
    crowd = Crowd(TASK, Key("task/j/3"))
    crowd.columns.add(begun.raw)
    for number, members in enumerate(of_rows):
        crowd.columns.write("spec", (members & begun).raw, value=number)
    for member in begun:
        task = chance.choice(CLASSES)
        crowd.classes[task] = crowd.classes.get(task, 0) | 1 << member
        if task.state in (TaskStates.RUNNING, TaskStates.SUCCEEDED):
            crowd.columns.write("host", 1 << member, value=Key(f"host/{chance.choice('abc')}"))
            crowd.columns.write("started_at", 1 << member, value=float(chance.randrange(9)))
    slice_ = Slice(Key("job/j"), 3, COUNT, rows, closed=closed)
    return slice_, At(now=10.0, key=Key("slice/j/3"), index=crowd)


def drawn(chance: random.Random) -> m.FindInstances:
    fields = chance.sample([*SORT_FIELDS, "state"], chance.randrange(3))
    order = tuple(
        m.InstanceSort(field, chance.random() < 0.5, STATES if field == "state" else ())
        for field in fields
    )
    return m.FindInstances(
        chance.choice([0, FIRST + 50]),
        chance.choice([FIRST + 150, 10**6]),
        states=tuple(chance.sample(STATES, chance.choice([0, 0, 1, 2]))),
        names=tuple(chance.sample(["one", "two", "most", "none"], chance.choice([0, 0, 1, 2]))),
        hosts=tuple(chance.sample(["host/a", "host/b", "host/z"], chance.choice([0, 0, 1, 2]))),
        order=order,
        limit=chance.choice([0, 1, 10, 1000]),
    )


def naive(query: m.FindInstances, views: Sequence[m.InstanceView]) -> list[m.InstanceView]:
    found = [
        view
        for view in views
        if (not query.states or view.state in query.states)
        and (not query.names or view.config.name in query.names)
        and (not query.hosts or view.host in query.hosts)
    ]
    for order in reversed(query.order):
        read: Any = SORT_FIELDS.get(order.field, lambda view: STATES.index(view.state))
        found.sort(key=read, reverse=order.down)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_what_is_found_is_what_a_filter_of_all_finds(seed: int) -> None:
    chance = random.Random(seed)
    slice_, at = made(chance, limited=chance.random() < 0.5)
    for _ in range(20):
        query = drawn(chance)
        every = list_instances(slice_, m.ListInstances(query.start, query.stop), at)
        wanted = naive(query, every)
        answer = find_instances(slice_, query, at)
        assert answer.matched == len(wanted), query
        assert [*answer.views] == wanted[: query.limit], query


class Counted(Crowd):
    """A crowd that notes of how many members it was asked for the states."""

    __slots__ = ()
    asked: ClassVar[list[int]] = []

    def split(self, raw: int) -> list[tuple[Any, int]]:
        self.asked.append(raw.bit_count())
        return super().split(raw)


def test_by_instance_no_more_views_are_made_than_are_wanted() -> None:
    slice_, at = made(random.Random(1), limited=False)
    at.index.__class__ = Counted
    down = (m.InstanceSort("instance", True),)
    for order in ((), down):
        query = m.FindInstances(0, 10**6, states=("RUNNING",), order=order, limit=5)
        assert len(find_instances(slice_, query, at).views) == 5
    assert not find_instances(slice_, m.FindInstances(0, 10**6), at).views
    # Once for the states of all, and once for the views that are made.
    assert Counted.asked == [COUNT, 5, COUNT, 5, COUNT]
