"""What hosts make of changes of runs that go on; reports are made by hand."""

from __future__ import annotations

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.live.live_messages import ChangeSeen, ChangesNoted, RunChange, RunsChanged
from peloton.actors.host.state import Host
from peloton.actors.task.messages import pod_id
from peloton.actors.task.run_messages import ContainerEnd, LiveRun, RunChanged
from tests.actors.hosts import test_host as hosts

WELL, ILL = LiveRun(True), LiveRun(False)
PREPARES = LiveRun(containers=(ContainerEnd("first", True, 1.0), ContainerEnd("web")))
UNCHECKED = LiveRun(text="why", unchecked=True, ungated=True)


def host_with(*members: int) -> Host:
    host: Host = hosts.receive(hosts.up(), m.Launch(1, hosts.SPEC), *members).state
    return host


def name(member: int) -> str:
    return pod_id(hosts.CROWD, member, run=1)


def test_alike_changes_are_one_message_and_told_from_the_first_container_on() -> None:
    """A pod has not started before all of its containers have."""
    changes = [
        RunChange(name(0), 5, PREPARES), RunChange(name(1), 5, PREPARES),
        RunChange(name(2), 6, UNCHECKED), RunChange(name(3), 7, WELL),
    ]  # fmt: skip
    turn = hosts.receive(host_with(0, 1, 2, 3), RunsChanged(tuple(changes)))
    assert not turn.facts
    assert hosts.replies(turn) == [
        (RunChanged(1, 5, PREPARES), [0, 1]),
        (RunChanged(1, 6, UNCHECKED), [2]),
        (RunChanged(1, 7, WELL), [3]),
    ]


def test_of_a_run_that_is_to_end_only_the_containers_are_told() -> None:
    host = hosts.receive(host_with(0, 1), m.KillRun(1, 5.0), 0, 1).state
    both = LiveRun(False, containers=PREPARES.containers)
    changes = RunChange(name(0), 5, both), RunChange(name(1), 6, ILL)
    turn = hosts.receive(host, RunsChanged(changes))
    told, noted = (send.message for send in turn.sends)
    assert told == RunChanged(1, 5, PREPARES)
    assert noted == ChangesNoted(hosts.HOST, (name(1),), 6)


@pytest.mark.parametrize("live", [WELL, PREPARES])
def test_what_concerns_nobody_is_answered_by_the_host(live: LiveRun) -> None:
    host = host_with(0)
    host = hosts.receive(host, m.RunsEnded((m.RunEnd(name(0), hosts.DONE),))).state
    changes = RunChange(name(0), 5, live), RunChange("odd", 7, live), RunChange("other", 7, live)
    turn = hosts.receive(host, RunsChanged(changes))
    assert [send.message for send in turn.sends] == [
        ChangesNoted(hosts.HOST, (name(0),), 5),
        ChangesNoted(hosts.HOST, ("odd", "other"), 7),
    ]


def test_what_tasks_have_seen_the_backend_is_told() -> None:
    (send,) = hosts.receive(host_with(0, 1), ChangeSeen(1, 5), 0, 1).sends
    assert send.to == hosts.BACKEND
    assert send.message == ChangesNoted(hosts.HOST, (name(0), name(1)), 5)
