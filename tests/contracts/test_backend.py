"""The contract of backends, run on each: what `peloton/backends/port.py` says in words.

The rigs know how a backend is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest
from msgspec.structs import replace

from peloton.actors.host import messages as m
from peloton.actors.host.kind import MESSAGES
from peloton.actors.host.machine_messages import AddHost, HostUse, RemoveHost, SetUse, UseSet
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.task.messages import End
from peloton.backends import port
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import Key, Refused, kind_of
from tests.backends.known_sets import known_sets, names_listed
from tests.contracts.backend_rigs import RIGS, begun
from tests.contracts.backends import (
    CAPACITY,
    HOST,
    NEW,
    OTHER,
    BackendRig,
    Exempt,
    pod,
    run,
)

LABELS = (Label("rack", "r7"),)
PORTS = (40000, 40010)
APPEARS = AddHost(NEW, CAPACITY, LABELS, PORTS)


with_containers = pytest.mark.parametrize("rig", RIGS, indirect=True)
"""Of what may differ where each run is a container: all else, the backend of processes does."""


@pytest.fixture(params=[name for name in RIGS if name != "container"])
def rig(request: pytest.FixtureRequest) -> Iterator[BackendRig]:
    yield from begun(request)


def listed(rig: BackendRig, *known: str, epoch: int = 1) -> tuple[list[str], dict[str, End]]:
    """What runs, and how what has ended did; `known` is what the ledger takes for running."""
    rig.order(m.ListRuns(HOST, epoch, 7.0, known_sets(*known)))
    answer = rig.next_report(m.RunsListed)
    assert answer.asked_at == 7.0
    return names_listed(answer), {end.run: end.outcome.end for end in answer.ends}


def test_every_message_of_the_port_has_a_number() -> None:
    ordered = {*get_args(port.Order), *get_args(port.HostsOrder)}
    assert ordered == {*m.BACKEND_MESSAGES.values()}
    assert {*get_args(port.Report)} <= {*MESSAGES.values()}


def test_it_has_an_address_of_its_own(rig: BackendRig) -> None:
    assert kind_of(rig.backend.key) == rig.kind


def test_every_host_is_told_that_it_can_ask(rig: BackendRig) -> None:
    rig.order(m.PingBackend(HOST), m.PingBackend(OTHER))
    rig.next_report(m.BackendUp)
    rig.next_report(m.BackendUp, OTHER)


def test_who_shares_its_machine_with_nobody_says_so_at_once_also_of_one_that_left(
    rig: BackendRig,
) -> None:
    if Exempt.SHARED_MACHINES in rig.exempt:
        # What it does with a machine of others is in tests/adapters; this one stays in use.
        rig.order(SetUse(HOST, 1, HostUse.IN_USE, 1))
        assert rig.next_report(UseSet).number == 1
        return
    rig.order(SetUse(HOST, 1, HostUse.DRAINING, 1), SetUse(HOST, 1, HostUse.OUT_OF_USE, 2))
    assert [rig.next_report(UseSet), rig.next_report(UseSet)] == [UseSet(1), UseSet(2)]
    rig.order(RemoveHost(HOST, "unplugged"))
    rig.order(SetUse(HOST, 1, HostUse.IN_USE, 3))
    assert rig.next_report(UseSet) == UseSet(3)


@with_containers
def test_several_containers_start_and_end_as_one_run(rig: BackendRig) -> None:
    rig.order(m.StartRuns(HOST, 1, (pod("r-0-1", 0.01, 3), pod("r-1-1", 0.01))))
    if rig.contains:
        ends = rig.ends("r-0-1", "r-1-1")
        assert {end.outcome.end for end in ends.values()} == {End.FAILED}
        assert "none of a pod with several containers" in ends["r-0-1"].outcome.message
        return
    ends = rig.ends("r-0-1", "r-1-1")
    failed, well = ends["r-0-1"].outcome, ends["r-1-1"].outcome
    if Exempt.PODS in rig.exempt:
        assert failed.end == well.end == End.FAILED, "refused, and not started without the others"
        assert "init containers" in failed.message
        assert not [one for _, one in rig.reports if isinstance(one, m.RunsStarted)]
        return
    assert (failed.end, failed.exit_code) == (End.FAILED, 3)
    assert (well.end, well.exit_code) == (End.SUCCEEDED, 0)
    told = [one.runs for _, one in rig.reports if isinstance(one, m.RunsStarted)]
    assert sorted(name for names in told for name in names) == ["r-0-1", "r-1-1"]


@with_containers
def test_a_run_is_started_and_ends_with_its_exit_code(rig: BackendRig) -> None:
    rig.order(m.StartRuns(HOST, 1, (run("r-0-1", 0.01, 3), run("r-1-1", 0.01))))
    while "r-0-1" not in rig.next_report(m.RunsStarted).runs:
        pass
    ends = rig.ends("r-0-1", "r-1-1")
    failed, well = ends["r-0-1"].outcome, ends["r-1-1"].outcome
    assert (failed.end, failed.exit_code) == (End.FAILED, 3)
    assert (well.end, well.exit_code) == (End.SUCCEEDED, 0)


@with_containers
def test_a_launch_that_comes_twice_is_one_run(rig: BackendRig) -> None:
    order = m.StartRuns(HOST, 1, (run("r-0-1"),))
    rig.order(order, order)
    rig.next_report(m.RunsStarted)
    assert listed(rig, "r-0-1") == (["r-0-1"], {})
    rig.order(order)
    assert rig.next_report(m.RunsStarted).runs == ("r-0-1",)
    rig.order(m.StopRuns(HOST, 1, ("r-0-1",), 5.0))
    end = rig.ends("r-0-1")["r-0-1"]
    rig.order(order)
    assert rig.ends("r-0-1")["r-0-1"] == end, "known to have ended: not started again"
    assert listed(rig, "r-0-1") == ([], {"r-0-1": End.KILLED})


def test_orders_of_an_older_epoch_are_not_obeyed(rig: BackendRig) -> None:
    rig.order(m.StartRuns(HOST, 2, (run("r-0-1"),)))
    rig.next_report(m.RunsStarted)
    rig.order(
        m.StartRuns(HOST, 1, (run("old-0-1"),)),
        m.StopRuns(HOST, 1, ("r-0-1",), 0.0),
        m.ListRuns(HOST, 1, 1.0),
    )
    assert listed(rig, "r-0-1", epoch=2) == (["r-0-1"], {})
    messages = [message for _, message in rig.reports]
    assert not [each for each in messages if isinstance(each, m.RunsEnded)]
    assert [each.asked_at for each in messages if isinstance(each, m.RunsListed)] == [7.0]
    rig.order(m.StartRuns(HOST, 3, (run("new-0-1"),)))
    rig.next_report(m.RunsStarted)
    assert listed(rig, "r-0-1", "new-0-1", epoch=3) == (["new-0-1", "r-0-1"], {})


def test_an_older_epoch_is_one_of_its_own_host_only(rig: BackendRig) -> None:
    rig.order(m.ListRuns(OTHER, 9), m.StartRuns(HOST, 1, (run("r-0-1"),)))
    rig.next_report(m.RunsStarted)


@with_containers
def test_a_kill_is_answered_by_the_end_and_so_is_its_repeat(rig: BackendRig) -> None:
    rig.order(m.StartRuns(HOST, 1, (run("r-0-1"),)), m.StartRuns(HOST, 1, (run("r-1-1"),)))
    while "r-0-1" not in rig.next_report(m.RunsStarted).runs:
        pass
    kill = m.StopRuns(HOST, 1, ("r-0-1",), 5.0)
    rig.order(kill)
    end = rig.ends("r-0-1")["r-0-1"]
    assert end.outcome.end == End.KILLED and end.outcome.signal == rig.killed_by
    rig.order(kill)
    assert rig.ends("r-0-1")["r-0-1"] == end
    assert listed(rig, "r-0-1", "r-1-1") == (["r-1-1"], {"r-0-1": End.KILLED})


def test_after_a_kill_of_an_unknown_run_the_host_compares(rig: BackendRig) -> None:
    """A list of the backend's own would have no time that is right: runs may just be ordered."""
    rig.order(m.StartRuns(HOST, 1, (run("r-0-1"),)))
    rig.next_report(m.RunsStarted)
    assert listed(rig, "r-0-1") == (["r-0-1"], {})
    before = len(rig.reports)
    rig.order(m.StopRuns(HOST, 1, ("lost-0-1",), 5.0))
    rig.next_report(m.BackendUp)
    assert not any(isinstance(report, m.RunsListed) for _, report in rig.reports[before:])
    assert listed(rig, "r-0-1") == (["r-0-1"], {})


@with_containers
def test_what_ran_is_listed_by_the_next_daemon(rig: BackendRig) -> None:
    rig.order(m.StartRuns(HOST, 1, (run("r-0-1"), run("r-1-1", 0.01))))
    rig.ends("r-1-1")
    rig.reconnect()
    rig.next_report(m.BackendUp)
    rig.now = 5.0
    running, ends = listed(rig, "r-0-1", "r-1-1", epoch=2)
    assert "r-0-1" in running
    if "r-1-1" not in ends:  # may follow the list
        ends = {name: end.outcome.end for name, end in rig.ends("r-1-1").items()}
    assert ends["r-1-1"] == End.SUCCEEDED


@with_containers
def test_a_kill_that_comes_before_the_next_daemon_has_compared_is_not_lost(
    rig: BackendRig,
) -> None:
    """It ends the run, or makes the host compare; never is the run denied and left running."""
    rig.order(m.StartRuns(HOST, 1, (run("r-0-1"),)))
    rig.next_report(m.RunsStarted)
    rig.reconnect()
    rig.next_report(m.BackendUp)
    before = len(rig.reports)
    rig.order(m.StopRuns(HOST, 2, ("r-0-1",), 5.0))
    if any(isinstance(report, m.BackendUp) for _, report in rig.reports[before:]):
        assert listed(rig, "r-0-1", epoch=2) == (["r-0-1"], {})
        rig.order(m.StopRuns(HOST, 2, ("r-0-1",), 5.0))
    assert rig.ends("r-0-1")["r-0-1"].outcome.end == End.KILLED
    lists = [report for _, report in rig.reports[before:] if isinstance(report, m.RunsListed)]
    assert all("r-0-1" in names_listed(each) for each in lists)


@with_containers
def test_an_end_is_listed_until_it_is_forgotten(rig: BackendRig) -> None:
    rig.order(m.StartRuns(HOST, 1, (run("r-0-1", 0.01, 3),)))
    end = rig.ends("r-0-1")["r-0-1"]
    for _ in range(2):
        rig.order(m.ListRuns(HOST, 1, sets=known_sets("r-0-1")))
        (again,) = rig.next_report(m.RunsListed).ends
        assert replace(again, started_at=end.started_at) == end, "it may tell of the start as well"
    rig.order(m.ForgetRuns(HOST, ("r-0-1", "never-0-1")))
    assert listed(rig) == ([], {})


def test_a_host_that_appears_is_reported_until_it_gives_an_order(rig: BackendRig) -> None:
    if Exempt.CONFIGURED_HOSTS in rig.exempt:
        return  # `reconnect` has waited for them, and the next test has one that comes back
    rig.order(APPEARS)
    appeared = m.HostAppeared(CAPACITY, LABELS, rig.backend.key, PORTS)
    assert rig.next_report(m.HostAppeared, NEW) == appeared
    rig.wake()
    assert rig.next_report(m.HostAppeared, NEW) == appeared, "its shard may have been on its way"
    rig.order(m.ListRuns(NEW, 1))
    rig.next_report(m.RunsListed, NEW)
    rig.order(m.StartRuns(NEW, 1, (run("r-0-1", 0.01),)))
    assert rig.ends("r-0-1", to=NEW)["r-0-1"].outcome.end == End.SUCCEEDED
    while rig.backend.wake_at is not None:
        rig.wake()
    assert [to for to, report in rig.reports if isinstance(report, m.HostAppeared)] == [NEW, NEW]


def test_a_host_that_left_gets_nothing_done_and_is_told_so(rig: BackendRig) -> None:
    rig.order(m.StartRuns(HOST, 1, (run("r-0-1"),)))
    rig.next_report(m.RunsStarted)
    rig.take_away(HOST)
    assert rig.next_report(m.BackendDown).text == rig.left_text
    for order in (
        m.PingBackend(HOST),
        m.ListRuns(HOST, 1),
        m.StartRuns(HOST, 1, (run("late-0-1"),)),
        m.StopRuns(HOST, 1, ("r-0-1",), 0.0),
    ):
        rig.order(order)
        assert rig.next_report(m.BackendDown).text == rig.left_text
    before = len(rig.reports)
    rig.backend.reset()
    rig.order(m.PingBackend(OTHER))
    rig.next_report(m.BackendUp, OTHER)
    assert not [to for to, _ in rig.reports[before:] if to == HOST], "up is not for all"
    rig.bring_back(HOST)
    assert rig.next_report(m.HostAppeared).capacity == rig.capacity
    assert listed(rig, "r-0-1") == (["r-0-1"], {}), "it came back with what it ran"


def test_in_a_fleet_no_machine_is_added_or_removed(rig: BackendRig) -> None:
    """The host may live at another daemon, whose backend would not learn of it: it would be
    reported for ever, or come back with the next ping."""
    if Exempt.CONFIGURED_HOSTS in rig.exempt:
        for order in (APPEARS, RemoveHost(HOST, "unplugged")):
            refused = rig.ask(order)
            assert isinstance(refused, Refused) and "are the agents" in refused.text
        return
    assert rig.ask(APPEARS) is None
    rig.order(m.ListRuns(NEW, 1))
    rig.next_report(m.RunsListed, NEW)
    rig.backend.rename("m1", number=0, count=1)  # as the shell does in a fleet
    before = len(rig.reports)
    for order in (AddHost(Key("host/newer"), CAPACITY), RemoveHost(HOST, "unplugged")):
        refused = rig.ask(order)
        assert isinstance(refused, Refused) and "only at a daemon that is alone" in refused.text
        rig.order(order)  # without an answer it does as little
    told = [type(report) for _, report in rig.reports[before:]]
    assert m.HostAppeared not in told and m.BackendDown not in told
    rig.order(m.PingBackend(HOST))
    rig.next_report(m.BackendUp)


def test_a_run_that_ended_while_its_host_was_gone_is_told_when_it_is_back(
    rig: BackendRig,
) -> None:
    other = m.StartRuns(OTHER, 1, (run("o-0-1", 0.5),))
    if Exempt.CONFIGURED_HOSTS in rig.exempt:  # nor does a machine leave between two orders
        rig.order(m.StartRuns(HOST, 1, (rig.gated("r-0-1"),)))
        rig.next_report(m.RunsStarted)
        rig.take_away(HOST)
        rig.next_report(m.BackendDown)
        rig.open_gate("r-0-1")
        rig.order(other)
    else:
        rig.order(m.StartRuns(HOST, 1, (run("r-0-1", 0.05),)), RemoveHost(HOST), other)
    rig.ends("o-0-1", to=OTHER)
    assert not [to for to, report in rig.reports if to == HOST and isinstance(report, m.RunsEnded)]
    rig.bring_back(HOST)
    rig.next_report(m.HostAppeared)
    running, ends = listed(rig, "r-0-1")
    if running:  # a machine that is busy with other things
        ends = {name: end.outcome.end for name, end in rig.ends("r-0-1").items()}
    assert ends == {"r-0-1": End.SUCCEEDED}


BAD = m.StartRun("bad-0-1", RunSpec(CAPACITY, "true", environment=(("A",),)))  # type: ignore[arg-type]


@with_containers
def test_a_run_that_cannot_be_ordered_ends_and_no_other(rig: BackendRig) -> None:
    rig.order(
        m.StartRuns(HOST, 1, (run("r-0-1", 0.01), BAD, run("r-1-1", 0.01))),
        m.StartRuns(OTHER, 1, (run("o-0-1", 0.01),)),
    )
    ends = rig.ends("bad-0-1", "r-0-1", "r-1-1")
    assert ends["bad-0-1"].outcome.end == End.FAILED
    assert ends["bad-0-1"].outcome.message.startswith("cannot be ordered: ValueError: ")
    assert ends["r-0-1"].outcome.end == ends["r-1-1"].outcome.end == End.SUCCEEDED
    assert not rig.errors


def test_an_order_that_cannot_be_read_does_not_silence_it(rig: BackendRig) -> None:
    """It may raise, with a name; then every host gets a request to compare, and it works on."""
    rig.order(m.StartRuns(HOST, 1, (run("r-0-1"),)))
    rig.next_report(m.RunsStarted)
    rig.order(m.StartRuns(OTHER, 1, None))  # type: ignore[arg-type]
    assert rig.errors and rig.errors[0].startswith("TypeError: ")
    rig.next_report(m.BackendUp)
    assert listed(rig, "r-0-1") == (["r-0-1"], {})
    rig.order(m.StartRuns(OTHER, 1, (run("o-0-1", 0.01, 2),)))
    assert rig.ends("o-0-1", to=OTHER)["o-0-1"].outcome.exit_code == 2
