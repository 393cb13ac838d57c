"""The log of a process: nobody who reads its stdout or stderr, or stops to, can hold it up."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import grpc
import pytest

from peloton.assembly.process_log import PENDING_BYTES_MAX, StderrWriter
from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import ops_pb2_grpc
from tests.gateway.fleet_fixture import WAIT_S_MAX

CALLS = 100  # their tracebacks fill a pipe several times
SECRET = "hunter2-is-the-password"
PROGRAM = """
import sys
from peloton.processes.foreground import ProcessTexts, run_process
from peloton.gateway.access.authentication import Authentication
from peloton.gateway.server.intake import Intake
from peloton.gateway.server.serving import Server
from peloton.ops.v1 import ops_pb2 as ops

class Broken:
    def Story(self, sent, context):
        environment = "".join(["hunter2", "-is-the-password"])
        raise KeyError("x" * 1000)

    async def WaitJob(self, sent, call):
        environment = "".join(["hunter2", "-is-the-password"])
        raise KeyError("x" * 1000)

class Running:
    def __init__(self):
        intake = Intake(message_bytes_max=4 << 20, bytes_max=16 << 20)
        self.server = Server([], intake, authentication=Authentication.open())
        service = ops.DESCRIPTOR.services_by_name["Ops"]
        self.server.add(service, Broken(), names=["peloton.ops.v1.Ops"])
        self.port = self.server.listen(["127.0.0.1:0"])[0]
        self.server.start()

    def stop(self):
        return self.server.stop(0.1).wait(60)

texts = ProcessTexts("broken", "leaving", failed=7, left=1)
sys.exit(run_process(lambda failed: Running(), greet=lambda one: print(one.port), texts=texts))
"""


@contextmanager
def broken(stderr: int | IO[str]) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """A process whose calls all fail, and its stub. Its stdout is read up to its first line."""
    line = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            assert process.stdout is not None
            with grpc.insecure_channel(f"127.0.0.1:{int(process.stdout.readline())}") as channel:
                yield process, ops_pb2_grpc.OpsStub(channel)
        finally:
            process.kill()


def fail_often(stub: Any, *, calls: int = CALLS) -> None:
    for _ in range(calls):
        for call in (
            lambda: stub.Story(ops.StoryRequest(), timeout=WAIT_S_MAX),
            lambda: stub.WaitJob(ops.WaitJobRequest(), timeout=WAIT_S_MAX),
        ):
            with pytest.raises(grpc.RpcError) as failed:
                call()
            assert failed.value.code() == grpc.StatusCode.INTERNAL, failed.value.details()


def ended(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(WAIT_S_MAX)


def test_nobody_reads_stdout(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log, broken(log) as (process, stub):
        fail_often(stub)
        assert ended(process) == 0
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[-1] == "leaving"
    assert sum(" error a call failed method='peloton.ops.v1.Ops." in line for line in lines) == (
        2 * CALLS
    )
    assert sum(line.startswith("Traceback") for line in lines) == 2 * CALLS
    assert not any(SECRET in line for line in lines)


def test_stdout_is_closed() -> None:
    with broken(subprocess.DEVNULL) as (process, stub):
        assert process.stdout is not None
        process.stdout.close()
        fail_often(stub, calls=3)
        assert ended(process) == 0


def test_nobody_reads_stderr() -> None:
    with broken(subprocess.PIPE) as (process, stub):
        fail_often(stub)
        assert ended(process) == 0


def test_stderr_is_closed() -> None:
    with broken(subprocess.PIPE) as (process, stub):
        assert process.stderr is not None
        process.stderr.close()
        fail_often(stub, calls=3)
        assert ended(process) == 0


def test_lines_that_were_dropped_are_counted_and_reported() -> None:
    read, write = os.pipe()
    with open(read, "rb", buffering=0) as reader, open(write, "w") as stream:
        writer = StderrWriter(stream)
        line = "x" * 999 + "\n"
        lines = 200 + PENDING_BYTES_MAX // 1000
        for _ in range(lines):
            writer.write(line)
        dropped = writer.dropped
        assert 0 < dropped < lines
        got = bytearray()

        def read_all() -> None:
            while b"last" not in got:
                got.extend(reader.read(65536))

        thread = threading.Thread(target=read_all)
        thread.start()
        assert writer.drain(WAIT_S_MAX)
        writer.write("last\n")
        thread.join(WAIT_S_MAX)
        assert f"{dropped} lines of this log were dropped" in got.decode()
        assert got.count(line.encode()) == lines - dropped
        assert writer.dropped == 0


def test_a_line_is_written_when_the_writer_goes_on() -> None:
    found = io.StringIO()
    writer = StderrWriter(found)
    print("one", file=writer)
    assert found.getvalue() == "one\n"
    writer.write("no end")
    assert found.getvalue() == "one\n"
    writer.write(" yet\n")
    assert found.getvalue() == "one\nno end yet\n"


def test_a_process_without_stderr() -> None:
    writer = StderrWriter(None)
    print("nowhere", file=writer)
    assert (writer.dropped, writer.isatty()) == (1, False)
