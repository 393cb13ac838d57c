"""Answers that are under way: no thread waits for them, and none is waited for too long."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, NoReturn

import grpc
import pytest

from peloton.gateway.access.authentication import Authentication
from peloton.gateway.server import later_answers, serving
from peloton.gateway.server.calls import CallContext, Later
from peloton.gateway.server.intake import Intake
from peloton.gateway.server.long_calls import LongCall
from peloton.gateway.server.serving import (
    AT_ONCE_BYTES_MAX,
    LONG_CALL_BYTES_MAX,
    THREADS_MAX,
    Server,
)
from peloton.ops.v1 import ops_pb2, ops_pb2_grpc
from tests.gateway.fleet_fixture import WAIT_S_MAX

CODE = grpc.StatusCode
OPS = ops_pb2.DESCRIPTOR.services_by_name["Ops"]


class Postponing:
    """`Story` is answered later, where its key says so, and else by the plain method."""

    at_once = {"Story": "story_at_once"}

    def __init__(self) -> None:
        self.wait_s = 600.0
        self.futures: dict[str, Future[str]] = {}
        self.came = threading.Semaphore(0)
        self.go_on = threading.Event()

    def Story(self, sent: ops_pb2.StoryRequest, context: CallContext) -> ops_pb2.StoryResponse:
        if sent.key == "plain and slow":
            self.came.release()
            self.go_on.wait(WAIT_S_MAX)
        return story("plain")

    async def WaitJob(self, sent: ops_pb2.WaitJobRequest, context: LongCall) -> Any:
        self.came.release()
        await asyncio.Event().wait()

    def story_at_once(
        self, sent: ops_pb2.StoryRequest, context: CallContext
    ) -> bytes | Later | None:
        if sent.key == "at once":
            return story("at once").SerializeToString()
        if sent.key.startswith("plain"):
            return None

        def late() -> NoReturn:
            context.abort(CODE.UNAVAILABLE, "too late")

        def encode(found: str) -> bytes:
            if found == "refused":
                context.abort(CODE.NOT_FOUND, "refused")
            return story(found.strip()).SerializeToString()

        future: Future[Any] = Future()
        if sent.key == "known":
            future.set_result("known")
        self.futures[sent.key] = future
        self.came.release()
        return Later(future, encode, late, self.wait_s)

    def arrived(self, count: int) -> None:
        """Wait until so many calls wait for their answers."""
        for _ in range(count):
            assert self.came.acquire(timeout=WAIT_S_MAX)


def story(text: str) -> ops_pb2.StoryResponse:
    found = ops_pb2.StoryResponse()
    found.lines.add(because=text)
    return found


@pytest.fixture
def postponing() -> Postponing:
    return Postponing()


@pytest.fixture
def server() -> Server:
    intake = Intake(message_bytes_max=4 << 20, bytes_max=16 << 20)
    return Server([("grpc.so_reuseport", 0)], intake, authentication=Authentication.open())


@pytest.fixture
def ask(postponing: Postponing, server: Server) -> Iterator[Callable[[str], Any]]:
    server.add(OPS, postponing, names=[OPS.full_name])
    (port,) = server.listen(["127.0.0.1:0"])
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = ops_pb2_grpc.OpsStub(channel)

        def story_or_wait(key: str) -> Any:
            if key.startswith("wait"):
                sent = ops_pb2.WaitJobRequest(job_id=key)
                return stub.WaitJob.future(sent, timeout=WAIT_S_MAX)
            return stub.Story.future(ops_pb2.StoryRequest(key=key), timeout=WAIT_S_MAX)

        yield story_or_wait
    postponing.go_on.set()
    assert server.stop(0).wait(WAIT_S_MAX)


def text_of(asked: Any) -> str:
    (line,) = asked.result(WAIT_S_MAX).lines
    return str(line.because)


def refusal(asked: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        asked.result(WAIT_S_MAX)
    return caught.value.code(), caught.value.details()


def test_each_way_to_an_answer(postponing: Postponing, ask: Callable[[str], Any]) -> None:
    for key in ("at once", "plain", "known"):
        assert text_of(ask(key)) == key
    asked = ask("later")
    postponing.arrived(2)
    postponing.futures["later"].set_result("came")
    assert text_of(asked) == "came"
    large = ask("a" * AT_ONCE_BYTES_MAX)
    assert text_of(large) == "plain", "a large request is not for the thread that all share"


def test_what_an_answer_was_made_of_is_freed_without_the_collector(
    postponing: Postponing, ask: Callable[[str], Any]
) -> None:
    gc.disable()
    try:
        asked = ask("later")
        postponing.arrived(1)
        assert text_of(ask("at once")) == "at once", "so that thread is through with the first"
        freed = threading.Event()
        future = weakref.ref(postponing.futures["later"], lambda _: freed.set())
        postponing.futures.pop("later").set_result("came")
        assert text_of(asked) == "came"
        assert freed.wait(WAIT_S_MAX) and future() is None
    finally:
        gc.enable()


def test_what_the_answer_says_and_a_bug_in_it(
    postponing: Postponing, ask: Callable[[str], Any]
) -> None:
    refused, broken = ask("refused"), ask("broken")
    postponing.arrived(2)
    postponing.futures["refused"].set_result("refused")
    assert refusal(refused) == (CODE.NOT_FOUND, "refused")
    postponing.futures["broken"].set_result(None)  # type: ignore[arg-type]
    code, text = refusal(broken)
    assert code == CODE.INTERNAL and "None" not in text


def test_no_thread_waits_for_an_answer(postponing: Postponing, ask: Callable[[str], Any]) -> None:
    waiting = [ask(f"later {n}") for n in range(2 * THREADS_MAX)]
    postponing.arrived(len(waiting))
    assert text_of(ask("plain")) == "plain"
    for future in postponing.futures.values():
        future.set_result("came")
    assert {text_of(asked) for asked in waiting} == {"came"}


def test_an_answer_that_does_not_come(
    postponing: Postponing, ask: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(later_answers, "LOOK_S", 0.02)
    slow = ask("slow")
    postponing.arrived(1)
    postponing.wait_s = 0.1
    assert refusal(ask("never")) == (CODE.UNAVAILABLE, "too late")
    assert postponing.futures["never"].cancelled() and not slow.done()
    postponing.futures["slow"].set_result("came")
    assert text_of(slow) == "came", "each has its own time"
    assert refusal(ask("again")) == (CODE.UNAVAILABLE, "too late")


def test_calls_that_wait_for_answers_have_a_limit(
    postponing: Postponing, ask: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CALLS_MAX", 3)  # of which one caller gets two
    first, second = ask("first"), ask("second")
    postponing.arrived(2)
    for key in ("third", "plain"):
        assert refusal(ask(key))[0] == CODE.RESOURCE_EXHAUSTED
    assert text_of(ask("at once")) == "at once"
    for key, asked in (("first", first), ("second", second)):
        postponing.futures[key].set_result("came")
        assert text_of(asked) == "came"
    assert text_of(ask("plain")) == "plain"
    assert text_of(ask("plain again")) == "plain"


def test_a_client_that_left_takes_no_place(
    postponing: Postponing, ask: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CALLS_MAX", 1)
    left = ask("left")
    postponing.arrived(1)
    given_up = threading.Event()
    postponing.futures["left"].add_done_callback(lambda future: given_up.set())
    left.cancel()
    assert given_up.wait(WAIT_S_MAX) and postponing.futures["left"].cancelled()
    assert text_of(ask("plain")) == "plain"


@pytest.mark.parametrize("grace_s", [None, 0.05])
def test_calls_under_way_at_a_stop_are_unavailable(
    postponing: Postponing, ask: Callable[[str], Any], server: Server, grace_s: float | None
) -> None:
    asked = [ask(key) for key in ("later", "plain and slow", "wait")]
    postponing.arrived(3)
    assert server.stop(grace_s).wait(WAIT_S_MAX)
    assert [each.code() for each in asked] == [CODE.UNAVAILABLE] * 3
    assert all("this daemon is stopping" in each.details() for each in asked)


def test_calls_that_come_during_a_stop_end_and_are_no_failure_of_theirs(
    postponing: Postponing, ask: Callable[[str], Any], server: Server
) -> None:
    codes: list[grpc.StatusCode] = []
    stopped, under_way = threading.Event(), threading.Event()

    def call_on() -> None:
        while not stopped.is_set():
            codes.append(ask("at once").code())
            under_way.set()

    callers = [threading.Thread(target=call_on) for _ in range(8)]
    for caller in callers:
        caller.start()
    assert under_way.wait(WAIT_S_MAX)
    assert server.stop(None).wait(WAIT_S_MAX)
    stopped.set()
    for caller in callers:
        caller.join(WAIT_S_MAX)
    # gRPC's core itself cancels a call that it has not handed over when it shuts down.
    assert {*codes} <= {CODE.OK, CODE.UNAVAILABLE, CODE.CANCELLED}


def test_a_call_that_waits_takes_no_large_request(ask: Callable[[str], Any]) -> None:
    code, text = refusal(ask("wait" + "x" * LONG_CALL_BYTES_MAX))
    assert code == CODE.RESOURCE_EXHAUSTED and str(LONG_CALL_BYTES_MAX) in text
