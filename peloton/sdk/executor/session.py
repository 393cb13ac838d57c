"""What the client of a named executor writes down, so that the next of that name can go on.

A folder on the client's machine: the token and the port that workers know, the ids of their jobs,
and each call with, once it is there, its answer. It is gone after an orderly shutdown.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pickle
import re
import shutil
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import platformdirs

from peloton.sdk.errors import BadSpec, Conflict
from peloton.sdk.executor import peers
from peloton.sdk.executor.answers import CallAnswer
from peloton.sdk.executor.calls import ExecutorCall
from peloton.sdk.executor.futures import WorkerId
from peloton.sdk.executor.packing import PackedFunction, PackedWork

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


class WrittenCall(NamedTuple):
    """A call of the client before; without an answer, its workers may have it yet."""

    number: int
    work: PackedWork
    answer: CallAnswer | None = None
    worker: WorkerId | None = None
    is_cancelled: bool = False


def executors_folder() -> Path:
    """Return the folder of all named executors of this user."""
    return platformdirs.user_state_path("peloton") / "executors"


class ExecutorSession:
    """The folder of one executor: of its name or, without one, a temporary one for the token.

    Raises BadSpec for a name that is none, Conflict while another process has the name or where its
    token is cut short, OSError.
    """

    def __init__(self, name: str) -> None:
        self.is_named = bool(name)
        """And the name is ours yet: nothing is written down once it may be another's."""
        self._is_over = False
        self._lock = threading.Lock()
        self._log: BinaryIO | None = None
        self._written: set[bytes] = set()
        if name and not NAME.fullmatch(name):
            raise BadSpec("must be letters, digits and . _ -, 100 at most", field="name")
        if not name:
            self.folder = Path(tempfile.mkdtemp(prefix="peloton-executor-"))
        else:
            self.folder = executors_folder() / name
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._own(name)
        self.token_file = self.folder / "token"
        try:
            self.token = self._token()
        except (Conflict, OSError):
            self.release()
            raise

    def _own(self, name: str) -> None:
        self._owned = (self.folder / "lock").open("a+")
        try:
            fcntl.flock(self._owned, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._owned.close()
            raise Conflict(f"another process has the executor {name} open") from None

    def _token(self) -> bytes:
        if self.token_file.exists():
            return peers.read_token(self.token_file)
        token = peers.new_token()
        new = self.folder / "token.new"
        opened = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(opened, "wb") as file:
            file.write(token)
        new.rename(self.token_file)  # whole, or not there
        return token

    # The client before.

    def port(self) -> int:
        """Return the port that its workers know; 0: none."""
        with contextlib.suppress(FileNotFoundError):
            return int(json.loads((self.folder / "place").read_text())["port"])
        return 0

    def jobs(self) -> list[str]:
        """Return the ids of its jobs."""
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / "jobs").read_text().split()
        return []

    def calls(self) -> list[WrittenCall]:
        """Return its calls, in order; what was being written when it ended is left out."""
        functions: dict[bytes, PackedFunction] = {}
        found: dict[int, WrittenCall] = {}
        with contextlib.suppress(FileNotFoundError), (self.folder / "calls").open("rb+") as file:
            while True:
                whole = file.tell()
                try:
                    kind, *rest = pickle.load(file)
                except (EOFError, pickle.UnpicklingError):
                    file.truncate(whole)
                    break
                if kind == "function":
                    functions[rest[1]] = PackedFunction(*rest)
                elif kind == "call":
                    number, digest, arguments = rest
                    work = PackedWork(functions[digest], arguments)
                    found[number] = WrittenCall(number, work)
                elif kind == "cancelled":
                    found[rest[0]] = found[rest[0]]._replace(is_cancelled=True)
                else:
                    answer, worker = rest
                    call = found[answer[0]]
                    found[answer[0]] = call._replace(answer=answer, worker=WorkerId(*worker))
        self._written = set(functions)
        return [found[number] for number in sorted(found)]

    # This one.

    def write_port(self, port: int) -> None:
        if self.is_named:
            (self.folder / "place").write_text(json.dumps({"port": port}))

    def write_job(self, job: str) -> None:
        if self.is_named:
            with (self.folder / "jobs").open("a") as file:
                file.write(f"{job}\n")

    def write_calls(self, calls: Sequence[ExecutorCall]) -> None:
        """Write calls down before a worker may have them."""
        if not self.is_named:
            return
        records: list[tuple[Any, ...]] = []
        new: set[bytes] = set()
        for call in calls:
            function, arguments = call.work
            if function.digest not in self._written and function.digest not in new:
                new.add(function.digest)
                records.append(("function", *function))
            records.append(("call", call.number, function.digest, arguments))
        self._write(records)
        self._written |= new  # not before: it might have failed

    def write_answer(self, answer: CallAnswer, worker: WorkerId) -> None:
        if self.is_named:
            self._write([("answer", answer, tuple(worker))])

    def write_cancelled(self, number: int) -> None:
        """Write down that nobody wants a call any more; after the end of the session, nothing."""
        with self._lock:
            if self._log is not None:
                self._put([("cancelled", number)], self._log)

    def _write(self, records: Sequence[tuple[Any, ...]]) -> None:
        with self._lock:
            if self._log is None:
                self._log = (self.folder / "calls").open("ab")
            self._put(records, self._log)

    def _put(self, records: Sequence[tuple[Any, ...]], log: BinaryIO) -> None:
        whole = os.fstat(log.fileno()).st_size
        data = memoryview(b"".join(pickle.dumps(record, peers.PROTOCOL) for record in records))
        try:
            while data:
                data = data[os.write(log.fileno(), data) :]
        except OSError:
            os.ftruncate(log.fileno(), whole)  # a part would hide what comes behind it
            raise

    def release(self) -> None:
        """Let another process have the name; without one, remove the folder."""
        self._finish(keep=self.is_named)

    def end(self) -> None:
        """Remove the folder: nothing is left to go on with. Once it is over, do nothing."""
        self._finish(keep=False)

    def _finish(self, *, keep: bool) -> None:
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
            if self._log is not None:
                self._log.close()
                self._log = None
            if not keep:
                shutil.rmtree(self.folder, ignore_errors=True)
            if self.is_named:
                self.is_named = False
                self._owned.close()
