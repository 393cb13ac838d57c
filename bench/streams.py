"""What many open server streams cost a gRPC server: threads, memory, CPU, and unary calls beside.

Four servers, each in a process of its own, keep 1,000 streams open and send every one of them an
event now and then: a thread for each stream (`threads`), one dispatcher that writes to the streams
of a sync server through its experimental hook (`dispatcher`), `grpc.aio` with unary handlers in a
pool of threads (`aio`), and one thread that takes the events of gRPC's core, with such a pool and
an event loop for streams (`core`), which is what the gateway does (`gateway/server/serving.py`). It
must not use services of the gateway: only the way of serving is compared.

    script/bench streams [--streams 1000] [--rounds 20] [--calls 2000]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts.measure import cpu_s  # noqa: E402
from peloton.gateway.server.carrier import call_server  # noqa: E402
from peloton.gateway.server.intake import Intake  # noqa: E402
from peloton.gateway.server.served_calls import ServedCall  # noqa: E402

EVENT = b"x" * 200
POOL = 64
IDLE_S = 3.0
STREAM, UNARY, PUBLISH = "/bench.Bench/Stream", "/bench.Bench/Unary", "/bench.Bench/Publish"


class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Three calls without protobuf."""

    def __init__(self, **handlers: Any) -> None:
        self._handlers = {f"/bench.Bench/{name}": found for name, found in handlers.items()}

    def service(self, details: Any) -> Any:
        return self._handlers.get(details.method)


def thread_each(streams: int) -> Callable[[], int]:
    """A sync server, whose pool needs a thread for every stream."""
    conditions: list[threading.Condition] = [threading.Condition()]
    rounds = [0]

    def stream(request: bytes, context: Any) -> Any:
        seen = 0
        while context.is_active():
            with conditions[0]:
                while rounds[0] == seen:
                    conditions[0].wait()
            seen += 1
            yield EVENT

    def publish(request: bytes, context: Any) -> bytes:
        with conditions[0]:
            rounds[0] += 1
            conditions[0].notify_all()
        return b""

    return _sync(streams + POOL, stream=stream, publish=publish)


def dispatcher(streams: int) -> Callable[[], int]:
    """A sync server whose streams are written to by one thread; a write waits for its end."""
    senders: list[Any] = []
    wanted, bell = [0], threading.Condition()

    def stream(request: bytes, context: Any, send: Any) -> None:
        senders.append(send)

    stream.experimental_non_blocking = True  # type: ignore[attr-defined]

    def publish(request: bytes, context: Any) -> bytes:
        with bell:
            wanted[0] += 1
            bell.notify()
        return b""

    def write() -> None:
        done = 0
        while True:
            with bell:
                while wanted[0] == done:
                    bell.wait()
            done += 1
            for send in [*senders]:
                send(EVENT)

    threading.Thread(target=write, daemon=True).start()
    return _sync(POOL, stream=stream, publish=publish)


def _sync(threads: int, *, stream: Any, publish: Any) -> Callable[[], int]:
    def start() -> int:
        server = grpc.server(ThreadPoolExecutor(threads))
        handlers = Handlers(
            Stream=grpc.unary_stream_rpc_method_handler(stream),
            Unary=grpc.unary_unary_rpc_method_handler(lambda request, context: request),
            Publish=grpc.unary_unary_rpc_method_handler(publish),
        )
        server.add_generic_rpc_handlers((handlers,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        _KEEP.append(server)
        return int(port)

    return start


def aio(streams: int) -> Callable[[], int]:
    """An event loop on one thread; unary calls run in a pool, as their handlers block."""
    pool = ThreadPoolExecutor(POOL)
    ready, port, rounds = threading.Event(), [0], [0]

    async def serve() -> None:
        loop, bell = asyncio.get_running_loop(), asyncio.Condition()

        async def stream(request: bytes, context: Any) -> None:
            seen = 0
            while True:
                async with bell:
                    while rounds[0] == seen:
                        await bell.wait()
                seen += 1
                await context.write(EVENT)

        async def unary(request: bytes, context: Any) -> bytes:
            return await loop.run_in_executor(pool, lambda: request)

        async def publish(request: bytes, context: Any) -> bytes:
            async with bell:
                rounds[0] += 1
                bell.notify_all()
            return b""

        server = grpc.aio.server()
        handlers = Handlers(
            Stream=grpc.unary_stream_rpc_method_handler(stream),
            Unary=grpc.unary_unary_rpc_method_handler(unary),
            Publish=grpc.unary_unary_rpc_method_handler(publish),
        )
        server.add_generic_rpc_handlers((handlers,))
        port[0] = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        ready.set()
        await server.wait_for_termination()

    def start() -> int:
        threading.Thread(target=asyncio.run, args=(serve(),), daemon=True).start()
        ready.wait()
        return port[0]

    return start


def core(streams: int) -> Callable[[], int]:
    """The events of gRPC's core on one thread, streams on a loop, unary calls in a pool."""
    pool, loop = ThreadPoolExecutor(POOL), asyncio.new_event_loop()
    bell, rounds = asyncio.Condition(), [0]

    async def stream(call: ServedCall) -> None:
        for seen in itertools.count():
            async with bell:
                while rounds[0] == seen:
                    await bell.wait()
            sent = loop.create_future()
            call.write(EVENT, lambda well, sent=sent: loop.call_soon_threadsafe(sent.set_result, 0))
            await sent

    async def publish(call: ServedCall) -> None:
        async with bell:
            rounds[0] += 1
            bell.notify_all()
        call.end(message=b"")

    def begin(call: ServedCall) -> None:
        if call.method == UNARY:
            call.read(lambda data: pool.submit(call.end, message=data))
        else:
            work = stream if call.method == STREAM else publish
            asyncio.run_coroutine_threadsafe(work(call), loop)

    def start() -> int:
        threading.Thread(target=loop.run_forever, daemon=True).start()
        intake = Intake(message_bytes_max=4 << 20, bytes_max=1 << 30)
        server = call_server((), begin, calls_max=4 * streams, intake=intake)
        port = server.listen("127.0.0.1:0")
        server.start()
        _KEEP.append(server)
        return port

    return start


_KEEP: list[Any] = []
WAYS = {"threads": thread_each, "dispatcher": dispatcher, "aio": aio, "core": core}


def child(way: str, streams: int, pipe: Any) -> None:
    pipe.send(WAYS[way](streams)())
    pipe.recv()
    os._exit(0)


def status(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field)))


async def measure(pid: int, address: str, *, streams: int, rounds: int, calls: int) -> str:
    async with grpc.aio.insecure_channel(address) as channel:
        before = status(pid, "VmRSS")
        open_ = [channel.unary_stream(STREAM)(b"") for _ in range(streams)]
        publish, unary = channel.unary_unary(PUBLISH), channel.unary_unary(UNARY)
        # The first event proves that each stream is open.
        await asyncio.sleep(2.0)
        await publish(b"")
        await asyncio.gather(*(stream.read() for stream in open_))
        threads, memory = status(pid, "Threads"), status(pid, "VmRSS") - before
        began = cpu_s(pid)
        await asyncio.sleep(IDLE_S)
        idle = (cpu_s(pid) - began) / IDLE_S
        began, at = cpu_s(pid), time.monotonic()
        for _ in range(rounds):
            await publish(b"")
            await asyncio.gather(*(stream.read() for stream in open_))
        events, took_s = rounds * streams, time.monotonic() - at
        each_us = (cpu_s(pid) - began) / events * 1e6
        limit = asyncio.Semaphore(32)

        async def call() -> float:
            async with limit:
                began_s = time.monotonic()
                await unary(b"x")
                return time.monotonic() - began_s

        began = cpu_s(pid)
        times = sorted(await asyncio.gather(*(call() for _ in range(calls))))
        unary_us = (cpu_s(pid) - began) / calls * 1e6
        for stream in open_:
            stream.cancel()
    return (
        f"{threads:5} threads, {memory / streams:5.1f} KB a stream, idle {idle:.1%} of a core, "
        f"{each_us:4.0f} us CPU an event ({events / took_s:,.0f}/s), "
        f"unary {unary_us:4.0f} us CPU, median {times[len(times) // 2] * 1e3:.1f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=2000)
    chosen = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    for way in WAYS:
        here, there = spawn.Pipe()
        process = spawn.Process(target=child, args=(way, chosen.streams, there))
        process.start()
        address = f"127.0.0.1:{here.recv()}"
        pid = process.pid or 0
        figures = measure(
            pid, address, streams=chosen.streams, rounds=chosen.rounds, calls=chosen.calls
        )
        print(f"{way:11} {asyncio.run(figures)}", flush=True)
        here.send("stop")
        process.join(10)


if __name__ == "__main__":
    main()
