"""A cluster with several addresses: which is asked next, and which calls may be repeated.

The servers are fakes; what a fleet of daemons makes of it is tested with daemons.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any

import grpc
import pytest

from peloton.sdk import errors
from peloton.sdk.addresses import Written, ZooKeeperAddresses, addresses_of
from peloton.sdk.client import Client as BlockingClient
from peloton.sdk.wire import OPTIONS
from tests.sdk.driven import DrivenClient
from tests.sdk.fakes import JOB, Cluster, held_port, serving

GONE = grpc.StatusCode.UNAVAILABLE
NOBODY = "127.0.0.1:1"
ANSWER_S_MAX = 90.0


@pytest.fixture(name="Client", params=[BlockingClient, DrivenClient], ids=["blocking", "awaited"])
def either(request: pytest.FixtureRequest) -> Any:
    """Either client: what holds of one holds of both."""
    return request.param


def test_the_next_address_is_asked_and_remembered(Client: Any) -> None:
    cluster = Cluster()
    with serving(cluster) as address, Client(f"{NOBODY}, {address}", timeout_s=60) as client:
        assert client._wire._addresses.of("api") == (NOBODY, address)
        client.pools.lookup("/hello")
        assert client._wire._addresses.of("api") == (address, NOBODY)
        client.pools.lookup("/hello")
    assert len(cluster.calls) == 2


def test_one_that_is_unavailable_is_passed_over_and_both_are_tried_again(Client: Any) -> None:
    first, second = Cluster(), Cluster()
    first.fail("Get", GONE, GONE, GONE)
    second.fail("Get", GONE, GONE)
    second.add_job("RUNNING", "RUNNING")
    with serving(first) as one, serving(second) as other, Client((one, other)) as client:
        assert client.jobs.get(JOB).jobInfo.id.value == JOB
    assert (len(first.calls), len(second.calls)) == (3, 3)


def test_a_keyed_change_goes_on_under_its_key(Client: Any) -> None:
    first, second = Cluster(), Cluster()
    first.fail("Create", GONE)
    with serving(first) as one, serving(second) as other, Client((one, other)) as client:
        client.jobs.create("/hello", {"name": "a"})
    (said,), (again,) = first.called("Create"), second.called("Create")
    assert said.metadata["peloton-request-key"] == again.metadata["peloton-request-key"]


def test_a_change_without_a_key_is_not_said_to_a_second_one(Client: Any) -> None:
    first, second = Cluster(), Cluster()
    for cluster in (first, second):
        cluster.fail("Redrive", GONE)
    with (
        serving(first) as one,
        serving(second) as other,
        Client((one, other)) as client,
        pytest.raises(errors.ServiceUnavailable),
    ):
        client.ops.redrive("job/a")
    assert (len(first.calls), len(second.calls)) == (1, 0)


def test_a_change_without_a_key_goes_to_one_that_is_there(Client: Any) -> None:
    cluster = Cluster()
    cluster.add_job("RUNNING", "RUNNING")
    with serving(cluster) as address, Client((NOBODY, address), timeout_s=60) as client:
        client.tasks.start(JOB)
    assert len(cluster.called("Start")) == 1


class Late:
    """SharedQuota where nobody is at first, and then somebody."""

    patient = True

    def __init__(self, *later: tuple[str, ...]) -> None:
        self._turns = [(NOBODY,), *later]

    def of(self, role: str) -> tuple[str, ...]:
        return self._turns[0]

    def service(self, role: str) -> str:
        return role

    def answered(self, role: str, address: str) -> None:
        """It is where it is."""

    def refresh(self) -> None:
        if len(self._turns) > 1:
            self._turns.pop(0)


def test_a_change_without_a_key_is_heard_once_however_late_somebody_is_found(Client: Any) -> None:
    """The answer UNAVAILABLE may mean that it happened, on the second turn as on the first."""
    cluster = Cluster()
    cluster.fail("Redrive", GONE, GONE, GONE)
    with serving(cluster) as address:
        client = Client(Late((address,)), timeout_s=10)
        with client, pytest.raises(errors.ServiceUnavailable, match="planted"):
            client.ops.redrive("job/a")
    assert len(cluster.called("Redrive")) == 1


def test_a_deadline_is_over_all_attempts(Client: Any) -> None:
    """Were it each attempt's, a patient one would ask until the test is given up."""
    client = Client(Late(), timeout_s=1.0)
    with client, pytest.raises(errors.ServiceUnavailable, match="does not answer"):
        client.pools.lookup("/hello")


def test_a_silent_one_does_not_use_up_the_time_of_the_others(Client: Any) -> None:
    cluster = Cluster()
    with (
        socket.create_server(("127.0.0.1", 0)) as deaf,
        serving(cluster) as address,
        Client((f"127.0.0.1:{deaf.getsockname()[1]}", address), timeout_s=60) as client,
    ):
        client.pools.lookup("/hello")
        assert client._wire._addresses.of("api")[0] == address, "the one that answered is first"
        client.pools.lookup("/hello")
    assert len(cluster.calls) == 2


def test_one_that_is_busy_is_not_called_absent(Client: Any) -> None:
    """It may be connected: `is the minicluster running?` would be the wrong question."""
    with contextlib.ExitStack() as stack:
        deaf = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in deaf]
        client = stack.enter_context(Client(addresses, timeout_s=1))
        with pytest.raises(errors.ServiceUnavailable, match="did not answer a health check") as got:
            client.pools.lookup("/hello")
    assert got.value.kind == errors.NO_ANSWER


@pytest.mark.parametrize("say", ["lookup", "start"])
def test_one_that_is_there_has_all_the_time(Client: Any, say: str) -> None:
    """A call that rightly takes more than half of it must not fail on each in turn."""
    first, second = Cluster(), Cluster()
    first.add_job("RUNNING", "RUNNING")
    with (
        serving(first) as one,
        serving(second) as other,
        Client((one, other, NOBODY), timeout_s=30) as client,
    ):
        for _ in range(2):
            client.pools.lookup("/hello") if say == "lookup" else client.tasks.start(JOB)
    assert len(first.calls) == 2 and not second.calls
    assert all(call.left_s > 20 for call in first.calls)


def test_a_connection_that_was_lost_is_made_again(Client: Any) -> None:
    first, second = Cluster(), Cluster()
    with held_port() as port:
        with serving(second) as other:
            with serving(first, port=port) as one:
                client = Client((one, other), timeout_s=60)
                client.pools.lookup("/hello")
            client.pools.lookup("/hello")
            assert (len(first.calls), len(second.calls)) == (1, 1)
        with client, serving(first, port=port):
            client.pools.lookup("/hello")
    assert (len(first.calls), len(second.calls)) == (2, 1)


def test_all_that_do_not_answer_are_named(Client: Any) -> None:
    client = Client((NOBODY, "127.0.0.1:2"), timeout_s=60)
    with client, pytest.raises(errors.ServiceUnavailable) as caught:
        client.pools.lookup("/hello")
    assert NOBODY in str(caught.value) and "127.0.0.1:2" in str(caught.value)
    assert caught.value.kind == errors.NO_CONNECTION


def test_a_daemon_that_comes_back_is_dialled_within_seconds(Client: Any) -> None:
    """gRPC's own pauses grow to two minutes."""
    assert dict(OPTIONS)["grpc.max_reconnect_backoff_ms"] <= 2_000
    with held_port() as port, Client(f"127.0.0.1:{port}", timeout_s=0.2) as client:
        for _ in range(2):
            with pytest.raises(errors.ServiceUnavailable):
                client.pools.lookup("/hello")
        with serving(Cluster(), port=port):
            until_s = time.monotonic() + ANSWER_S_MAX
            while True:
                try:
                    client.pools.lookup("/hello")
                    break
                except errors.ServiceUnavailable:
                    assert time.monotonic() < until_s


def test_written_and_found_places() -> None:
    assert addresses_of(" a:1 ,b:2,") == ("a:1", "b:2")
    addresses = Written("a:1", {"jobmgr": "j:1,j:2"})
    addresses.answered("jobmgr", "j:2")
    assert addresses.of("jobmgr") == ("j:2", "j:1") and addresses.of("resmgr") == ("a:1",)
    assert (addresses.service("jobmgr"), addresses.service("resmgr")) == ("jobmgr", "api")
    with pytest.raises(ValueError, match="no address for api"):
        Written(" , ", {})
    asked = []

    def find() -> dict[str, str]:
        asked.append(1)
        return {"jobmgr": "one:1", "hostmgr": "two:2"}

    found = ZooKeeperAddresses(find, roles={"hostmgr": "h:1"})
    assert found.of("hostmgr") == ("h:1",) and not asked
    assert found.of("jobmgr") == ("one:1",)
    assert found.of("api") == found.of("resmgr") == ("one:1", "two:2")
    assert len(asked) == 1
    found.refresh()
    assert found.of("jobmgr") == ("one:1",) and len(asked) == 2
