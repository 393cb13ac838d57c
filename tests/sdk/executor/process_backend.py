"""A backend of worker processes that are children of this one: all of `remote` but the cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from peloton.sdk.executor import peers, worker
from peloton.sdk.executor.answers import CallAnswer
from peloton.sdk.executor.backend import Packer
from peloton.sdk.executor.calls import CallQueue, ExecutorCall
from peloton.sdk.executor.futures import PelotonFuture, WorkerId
from peloton.sdk.executor.links import WorkerServer, WorkerSetup
from peloton.sdk.executor.packing import FunctionPacker, pack_arguments

ROOT = Path(__file__).resolve().parents[3]
IDLE_S = 600.0


class ProcessWorkers:
    """`most` processes, begun as calls need them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._packer = FunctionPacker()
        self._folder = tempfile.TemporaryDirectory()
        self._processes: list[subprocess.Popen[bytes]] = []

    def open(self, calls: CallQueue) -> tuple[PelotonFuture[Any], ...]:
        token = peers.new_token()
        self._token_file = Path(self._folder.name, "token")
        self._token_file.write_bytes(token)
        self._calls = calls
        setup = WorkerSetup(tuple(sys.path), "")
        self._server = WorkerServer(calls, self, setup=setup, token=token, idle_s=IDLE_S)
        self._address = self._server.open(("127.0.0.1", 0))
        return ()

    def packer(self, function: Callable[..., Any]) -> Packer:
        packed = self._packer.of(function)
        return lambda args, kwargs: pack_arguments(packed, args, kwargs=kwargs)

    def schedule(self, calls: Sequence[ExecutorCall]) -> None:
        self._calls.add(calls)
        for _ in range(self._calls.missing(len(self._processes), most=self._most)):
            own = {
                worker.ADDRESS: "{}:{}".format(*self._address),
                worker.TOKEN_FILE: str(self._token_file),
                "PELOTON_INSTANCE_ID": str(len(self._processes)),
                "PYTHONPATH": str(ROOT),
            }
            words = [sys.executable, "-P", "-m", worker.__name__]
            self._processes.append(subprocess.Popen(words, env={**os.environ, **own}))

    def why(self, future: PelotonFuture[Any]) -> tuple[str, ...]:
        return ()

    def logs(self, future: PelotonFuture[Any], filename: str) -> str:
        return ""

    def close(self, *, wait: bool) -> None:
        if wait:
            self._calls.wait_finished()
            for process in self._processes:  # they connect yet, and are told that there is nothing
                process.wait()
            self._server.close()
            self._folder.cleanup()

    # What links tell.

    def arrived(self, worker: WorkerId, held: Collection[int]) -> Sequence[ExecutorCall]:
        return ()

    def settled(self, answer: CallAnswer, worker: WorkerId) -> None:
        pass

    def left(self, worker: WorkerId) -> None:
        pass

    def lost(self, worker: WorkerId, call: ExecutorCall | None) -> None:
        raise AssertionError(f"{worker} is lost with {call}")
