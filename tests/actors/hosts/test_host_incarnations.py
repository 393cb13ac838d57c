"""A machine that comes back as another one under the same name: what may be started there."""

from __future__ import annotations

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.stages import HostStates, RunPhase
from peloton.actors.host.state import Host
from peloton.actors.task import messages as t
from peloton.actors.task.messages import End
from peloton.runtime.vocabulary import Message
from tests.actors.hosts.test_host import BACKEND, ROOM, SPEC, orders, pod, receive, replies


def at(incarnation: str = "X", *runs: int) -> Host:
    """A host that is up and was compared with this machine, with these runs accepted at 9."""
    host = receive(None, m.ConfigureHost(ROOM, (), BACKEND)).state
    host = receive(host, m.BackendUp(), now=1.0).state
    host = receive(host, listed(incarnation, asked_at=1.0), now=1.0).state
    for one in runs:
        host = receive(host, m.Launch(1, SPEC), one).state
    return host  # type: ignore[no-any-return]


def listed(incarnation: str, *running: int, asked_at: float = 20.0) -> m.RunsListed:
    names = tuple(pod(one) for one in running)
    return m.RunsListed(names, (), asked_at, incarnation=incarnation)


def told(some: list[tuple[Message, list[int]]]) -> list[tuple[End, list[int]]]:
    return [(each.outcome.end, who) for each, who in some if isinstance(each, t.Ended)]


def test_an_order_names_the_machine_that_the_host_was_compared_with() -> None:
    (order,) = orders(receive(at("X"), m.Launch(1, SPEC), 0))
    assert isinstance(order, m.StartRuns) and order.incarnation == "X"


@pytest.mark.parametrize("up", [True, False])
def test_what_another_machine_may_have_begun_is_lost_and_not_ordered_again(up: bool) -> None:
    host = at("X", 0, 1)
    if not up:
        host = receive(receive(host, m.BackendDown()).state, m.BackendUp()).state
    turn = receive(host, listed("Y", 1), now=20.0)
    assert told(replies(turn)) == [(End.LOST, [0])] and orders(turn) == []
    host = turn.state
    assert host.runs[pod(0)].phase == RunPhase.ENDED and host.state == HostStates.UP
    assert host.runs[pod(1)].phase == RunPhase.STARTED and host.incarnation == "Y"
    (order,) = orders(receive(host, m.Launch(2, SPEC), 0, now=21.0))
    assert isinstance(order, m.StartRuns) and order.incarnation == "Y"


def test_of_the_same_machine_an_order_that_was_lost_is_given_again() -> None:
    turn = receive(at("X", 0), listed("X"), now=20.0)
    (order,) = orders(turn)
    assert isinstance(order, m.StartRuns) and [run.run for run in order.runs] == [pod(0)]
    assert order.incarnation == "X" and turn.state.incarnation == "X"


def test_nothing_is_started_at_a_machine_that_is_not_journaled_yet() -> None:
    """The next list might be that of another machine, and nobody would know."""
    host = at("", 0)
    turn = receive(host, listed("X", 7), now=20.0)  # nobody owns 7: not all is judged
    assert turn.state.incarnation == ""
    assert [type(each) for each in orders(turn)] == [m.StopRuns]
    turn = receive(turn.state, listed("X", asked_at=30.0), now=30.0)
    (order,) = orders(turn)
    assert isinstance(order, m.StartRuns) and order.incarnation == "X"
    assert turn.state.incarnation == "X"


def test_the_first_machine_that_names_itself_gets_what_was_lost() -> None:
    """Of a new host nobody knows yet which machine it is."""
    turn = receive(at("", 0), listed("X"), now=20.0)
    (order,) = orders(turn)
    assert isinstance(order, m.StartRuns) and order.incarnation == "X" == turn.state.incarnation
    assert not receive(turn.state, listed("X", 0, asked_at=30.0), now=30.0).state.because


def test_another_machine_is_taken_only_once_all_runs_were_judged_by_its_list() -> None:
    """The run was accepted in the very moment of the question, perhaps by the owner before."""
    host = at("X", 0)
    for state in (host, receive(receive(host, m.BackendDown()).state, m.BackendUp()).state):
        waits = receive(state, listed("Y", asked_at=9.0), now=9.5).state
        assert waits.incarnation == "X" and waits.runs[pod(0)].phase == RunPhase.ACCEPTED
        turn = receive(waits, listed("Y"), now=20.0)
        assert told(replies(turn)) == [(End.LOST, [0])] and orders(turn) == []


def test_another_machine_is_taken_only_once_nothing_runs_there_that_nobody_owns() -> None:
    host = receive(receive(at("X", 0), m.BackendDown()).state, m.BackendUp()).state
    turn = receive(host, listed("Y", 5), now=20.0)
    assert turn.state.incarnation == "X" and turn.state.state == HostStates.RECONCILING
    assert told(replies(turn)) == [(End.LOST, [0])]
    assert receive(turn.state, listed("Y", asked_at=30.0), now=30.0).state.incarnation == "Y"


def test_a_room_that_is_prepared_is_kept_as_no_machine_knows_of_it() -> None:
    host = receive(at("X"), m.Launch(1, SPEC, prepare=True), 0).state
    host = receive(host, listed("Y"), now=20.0).state
    assert host.runs[pod(0)].phase == RunPhase.PREPARED
    (order,) = orders(receive(host, m.Launch(1, SPEC), 0, now=21.0))
    assert isinstance(order, m.StartRuns) and order.incarnation == "Y"
