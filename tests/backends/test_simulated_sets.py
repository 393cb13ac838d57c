"""Simulated runs that are known from a ledger as sets: the same as if each was named."""

from __future__ import annotations

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.live.live_messages import KnownSet
from peloton.actors.host.messages import ListRuns, RunsEnded, RunsListed
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.resources import Resources
from peloton.actors.task.messages import End, pod_id
from peloton.backends.simulated import RunScript, SimulatedBackend
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Bits, Key, Message, key

HOST, CROWD = key("host", "h"), Key("task/j/1")
SPEC = RunSpec(Resources(), "true")
SETS = (KnownSet(CROWD, 1, Bits.of(0, 1), 5.0), KnownSet(CROWD, 2, Bits.of(1), 7.0))
SINGLE = tuple(
    KnownSet(CROWD, known.run, Bits.of(member), known.since)
    for known in SETS
    for member in known.members
)


def backend(**script: float) -> SimulatedBackend:
    return SimulatedBackend(["h"], RunScript(seed=3, duration_s=10.0, **script))  # type: ignore[arg-type]


def tell(one: SimulatedBackend, *orders: Message, now: float = 8.0) -> list[Message]:
    """The reports about orders, in order."""
    out = one.receive([Envelope(key("backend", "simulated"), order) for order in orders], now)
    return [each.message for each in out if isinstance(each, Envelope)]


def listing(*sets: KnownSet, at: float = 8.0) -> ListRuns:
    return ListRuns(HOST, 1, at, sets)


def pod(member: int, run: int = 1) -> str:
    return pod_id(CROWD, member, run=run)


@pytest.mark.parametrize("spread", [0.0, 0.7])
def test_sets_end_when_and_as_their_members_one_by_one_would(spread: float) -> None:
    named, sets = backend(spread=spread, failing=0.5), backend(spread=spread, failing=0.5)
    tell(named, listing(*SINGLE))
    tell(sets, listing(*SETS))
    ends: list[dict[str, m.RunEnd]] = []
    for one in (named, sets):
        assert one.wake_at is not None and one.wake_at >= 15.0
        times: dict[str, float] = {}
        found: dict[str, m.RunEnd] = {}
        while (wake := one.wake_at) is not None:
            for report in tell(one, now=wake):
                assert isinstance(report, RunsEnded)
                found |= {end.run: end for end in report.ends}
                times |= dict.fromkeys((end.run for end in report.ends), wake)
        ends.append(found | {f"{run} at {at}": found[run] for run, at in times.items()})
    assert ends[0] == ends[1] and len(ends[0]) == 6


def test_a_list_names_what_was_adopted_as_sets() -> None:
    one = backend()
    (listed,) = tell(one, listing(*SETS))
    assert isinstance(listed, RunsListed) and (listed.running, listed.asked_at) == ((), 8.0)
    assert listed.sets == tuple(m.RunningSet(s.crowd, s.run, s.members) for s in SETS)
    (again,) = tell(one, ListRuns(HOST, 1, 9.0))
    assert isinstance(again, RunsListed) and again.sets == listed.sets, "named by nobody"


def test_what_runs_under_its_name_is_not_adopted_a_second_time() -> None:
    one = backend()
    tell(one, m.StartRuns(HOST, 1, (m.StartRun(pod(0), SPEC),)))
    (listed,) = tell(one, listing(SETS[0]))
    assert isinstance(listed, RunsListed) and listed.running == (pod(0),)
    assert listed.sets == (m.RunningSet(CROWD, 1, Bits.of(1)),)
    ended = [end.run for r in tell(one, now=99.0) if isinstance(r, RunsEnded) for end in r.ends]
    assert sorted(ended) == [pod(0), pod(1)]


def test_a_run_of_a_set_is_started_once_and_stopped_alone() -> None:
    one = backend()
    tell(one, listing(*SETS))
    again = m.StartRuns(HOST, 1, (m.StartRun(pod(0), SPEC),))
    assert tell(one, again) == [m.RunsStarted((pod(0),))]
    (stopped,) = tell(one, m.StopRuns(HOST, 1, (pod(0),), 1.0))
    assert isinstance(stopped, RunsEnded)
    assert [(end.run, end.outcome.end) for end in stopped.ends] == [(pod(0), End.KILLED)]
    (listed,) = tell(one, listing(*SETS))
    assert isinstance(listed, RunsListed) and [end.run for end in listed.ends] == [pod(0)]
    assert listed.sets[0].members == Bits.of(1)
    ended = [end.run for r in tell(one, now=99.0) if isinstance(r, RunsEnded) for end in r.ends]
    assert sorted(ended) == [pod(1), pod(1, run=2)], "and the one that was killed only then"


def test_after_a_reset_nothing_of_a_set_is_left() -> None:
    one = backend()
    tell(one, listing(*SETS))
    one.reset()
    *_, listed = tell(one, ListRuns(HOST, 1, 9.0))
    assert listed == RunsListed((), (), 9.0)
