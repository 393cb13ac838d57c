"""What callers share: nobody takes it from all others, and administrators find a place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.api.v1alpha.watch.svc import watch_svc_pb2 as watch_svc
from peloton.api.v1alpha.watch.svc import watch_svc_pb2_grpc
from peloton.gateway import watch
from peloton.gateway.principals import RESERVED_PART, Places
from peloton.gateway.server import ServerOptions
from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import ops_pb2_grpc
from peloton.runtime.core.principal import BASIC, NONE, UNVERIFIED, Principal
from tests.gateway.access_fixture import ROLES, Guarded, guarded, said_by
from tests.gateway.fleet_fixture import WAIT_S_MAX

CODE = grpc.StatusCode
MOST = 100
ANN, BOB, ROOT = (Principal(name, BASIC) for name in ("ann", "bob", "root"))


def taken(places: Places, who: Principal, *, most: int = MOST) -> int:
    """How many somebody gets who wants all."""
    for count in range(most + 1):
        if places.take(who, lambda: who == ROOT, most=most):
            return count
    raise AssertionError("more than there are")


def test_one_caller_leaves_as_many_as_they_take_and_all_leave_some_to_administrators() -> None:
    places, kept = Places("streams"), MOST // RESERVED_PART
    alone = taken(places, ANN)
    assert alone == (MOST - kept + 1) // 2
    assert places.take(ANN, lambda: False, most=MOST) == (
        f"ann has {alone} of {MOST} streams, as many as are left for all others"
    )
    second = taken(places, BOB)
    assert 0 < second < alone
    for number in range(MOST):
        places.take(Principal(f"user-{number}", BASIC), lambda: False, most=MOST)
    assert places.taken == MOST - kept
    assert "over all callers" in places.take(Principal("last", BASIC), lambda: False, most=MOST)
    assert taken(places, ROOT) > 0


class Changing(Counter[str]):
    """Somebody takes a place while it is looked through."""

    def items(self) -> Any:
        for at, each in enumerate(super().items()):
            self[f"other-{at}"] = 1
            yield each


def test_who_is_at_the_limit_is_told_while_others_come_and_go() -> None:
    places = Places("streams")
    taken(places, ANN)
    places._held = Changing(places._held)
    assert "ann has" in places.note()


def test_who_proves_nothing_is_one_by_their_address() -> None:
    places = Places("streams")
    claims = [Principal(f"name-{number}", UNVERIFIED, "10.0.0.7") for number in range(MOST)]
    got = [places.take(who, lambda: False, most=MOST) for who in claims]
    assert got.count("") == taken(Places("streams"), ANN)
    assert "somebody at 10.0.0.7 has" in got[-1]
    assert not places.take(Principal("", NONE, "10.0.0.8"), lambda: False, most=MOST)


def test_health_names_who_is_at_the_limit_as_long_as_they_are() -> None:
    places = Places("streams")
    assert places.note() == ""
    for who in (BOB, BOB):
        places.take(who, lambda: False, most=MOST)
    assert places.note() == ""
    count = taken(places, ANN)
    assert places.note() == f"of {MOST} streams {MOST - count - 2} are left: ann has {count}"
    for _ in range(count):
        places.leave(ANN)
    assert places.note() == ""


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=300), st.integers(0, 40))
def test_places_are_neither_lost_nor_given_twice(moves: list[tuple[int, bool]], most: int) -> None:
    places, held = Places("streams"), [0] * 5
    for number, takes in moves:
        who = Principal(f"user-{number}", BASIC)
        if takes:
            held[number] += not places.take(who, lambda: False, most=most)
        elif held[number]:
            places.leave(who)
            held[number] -= 1
        assert places.taken == sum(held) <= most - most // RESERVED_PART
        if sum(held) and max(held) > 1:
            assert max(held) <= (most + 1) // 2


Open = Callable[[Guarded, Principal], Any]


def watched(fleet: Guarded, by: Principal) -> Any:
    stub = ops_pb2_grpc.OpsStub(fleet.channel)
    return stub.Watch(ops.WatchRequest(kinds=["job"]), metadata=said_by(by), timeout=WAIT_S_MAX)


def watched_services(fleet: Guarded, by: Principal) -> Any:
    stub = watch_svc_pb2_grpc.WatchServiceStub(fleet.channel)
    sent = watch_svc.WatchRequest()
    sent.stateless_job_filter.SetInParent()
    return stub.Watch(sent, metadata=said_by(by), timeout=WAIT_S_MAX)


@pytest.fixture
def twenty(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Streams of a daemon; one of them is for administrators."""
    monkeypatch.setattr(watch, "STREAMS_MAX", 20)
    yield 20


@pytest.mark.parametrize("open_", [watched, watched_services])
def test_streams_of_one_caller_leave_others_some(tmp_path: Path, twenty: int, open_: Open) -> None:
    with guarded(tmp_path, options=ServerOptions(watches=twenty)) as fleet:

        def opened(by: Principal) -> list[Any]:
            streams: list[Any] = []
            while True:
                stream = open_(fleet, by)
                try:
                    next(stream)
                except grpc.RpcError as error:
                    assert error.code() == CODE.RESOURCE_EXHAUSTED, error.details()
                    streams.append(error.details())
                    return streams
                streams.append(stream)

        greedy, other = opened(ROLES["viewer"]), opened(ROLES["submitter"])
        assert len(greedy) - 1 == 10 and "vera has 10 of 20 streams" in greedy[-1]
        assert len(other) - 1 == 5
        for number in range(twenty):
            opened(Principal(f"user-{number}", BASIC))
        assert len(opened(ROLES["administrator"])) - 1 == 1
        for stream in (*greedy[:-1], *other[:-1]):
            stream.cancel()
