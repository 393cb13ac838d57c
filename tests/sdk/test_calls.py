"""One description of each call for two clients: what blocks, what awaits, and what is loaded."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from peloton.ops.v1 import ops_pb2 as ops
from peloton.sdk import AsyncClient, Client
from peloton.sdk.calls import Calls, M, call, make_block, run, stream
from tests.sdk.fakes import JOB, Cluster, serving

AT_ONCE = 3


class Suspended:
    """What waits for an event loop."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Numbers(Calls[M]):
    """Calls that need no cluster."""

    def __init__(self) -> None:
        self.ended = False

    @call
    async def double(self, number: int) -> int:
        """Return twice the number."""
        return number * 2

    @call
    async def quadruple(self, number: int) -> int:
        return await self.double(await self.double(number))

    @stream
    async def count(self, most: int) -> AsyncGenerator[int, None]:
        try:
            for number in range(most):
                yield await self.double(number)
        finally:
            self.ended = True

    @call
    async def pause(self) -> None:
        await Suspended()


def blocking() -> Numbers[Any]:
    found: Numbers[Any] = Numbers()
    make_block(found)
    return found


def test_a_call_is_made_at_once_or_when_it_is_awaited() -> None:
    assert blocking().quadruple(2) == 8
    awaited: Numbers[Any] = Numbers()
    assert asyncio.run(awaited.quadruple(2)) == 8


def test_a_stream_that_is_left_ends() -> None:
    numbers = blocking()
    found = numbers.count(3)
    assert [next(found), next(found)] == [0, 2]
    found.close()
    assert numbers._awaited.ended and [*numbers.count(2)] == [0, 2]


def test_a_method_shows_the_signature_and_the_text_of_its_call() -> None:
    for numbers in (blocking(), Numbers()):
        assert str(inspect.signature(numbers.double)) == "(number: 'int') -> 'int'"
        assert numbers.double.__doc__ == "Return twice the number."
    assert not inspect.iscoroutinefunction(blocking().double)


def test_what_only_a_loop_can_do_is_a_mistake_of_ours() -> None:
    with pytest.raises(RuntimeError, match="only an event loop"):
        blocking().pause()
    with pytest.raises(RuntimeError, match="only an event loop"):
        run(Suspended())


@pytest.mark.parametrize(
    ("line", "absent"),
    [
        ("import peloton.sdk", "grpc"),
        ("import peloton.sdk.errors, peloton.sdk.addresses", "grpc"),
        ("from peloton.sdk import Client", "peloton.sdk.aio"),
    ],
)
def test_what_is_not_named_is_not_loaded(line: str, absent: str) -> None:
    program = f"{line}\nimport sys\nassert {absent!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_client_blocks_within_an_event_loop_as_well() -> None:
    cluster = Cluster()
    cluster.streams = [[ops.WatchResponse(resume="t0"), None]]

    async def main(address: str) -> None:
        with Client(address, timeout_s=60) as client:
            heard = client.ops.watch(job=JOB)
            assert next(heard).resume == "t0"
            heard.close()

    with serving(cluster) as address:
        asyncio.run(main(address))


class Gate(grpc.GenericRpcHandler):
    """Answers no call before so many are there; knows whether one was cancelled."""

    def __init__(self, calls: int) -> None:
        self.all = threading.Barrier(calls)
        self.begun, self.cancelled = threading.Event(), threading.Event()

    def service(self, details: Any) -> Any:
        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            context.add_callback(self.cancelled.set)
            self.begun.set()
            self.all.wait(60)
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)


@contextmanager
def gated(calls: int) -> Iterator[tuple[Gate, str]]:
    gate = Gate(calls)
    server = grpc.server(ThreadPoolExecutor(AT_ONCE), handlers=[gate])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield gate, f"127.0.0.1:{port}"
    finally:
        gate.all.abort()
        server.stop(None).wait()


def test_many_calls_are_under_way_at_once() -> None:
    async def main(address: str) -> None:
        async with AsyncClient(address, timeout_s=60) as client:
            await asyncio.gather(*(client.ops.hosts() for _ in range(AT_ONCE)))

    with gated(AT_ONCE) as (_, address):
        asyncio.run(main(address))


def test_a_call_that_is_cancelled_is_given_up() -> None:
    async def main(gate: Gate, address: str) -> None:
        async with AsyncClient(address, timeout_s=60) as client:
            task = asyncio.create_task(client.ops.hosts())
            assert await asyncio.to_thread(gate.begun.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(gate.cancelled.wait, 60)

    with gated(AT_ONCE) as (gate, address):
        asyncio.run(main(gate, address))
