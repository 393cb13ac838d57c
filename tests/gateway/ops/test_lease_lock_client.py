"""The client of the example `lease_lock` against real servers: waits, renews, learns of a loss."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from lease_lock.client import Hold, LeaseLost, hold
from lease_lock.kind import HELD, LOCK, Lock, Release

from peloton.gateway.grpc_server import STANDARD_OPTIONS, build_server
from peloton.ops.v1 import ops_pb2 as ops
from peloton.sdk.actors import ActorRefused
from peloton.sdk.client import Client
from peloton.sdk.kit import build
from tests.gateway.fleet_fixture import OPEN_TO_ALL, WAIT_S_MAX, Deployment, running, until

TTL_S = 1.0
LONG_S = 3600.0
KINDS = {"lock": build(LOCK)}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with running(tmp_path_factory.mktemp("locks"), extensions=KINDS) as found:
        yield found


@pytest.fixture
def client(deployment: Deployment) -> Iterator[Client]:
    with Client(deployment.api, timeout_s=WAIT_S_MAX) as found:
        yield found


def new() -> str:
    return f"l-{uuid.uuid4()}"


def test_it_is_held_inside_and_free_behind(client: Client) -> None:
    locks, name = client.actors("lock"), new()
    for token in (1, 2):
        with hold(client, name, ttl_s=LONG_S, holder="ann") as lease:
            assert lease.token == token
            assert locks.state(name, into=Lock) == Lock("ann", token, LONG_S)
            lease.check()
        assert locks.state(name, into=Lock) == Lock(token=token)
    assert not lease.lost.is_set()


def test_it_is_freed_when_the_body_raises(client: Client) -> None:
    name = new()
    with pytest.raises(ZeroDivisionError), hold(client, name, ttl_s=LONG_S):
        _ = 1 / 0
    assert client.actors("lock").state(name, into=Lock) == Lock(token=1)


def test_who_waits_is_told_and_does_not_poll(deployment: Deployment, client: Client) -> None:
    name, waits = new(), threading.Event()

    def second() -> int:
        waits.set()
        with hold(client, name, ttl_s=LONG_S, holder="bob") as lease:
            return lease.token

    def refusals() -> int:
        story = deployment.ops.Story(ops.StoryRequest(key=f"lock/{name}")).lines
        return len([line for line in story if "ann has it" in line.because])

    with ThreadPoolExecutor(1) as pool:
        with hold(client, name, ttl_s=LONG_S, holder="ann"):
            other = pool.submit(second)
            until(refusals)
            # Renewals are changes that are told as well, and no reason to ask.
            for _ in range(20):
                client.actors("lock").tell(name, ("Renew", {"token": 1}))
            assert not other.done()
        assert other.result(WAIT_S_MAX) == 2
    assert refusals() == 1


@pytest.mark.slow  # several thirds of a lease
def test_it_is_renewed_for_as_long_as_it_is_held(client: Client) -> None:
    name = new()
    with hold(client, name, ttl_s=TTL_S, holder="ann") as lease:
        states = client.actors("lock").watch(name, into=Lock)
        renewed = next(lock for lock in states if lock is None or lock.renewals >= 4)
        assert renewed == Lock("ann", 1, TTL_S, renewals=4), "longer than one lease"
        states.close()  # type: ignore[attr-defined]
        lease.check()
        assert not lease.lost.is_set()


@pytest.mark.slow  # a third of a lease
def test_a_lock_that_was_taken_away_is_lost(client: Client) -> None:
    name = new()
    with hold(client, name, ttl_s=TTL_S) as lease:
        client.actors("lock").tell(name, Release(lease.token))
        assert lease.lost.wait(WAIT_S_MAX)
        with pytest.raises(LeaseLost, match=f"{name} is no longer held under token 1"):
            lease.check()
        with hold(client, name, ttl_s=LONG_S, holder="bob") as other:
            lease.release()
            assert client.actors("lock").state(name, into=Lock) == Lock("bob", 2, LONG_S)
            other.check()


@pytest.mark.slow  # one lease
def test_a_cluster_that_is_silent_loses_it_in_time(
    deployment: Deployment, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    name, options = new(), STANDARD_OPTIONS._replace(extensions=KINDS)
    server, (port,) = build_server(
        deployment.region, ["127.0.0.1:0"], options=options, **OPEN_TO_ALL
    )
    server.start()
    try:
        with (
            Client(f"127.0.0.1:{port}", timeout_s=TTL_S) as other,
            hold(other, name, ttl_s=TTL_S) as lease,
        ):
            server.stop(0).wait(WAIT_S_MAX)
            assert lease.lost.wait(WAIT_S_MAX)
            with pytest.raises(LeaseLost):
                lease.check()
    finally:
        server.stop(0).wait(WAIT_S_MAX)
    assert "is not renewed yet" in caplog.text and "was not released" in caplog.text
    with hold(client, name, ttl_s=LONG_S) as later:
        assert later.token == 2


def test_a_time_limit_ends_the_wait_and_names_the_holder(client: Client) -> None:
    name = new()
    with hold(client, name, ttl_s=LONG_S, holder="ann"):
        with (
            pytest.raises(TimeoutError, match=f"the lock {name}: ann has it, token 1") as caught,
            hold(client, name, timeout_s=0.1),
        ):
            pass
        assert isinstance(caught.value.__cause__, ActorRefused)
        assert caught.value.__cause__.kind == HELD


def test_what_can_never_be_held_is_refused_at_once(client: Client) -> None:
    with (
        pytest.raises(ActorRefused, match="ttl_s: 0.5 is not between"),
        hold(client, "a", ttl_s=0.5),
    ):
        pass


def test_many_threads_hold_it_one_after_another(client: Client) -> None:
    name, inside, tokens = new(), list[Hold](), list[int]()

    def one(_: int) -> None:
        with hold(client, name, ttl_s=LONG_S) as lease:
            inside.append(lease)
            assert inside == [lease]
            tokens.append(lease.token)
            inside.remove(lease)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(16)))
    assert tokens == [*range(1, 17)]
