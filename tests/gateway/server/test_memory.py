"""What many or large requests cost in memory, measured at a process."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from peloton.api.v0.job import job_pb2
from peloton.gateway.grpc_server import MESSAGES_IN_FLIGHT
from peloton.gateway.server.intake import PACE
from peloton.settings.config import RECEIVE_MAX_BYTES
from tests.conftest import ROOT
from tests.gateway.fleet_fixture import WAIT_S_MAX, until
from tests.gateway.server.http2 import (
    CONTINUATION,
    END_HEADERS,
    HEADERS,
    PING,
    PREFACE,
    RESET,
    SETTINGS,
    Link,
    call_headers,
    frame,
)
from tests.gateway.server.message_bytes import tag, varint

MIB = 1024 * 1024
CODE = grpc.StatusCode
LARGE, CLIENTS = 60 * MIB, 12
ROOM = MESSAGES_IN_FLIGHT + PACE.lane
"""More of the largest requests are never taken at once."""
GROWTH_BYTES_MAX = 540 * MIB
IDLE = 1000
IDLE_BYTES_MAX = 150 * MIB
HALF_A_CALL = PREFACE + frame(HEADERS, END_HEADERS, 1, call_headers("/peloton.ops.v1.Ops/Watch"))


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
            answer = health_pb2_grpc.HealthStub(channel).Check(sent, timeout=WAIT_S_MAX)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def channel(self) -> grpc.Channel:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        return grpc.insecure_channel(f"127.0.0.1:{self.port}", options)


CREATE = "/peloton.api.job.JobManager/Create"
UNKNOWN = "/no.such.Service/Call"
BOMB_BYTES = RECEIVE_MAX_BYTES + MIB
"""More than a message may have, out of a thousandth of that."""
HOSTILE_BYTES_MAX = 24 * MIB
"""By so much a thousand more hostile calls may let the process grow."""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """The server, whose log has to stay empty."""
    log = tmp_path / "log"
    with log.open("w") as file:
        started = subprocess.Popen(
            [sys.executable, "-m", "tests.gateway.server.receiving_process"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True,
        )  # fmt: skip
    with started:
        try:
            assert started.stdout is not None
            yield Process(started.pid, int(started.stdout.readline()))
            assert started.stdin is not None
            started.stdin.close()
            assert started.wait(WAIT_S_MAX) == 0
        finally:
            started.kill()
    # The library's own word on a frame that is no request; ours says nothing.
    lines = [line for line in log.read_text().splitlines() if "hpack_parser" not in line]
    assert lines == []


def large_request() -> bytes:
    request = job_pb2.CreateRequest()
    request.config.name = "x" * LARGE
    return request.SerializeToString()


@pytest.mark.nightly  # the more busy the machine, the later what was refused is given back
def test_large_requests_from_many_clients_hold_bounded_memory(process: Process) -> None:
    """Those for which there is room stay, as the cluster of that process never answers."""
    data = large_request()
    assert process.is_healthy()
    before = process.status("VmHWM")
    with contextlib.ExitStack() as stack:
        channels = [stack.enter_context(process.channel()) for _ in range(CLIENTS)]
        calls = [channel.unary_unary(CREATE).future(data) for channel in channels]
        until(lambda: sum(call.done() for call in calls) >= CLIENTS - ROOM)
        until(lambda: process.status("VmHWM") - before > LARGE)
        assert process.is_healthy()
        codes = [call.code() for call in calls if call.done()]
        for call in calls:
            call.cancel()
    assert {*codes} == {CODE.RESOURCE_EXHAUSTED}, codes
    assert len(codes) < CLIENTS, "there is room for one"
    grown = process.status("VmHWM") - before
    assert grown < GROWTH_BYTES_MAX, grown
    assert process.is_healthy()


def test_idle_connections_cost_bounded_memory_and_no_threads(process: Process) -> None:
    """Some say nothing, some have begun, some have half a call."""
    assert process.is_healthy()
    memory, threads = process.status("VmRSS"), process.status("Threads")
    with contextlib.ExitStack() as stack:
        for number in range(IDLE):
            link = socket.create_connection(("127.0.0.1", process.port), timeout=WAIT_S_MAX)
            stack.enter_context(link)
            link.sendall((b"", PREFACE, HALF_A_CALL)[number % 3])
        assert process.is_healthy()
        assert process.status("VmRSS") - memory < IDLE_BYTES_MAX
        assert process.status("Threads") - threads <= 8
    assert process.is_healthy()


def test_a_message_that_unpacks_to_too_much_is_refused(process: Process) -> None:
    data = tag(99, 2) + varint(BOMB_BYTES) + bytes(BOMB_BYTES)
    assert process.is_healthy()
    before = process.status("VmHWM")
    with process.channel() as channel:
        call = channel.unary_unary(CREATE).future(
            data, timeout=WAIT_S_MAX, compression=grpc.Compression.Gzip
        )
        assert call.code() == CODE.RESOURCE_EXHAUSTED
        assert "larger than max" in call.details()
    assert process.status("VmHWM") - before < 3 * BOMB_BYTES
    assert process.is_healthy()


def bad_headers(port: int, chance: Random) -> None:
    """Headers without an end, of which no server may keep all."""
    with Link(port, timeout_s=WAIT_S_MAX) as link:
        link.send(frame(HEADERS, 0, 1, call_headers(UNKNOWN)))
        for _ in range(200):
            if not link.send(frame(CONTINUATION, 0, 1, chance.randbytes(1000))):
                return


def rapid_resets(port: int, chance: Random) -> None:
    """Calls that are taken back at once."""
    with Link(port, timeout_s=WAIT_S_MAX) as link:
        headers = call_headers(CREATE)
        for number in range(1, 401, 2):
            begin = frame(HEADERS, END_HEADERS, number, headers)
            if not link.send(begin, frame(RESET, 0, number, b"\0\0\0\x08")):
                return


def floods(port: int, chance: Random) -> None:
    """Frames that ask for an answer each."""
    with Link(port, timeout_s=WAIT_S_MAX) as link:
        for _ in range(100):
            if not link.send(frame(PING, 0, 0, bytes(8)) * 10, frame(SETTINGS, 0, 0) * 10):
                return


def noise(port: int, chance: Random) -> None:
    """No HTTP/2, or none after its first frame."""
    for number in range(20):
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S_MAX) as link:
            link.sendall(PREFACE * (number % 2) + chance.randbytes(chance.randrange(1, 3000)))


def strange_calls(port: int, chance: Random) -> None:
    """Other content types, methods and lengths than calls have; half of a body."""
    with Link(port, timeout_s=WAIT_S_MAX) as link:
        for number, content in enumerate(("text/html", "", "application/json", "x" * 100)):
            link.call(call_headers(UNKNOWN, content=content), b"{}", stream=2 * number + 1)
        link.hear(b"grpc-status")
    huge = b"\xff\xff\xff\xff"
    for body in (b"\1" + huge, b"\0" + huge, b"\2\0\0\0\0", b"\1\0\0\0\4abcd", b"\0"):
        with Link(port, timeout_s=0.05) as link:
            link.call(call_headers(CREATE, ("grpc-encoding", "gzip")), body)
            link.hear(b"grpc-status")


ATTACKS = (bad_headers, rapid_resets, floods, noise, strange_calls)


def test_hostile_connections_do_not_let_the_process_grow(process: Process) -> None:
    """The first round fills caches and pools; it is what comes after that must not add up."""
    assert process.is_healthy()
    chance = Random(12)
    for attack in ATTACKS:
        attack(process.port, chance)
        assert process.is_healthy(), attack
    before, threads = process.status("VmRSS"), process.status("Threads")
    for _ in range(3):
        for attack in ATTACKS:
            attack(process.port, chance)
    assert process.is_healthy()
    assert process.status("VmRSS") - before < HOSTILE_BYTES_MAX
    assert process.status("Threads") - threads <= 70, "the pool, at most"
