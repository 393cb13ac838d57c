"""Ports that others use are found before a run begins, and told until they are free."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.machine_messages import PortsInUse
from peloton.actors.host.run_spec import Port, RunSpec
from peloton.actors.resources import Resources
from peloton.backends.port_use import AGAIN_S, PortUse, is_in_use

PICKED = RunSpec(Resources(), "x", ports=(Port("http", 0),))


def fixed(number: int) -> RunSpec:
    return RunSpec(Resources(), "x", ports=(Port("http", number),))


class Told:
    """What the hosts were told, and the starts that were let through."""

    def __init__(self) -> None:
        self.words: list[tuple[str, PortsInUse]] = []
        self.use = PortUse(lambda host, word: self.words.append((host, word)))

    def start(self, host: str, run: str, spec: RunSpec, *, port: int) -> bool:
        order = (m.StartRun(run, spec, (port,)),)
        return bool(self.use.startable(host, order, known=()))

    def new(self) -> list[tuple[str, PortsInUse]]:
        words, self.words = self.words, []
        return words


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture(params=["0.0.0.0", "127.0.0.1", "::", "::1"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        made = socket.create_server((request.param, 0), family=family)
    except OSError as error:
        pytest.skip(f"{request.param}: {error}")
    with made:
        yield made


def test_a_port_on_which_somebody_listens_is_told_until_it_is_free(
    told: Told, listener: socket.socket
) -> None:
    port = listener.getsockname()[1]
    assert not told.start("a", "r-0-1", PICKED, port=port)
    ((host, word),) = told.new()
    assert (host, word.runs) == ("a", ("r-0-1",)) and word.ports[0] == port
    assert told.use.wake_at == 0.0
    told.use.due(7.0)
    told.new()
    assert told.use.wake_at == 7.0 + AGAIN_S
    told.use.repeat("a")
    ((_, word),) = told.new()
    assert port in word.ports and not word.runs
    listener.close()
    told.use.due(7.0 + AGAIN_S)
    assert port not in told.new()[-1][1].ports
    assert told.start("a", "r-0-1", PICKED, port=port)


def test_a_row_of_ports_is_told_at_once(told: Told) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        others = []
        for one in range(port + 1, port + 20):  # others of this machine may have some of them
            try:
                others.append(socket.create_server(("127.0.0.1", one)))
            except OSError:
                continue
        try:
            assert not told.start("a", "r-0-1", PICKED, port=port)
        finally:
            for other in others:
                other.close()
    ((_, word),) = told.new()
    assert set(range(port, port + 20)) <= set(word.ports)


def test_two_hosts_of_a_machine_do_not_both_give_a_port(told: Told, free_port: int) -> None:
    spec = fixed(free_port)
    assert told.start("a", "r-0-1", spec, port=free_port)
    assert not is_in_use(free_port), "the run has not bound it yet"
    assert not told.start("b", "r-1-1", spec, port=free_port)
    assert told.new() == [("b", PortsInUse((free_port,), ("r-1-1",)))]
    told.use.over("r-0-1")
    assert told.new() == [("b", PortsInUse(()))], "at once, and without a timer"
    assert told.start("b", "r-1-1", spec, port=free_port)


def test_a_run_that_is_there_already_is_not_in_its_own_way(told: Told) -> None:
    with socket.create_server(("127.0.0.1", 0)) as own:
        order = (m.StartRun("r-0-1", PICKED, own.getsockname()[:2][1:]),)
        assert told.use.startable("a", order, known={"r-0-1"}) == [*order]
    assert told.new() == []


def test_that_nothing_is_in_use_is_told_once(told: Told) -> None:
    for _ in range(3):
        told.use.repeat("a")
    assert told.new() == [("a", PortsInUse(()))]
    assert told.use.wake_at is None


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])
