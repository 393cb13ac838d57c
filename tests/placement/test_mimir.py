"""MIMIR: most free disk first, then memory, cpu and gpu; each task where it is best by then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.placement.messages import (
    HostDeltas,
    HostSummary,
    Label,
    Placed,
    ReservedRoom,
    Shape,
    Wish,
)
from peloton.placement.placer import PlacerSettings
from peloton.runtime.vocabulary import Bits, Key

from .hosts import INVENTORY, SLICE, host, label, place, placer_of, report, res

SMALL = res(1, 1, 1)


def shape(need: object = SMALL, **rest: object) -> Shape:
    return Shape(need, strategy="mimir", **rest)  # type: ignore[arg-type]


RANKS: list[tuple[str, list[HostSummary], list[str]]] = [
    ("disk before memory", [host("a", res(9, 9, 3)), host("b", res(2, 2, 4))], ["b"]),
    ("memory before cpu", [host("a", res(9, 2, 3)), host("b", res(2, 3, 3))], ["b"]),
    ("cpu before gpu", [host("a", res(2, 3, 3, 9)), host("b", res(3, 3, 3, 1))], ["b"]),
    ("gpu last", [host("a", res(3, 3, 3, 1)), host("b", res(3, 3, 3, 2))], ["b"]),
    ("ties by order", [host("a", res(3, 3, 3)), host("b", res(3, 3, 3))], ["a"]),
    ("hosts with gpus are kept", [host("a", res(9, 9, 9, 1)), host("b", res(2, 2, 2))], ["b"]),
    ("each anew", [host("a", res(9, 9, 5)), host("b", res(9, 9, 4))], ["a", "a", "b"]),
    ("what does not fit is passed", [host("a", res(0.5, 9, 9)), host("b", res(1, 1, 1))], ["b"]),
]


@pytest.mark.parametrize(("name", "hosts", "expected"), RANKS, ids=[name for name, *_ in RANKS])
def test_the_rank(name: str, hosts: list[HostSummary], expected: list[str]) -> None:
    assert place(placer_of(hosts), shape(), len(expected)) == (expected, {})


def oracle(hosts: Sequence[HostSummary], members: int) -> Counter[str]:
    """By the book: one task after another, each updates its host."""
    free = {each.host: each.free for each in hosts}
    found: Counter[str] = Counter()
    for _ in range(members):
        fitting = [
            (*(-free[each.host].amounts()[kind] for kind in (2, 1, 0, 3)), at)
            for at, each in enumerate(hosts)
            if SMALL.within(free[each.host])
        ]
        if not fitting:
            break
        name = hosts[min(fitting)[-1]].host
        free[name] -= SMALL
        found[name.removeprefix("host/")] += 1
    return found


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=8),
    st.integers(1, 20),
)
def test_it_is_as_if_the_tasks_came_one_after_another(
    rooms: list[tuple[int, int, int]], members: int
) -> None:
    hosts = [host(f"h{at}", res(*room)) for at, room in enumerate(rooms)]
    found, reasons = place(placer_of(hosts), shape(), members)
    assert Counter(found) == oracle(hosts, members)
    assert bool(reasons) == (len(found) < members)


def test_two_wishes_of_one_call_see_each_other() -> None:
    placer = placer_of([host("a", res(9, 9, 5)), host("b", res(9, 9, 5))])
    wishes = [(SLICE, Wish(Key(f"slice/j/{at}"), 1, Bits.of(0), shape())) for at in range(2)]
    sends = placer.receive(wishes, 0.0)
    answers = [each.message for each in sends if isinstance(each.message, Placed)]
    assert sorted(name for each in answers for name in each.hosts) == ["host/a", "host/b"]


def test_constraints_of_both_kinds_are_exact() -> None:
    """Q22: TASK conditions other than LESS_THAN are what they say, and no limit of the host."""
    web = (Label("app", "web"),)
    hosts = [
        host("big", res(9, 9, 9), labels=(Label("rack", "a"),), running=()),
        host("with", res(9, 9, 5), labels=(Label("rack", "a"),), running=((web[0], 2),)),
        host("other", res(9, 9, 7), labels=(Label("rack", "b"),), running=((web[0], 2),)),
    ]
    near = label("task", "app", "web", "greater", 1)
    assert place(placer_of(hosts), shape(constraint=near))[0] == ["other"]
    in_rack = label("host", "rack", "a", "equal", 1)
    assert place(placer_of(hosts), shape(constraint=in_rack))[0] == ["big"]
    alone = label("task", "app", "web", "less", 1)
    found, why = place(placer_of(hosts), shape(constraint=alone, labels=web), 2)
    assert found == ["big"] and why == {"mismatch_constraints": 3}


def test_with_spread_job_the_fewest_come_first_and_then_the_most_disk() -> None:
    mine = Label("peloton.job_id", "j")
    hosts = [
        host("a", res(9, 9, 5), running=()),
        host("b", res(9, 9, 7), running=()),
        host("c", res(9, 9, 9), running=((mine, 1),)),
    ]
    apart = shape(labels=(mine,), apart=mine)
    assert Counter(place(placer_of(hosts), apart, 4)[0]) == Counter("abbc")
    assert place(placer_of(hosts), apart, 1)[0] == ["b"]


def test_the_desired_host_comes_first() -> None:
    """A host that is held for the task, however little it has beside."""
    room = ReservedRoom(SMALL, 0, ((Key("task/j/0"), 0),))
    placer = placer_of([host("big", res(9, 9, 9)), host("mine", res(0, 0, 0), reserved=room)])
    assert place(placer, shape(), 2)[0] == ["mine", "big"]


def test_who_finds_no_host_is_tried_again_with_news() -> None:
    placer = placer_of([host("a", res(0.5, 1, 1))], PlacerSettings(kept_max=8))
    wish = Wish(SLICE, 3, Bits.of(0), shape())
    placer.receive([(SLICE, wish)], 0.0)
    more = HostDeltas(INVENTORY, 2, (host("a", res(2, 2, 2), 2),))
    (sent,) = placer.receive([(INVENTORY, more)], 1.0)
    assert isinstance(sent.message, Placed) and sent.message.hosts == (Key("host/a"),)
    assert report(placer, [], 3) == []
