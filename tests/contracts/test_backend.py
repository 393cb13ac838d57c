"""The contract of backends, run on each: what `peloton/backends/port.py` says in words.

Must not know what a backend is made of; its houses do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from peloton.actors.host import messages as m
from peloton.actors.task.messages import End
from peloton.backends import port
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import kind_of
from tests.contracts.backends import (
    HOST,
    NEW,
    OTHER,
    ROOM,
    BackendHouse,
    ProcessHouse,
    SimulatedHouse,
    run,
)

LABELS = (Label("rack", "r7"),)
PORTS = (40000, 40010)
APPEARS = m.AddHost(NEW, ROOM, LABELS, PORTS)


@pytest.fixture(params=["simulated", "process"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BackendHouse]:
    simulated = request.param == "simulated"
    made = SimulatedHouse() if simulated else ProcessHouse(tmp_path.resolve() / "keeper")
    made.hear(m.BackendUp)
    yield made
    made.close()


def listed(house: BackendHouse, *known: str, epoch: int = 1) -> tuple[list[str], dict[str, End]]:
    """What runs, and how what has ended did; `known` is what the ledger takes for running."""
    house.order(m.ListRuns(HOST, epoch, tuple(m.KnownRun(name, 0.0) for name in known), 7.0))
    answer = house.hear(m.RunsListed)
    assert answer.asked_at == 7.0
    return sorted(answer.running), {end.run: end.outcome.end for end in answer.ends}


def test_every_message_of_the_port_has_a_number() -> None:
    ordered = {*get_args(port.Order), *get_args(port.HostsOrder)}
    assert ordered == {*m.BACKEND_MESSAGES.values()}
    assert {*get_args(port.Report)} <= {*m.MESSAGES.values()}


def test_it_has_an_address_of_its_own(house: BackendHouse) -> None:
    assert kind_of(house.backend.key) == "backend"


def test_every_host_is_told_that_it_can_ask(house: BackendHouse) -> None:
    house.order(m.PingBackend(HOST), m.PingBackend(OTHER))
    house.hear(m.BackendUp)
    house.hear(m.BackendUp, OTHER)


def test_a_run_is_started_and_ends_with_its_exit_code(house: BackendHouse) -> None:
    house.order(m.StartRuns(HOST, 1, (run("r-0-1", 0.01, 3), run("r-1-1", 0.01))))
    assert "r-0-1" in house.hear(m.RunsStarted).runs
    ends = house.ends("r-0-1", "r-1-1")
    failed, well = ends["r-0-1"].outcome, ends["r-1-1"].outcome
    assert (failed.end, failed.exit_code) == (End.FAILED, 3)
    assert (well.end, well.exit_code) == (End.SUCCEEDED, 0)


def test_a_launch_that_comes_twice_is_one_run(house: BackendHouse) -> None:
    order = m.StartRuns(HOST, 1, (run("r-0-1"),))
    house.order(order, order)
    house.hear(m.RunsStarted)
    assert listed(house, "r-0-1") == (["r-0-1"], {})
    house.order(order)
    assert house.hear(m.RunsStarted).runs == ("r-0-1",)
    house.order(m.StopRuns(HOST, 1, ("r-0-1",), 5.0))
    end = house.ends("r-0-1")["r-0-1"]
    house.order(order)
    assert house.ends("r-0-1")["r-0-1"] == end, "known to have ended: not started again"
    assert listed(house, "r-0-1") == ([], {"r-0-1": End.KILLED})


def test_orders_of_an_older_epoch_are_not_obeyed(house: BackendHouse) -> None:
    house.order(m.StartRuns(HOST, 2, (run("r-0-1"),)))
    house.hear(m.RunsStarted)
    house.order(
        m.StartRuns(HOST, 1, (run("old-0-1"),)),
        m.StopRuns(HOST, 1, ("r-0-1",), 0.0),
        m.ListRuns(HOST, 1, (), 1.0),
    )
    assert listed(house, "r-0-1", epoch=2) == (["r-0-1"], {})
    told = [message for _, message in house.told]
    assert not [each for each in told if isinstance(each, m.RunsEnded)]
    assert [each.asked_at for each in told if isinstance(each, m.RunsListed)] == [7.0]
    house.order(m.StartRuns(HOST, 3, (run("new-0-1"),)))
    house.hear(m.RunsStarted)
    assert listed(house, "r-0-1", "new-0-1", epoch=3) == (["new-0-1", "r-0-1"], {})


def test_an_older_epoch_is_one_of_its_own_host_only(house: BackendHouse) -> None:
    house.order(m.ListRuns(OTHER, 9), m.StartRuns(HOST, 1, (run("r-0-1"),)))
    house.hear(m.RunsStarted)


def test_a_kill_is_answered_by_the_end_and_so_is_its_repeat(house: BackendHouse) -> None:
    house.order(m.StartRuns(HOST, 1, (run("r-0-1"),)), m.StartRuns(HOST, 1, (run("r-1-1"),)))
    while "r-0-1" not in house.hear(m.RunsStarted).runs:
        pass
    kill = m.StopRuns(HOST, 1, ("r-0-1",), 5.0)
    house.order(kill)
    end = house.ends("r-0-1")["r-0-1"]
    assert end.outcome.end == End.KILLED and end.outcome.signal == "SIGTERM"
    house.order(kill)
    assert house.ends("r-0-1")["r-0-1"] == end
    assert listed(house, "r-0-1", "r-1-1") == (["r-1-1"], {"r-0-1": End.KILLED})


def test_a_kill_of_an_unknown_run_is_answered_by_what_is_known(house: BackendHouse) -> None:
    house.order(m.StartRuns(HOST, 1, (run("r-0-1"),)))
    house.hear(m.RunsStarted)
    assert listed(house, "r-0-1") == (["r-0-1"], {})
    house.order(m.StopRuns(HOST, 1, ("lost-0-1",), 5.0))
    assert house.hear(m.RunsListed).running == ("r-0-1",)


def test_what_ran_is_listed_by_the_next_daemon(house: BackendHouse) -> None:
    house.order(m.StartRuns(HOST, 1, (run("r-0-1"), run("r-1-1", 0.01))))
    house.ends("r-1-1")
    house.reconnect()
    house.hear(m.BackendUp)
    house.now = 5.0
    running, ends = listed(house, "r-0-1", "r-1-1", epoch=2)
    assert "r-0-1" in running
    if "r-1-1" not in ends:  # may follow the list
        ends = {name: end.outcome.end for name, end in house.ends("r-1-1").items()}
    assert ends["r-1-1"] == End.SUCCEEDED


def test_a_kill_that_comes_before_the_next_daemon_has_compared_is_not_lost(
    house: BackendHouse,
) -> None:
    """It ends the run, or makes the host compare; never is the run denied and left running."""
    house.order(m.StartRuns(HOST, 1, (run("r-0-1"),)))
    house.hear(m.RunsStarted)
    house.reconnect()
    house.hear(m.BackendUp)
    before = len(house.told)
    house.order(m.StopRuns(HOST, 2, ("r-0-1",), 5.0))
    if any(isinstance(told, m.BackendUp) for _, told in house.told[before:]):
        assert listed(house, "r-0-1", epoch=2) == (["r-0-1"], {})
        house.order(m.StopRuns(HOST, 2, ("r-0-1",), 5.0))
    assert house.ends("r-0-1")["r-0-1"].outcome.end == End.KILLED
    lists = [told for _, told in house.told[before:] if isinstance(told, m.RunsListed)]
    assert all("r-0-1" in each.running for each in lists)


def test_an_end_is_listed_until_it_is_forgotten(house: BackendHouse) -> None:
    house.order(m.StartRuns(HOST, 1, (run("r-0-1", 0.01, 3),)))
    end = house.ends("r-0-1")["r-0-1"]
    for _ in range(2):
        house.order(m.ListRuns(HOST, 1, (m.KnownRun("r-0-1", 0.0),)))
        assert house.hear(m.RunsListed).ends == (end,)
    house.order(m.ForgetRuns(HOST, ("r-0-1", "never-0-1")))
    assert listed(house) == ([], {})


def test_a_host_that_appears_is_reported_until_it_gives_an_order(house: BackendHouse) -> None:
    house.order(APPEARS)
    appeared = m.HostAppeared(ROOM, LABELS, house.backend.key, PORTS)
    assert house.hear(m.HostAppeared, NEW) == appeared
    house.wake()
    assert house.hear(m.HostAppeared, NEW) == appeared, "its shard may have been on its way"
    house.order(m.ListRuns(NEW, 1))
    house.hear(m.RunsListed, NEW)
    house.order(m.StartRuns(NEW, 1, (run("r-0-1", 0.01),)))
    assert house.ends("r-0-1", to=NEW)["r-0-1"].outcome.end == End.SUCCEEDED
    while house.backend.wake_at is not None:
        house.wake()
    assert [to for to, told in house.told if isinstance(told, m.HostAppeared)] == [NEW, NEW]


def test_a_host_that_left_gets_nothing_done_and_is_told_so(house: BackendHouse) -> None:
    house.order(m.StartRuns(HOST, 1, (run("r-0-1"),)))
    house.hear(m.RunsStarted)
    house.order(m.RemoveHost(HOST, "unplugged"))
    assert house.hear(m.HostLeft).text == "unplugged"
    for order in (
        m.PingBackend(HOST),
        m.ListRuns(HOST, 1),
        m.StartRuns(HOST, 1, (run("late-0-1"),)),
        m.StopRuns(HOST, 1, ("r-0-1",), 0.0),
    ):
        house.order(order)
        assert house.hear(m.HostLeft).text == "unplugged"
    before = len(house.told)
    house.backend.reset()
    house.order(m.PingBackend(OTHER))
    house.hear(m.BackendUp, OTHER)
    assert not [to for to, _ in house.told[before:] if to == HOST], "up is not for all"
    house.order(m.AddHost(HOST, ROOM))
    assert house.hear(m.HostAppeared).capacity == ROOM
    assert listed(house, "r-0-1") == (["r-0-1"], {}), "it came back with what it ran"


def test_a_run_that_ended_while_its_host_was_gone_is_told_when_it_is_back(
    house: BackendHouse,
) -> None:
    other = m.StartRuns(OTHER, 1, (run("o-0-1", 0.5),))
    house.order(m.StartRuns(HOST, 1, (run("r-0-1", 0.05),)), m.RemoveHost(HOST), other)
    house.ends("o-0-1", to=OTHER)
    assert not [to for to, told in house.told if to == HOST and isinstance(told, m.RunsEnded)]
    house.order(m.AddHost(HOST, ROOM))
    house.hear(m.HostAppeared)
    running, ends = listed(house, "r-0-1")
    if running:  # a machine that is busy with other things
        ends = {name: end.outcome.end for name, end in house.ends("r-0-1").items()}
    assert ends == {"r-0-1": End.SUCCEEDED}


BAD = m.StartRun("bad-0-1", m.RunSpec(ROOM, "true", environment=(("A",),)))  # type: ignore[arg-type]


def test_a_run_that_cannot_be_ordered_ends_and_no_other(house: BackendHouse) -> None:
    house.order(
        m.StartRuns(HOST, 1, (run("r-0-1", 0.01), BAD, run("r-1-1", 0.01))),
        m.StartRuns(OTHER, 1, (run("o-0-1", 0.01),)),
    )
    ends = house.ends("bad-0-1", "r-0-1", "r-1-1")
    assert ends["bad-0-1"].outcome.end == End.FAILED
    assert ends["bad-0-1"].outcome.message.startswith("cannot be ordered: ValueError: ")
    assert ends["r-0-1"].outcome.end == ends["r-1-1"].outcome.end == End.SUCCEEDED
    assert not house.errors


def test_an_order_that_cannot_be_read_does_not_silence_it(house: BackendHouse) -> None:
    """It may raise, with a name; then every host is told to compare, and all goes on."""
    house.order(m.StartRuns(HOST, 1, (run("r-0-1"),)))
    house.hear(m.RunsStarted)
    house.order(m.StartRuns(OTHER, 1, None))  # type: ignore[arg-type]
    assert house.errors and house.errors[0].startswith("TypeError: ")
    house.hear(m.BackendUp)
    assert listed(house, "r-0-1") == (["r-0-1"], {})
    house.order(m.StartRuns(OTHER, 1, (run("o-0-1", 0.01, 2),)))
    assert house.ends("o-0-1", to=OTHER)["o-0-1"].outcome.exit_code == 2
