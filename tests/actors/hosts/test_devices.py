"""Gpus of a host: whole devices by index, no device twice at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from peloton.actors.host import messages as m
from peloton.actors.host.devices import (
    NO_DEVICE,
    devices_wanted,
    free_devices,
    with_devices,
)
from peloton.actors.host.holds import hold_messages as hm
from peloton.actors.host.kind import kind
from peloton.actors.host.run_spec import Port, RunSpec
from peloton.actors.host.stages import OCCUPYING
from peloton.actors.host.state import Host
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task import messages as t
from peloton.actors.task.messages import End, RunOutcome
from peloton.placement.filters import HostWant
from peloton.runtime.core.turning.turn import TurnOutcome as Turn
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Key, Message

KIND = kind(8)
HOST, BACKEND, JOB = Key("host/h"), Key("backend/b"), "0" * 36
ONE, TWO = Key(f"task/{JOB}/0"), Key(f"task/{JOB}/1")
DONE = RunOutcome(End.SUCCEEDED, 0)
GPU = RunSpec(Resources(UNIT, 0, 0, UNIT), "true")
PAIR = replace(GPU, resources=Resources(UNIT, 0, 0, 2 * UNIT))
CPU = replace(GPU, resources=Resources(UNIT))


def receive(host: Host | None, message: Message, *members: int, crowd: Key = ONE) -> Turn:
    some = Bits.of(*members) if members else None
    at = At(now=9.0, key=HOST, sender=crowd, members=some, epoch=3)
    return take_turn(KIND, host, message=message, at=at)


def sized(gpus: int) -> m.ConfigureHost:
    return m.ConfigureHost(Resources(90 * UNIT, 0, 0, gpus * UNIT), (), BACKEND)


def up(gpus: int = 4) -> Host:
    host = receive(None, sized(gpus)).state
    host = receive(host, m.BackendUp(), crowd=BACKEND).state
    return receive(host, m.RunsListed(()), crowd=BACKEND).state  # type: ignore[no-any-return]


def ended(host: Host, *members: int, crowd: Key = ONE) -> Host:
    ends = tuple(m.RunEnd(t.pod_id(crowd, member, run=1), DONE) for member in members)
    return receive(host, m.RunsEnded(ends), crowd=BACKEND).state  # type: ignore[no-any-return]


def devices(host: Host) -> dict[str, tuple[int, ...]]:
    """Of each run that holds any, without the id of its job."""
    return {pod[37:]: run.devices for pod, run in host.runs.items() if run.devices}


def starts(turn: Turn) -> list[tuple[int, ...] | None]:
    orders = (send.message for send in turn.sends if isinstance(send.message, m.StartRuns))
    return [run.devices for order in orders for run in order.runs]


def reasons(turn: Turn) -> list[str]:
    return [s.message.reason for s in turn.sends if isinstance(s.message, t.RunRefused)]


def test_each_run_gets_the_lowest_devices_that_are_free() -> None:
    turn = receive(up(), m.Launch(1, PAIR), 0)
    assert starts(turn) == [(0, 1)]
    turn = receive(turn.state, m.Launch(1, GPU), 0, 1, 2, crowd=TWO)
    assert starts(turn) == [(2,), (3,)]
    assert reasons(turn) == ["insufficient resources on the host: gpu"]
    assert [*devices(turn.state).values()] == [(0, 1), (2,), (3,)]


def test_a_device_is_free_again_after_the_end() -> None:
    host = receive(up(2), m.Launch(1, GPU), 0, 1).state
    host = ended(host, 0)
    assert starts(receive(host, m.Launch(1, GPU), 5)) == [(0,)]


def test_a_repeated_launch_takes_no_second_device() -> None:
    host = receive(up(2), m.Launch(1, GPU), 0).state
    again = receive(host, m.Launch(1, GPU), 0)
    assert not again.facts and devices(again.state) == devices(host)


def test_a_run_without_gpus_sees_none_where_there_are_some() -> None:
    assert starts(receive(up(2), m.Launch(1, CPU), 0)) == [()]
    assert starts(receive(up(0), m.Launch(1, CPU), 0)) == [None]


def test_an_order_that_was_lost_is_given_again_with_the_same_devices() -> None:
    host = receive(up(2), m.Launch(1, GPU), 0, 1).state
    host = ended(host, 0)
    turn = receive(host, m.RunsListed((), asked_at=99.0), crowd=BACKEND)
    assert starts(turn) == [(1,)]
    turn = receive(receive(up(2), m.Launch(1, CPU), 0).state, m.RunsListed((), asked_at=99.0))
    assert starts(turn) == [()]


def test_a_machine_with_fewer_devices_gives_no_more_than_it_has() -> None:
    host = receive(up(4), m.Launch(1, GPU), 0, 1, 2, 3).state
    host = receive(ended(host, 0, 1), sized(3)).state
    turn = receive(host, m.Launch(1, GPU), 7, 8)
    assert starts(turn) == [(0,)], "device 3 is held, and gone"
    assert len(reasons(turn)) == 1
    host = receive(ended(turn.state, 3, 7), sized(2)).state
    assert starts(receive(host, m.Launch(1, GPU), 9)) == [(0,)]


def test_a_fraction_takes_a_whole_device() -> None:
    half = replace(GPU, resources=Resources(UNIT, 0, 0, UNIT // 2))
    turn = receive(up(2), m.Launch(1, half), 0, 1, 2)
    assert starts(turn) == [(0,), (1,)]
    assert reasons(turn) == [NO_DEVICE]
    assert [devices_wanted(Resources(0, 0, 0, n)) for n in (0, 1, UNIT, UNIT + 1, 2 * UNIT)] == [
        *(0, 0, 1, 1, 2)
    ], "within the epsilon of a whole number it is that"


def test_ports_and_devices_are_of_the_same_run() -> None:
    both = replace(GPU, ports=(Port("web", 0, "WEB"),))
    turn = receive(up(2), m.Launch(1, both), 0, 1)
    assert starts(turn) == [(0,), (1,)]
    assert [len(run.ports) for _, run in turn.state.runs.items()] == [1, 1]


def test_runs_on_a_hold_get_devices_too() -> None:
    host = receive(up(2), m.Launch(1, GPU), 0).state
    want = HostWant(GPU.resources)
    host = receive(host, hm.HoldHost("h", "me", 60.0, want)).state
    turn = receive(host, hm.LaunchForeign("h", (hm.ForeignRun("a", GPU),)))
    assert starts(turn) == [(1,)]
    assert not free_devices(turn.state)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(0, 3), st.integers(1, 4)),
            st.tuples(st.just("end"), st.integers(0, 30), st.just(0)),
        ),
        max_size=30,
    )
)
def test_no_device_is_held_twice_whatever_happens(steps: list[tuple[str, int, int]]) -> None:
    host, number = up(5), 0
    reference: dict[int, set[int]] = {}
    for what, which, count in steps:
        if what == "take":
            spec = replace(GPU, resources=Resources(0, 0, 0, which * UNIT))
            members = range(number, number + count)
            number += count
            host = receive(host, m.Launch(1, spec), *members).state
            for member in members:
                free = sorted({*range(5)} - {one for some in reference.values() for one in some})
                if len(free) < which:
                    break
                reference[member] = {*free[:which]}
        elif which in reference:
            host = ended(host, which)
            del reference[which]
        held = {
            member: {*some.devices}
            for _, some in host.runs.sets()
            for member in some.members
            if some.phase in OCCUPYING
        }
        assert held == reference


@given(st.sets(st.integers(0, 9)), st.integers(0, 4), st.integers(1, 5))
def test_members_share_nothing(there: set[int], each: int, count: int) -> None:
    free = sorted(there)
    some, found = with_devices(free, Bits.span(0, count), need=Resources(0, 0, 0, each * UNIT))
    given_out = [device for devices in found for device in devices]
    assert sorted([*given_out, *free]) == sorted(there)
    assert len(some) == len(found) and {len(one) for one in found} <= {each}
