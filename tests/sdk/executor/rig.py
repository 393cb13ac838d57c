"""Worker processes and a client's side of their links, with real sockets and without a cluster."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from peloton.sdk.executor import peers, worker
from peloton.sdk.executor.answers import CallAnswer
from peloton.sdk.executor.calls import CallQueue, ExecutorCall
from peloton.sdk.executor.futures import PelotonFuture, WorkerId
from peloton.sdk.executor.links import WorkerServer, WorkerSetup
from peloton.sdk.executor.local import LocalThreads
from peloton.sdk.executor.packing import FunctionPacker, pack_arguments

ROOT = Path(__file__).resolve().parents[3]
WITHIN_S = 90.0
IDLE_S = 600.0


class Owner:
    """Who would start workers: it only notes what it is told. `orphans` are calls of a client
    before."""

    def __init__(self, calls: CallQueue) -> None:
        self.told: queue.Queue[tuple[Any, ...]] = queue.Queue()
        self.orphans: dict[int, ExecutorCall] = {}
        self._calls = calls

    def arrived(self, worker: WorkerId, held: Collection[int]) -> Sequence[ExecutorCall]:
        self.told.put(("arrived", worker.instance, sorted(held)))
        return [self.orphans.pop(number) for number in held if number in self.orphans]

    def settled(self, answer: CallAnswer, worker: WorkerId) -> None:
        pass

    def left(self, worker: WorkerId) -> None:
        self.told.put(("left", worker.instance))

    def lost(self, worker: WorkerId, call: ExecutorCall | None) -> None:
        number = None if call is None else call.number
        if call is not None:
            call.future.set_exception(RuntimeError("its worker is lost"))
            self._calls.finished([call])
        self.told.put(("lost", worker.instance, number))

    def expect(self, *kinds: str) -> list[tuple[Any, ...]]:
        """The next things that it is told, which are of these kinds."""
        found = [self.told.get(timeout=WITHIN_S) for _ in kinds]
        assert [one[0] for one in found] == list(kinds), found
        return found


class Rig:
    """One client; its workers have sandboxes in a folder."""

    def __init__(self, folder: Path, *, idle_s: float = IDLE_S, keep_s: float = 0.0) -> None:
        self.folder = folder
        self.keep_s = keep_s
        self.processes: list[subprocess.Popen[str]] = []
        self.token = peers.new_token()
        (folder / "token").write_bytes(self.token)
        self._idle_s = idle_s
        self._packer = FunctionPacker()
        self.address = ("127.0.0.1", 0)
        self.client()

    def client(self) -> None:
        """Be a new client at the same address."""
        self.calls = CallQueue()
        self.owner = Owner(self.calls)
        setup = WorkerSetup((str(ROOT),), "")
        self.server = WorkerServer(
            self.calls, self.owner, setup=setup, token=self.token, idle_s=self._idle_s
        )

    def open(self) -> None:
        self.address = self.server.open(self.address)

    def start(self, count: int = 1) -> list[subprocess.Popen[str]]:
        """Start workers and wait until they have connected."""
        started = []
        for _ in range(count):
            sandbox = self.folder / str(len(self.processes))
            sandbox.mkdir()
            host, port = self.address
            own = {
                worker.ADDRESS: f"{host}:{port}",
                worker.TOKEN_FILE: str(self.folder / "token"),
                "PELOTON_INSTANCE_ID": str(len(self.processes)),
                "MESOS_SANDBOX": str(sandbox),
                "PYTHONPATH": str(ROOT),
                **({worker.KEEP: str(self.keep_s)} if self.keep_s else {}),
            }
            with (sandbox / "stdout").open("w") as out, (sandbox / "stderr").open("w") as errors:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", worker.__name__],
                    cwd=sandbox, env={**os.environ, **own}, stdout=out, stderr=errors, text=True,
                )  # fmt: skip
            self.processes.append(process)
            started.append(process)
        self.owner.expect(*["arrived"] * count)
        return started

    def call(self, function: Callable[..., Any], *args: Any, number: int) -> ExecutorCall:
        work = pack_arguments(self._packer.of(function), args, kwargs={})
        future: PelotonFuture[Any] = PelotonFuture(number, LocalThreads(1))
        return ExecutorCall(number, work, future=future)

    def submit(self, function: Callable[..., Any], *rows: tuple[Any, ...]) -> list[Any]:
        """Add a call for each row of arguments; their futures."""
        calls = [self.call(function, *row, number=number) for number, row in enumerate(rows)]
        self.calls.add(calls)
        return [call.future for call in calls]

    def said(self, instance: int = 0, name: str = "stderr") -> str:
        return (self.folder / str(instance) / name).read_text()

    def close(self) -> None:
        for call in self.calls.close(cancel=True):
            call.future.cancel()
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait(WITHIN_S)
        self.server.close()


@contextlib.contextmanager
def rig(folder: Path, **rest: Any) -> Iterator[Rig]:
    made = Rig(folder, **rest)
    made.open()
    try:
        yield made
    finally:
        made.close()


def gate(folder: Path, name: str = "gate") -> Path:
    """A file that blocks its reader until somebody writes to it."""
    path = folder / name
    os.mkfifo(path)
    return path
