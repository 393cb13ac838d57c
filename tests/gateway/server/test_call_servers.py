"""What a server of calls has to do, whatever carries them; and what is relied on of gRPC's core."""

from __future__ import annotations

import gc
import itertools
import queue
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from peloton.gateway.server import carrier, completions
from peloton.gateway.server.completions import CoreServer
from peloton.gateway.server.intake import Intake, IntakePace
from peloton.gateway.server.public_calls import PublicServer
from peloton.gateway.server.served_calls import CallServer, ServedCall
from peloton.runtime.core.principal import BASIC, Principal
from tests.gateway.fleet_fixture import WAIT_S_MAX

CODE = grpc.StatusCode
PATH = "/test.Test/Call"
OPTIONS = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 100_000)]


def intake() -> Intake:
    return Intake(message_bytes_max=100_000, bytes_max=400_000)


Kind = type[CallServer]
KINDS = [CoreServer, PublicServer]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


class Served:
    """A server whose new calls are put into a queue, and a channel to it."""

    def __init__(self, kind: Kind, calls_max: int = 100) -> None:
        self.calls: queue.Queue[ServedCall] = queue.Queue()
        self.intake = intake()
        self.server = kind(OPTIONS, self.calls.put, calls_max=calls_max, intake=self.intake)
        self.port = self.server.listen("127.0.0.1:0")
        self.server.start()
        self.channel = grpc.insecure_channel(
            f"127.0.0.1:{self.port}",
            [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)],
        )
        self.unary = self.channel.unary_unary(PATH)
        self.stream = self.channel.stream_stream(PATH)

    def next(self) -> ServedCall:
        """The next call that arrives."""
        return self.calls.get(timeout=WAIT_S_MAX)

    def close(self) -> None:
        self.server.stop()
        self.server.cancel_all()
        self.server.stopped.result(WAIT_S_MAX)
        self.channel.close()


@pytest.fixture
def served(kind: Kind) -> Iterator[Served]:
    made = Served(kind)
    yield made
    made.close()


def got(start: Callable[[Callable[[Any], None]], None]) -> Any:
    """What a callback is called with; it must be called once."""
    answers: queue.Queue[Any] = queue.Queue()
    start(answers.put)
    answer = answers.get(timeout=WAIT_S_MAX)
    assert answers.empty()
    return answer


def until(holds: Callable[[], object]) -> None:
    late_s = time.monotonic() + WAIT_S_MAX
    while not holds():
        assert time.monotonic() < late_s
        threading.Event().wait(0.005)


def under_way(call: ServedCall) -> list[bool]:
    """A write that never ends while the client does not read; what its callback was told.

    It is larger than the windows, which without probes (`Served`) stay at 64 KiB, and the buffers.
    """
    told: list[bool] = []
    call.write(bytes(2_000_000), told.append)
    return told


def test_a_call_with_its_metadata_its_deadline_and_its_answer(served: Served) -> None:
    asked = served.unary.future(
        b"question", timeout=600, metadata=[("who", "ann"), ("x-bin", b"\0")]
    )
    call = served.next()
    assert call.method == PATH
    assert ("who", "ann") in call.metadata and ("x-bin", b"\0") in call.metadata
    left_s = call.time_remaining()
    assert left_s is not None and 500 < left_s <= 601
    assert call.peer().startswith("ipv4:127.0.0.1:") and not call.peer_identities()
    assert got(call.read) == b"question"
    call.end(message=b"answer")
    assert asked.result(WAIT_S_MAX) == b"answer"
    until(lambda: not served.server._calls)
    assert not call.cancelled


def test_a_call_without_a_deadline(served: Served) -> None:
    asked = served.unary.future(b"")
    call = served.next()
    assert call.time_remaining() is None
    assert got(call.read) == b"", "an empty message is a message"
    call.end(message=b"")
    assert asked.result(WAIT_S_MAX) == b""


def test_a_status_with_text_and_trailing_metadata(served: Served) -> None:
    asked = served.unary.future(b"")
    served.next().end(5, "nöthing", trailing=(("t-bin", b"\xff"),))
    with pytest.raises(grpc.RpcError) as caught:
        asked.result(WAIT_S_MAX)
    assert (caught.value.code(), caught.value.details()) == (CODE.NOT_FOUND, "nöthing")
    assert ("t-bin", b"\xff") in caught.value.trailing_metadata()


def test_a_stream_in_both_directions_to_its_end(served: Served) -> None:
    asked = served.stream(iter((b"1", b"2")))
    call = served.next()
    for data in (b"1", b"2"):
        assert got(call.read) == data
        assert got(lambda then, data=data: call.write(b"re " + data, then))
    assert got(call.read) is None
    call.end()
    assert list(asked) == [b"re 1", b"re 2"]


def test_the_client_leaves_and_nothing_that_follows_matters(served: Served) -> None:
    left = threading.Event()
    asked = served.unary.future(b"x")
    call = served.next()
    call.on_cancel = left.set
    assert got(call.read) == b"x"
    asked.cancel()
    assert left.wait(WAIT_S_MAX) and call.cancelled
    until(lambda: not served.server._calls)
    assert got(call.read) is None
    assert got(lambda then: call.write(b"y", then)) is False
    call.end(message=b"z")
    call.end()


def test_a_deadline_that_passes_cancels(served: Served) -> None:
    left, calls = threading.Event(), list[ServedCall]()

    def begin(call: ServedCall) -> None:
        call.on_cancel = left.set
        calls.append(call)

    served.server._begin = begin
    grpc.channel_ready_future(served.channel).result(WAIT_S_MAX)  # connecting takes none of it
    for deadline_s in (0.2, 2.0, 20.0):  # where all is slow, one passes before the call arrives
        asked = served.unary.future(b"x", timeout=deadline_s)
        assert asked.code() is CODE.DEADLINE_EXCEEDED
        if left.wait(deadline_s):
            break
    assert left.is_set()


def test_the_first_end_counts(served: Served) -> None:
    asked = served.unary.future(b"x")
    call = served.next()
    call.end(message=b"first")
    call.end(13, "second")
    assert asked.result(WAIT_S_MAX) == b"first"


def test_a_message_over_the_limit_is_refused_by_the_core(served: Served) -> None:
    asked = served.unary.future(bytes(200_000))
    assert got(served.next().read) is None
    with pytest.raises(grpc.RpcError) as caught:
        asked.result(WAIT_S_MAX)
    assert caught.value.code() == CODE.RESOURCE_EXHAUSTED


def test_compressed_messages_are_read(served: Served) -> None:
    asked = served.unary.future(b"a" * 5000, compression=grpc.Compression.Gzip)
    call = served.next()
    assert got(call.read) == b"a" * 5000
    call.end(message=b"b")
    assert asked.result(WAIT_S_MAX) == b"b"


def test_calls_beyond_the_limit_are_refused(kind: Kind) -> None:
    served = Served(kind, calls_max=2)
    try:
        waiting = [served.unary.future(b"") for _ in range(2)]
        calls = [served.next() for _ in waiting]
        with pytest.raises(grpc.RpcError) as caught:
            served.unary(b"", timeout=WAIT_S_MAX)
        assert caught.value.code() == CODE.RESOURCE_EXHAUSTED
        for call in calls:
            call.end(message=b"")
        assert [each.result(WAIT_S_MAX) for each in waiting] == [b"", b""]
    finally:
        served.close()


def test_a_slow_reader_holds_up_nobody_else(served: Served) -> None:
    slow = served.stream(iter(()))
    call = served.next()
    told = under_way(call)
    asked = served.unary.future(b"quick", timeout=WAIT_S_MAX)
    served.next().end(message=b"answer")
    assert asked.result() == b"answer"
    assert not told
    slow.cancel()
    until(lambda: call.cancelled)


def test_an_ended_call_whose_client_does_not_read_can_be_cancelled(
    served: Served, kind: Kind
) -> None:
    slow = served.stream(iter(()))
    call = served.next()
    assert got(lambda then: call.write(b"1", then))
    told = under_way(call)
    call.end(8, "slow")
    assert len(served.server._calls) == 1 and not told
    call.cancel(8, "slow")
    until(lambda: not served.server._calls)
    call.cancel(8, "slow")
    with pytest.raises(grpc.RpcError) as caught:
        list(slow)
    # gRPC documents no way to say why a call is cancelled.
    said = (
        (CODE.RESOURCE_EXHAUSTED, "slow") if kind is CoreServer else (CODE.CANCELLED, "CANCELLED")
    )
    assert (caught.value.code(), caught.value.details()) == said


def test_a_callback_that_raises_costs_one_call(served: Served) -> None:
    lost = served.unary.future(b"x", timeout=WAIT_S_MAX)

    def bad(data: bytes | None) -> None:
        raise ZeroDivisionError

    served.next().read(bad)
    asked = served.unary.future(b"y")
    served.next().end(message=b"fine")
    assert asked.result(WAIT_S_MAX) == b"fine"
    assert lost.code() is CODE.INTERNAL, "its client does not wait for its deadline"


def test_a_call_whose_beginning_raises_is_answered(kind: Kind) -> None:
    def begin(call: ServedCall) -> None:
        raise RuntimeError("nobody takes it")

    server = kind(OPTIONS, begin, calls_max=1, intake=intake())
    port = server.listen("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        asked = channel.unary_unary(PATH).future(b"", timeout=WAIT_S_MAX)
        assert asked.code() is CODE.INTERNAL
    server.stop()
    server.stopped.result(WAIT_S_MAX)


def test_a_stop_waits_for_calls_until_they_are_cancelled(kind: Kind) -> None:
    served = Served(kind)
    asked, other = served.unary.future(b"1"), served.unary.future(b"2")
    first, second = served.next(), served.next()
    served.server.stop()
    served.server.stop()
    with pytest.raises(grpc.RpcError) as caught:
        grpc.insecure_channel(f"127.0.0.1:{served.port}").unary_unary(PATH)(b"", timeout=WAIT_S_MAX)
    assert caught.value.code() == CODE.UNAVAILABLE
    assert not served.server.stopped.done()
    data = {got(first.read): first, got(second.read): second}
    data[b"1"].end(message=b"in time")
    assert asked.result(WAIT_S_MAX) == b"in time"
    served.server.cancel_all()
    served.server.stopped.result(WAIT_S_MAX)
    # The core's queue is gone: a batch of a call would end the process.
    data[b"2"].end(message=b"too late")
    assert got(data[b"2"].read) is None
    with pytest.raises(grpc.RpcError):
        other.result(WAIT_S_MAX)
    served.server.cancel_all()
    served.channel.close()


class StoppedWhileItAsks(CoreServer):
    """A server that another thread stops just before it asks for its second call."""

    def _ask(self) -> None:
        if self._thread.ident is not None:
            stopping = threading.Thread(target=self.stop)
            stopping.start()
            stopping.join(WAIT_S_MAX)
        super()._ask()


def test_a_stop_while_a_call_arrives_loses_neither() -> None:
    calls: queue.Queue[ServedCall] = queue.Queue()
    server = StoppedWhileItAsks(OPTIONS, calls.put, calls_max=1, intake=intake())
    port = server.listen("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        asked = channel.unary_unary(PATH).future(b"", timeout=WAIT_S_MAX)
        calls.get(timeout=WAIT_S_MAX).end(message=b"answer")
        assert asked.result() == b"answer"
        server.stopped.result(WAIT_S_MAX)


def test_a_server_that_never_began_stops(kind: Kind) -> None:
    server = kind(OPTIONS, lambda call: None, calls_max=1, intake=intake())
    port = server.listen("127.0.0.1:0")
    server.stop()
    server.stopped.result(WAIT_S_MAX)
    again = kind(OPTIONS, lambda call: None, calls_max=1, intake=intake())
    assert again.listen(f"127.0.0.1:{port}") == port
    again.stop()


def test_a_taken_address_cannot_be_had(served: Served, kind: Kind) -> None:
    other = kind(OPTIONS, lambda call: None, calls_max=1, intake=intake())
    with pytest.raises(RuntimeError):
        other.listen(f"127.0.0.1:{served.port}")
    other.stop()


def test_many_calls_from_many_threads_are_answered_or_cancelled(kind: Kind) -> None:
    """Answers come from other threads, while clients leave at any moment."""
    served, stopped = Served(kind), threading.Event()
    pool = ThreadPoolExecutor(8)

    def answer() -> None:
        while not stopped.is_set():
            try:
                call = served.calls.get(timeout=0.05)
            except queue.Empty:
                continue
            call.read(lambda data, call=call: call.end(message=data) if data else None)

    def ask(number: int) -> int:
        well = 0
        for at in range(150):
            text = b"%d-%d" % (number, at)
            asked = served.unary.future(text, timeout=WAIT_S_MAX)
            if (number + at) % 3 == 0:
                asked.cancel()
            else:
                well += asked.result() == text
        return well

    answering = [pool.submit(answer) for _ in range(3)]
    try:
        with ThreadPoolExecutor(8) as askers:
            assert sum(askers.map(ask, range(8))) == 800
        until(lambda: not served.server._calls)
    finally:
        stopped.set()
        for each in answering:
            each.result(WAIT_S_MAX)
        served.close()


def test_a_call_that_ended_is_forgotten(served: Served) -> None:
    asked = served.unary.future(b"x")
    call = served.next()
    kept = weakref.ref(call)
    call.end(message=b"y")
    asked.result(WAIT_S_MAX)
    until(lambda: not served.server._calls)
    del call
    asked = served.unary.future(b"z")  # kept, as one that is dropped is cancelled
    served.next().end()  # its events have replaced the last ones
    gc.collect()
    assert kept() is None


def test_a_thread_of_events_that_ends_says_so(kind: Kind) -> None:
    class Breaks(kind):  # type: ignore[misc,valid-type]
        """A server with a bug beyond its calls."""

        def _ended(self, call: ServedCall) -> None:
            raise KeyError("no such call")

    def begin(call: ServedCall) -> None:
        call.end(message=b"")

    server, broken = Breaks(OPTIONS, begin, calls_max=1, intake=intake()), threading.Event()
    texts: list[str] = []
    server.on_broken = lambda text: (texts.append(text), broken.set())
    port = server.listen("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        asked = channel.unary_unary(PATH).future(b"")
        assert broken.wait(WAIT_S_MAX)
        asked.cancel()
    why = "the thread of the events failed; see the daemon's log"
    assert texts == [f"no call is served any more: {why}"]
    server.stop()
    server.stopped.result(WAIT_S_MAX)
    server.cancel_all()


def test_what_is_under_way_at_a_stop_can_be_given_a_status(served: Served) -> None:
    asked = [served.unary.future(b"") for _ in range(3)]
    calls = [served.next() for _ in asked]
    served.server.stop()
    served.server.end_all(14, "stopping")
    served.server.stopped.result(WAIT_S_MAX)
    assert {(each.code(), each.details()) for each in asked} == {(CODE.UNAVAILABLE, "stopping")}
    assert not any(call.cancelled for call in calls)


def test_messages_beyond_the_bytes_in_flight_are_refused(served: Served) -> None:
    kept = []
    for _ in range(2):
        asked = served.unary.future(bytes(90_000))
        call = served.next()
        call.principal = Principal(f"user-{len(kept)}", BASIC)
        assert got(call.read) == bytes(90_000)
        kept.append((asked, call))
    refused = served.unary.future(bytes(90_000))
    served.next().read(lambda data: None)
    assert refused.code() is CODE.RESOURCE_EXHAUSTED and "in flight" in refused.details()
    small = served.unary.future(b"small")
    call = served.next()
    assert got(call.read) == b"small"
    call.end(message=b"")
    assert small.result(WAIT_S_MAX) == b""
    for asked, call in kept:
        call.keep()
        call.end(message=b"")
        asked.result(WAIT_S_MAX)
    until(lambda: not served.server._calls)
    assert served.intake._bytes == 360_000, "they are still used"
    for _, call in kept:
        call.let_go()
    assert served.intake._bytes == 0
    again = served.unary.future(bytes(90_000))
    assert got(served.next().read) == bytes(90_000)
    again.cancel()


PACE = IntakePace(lane=1, lane_s=0.4, read_s_max=WAIT_S_MAX)
PATIENT = IntakePace(lane=1, lane_s=WAIT_S_MAX, read_s_max=WAIT_S_MAX)


class Reading:
    """A server that answers each call with its request, and streams that hold requests back.

    Each call is that of another caller.
    """

    def __init__(self, kind: Kind, pace: IntakePace) -> None:
        self.intake = Intake(message_bytes_max=100_000, bytes_max=400_000, pace=pace)
        self.begun: queue.Queue[ServedCall] = queue.Queue()
        self.numbers = itertools.count()
        self.server = kind(OPTIONS, self._begin, calls_max=100, intake=self.intake)
        self.port = self.server.listen("127.0.0.1:0")
        self.server.start()
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.quick = self.channel.unary_unary(PATH)

    def _begin(self, call: ServedCall) -> None:
        call.principal = Principal(f"user-{next(self.numbers)}", BASIC)
        call.read(lambda data: call.end(message=data))
        self.begun.put(call)

    def hold(self, wait_s: float = WAIT_S_MAX, data: bytes = b"late") -> Any:
        """A call, known to the server, whose request comes after so long."""

        def late() -> Iterator[bytes]:
            threading.Event().wait(wait_s)
            yield data

        held = self.channel.stream_stream(PATH)(late())
        self.begun.get(timeout=WAIT_S_MAX)
        return held

    def close(self) -> None:
        self.server.stop()
        self.server.cancel_all()
        self.server.stopped.result(WAIT_S_MAX)
        self.channel.close()


@pytest.fixture
def reading(request: pytest.FixtureRequest, kind: Kind) -> Iterator[Reading]:
    made = Reading(kind, getattr(request, "param", PACE))
    yield made
    made.close()


@pytest.mark.parametrize("reading", [PATIENT], indirect=True, ids=["patient"])
def test_small_requests_pass_though_slow_ones_take_all_the_room(reading: Reading) -> None:
    slow = [reading.hold() for _ in range(4)]
    assert reading.intake._bytes == 400_000, "there is room for four"
    for size in (0, 1000, 40_000, 40_000, 40_000):
        assert reading.quick(bytes(size), timeout=WAIT_S_MAX) == bytes(size)
    late = [reading.hold(0.2) for _ in range(10)]
    assert [[*each] for each in late] == [[b"late"]] * 10, "they wait for each other"
    assert all(each.is_active() for each in slow)


def test_a_slow_read_leaves_the_lane_if_others_wait(reading: Reading) -> None:
    slow = [reading.hold() for _ in range(5)]
    assert reading.quick(b"1", timeout=WAIT_S_MAX) == b"1"
    # To be told so takes the client a moment: `code` waits for it.
    assert slow[4].code() is CODE.RESOURCE_EXHAUSTED and "in flight" in slow[4].details()
    assert [each.is_active() for each in slow] == [True] * 4 + [False]


@pytest.mark.parametrize("reading", [IntakePace(lane_s=9.0, read_s_max=0.3)], indirect=True)
def test_a_request_that_does_not_come_is_refused(reading: Reading) -> None:
    slow = [reading.hold() for _ in range(7)]
    assert [each.code() for each in slow] == [CODE.RESOURCE_EXHAUSTED] * 7
    assert {each.details() for each in slow[:5]} == {"no request came within 0.3 s"}
    assert reading.intake._bytes == 0


@pytest.mark.parametrize("reading", [IntakePace(lane_s=9.0, waiting=3)], indirect=True)
def test_of_too_many_reads_that_wait_the_oldest_are_refused(reading: Reading) -> None:
    slow = [reading.hold() for _ in range(4 + 1 + 3 + 2)]
    refused = slow[5:7]
    assert [each.code() for each in refused] == [CODE.RESOURCE_EXHAUSTED] * 2
    assert all(each.is_active() for each in slow if each not in refused)


def test_a_call_that_is_cancelled_while_its_read_waits_is_told_so(reading: Reading) -> None:
    """And takes no place later: what waits is forgotten with its call."""
    slow = [reading.hold() for _ in range(5)]
    told: queue.Queue[bytes | None] = queue.Queue()
    call: queue.Queue[ServedCall] = queue.Queue()

    def begin(arrived: ServedCall) -> None:
        call.put(arrived)
        arrived.read(told.put)

    reading.server._begin = begin
    asked = reading.channel.unary_unary(PATH).future(b"1")
    call.get(timeout=WAIT_S_MAX)
    asked.cancel()
    assert told.get(timeout=WAIT_S_MAX) is None
    assert all(each.is_active() for each in slow), "nobody waits any more"


# ---- which one serves ----


@pytest.fixture
def anew() -> Iterator[None]:
    carrier.core_trouble.cache_clear()
    yield
    carrier.core_trouble.cache_clear()


def served_by() -> str:
    """The name of what serves, after it has; and what health says of it."""
    made = carrier.call_server(
        OPTIONS, lambda call: call.end(message=b"x"), calls_max=1, intake=intake()
    )
    port = made.listen("127.0.0.1:0")
    made.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert channel.unary_unary(PATH)(b"", timeout=WAIT_S_MAX) == b"x"
    made.stop()
    made.stopped.result(WAIT_S_MAX)
    return " ".join((type(made).__name__, *map(str, carrier.carrier_notes())))


def test_the_core_serves_where_it_is_as_expected(anew: None) -> None:
    assert served_by() == "CoreServer"


def takes_more(*_: object) -> None:
    raise TypeError("takes 2 positional arguments")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"CompletionQueue": None}, "there is no CompletionQueue)"),
        ({"Server": takes_more}, "TypeError: takes 2"),
        ({"ReceiveMessageOperation": takes_more}, "INTERNAL"),
    ],
    ids=["a name", "a signature", "that of a call"],
)
def test_with_a_planted_change_the_documented_server_does_and_says_why(
    anew: None, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], why: str
) -> None:
    changed = {name: it for name, it in {**vars(completions.cygrpc), **change}.items() if it}
    monkeypatch.setattr(completions, "cygrpc", types.SimpleNamespace(**changed))
    said = served_by()
    assert said.startswith("PublicServer grpc: calls are served by gRPC's documented server")
    assert f"(grpcio {grpc.__version__}: " in said and why in said
