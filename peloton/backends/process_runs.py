"""Process runs: a daemon's side of the keeper.

Turns calls into lines for the keeper and its lines into reports; starts a keeper where none
answers, and a successor where one died. It must not decide what a report means, must not keep
its caller waiting, and must never be the parent of a task.

One thread owns the socket. What was asked and not answered is asked again of a successor: the
keeper answers a repeat from its records, so nothing is started twice. Reports may come twice.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from peloton.backends.keeper import wire
from peloton.backends.keeper.calling import Book, KeeperUnavailable, dial, start_keeper
from peloton.backends.keeper.kinds import RUN_ID

State = Literal["queued", "running", "ended"]
Outcome = Literal["SUCCEEDED", "FAILED", "KILLED", "LOST"]

LAUNCHES_PER_LINE_MAX = 64
BACKOFF_FIRST_S, BACKOFF_LAST_S = 0.02, 2.0
_READ_BYTES = 262144


@dataclass(frozen=True, slots=True)
class RunRequest:
    """`/bin/sh -c value` if `shell`, else exec of `value` with `arguments` as the whole argv
    (the first is the name the program sees; none at all means `value` alone)."""

    run_id: str
    host: str
    value: str
    shell: bool = True
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    memory_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class RunStarted:
    host: str
    run_id: str
    pid: int
    at: float


@dataclass(frozen=True, slots=True)
class RunEnded:
    """`exit_code` and `signal` are what the process left with; both None if nobody knows."""

    host: str
    run_id: str
    outcome: Outcome
    exit_code: int | None
    signal: int | None
    reason: str
    message: str
    at: float


@dataclass(frozen=True, slots=True)
class RunUnknown:
    """The answer to the kill of a run the keeper has no record of."""

    host: str
    run_id: str


@dataclass(frozen=True, slots=True)
class ListedRun:
    run_id: str
    state: State
    pid: int
    started_at: float
    ended: RunEnded | None


@dataclass(frozen=True, slots=True)
class RunsListed:
    """All runs of a host that are not acknowledged. A launch made after the listing was asked
    for may be missing in it."""

    host: str
    runs: tuple[ListedRun, ...]
    at: float


@dataclass(frozen=True, slots=True)
class HelloAnswered:
    host: str
    epoch: int


@dataclass(frozen=True, slots=True)
class EpochRefused:
    """Somebody owns the host with a higher epoch: nothing that was asked for it is done."""

    host: str
    epoch: int
    known: int


@dataclass(frozen=True, slots=True)
class BackendUp:
    """The keeper answers; a listing of every host follows by itself."""


@dataclass(frozen=True, slots=True)
class BackendDown:
    why: str


RunReport = (
    RunStarted | RunEnded | RunUnknown | RunsListed
    | HelloAnswered | EpochRefused | BackendUp | BackendDown
)  # fmt: skip


class ProcessRuns:
    """`report` is called from this object's own thread; it must return soon and not raise."""

    def __init__(
        self,
        folder: Path,
        report: Callable[[RunReport], None],
        *,
        idle_s: float = 60.0,
        sandboxes_kept_max: int = 1000,
        round_s: float = 1.0,
    ) -> None:
        self._folder = folder.resolve()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._settings = [str(idle_s), str(sandboxes_kept_max), str(round_s)]
        self._report = report
        self._asked: deque[wire.Message] = deque()
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)
        self._closing = False
        self._book = Book()
        self._sock: socket.socket | None = None
        self._lines = wire.Lines()
        self._unsent = bytearray()
        self._thread = threading.Thread(target=self._run, name="process-runs", daemon=True)
        self._thread.start()

    def hello(self, host: str, epoch: int) -> None:
        self._ask({"q": "hello", "host": host, "epoch": epoch})

    def launch(self, host: str, epoch: int, *, runs: Sequence[RunRequest]) -> None:
        """ValueError: a run id that cannot name a folder."""
        for run in runs:
            if not RUN_ID.fullmatch(run.run_id):
                raise ValueError(f"not a run id: {run.run_id!r}")
        for first in range(0, len(runs), LAUNCHES_PER_LINE_MAX):
            part = [_wire_form(run) for run in runs[first : first + LAUNCHES_PER_LINE_MAX]]
            self._ask({"q": "launch", "host": host, "epoch": epoch, "runs": part})

    def kill(self, host: str, run_id: str, *, grace_s: float) -> None:
        """SIGTERM to the run's group, SIGKILL after the grace; under the epoch of the hello."""
        self._ask({"q": "kill", "host": host, "runs": [[run_id, grace_s]]})

    def ack(self, run_ids: Iterable[str]) -> None:
        """Their ends are known for good. One that gets lost is listed again next time."""
        self._ask({"q": "ack", "runs": list(run_ids)})

    def list(self, host: str) -> None:
        self._ask({"q": "list", "host": host})

    def sandbox(self, run_id: str) -> Path:
        return self._folder / "runs" / run_id / "sandbox"

    def close(self) -> None:
        """Leaves the keeper and its runs as they are. What was asked before is still sent."""
        self._closing = True
        self._ring()
        self._thread.join()
        self._bell.close()
        self._ringer.close()

    def _ask(self, message: wire.Message) -> None:
        self._asked.append(message)
        self._ring()

    def _ring(self) -> None:
        """A full bell has rung already, and a closed one has nobody to wake."""
        with contextlib.suppress(OSError):
            self._ringer.send(b"!")

    # The thread.

    def _run(self) -> None:
        pause_s, down = BACKOFF_FIRST_S, False
        while not self._closing:
            try:
                self._connect()
                pause_s, down = BACKOFF_FIRST_S, False
                self._report(BackendUp())
                self._converse()
            except (OSError, wire.BadLine, KeeperUnavailable) as trouble:
                self._hang_up()
                if not down:
                    self._report(BackendDown(str(trouble)))
                    down = True
                self._rest(pause_s)
                pause_s = min(pause_s * 2, BACKOFF_LAST_S)
        self._hang_up()

    def _connect(self) -> None:
        """First the keeper that may be there, then one of our own. Another one holding the lock
        is starting or leaving: the next try will tell."""
        try:
            self._sock = dial(self._folder)
        except OSError:
            start_keeper(self._folder, self._settings)
            self._sock = dial(self._folder)
        self._lines, self._unsent = wire.Lines(), bytearray()
        for message in self._book.again():
            self._unsent += wire.encode(message)

    def _hang_up(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _rest(self, pause_s: float) -> None:
        """New questions are only noted down: `again` asks them of the next keeper."""
        until = time.monotonic() + pause_s
        while not self._closing and (left_s := until - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(self._bell, select.POLLIN)
            if poll.poll(left_s * 1000):
                self._take_asked()

    def _converse(self) -> None:
        sock = self._sock
        assert sock is not None
        while True:
            for message in self._take_asked():
                self._unsent += wire.encode(message)
            self._push(sock)
            if self._closing and not self._unsent and not self._asked:
                return
            poll = select.poll()
            poll.register(self._bell, select.POLLIN)
            poll.register(sock, select.POLLIN | (select.POLLOUT if self._unsent else 0))
            for fd, event in poll.poll():
                if fd == sock.fileno() and event & ~select.POLLOUT:
                    self._hear(sock)

    def _take_asked(self) -> Iterable[wire.Message]:
        with contextlib.suppress(BlockingIOError):
            self._bell.recv(4096)
        taken = []
        while self._asked:
            message = self._book.note(self._asked.popleft())
            if message is not None:
                taken.append(message)
        return taken

    def _push(self, sock: socket.socket) -> None:
        try:
            while self._unsent:
                sent = sock.send(memoryview(self._unsent)[:_READ_BYTES])
                del self._unsent[:sent]
        except BlockingIOError:
            return

    def _hear(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(_READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise KeeperUnavailable("the keeper closed the connection")
        for message in self._lines.feed(data):
            self._book.strike(message)
            if message["a"] == "bad":
                self._book.forget_questions()
                raise KeeperUnavailable(f"the keeper refused a request: {message['why']}")
            self._report(_read(message))


def _wire_form(run: RunRequest) -> wire.Message:
    return {
        "run": run.run_id,
        "value": run.value,
        "shell": run.shell,
        "arguments": list(run.arguments),
        "environment": dict(run.environment),
        "memory_mb": run.memory_mb,
    }


def _read(message: wire.Message) -> RunReport:
    answer, host = message["a"], message["host"]
    if answer == "started":
        return RunStarted(host, message["run"], message["pid"], message["at"])
    if answer == "ended":
        return _read_end(host, message["run"], end=message)
    if answer == "listed":
        runs = tuple(_read_listed(host, run) for run in message["runs"])
        return RunsListed(host, runs, message["at"])
    if answer == "unknown":
        return RunUnknown(host, message["run"])
    if answer == "hello":
        return HelloAnswered(host, message["epoch"])
    if answer == "refused":
        return EpochRefused(host, message["epoch"], message["known"])
    raise wire.BadLine(f"an unknown answer: {answer!r}")


def _read_end(host: str, run_id: str, *, end: dict[str, Any]) -> RunEnded:
    return RunEnded(
        host,
        run_id,
        end["outcome"],
        end["exit_code"],
        end["signal"],
        end["reason"],
        end["message"],
        end["at"],
    )


def _read_listed(host: str, run: dict[str, Any]) -> ListedRun:
    end = run["end"]
    ended = None if end is None else _read_end(host, run["run"], end=end)
    return ListedRun(run["run"], run["state"], run["pid"], run["at"], ended)
