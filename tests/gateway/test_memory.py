"""What many or large requests cost in memory, measured at a process."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from peloton.api.v0.job import job_pb2
from tests.conftest import ROOT

MIB = 1024 * 1024
CODE = grpc.StatusCode
LARGE, CLIENTS = 60 * MIB, 12
GROWTH_BYTES_MAX = 540 * MIB
IDLE = 1000
IDLE_BYTES_MAX = 150 * MIB
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
BLOCK = b"".join(
    bytes((0, len(name))) + name + bytes((len(value),)) + value
    for name, value in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/peloton.ops.v1.Ops/Watch"),
        (b":authority", b"localhost"), (b"te", b"trailers"), (b"content-type", b"application/grpc"),
    )
)  # fmt: skip
"""Headers of a call as HPACK literals."""
HEADERS = bytes((0, 0, len(BLOCK), 1, 4, 0, 0, 0, 1)) + BLOCK


class Process(NamedTuple):
    """A server in a process of its own."""

    pid: int
    port: int

    def status(self, name: str) -> int:
        """A number of `/proc/PID/status`; kB are given in bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return int(value.split()[0]) * (1024 if value.endswith("kB") else 1)
        raise KeyError(name)

    def is_healthy(self) -> bool:
        with self.channel() as channel:
            sent = health_pb2.HealthCheckRequest()
            answer = health_pb2_grpc.HealthStub(channel).Check(sent, timeout=20)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def channel(self) -> grpc.Channel:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        return grpc.insecure_channel(f"127.0.0.1:{self.port}", options)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """The server, whose log has to stay empty."""
    log = tmp_path / "log"
    with log.open("w") as file:
        started = subprocess.Popen(
            [sys.executable, "-m", "tests.gateway.receiving_process"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True,
        )  # fmt: skip
    with started:
        try:
            assert started.stdout is not None
            yield Process(started.pid, int(started.stdout.readline()))
            assert started.stdin is not None
            started.stdin.close()
            assert started.wait(20) == 0
        finally:
            started.kill()
    assert log.read_text() == ""


def large_request() -> bytes:
    request = job_pb2.CreateRequest()
    request.config.name = "x" * LARGE
    return request.SerializeToString()


def test_large_requests_from_many_clients_hold_bounded_memory(process: Process) -> None:
    data, together = large_request(), threading.Barrier(CLIENTS)

    def ask(number: int) -> grpc.StatusCode:
        with process.channel() as channel:
            together.wait()
            call = channel.unary_unary("/peloton.api.job.JobManager/Create")
            return call.future(data, timeout=6).code()

    assert process.is_healthy()
    before = process.status("VmHWM")
    with ThreadPoolExecutor(CLIENTS) as pool:
        codes = Counter(pool.map(ask, range(CLIENTS)))
    grown = process.status("VmHWM") - before
    assert codes[CODE.RESOURCE_EXHAUSTED] > 0 and grown < GROWTH_BYTES_MAX, (codes, grown)
    # The cluster of that process never answers.
    assert {*codes} <= {CODE.RESOURCE_EXHAUSTED, CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED}, codes
    assert len(codes) > 1, "there is room for one"
    assert process.is_healthy()


def test_idle_connections_cost_bounded_memory_and_no_threads(process: Process) -> None:
    """Some say nothing, some have begun, some have half a call."""
    assert process.is_healthy()
    memory, threads = process.status("VmRSS"), process.status("Threads")
    with contextlib.ExitStack() as stack:
        for number in range(IDLE):
            link = socket.create_connection(("127.0.0.1", process.port), timeout=20)
            stack.enter_context(link)
            link.sendall((b"", PREFACE, PREFACE + HEADERS)[number % 3])
        assert process.is_healthy()
        assert process.status("VmRSS") - memory < IDLE_BYTES_MAX
        assert process.status("Threads") - threads <= 8
    assert process.is_healthy()
