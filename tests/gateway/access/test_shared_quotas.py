"""What callers share: nobody takes it from all others, and administrators find a place."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.api.v1alpha.watch.svc import watch_svc_pb2 as watch_svc
from peloton.api.v1alpha.watch.svc import watch_svc_pb2_grpc
from peloton.gateway.access.guard import CallCode, CallEnded
from peloton.gateway.access.principals import RESERVED_PART, CallersInTurn, SharedQuota
from peloton.gateway.cluster.cluster_client import ClusterClient
from peloton.gateway.grpc_server import ServerOptions
from peloton.gateway.ops import plans as gateway_plans
from peloton.gateway.ops import watch
from peloton.gateway.ops.plans import Plans
from peloton.gateway.server.calls import CallContext
from peloton.gateway.server.intake import Intake, IntakePace
from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import ops_pb2_grpc
from peloton.runtime.core.principal import BASIC, NONE, UNVERIFIED, Principal
from tests.gateway.access_fixture import ROLES, Guarded, guarded, said_by
from tests.gateway.fleet_fixture import WAIT_S_MAX

CODE = grpc.StatusCode
MOST = 100
ANN, BOB, ROOT = (Principal(name, BASIC) for name in ("ann", "bob", "root"))


def taken(places: SharedQuota, who: Principal, *, most: int = MOST) -> int:
    """How many somebody gets who wants all."""
    for count in range(most + 1):
        if places.take(who, lambda: who == ROOT, most=most):
            return count
    raise AssertionError("more than there are")


def test_one_caller_leaves_as_many_as_they_take_and_all_leave_some_to_administrators() -> None:
    places, kept = SharedQuota("streams"), MOST // RESERVED_PART
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
    places = SharedQuota("streams")
    taken(places, ANN)
    places._shares = Changing(places._shares)
    assert "ann has" in places.note()


def test_who_proves_nothing_is_one_by_their_address() -> None:
    places = SharedQuota("streams")
    claims = [Principal(f"name-{number}", UNVERIFIED, "10.0.0.7") for number in range(MOST)]
    got = [places.take(who, lambda: False, most=MOST) for who in claims]
    assert got.count("") == taken(SharedQuota("streams"), ANN)
    assert "somebody at 10.0.0.7 has" in got[-1]
    assert not places.take(Principal("", NONE, "10.0.0.8"), lambda: False, most=MOST)


def test_health_names_who_is_at_the_limit_as_long_as_they_are() -> None:
    places = SharedQuota("streams")
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
    places, held = SharedQuota("streams"), [0] * 5
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


def test_bytes_are_shared_as_places_are_and_a_refusal_says_how_many_were_asked_for() -> None:
    places = SharedQuota("bytes")
    assert not places.take(ANN, lambda: False, most=MOST, count=30)
    assert places.take(ANN, lambda: False, most=MOST, count=40) == (
        f"ann has 30 of {MOST} bytes, and asks for 40"
    )
    assert not places.take(BOB, lambda: False, most=MOST, count=30)
    assert "over all callers: dan has 0, and asks for 40" in places.take(
        Principal("dan", BASIC), lambda: False, most=MOST, count=40
    )
    assert not places.take(ROOT, lambda: True, most=MOST, count=40)
    for who, count in ((ANN, 30), (BOB, 30), (ROOT, 40)):
        places.leave(who, count)
    assert places.taken == 0 and places.note() == ""


@pytest.mark.parametrize(
    ("newest", "order"), [(False, "a1 b1 c1 a2 c2 a3"), (True, "a3 b1 c2 a2 c1 a1")]
)
def test_callers_take_turns_however_many_one_of_them_waits_for(newest: bool, order: str) -> None:
    turns: CallersInTurn[str] = CallersInTurn(newest=newest)
    for each in ("a1", "a2", "a3", "b1", "c1", "c2", "x1"):
        turns.add(Principal(each[0], BASIC), each)
    turns.remove(Principal("x", BASIC), "x1")
    assert [*turns.oldest_of_most()] == ["a1", "a2", "a3"]
    assert [turns.next() for _ in range(6)] == order.split()
    assert not turns


class Reads:
    """Reads of an intake for three messages of 100,000 bytes, by callers; none of them ends."""

    def __init__(self, pace: IntakePace) -> None:
        self.intake = Intake(message_bytes_max=100_000, bytes_max=300_000, pace=pace)
        self.begun: list[str] = []

    def begin(self, call: str, who: Principal, now_s: float = 0.0) -> None:
        def start() -> bool:
            self.begun.append(call)
            return True

        self.intake.begin(call, start, who=who, now_s=now_s)


def test_requests_of_one_caller_that_never_come_leave_others_room_and_turns() -> None:
    reads = Reads(IntakePace(lane=1, lane_s=0.5, read_s_max=60.0, waiting=100))
    for number in range(90):
        reads.begin(f"ann-{number}", ANN)
    assert reads.begun == ["ann-0", "ann-1", "ann-2"], "two in the budget, one in the lane"
    reads.begin("bob-0", BOB)
    assert reads.begun[-1] == "bob-0", "the third of the budget is left to others"
    reads.begin("bob-1", BOB)
    for number in range(90, 110):
        reads.begin(f"ann-{number}", ANN)
    refused = reads.intake.refused(0.6)
    assert {each.call for each in refused if str(each.call).startswith("bob")} == set()
    assert [each.call for each in reads.intake.refused(1.2)] == [reads.begun[4]]
    assert "bob-1" in reads.begun[:6], "at most one of each other caller comes before"


def test_large_requests_of_one_caller_in_work_leave_others_room() -> None:
    intake = Reads(IntakePace()).intake
    for number in range(2):
        assert not intake.arrived(f"ann-{number}", 50_000, who=ANN, now_s=0.0)
    assert intake.arrived("ann-2", 50_000, who=ANN, now_s=0.0) == (
        "ann has 200000 of 400000 bytes of large requests in work, and asks for 100000"
    )
    assert "ann has 200000" in intake.shares.note()
    assert not intake.arrived("ann-3", 1000, who=ANN, now_s=0.0)
    assert not intake.arrived("bob-0", 50_000, who=BOB, now_s=0.0)
    for call in ("ann-0", "ann-1", "bob-0"):
        intake.release(call, 0.0)
    assert intake.shares.taken == intake._bytes == 0


def until(holds: Callable[[], object]) -> None:
    late_s = time.monotonic() + WAIT_S_MAX
    while not holds():
        assert time.monotonic() < late_s
        threading.Event().wait(0.005)


class CallBy(CallContext):
    """A call of somebody, that has no deadline."""

    def __init__(self, who: Principal) -> None:
        super().__init__()
        self.who = who

    @property
    def principal(self) -> Principal:
        return self.who


@pytest.fixture
def plans() -> Plans:
    """Plans without a cluster, of callers who all may do everything."""
    cluster: Any = None
    return Plans(ClusterClient(cluster))


def test_plans_are_made_one_at_a_time_and_callers_take_turns(plans: Plans) -> None:
    made: list[str] = []

    def plan(who: Principal) -> None:
        with plans._alone(CallBy(who)):
            made.append(who.name)

    with ThreadPoolExecutor(4) as pool:
        with plans._alone(CallBy(ANN)):
            asked = []
            for who in (ANN, ANN, ANN, BOB):
                waiting = plans._places.taken
                asked.append(pool.submit(plan, who))
                until(lambda waiting=waiting: plans._places.taken > waiting)
            assert not made
        for each in asked:
            each.result(WAIT_S_MAX)
    assert sorted(made) == ["ann", "ann", "ann", "bob"]
    assert "bob" in made[:2], "after one of the other caller's at most"
    assert plans._places.taken == 0 and plans._made is None


class Leaves(CallBy):
    """Its client leaves while it waits, and is found to have left once the turn has come."""

    def __init__(self, who: Principal) -> None:
        super().__init__(who)
        self.begun, self.told = threading.Event(), threading.Event()

    def await_answer(self, future: Future[Any], wait_s: float) -> Any:
        future.cancel()
        self.begun.set()
        assert self.told.wait(WAIT_S_MAX)
        raise CallEnded(CallCode.CANCELLED, "the client left")


def test_a_plan_whose_client_left_passes_its_turn_on(plans: Plans) -> None:
    def plan(call: CallBy) -> None:
        with plans._alone(call):
            pass

    leaves = Leaves(ANN)
    with ThreadPoolExecutor(2) as pool:
        with plans._alone(CallBy(ROOT)):
            left = pool.submit(plan, leaves)
            assert leaves.begun.wait(WAIT_S_MAX)
            asked = pool.submit(plan, CallBy(BOB))
            until(lambda: plans._places.taken == 3)
        leaves.told.set()
        with pytest.raises(CallEnded, match="left"):
            left.result(WAIT_S_MAX)
        asked.result(WAIT_S_MAX)
    assert plans._places.taken == 0 and plans._made is None


def test_who_has_as_many_plans_as_are_left_is_refused_at_once(
    plans: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_plans, "PLANS_MAX", 2)
    with (
        plans._alone(CallBy(ANN)),
        pytest.raises(CallEnded, match="ann has 1 of 2 plans, as many as are left"),
        plans._alone(CallBy(ANN)),
    ):
        raise AssertionError
    assert plans._places.taken == 0
