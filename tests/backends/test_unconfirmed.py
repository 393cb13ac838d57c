"""When the last change of a run is told again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peloton.backends.unconfirmed import REPEAT_S, Unconfirmed


def test_a_change_is_told_at_its_time_and_again_until_it_is_confirmed() -> None:
    told = Unconfirmed[str, int]()
    told.put("h", "r", change=1)
    assert not told.awaits("r") and told.wake_at is None and told.due(0.0) == {}
    told.tell_at("r", 1.0)
    assert told.awaits("r") and told.wake_at == 1.0
    assert told.due(0.5) == {} and told.due(1.0) == {"h": [1]}
    assert told.due(1.0) == {} and told.wake_at == 1.0 + REPEAT_S
    assert told.due(1.0 + REPEAT_S) == {"h": [1]}
    told.confirm("r")
    assert not told.awaits("r") and told.last("r") == 1
    assert told.due(1000.0) == {} and told.wake_at is None


def test_a_new_change_takes_the_place_of_the_last_and_its_time() -> None:
    told = Unconfirmed[str, int]()
    told.put("h", "r", change=1)
    told.tell_at("r", 1.0)
    told.put("i", "r", change=2)
    assert told.due(1.0) == {}
    told.tell_at("r", 2.0)
    assert told.due(2.0) == {"i": [2]}


def test_a_run_is_told_once_at_a_time_however_often_that_was_set() -> None:
    told = Unconfirmed[str, int]()
    told.put("h", "r", change=1)
    told.tell_at("r", 1.0)
    assert told.due(1.0) == {"h": [1]}
    told.confirm("r")
    for when in (3.0, 3.0, 2.0):  # the last one counts
        told.tell_at("r", when)
    assert [told.due(now) for now in (2.0, 3.0, 1.0 + REPEAT_S)] == [{"h": [1]}, {}, {}]
    assert told.due(2.0 + REPEAT_S) == {"h": [1]}


def test_runs_that_nobody_knows_are_passed_over() -> None:
    told = Unconfirmed[str, int]()
    told.put("h", "r", change=1)
    told.tell_at("r", 1.0)
    told.drop("r")
    for run in ("r", "s"):
        told.tell_at(run, 2.0)
        told.confirm(run)
        told.drop(run)
        assert told.last(run) is None and not told.awaits(run)
    assert told.wake_at == 1.0 and told.due(5.0) == {}


@given(st.lists(st.tuples(st.sampled_from("rst"), st.sampled_from("gh"), st.integers(0, 5))))
def test_the_last_change_of_each_run_is_told_by_its_host_and_time(
    changes: list[tuple[str, str, int]],
) -> None:
    told, last = Unconfirmed[str, int](), dict[str, tuple[int, int, str]]()
    for place, (run, host, when) in enumerate(changes):
        told.put(host, run, change=place)
        told.tell_at(run, float(when))
        last[run] = when, place, host
    for now in range(7):
        expected: dict[str, list[int]] = {}
        for when, place, host in last.values():
            if when == now:
                expected.setdefault(host, []).append(place)
        found = told.due(float(now))
        assert {host: sorted(of) for host, of in found.items()} == {
            host: sorted(of) for host, of in expected.items()
        }
