"""The worker of an executor: a process of a job that takes calls from its client, one by one.

    python -P -m peloton.sdk.executor.worker

It connects to the client at PELOTON_EXECUTOR_ADDRESS, with the token in the file that
PELOTON_EXECUTOR_TOKEN_FILE names. Calls run in the main thread, where signals arrive; one thread
reads and one writes meanwhile. It must import nothing that is not needed before the first call.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import threading
import time
from collections import deque
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from peloton.sdk import preemption
from peloton.sdk.executor import peers
from peloton.sdk.executor.answers import AnswerFile, WorkerOutbox
from peloton.sdk.executor.errors import NotSendable
from peloton.sdk.executor.loaded import LoadedFunctions
from peloton.sdk.executor.outcome import CallOutcome, call_outcome, unpickled
from peloton.sdk.executor.packing import pack_checkpoint, pack_outcome

ADDRESS, TOKEN_FILE = "PELOTON_EXECUTOR_ADDRESS", "PELOTON_EXECUTOR_TOKEN_FILE"
KEEP = "PELOTON_EXECUTOR_KEEP_S"
RESULTS_FILE = "results"
"""The file of the sandbox in which a worker of a named executor keeps what it has answered."""
REDIAL_S = 1.0
EXIT_GONE, EXIT_REFUSED, EXIT_LEFT = 76, 78, preemption.EXIT_SAVED


class WorkerPlace(NamedTuple):
    """Where and how to reach the client. `keep_s`: how long to stay without one."""

    address: tuple[str, int]
    token: bytes
    keep_s: float = 0.0
    folder: str = ""

    @classmethod
    def of_environment(cls) -> WorkerPlace:
        host, _, port = os.environ[ADDRESS].rpartition(":")
        token = peers.read_token(Path(os.environ[TOKEN_FILE]))
        folder = os.environ.get(preemption.SANDBOX, "")
        return cls((host.strip("[]"), int(port)), token, float(os.environ.get(KEEP, 0)), folder)


class WaitingCall(NamedTuple):
    """A call as it came; the function is kept under its digest."""

    number: int
    digest: bytes
    arguments: bytes


class WorkerProcess:
    """The calls that were sent here, and the one that runs."""

    def __init__(self, place: WorkerPlace) -> None:
        self._place = place
        self._changed = threading.Condition()
        self._waiting: deque[WaitingCall] = deque()
        self._ended = False
        self._leaving = False
        self._running: WaitingCall | None = None
        self._function: Any = None
        self._functions = LoadedFunctions()
        path = Path(place.folder or ".", RESULTS_FILE) if place.keep_s else None
        self._answers = AnswerFile(path)
        self._outbox = WorkerOutbox(self._answers)

    # The main thread.

    def run(self) -> int:
        """Work until the client has no more to do; return the exit code."""
        self._outbox.connected(self._greet(peers.dialled(self._place.address, self._place.token)))
        for target in (self._outbox.run, self._read):
            threading.Thread(target=target, daemon=True).start()
        signal.signal(signal.SIGTERM, self._told)
        try:
            while (call := self._next()) is not None:
                self._work(call)
        except SystemExit:
            # A notice that came between the end of a call and its answer, or a call that left.
            self._leaving = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # there is nothing more to interrupt
        if self._is_leaving:
            self._leave()
            return EXIT_LEFT
        self._outbox.close()
        return 0

    @property
    def _is_leaving(self) -> bool:
        return self._leaving or preemption.was_noticed()

    def _next(self) -> WaitingCall | None:
        """Return the next call; None if there will be none."""
        with self._changed:
            while True:
                if self._is_leaving:
                    return None
                if self._waiting:
                    return self._waiting.popleft()
                if self._ended:
                    return None
                self._changed.wait()

    def _work(self, call: WaitingCall) -> None:
        self._running = call
        begun, printed = time.perf_counter(), sizes()
        name = self._functions.names.get(call.digest, "a function")
        try:
            self._function = self._functions.get(call.digest)
            args, kwargs = unpickled(call.arguments, what=f"arguments of {name}")
        except NotSendable as error:
            found = CallOutcome(exception=error)
        else:
            found = call_outcome(self._function, args, kwargs=kwargs)
            del args, kwargs
        self._function = None
        if isinstance(found.exception, SystemExit) and self._is_leaving:
            return  # it was interrupted, and belongs to another worker now
        has_result, data = pack_outcome(name, found)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(ValueError, AttributeError):  # closed by the call
                stream.flush()
        answer = (call.number, has_result, data, spans(printed, sizes()))
        self._outbox.answer(answer, time.perf_counter() - begun)
        self._running = None

    def _told(self, number: int, frame: FrameType | None) -> None:
        """End: others need the room, or the job is stopped."""
        if self._leaving:
            return
        with self._changed:
            self._leaving = True
            self._changed.notify()
        function, call = self._function, self._running
        if function is None or call is None:
            return  # an answer is complete first
        if preemption.notice_text() and isinstance(function, preemption.Checkpointing):
            name = self._functions.names[call.digest]
            found = call_outcome(lambda: pack_checkpoint(name, function.checkpoint()))
            if found.exception is None:
                self._outbox.put("checkpoint", call.number, found.result)
            else:
                has_result, data = pack_outcome("checkpoint", found)
                self._outbox.answer((call.number, has_result, data, (None, None)), 0.0)
        raise SystemExit(EXIT_LEFT)

    def _leave(self) -> None:
        """Give back what was not begun, and end the grace."""
        number = self._running.number if self._running is not None else None
        self._outbox.put("leaving", preemption.notice_text(), number)
        self._outbox.close()
        preemption.grace_over()

    # The thread that reads.

    def _read(self) -> None:
        connection = self._outbox.connection
        while True:
            try:
                assert connection is not None
                while True:
                    self._receive(peers.receive(connection))
            except peers.BROKEN:
                connection = self._again()

    def _receive(self, message: tuple[Any, ...]) -> None:
        match message:
            case ("calls", functions, forgotten, calls):
                self._functions.add(functions, forgotten)
                with self._changed:
                    self._waiting.extend(WaitingCall(*call) for call in calls)
                    self._changed.notify()
            case ("recall",):
                with self._changed:
                    numbers = [call.number for call in self._waiting]
                    self._waiting.clear()
                self._outbox.put("returned", numbers)
            case ("end",):
                with self._changed:
                    self._ended = True
                    self._changed.notify()

    def _again(self) -> Connection:
        """Return a connection to the next client of the same name, or end this process."""
        until = time.monotonic() + self._place.keep_s
        self._outbox.disconnected()
        if self._ended or self._leaving:
            threading.Event().wait()  # the main thread is about to end
        while time.monotonic() < until or (self._place.keep_s and self._has_calls()):
            threading.Event().wait(REDIAL_S)
            try:
                found = self._greet(peers.dialled(self._place.address, self._place.token))
            except (*peers.BROKEN, AuthenticationError, AssertionError):
                continue
            self._outbox.connected(found)
            return found
        if self._place.keep_s:
            os._exit(0)  # what it has answered is in its sandbox
        print("the client of this worker is gone", file=sys.stderr, flush=True)
        os._exit(EXIT_GONE)

    def _has_calls(self) -> bool:
        with self._changed:
            return self._running is not None or bool(self._waiting)

    def _greet(self, connection: Connection) -> Connection:
        """Tell who this is; do as the client says."""
        variables = os.environ.get
        with self._changed:
            held = [call.number for call in self._waiting]
            held += [self._running.number] if self._running is not None else []
        held += self._answers.numbers
        about = {
            "job": variables("PELOTON_JOB_ID", ""),
            "instance": int(variables("PELOTON_INSTANCE_ID", "0")),
            "run": variables("PELOTON_POD_ID", ""),
            "python": sys.version_info[:2],
            "held": held,
        }
        peers.send(connection, "hello", about)
        kind, *rest = peers.receive(connection)
        if kind == "refused":
            print(rest[0], file=sys.stderr, flush=True)
            os._exit(EXIT_REFUSED)
        setup = rest[0]
        sys.path[:] = [*setup["path"], *(one for one in sys.path if one not in setup["path"])]
        if setup["folder"]:
            with contextlib.suppress(OSError):  # another machine has others
                os.chdir(setup["folder"])
        wanted = setup["wanted"]
        self._answers.again(wanted)
        with self._changed:
            self._waiting = deque(call for call in self._waiting if call.number in wanted)
        return connection


def sizes() -> tuple[int | None, int | None]:
    """Return how long the files are that stdout and stderr are; None if they are no files."""
    return size_of(1), size_of(2)


def size_of(descriptor: int) -> int | None:
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def spans(before: Any, after: Any) -> tuple[tuple[int, int] | None, ...]:
    """Return the bytes that were printed in between, of stdout and of stderr."""
    pairs = zip(before, after, strict=True)
    return tuple(None if first is None or last is None else (first, last) for first, last in pairs)


def main() -> int:
    """Run as a task; say what is wrong on stderr."""
    place = WorkerPlace.of_environment()
    try:
        return WorkerProcess(place).run()
    except AuthenticationError:
        text = "knows another token"
    except peers.BROKEN as error:
        text = f"does not answer: {error or type(error).__name__}"
    host, port = place.address
    print(
        f"the client at {host}:{port} {text}; give its executor an address that hosts reach: "
        "listen=HOST:PORT",
        file=sys.stderr,
    )
    return EXIT_GONE


if __name__ == "__main__":
    sys.exit(main())
