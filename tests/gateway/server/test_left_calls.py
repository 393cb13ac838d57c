"""Calls whose clients leave: their work stops, and what comes too late is not begun."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import grpc
import pytest

from peloton.api.v0.job import job_pb2, job_pb2_grpc
from peloton.gateway.access.authentication import Authentication
from peloton.gateway.cluster import cluster_client
from peloton.gateway.grpc_server import build_server
from peloton.gateway.server.intake import Intake
from peloton.gateway.server.serving import THREADS_MAX, Server
from peloton.ops.v1 import ops_pb2
from peloton.runtime.core.health import DaemonHealth
from peloton.runtime.vocabulary import Unavailable
from tests.gateway.fleet_fixture import OPEN_TO_ALL, WAIT_S_MAX, named

CODE = grpc.StatusCode
OPS = ops_pb2.DESCRIPTOR.services_by_name["Ops"]
SENT = job_pb2.GetRequest(id=named("00000000-0000-4000-8000-000000000000"))


class Mute:
    """A cluster that does not answer as long as it is mute."""

    def __init__(self) -> None:
        self.mute = True
        self.came = threading.Semaphore(0)
        self.given_up = threading.Semaphore(0)

    def ask(self, *_: Any, **__: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.mute:
            future.add_done_callback(lambda _: self.given_up.release())
        else:
            future.set_result(Unavailable("it speaks"))
        self.came.release()
        return future

    def read(self, *_: Any) -> None:
        return None

    def daemon_health(self) -> DaemonHealth:
        return DaemonHealth(True, True)


@pytest.mark.parametrize("leave", ["cancel", "deadline"])
def test_no_thread_waits_for_what_nobody_waits_for(
    monkeypatch: pytest.MonkeyPatch, leave: str
) -> None:
    monkeypatch.setattr(cluster_client, "CALL_ASK_S_MAX", 600.0)
    cluster: Any = Mute()
    server, (port,) = build_server(cluster, ["127.0.0.1:0"], **OPEN_TO_ALL)
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            get = job_pb2_grpc.JobManagerStub(channel).Get
            calls = [_arrived(cluster, get, leave=leave) for _ in range(THREADS_MAX)]
            if leave == "cancel":
                for call in calls:
                    call.cancel()
            for _ in calls:
                assert cluster.given_up.acquire(timeout=WAIT_S_MAX)
            cluster.mute = False
            with pytest.raises(grpc.RpcError) as caught:
                get(SENT, timeout=WAIT_S_MAX)
            assert caught.value.details() == "it speaks"
    finally:
        server.stop(0).wait(WAIT_S_MAX)


def _arrived(cluster: Mute, get: Any, *, leave: str) -> Any:
    """A call that the cluster was asked by: a deadline may pass before, where all is slow."""
    if leave != "deadline":
        call = get.future(SENT)
        assert cluster.came.acquire(timeout=WAIT_S_MAX)
        return call
    for deadline_s in (0.5, 2.0, 8.0, 32.0):
        call = get.future(SENT, timeout=deadline_s)
        if cluster.came.acquire(timeout=deadline_s):
            return call
    raise AssertionError("no call arrives")


class Busy:
    """Its first call takes long on the thread that all calls share."""

    at_once = {"Story": "story_at_once"}

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.keys: list[str] = []

    def Story(self, sent: ops_pb2.StoryRequest, context: Any) -> Any:
        raise AssertionError("it is answered at once")

    def story_at_once(self, sent: ops_pb2.StoryRequest, context: Any) -> bytes:
        self.keys.append(sent.key)
        if sent.key == "slow":
            self.begun.set()
            self.go_on.wait(WAIT_S_MAX)
        return b""


@pytest.fixture
def busy() -> Busy:
    return Busy()


@pytest.fixture
def server(busy: Busy) -> Iterator[tuple[Server, int]]:
    intake = Intake(message_bytes_max=2**20, bytes_max=2**24)
    server = Server([], intake, authentication=Authentication.open())
    server.add(OPS, busy, names=[OPS.full_name])
    (port,) = server.listen(["127.0.0.1:0"])
    server.start()
    yield server, port
    server.stop(0).wait(WAIT_S_MAX)


def test_a_call_whose_deadline_has_passed_is_not_begun(
    busy: Busy, server: tuple[Server, int]
) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{server[1]}") as channel:
        story = channel.unary_unary(f"/{OPS.full_name}/Story")

        def ask(key: str, timeout_s: float) -> Any:
            return story.future(
                ops_pb2.StoryRequest(key=key).SerializeToString(), timeout=timeout_s
            )

        slow = ask("slow", WAIT_S_MAX)
        assert busy.begun.wait(WAIT_S_MAX)
        late = [ask("late", 0.05) for _ in range(5)]
        assert {each.code() for each in late} == {CODE.DEADLINE_EXCEEDED}
        # The server's clock of a call begins later than ours: once this one has passed here, those
        # above have passed there.
        assert ask("passing", 0.05).code() is CODE.DEADLINE_EXCEEDED
        busy.go_on.set()
        assert slow.result() == b""
        assert ask("after", WAIT_S_MAX).result() == b""
    assert [key for key in busy.keys if key != "passing"] == ["slow", "after"]
