"""Resources of offers: what counts as what, and what a task takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.actors.resources import UNIT, Resources
from peloton.backends.mesos.runs.words import Bundle, NotOffered, kind_of, of_others, ranges, sum_of
from tests.backends.mesos.words import ROLE, Json, allocated, ports, reserved, scalar

SLACK: Json = {"revocable": {}}
KEPT = {"disk": {"persistence": {"id": "v1"}, "volume": {"container_path": "v"}}}


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (scalar("cpus", 1.0), "cpu"),
        (scalar("mem", 1.0), "memory"),
        (scalar("disk", 1.0), "disk"),
        (scalar("gpus", 1.0), "gpu"),
        (scalar("cpus", 1.0, **SLACK), "slack"),
        (scalar("mem", 1.0, **SLACK), None),
        (scalar("disk", 1.0, **KEPT), None),
        (scalar("disk", 1.0, disk={"source": {"type": "MOUNT"}}), None),
        (scalar("bandwidth", 1.0), None),
        (ports((1, 2)), None),
        ({"name": "cpus", "type": "SET"}, None),
        ({}, None),
    ],
)
def test_what_an_entry_counts_as(entry: Json, kind: str | None) -> None:
    assert kind_of(entry) == kind


def test_amounts_are_sums_in_thousandths() -> None:
    entries = [
        scalar("cpus", 0.1), scalar("cpus", 0.2, **reserved(ROLE)), scalar("cpus", 2, **SLACK),
        scalar("mem", 64.0), scalar("disk", 5.0, **KEPT), scalar("disk", 7.0), ports((1, 9)),
        scalar("gpus", 1), {"name": "cpus", "type": "SCALAR"},
    ]  # fmt: skip
    assert sum_of(entries) == Resources(
        3 * UNIT // 10, 64 * UNIT, disk=7 * UNIT, gpu=UNIT, slack=2 * UNIT
    )


@pytest.mark.parametrize(
    ("more", "others"),
    [
        ({}, False),
        ({"role": "*"}, False),
        ({"role": ROLE}, False),
        (reserved(ROLE), False),
        (allocated(ROLE), False),
        ({"role": "*", **allocated(ROLE)}, False),
        ({"role": "ads"}, True),
        (reserved("ads"), True),
        (allocated("ads"), True),
        ({"reservations": [{"role": "ads"}, {"role": ROLE}]}, False),  # refined for us
        ({"reservations": [{"role": ROLE}, {"role": f"{ROLE}/x"}]}, True),
    ],
)
def test_what_others_have(more: Json, others: bool) -> None:
    entry = scalar("cpus", 1.0, **more)
    assert of_others([entry], ROLE) == ([entry] if others else [])


def test_ranges_are_in_order_and_joined() -> None:
    entries = [ports((50, 59), (10, 19)), ports((20, 25), role=ROLE), scalar("cpus", 1)]
    assert ranges(entries) == [(10, 26), (50, 60)]
    assert ranges([ports((1, 9), (3, 4))]) == [(1, 10)]
    assert ranges([]) == []


def test_a_task_takes_of_several_entries_what_is_reserved_for_us_first() -> None:
    free, ours = scalar("cpus", 2.0, role="*"), scalar("cpus", 1.0, **reserved(ROLE))
    bundle = Bundle([free, ours, scalar("mem", 100.0)])
    taken = bundle.take(Resources(cpu=3 * UNIT // 2, memory=40 * UNIT), ())
    assert taken == [
        {**free, "scalar": {"value": 0.5}}, {**ours, "scalar": {"value": 1.0}},
        scalar("mem", 40.0),
    ]  # fmt: skip
    assert bundle.amounts == Resources(cpu=3 * UNIT // 2, memory=60 * UNIT)


def test_what_is_needed_is_rounded_up_to_thousandths() -> None:
    bundle = Bundle([scalar("cpus", 1.0)])
    (taken,) = bundle.take(Resources(cpu=100_001), ())
    assert taken["scalar"]["value"] == 0.101
    with pytest.raises(NotOffered, match="0.001 cpus are missing"):
        bundle.take(Resources(cpu=899_001), ())
    assert bundle.take(Resources(cpu=899_000), ())[0]["scalar"]["value"] == 0.899
    assert bundle.amounts == Resources()


def test_slack_is_taken_of_what_is_revocable_and_of_nothing_else() -> None:
    revocable = scalar("cpus", 2.0, **SLACK)
    bundle = Bundle([scalar("cpus", 8.0), revocable])
    assert bundle.take(Resources(slack=UNIT), ()) == [{**revocable, "scalar": {"value": 1.0}}]
    with pytest.raises(NotOffered):
        bundle.take(Resources(slack=2 * UNIT), ())


def test_ports_split_ranges_and_come_from_any_entry() -> None:
    first, second = ports((10, 14), role="*"), ports((20, 20), (30, 31), role=ROLE)
    bundle = Bundle([first, second])
    assert bundle.take(Resources(), (12, 30, 10)) == [
        {**first, "ranges": {"range": [{"begin": 10, "end": 10}, {"begin": 12, "end": 12}]}},
        {**second, "ranges": {"range": [{"begin": 30, "end": 30}]}},
    ]
    for gone in (10, 12, 30, 15):
        with pytest.raises(NotOffered, match=f"port {gone} is missing"):
            bundle.take(Resources(), (gone,))
    bundle.take(Resources(), (11, 13, 14, 20, 31))


def test_one_port_twice_is_not_offered() -> None:
    bundle = Bundle([ports((10, 14))])
    with pytest.raises(NotOffered):
        bundle.take(Resources(), (10, 10))
    bundle.take(Resources(), (10,))


def test_nothing_is_taken_where_something_is_missing() -> None:
    bundle = Bundle([scalar("cpus", 2.0), scalar("mem", 10.0), ports((10, 11))])
    with pytest.raises(NotOffered, match="10 mem are missing"):
        bundle.take(Resources(cpu=UNIT, memory=20 * UNIT), (10,))
    with pytest.raises(NotOffered, match="port 12"):
        bundle.take(Resources(cpu=UNIT), (10, 12))
    assert bundle.amounts == Resources(2 * UNIT, 10 * UNIT)
    bundle.take(Resources(2 * UNIT, 10 * UNIT), (10, 11))


@st.composite
def _entries(draw: st.DrawFn) -> list[Json]:
    found = []
    for _ in range(draw(st.integers(0, 5))):
        more: Json = draw(st.sampled_from([{}, {"role": ROLE}, SLACK, reserved(ROLE)]))
        name = draw(st.sampled_from(["cpus", "mem"]))
        found.append(scalar(name, draw(st.integers(0, 4000)) / 1000, **more))
    at = draw(st.integers(1, 5))
    return [*found, ports((at, at + 4)), ports((at + 10, at + 12))]


def _open(entries: list[Json]) -> list[int]:
    return sorted(port for begin, end in ranges(entries) for port in range(begin, end))


_NEED: Any = st.builds(
    Resources, st.integers(0, 3 * UNIT), st.integers(0, 3 * UNIT), slack=st.integers(0, UNIT)
)


@given(
    _entries(),
    st.lists(st.tuples(_NEED, st.lists(st.integers(1, 20), max_size=3)), max_size=6),
)
def test_what_is_taken_and_what_is_left_is_what_was_offered(
    entries: list[Json], needs: list[tuple[Resources, list[int]]]
) -> None:
    bundle, taken = Bundle(entries), list[Json]()
    for need, wanted in needs:
        before = bundle.amounts
        try:
            found = bundle.take(need, wanted)
        except NotOffered:
            assert bundle.amounts == before
            continue
        got = sum_of(found)
        for kind in Resources.KINDS:
            more = getattr(got, kind) - getattr(need, kind)
            assert 0 <= more < UNIT // 1000, "not less than it needs, and less than one part more"
        assert _open(found) == sorted(wanted)
        taken += found
    assert sum_of(taken) + bundle.amounts == sum_of(entries)
    used = [port for entry in taken for port in _open([entry])]
    assert len(used) == len({*used}) and {*used} <= {*_open(entries)}
    left = sorted({*_open(entries)} - {*used})
    bundle.take(Resources(), left)
