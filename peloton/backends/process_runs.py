"""Process runs: a daemon's side of the keeper.

Turns calls into lines for the keeper and its lines into reports; starts a keeper where none
answers, and a successor where one died. It must not decide what a report means, must not keep
its caller waiting, and must never be the parent of a task.

One thread owns the socket. What was asked and not answered is asked again of a successor: the
keeper answers a repeat from its records, so nothing is started twice. Reports may come twice.

A keeper that hangs is told from one that has nothing to say by a question it can always answer.
Its connection is kept: over another one, a listing could overtake a launch that lies in the first,
and the run would begin after everybody had agreed that it does not exist. Should this thread fail
on what nobody foresaw, another takes its place.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from peloton.backends import keeper_folder
from peloton.backends.keeper import wire
from peloton.backends.keeper.calling import Book, KeeperUnavailable, dial, start_keeper
from peloton.backends.keeper.identity import keeper_id
from peloton.backends.keeper_messages import (
    BadRun,
    KeeperDown,
    KeeperUp,
    RunReport,
    RunRequest,
    read,
    wire_form,
)

LAUNCHES_PER_LINE_MAX = 64
LAUNCH_LINE_BYTES_MAX = 8 * 1024 * 1024
BACKOFF_FIRST_S, BACKOFF_LAST_S = 0.02, 2.0
SILENT_MAX_S = 10.0
"""How long the keeper may leave a question unanswered. It answers none while it waits for a slow
disk, so less would call it dead when it only works."""
_PULSES_PER_SILENCE = 4
_READ_BYTES = 262144
# A hello of nobody's host: keepers of every version answer it, and it changes nothing.
_ARE_YOU_THERE: wire.KeeperMessage = {"q": "hello", "host": "", "epoch": 0}


class KeeperSettings(NamedTuple):
    """What a keeper is started with, in its order."""

    idle_s: float = 60.0  # without runs and daemons, until it leaves
    sandboxes_kept_max: int = 1000
    round_s: float = 1.0  # between two looks at memory and at the folder


class KeeperHeartbeat:
    """When to ask the keeper whether it is there, and since when it has owed the answer."""

    def __init__(self, silent_max_s: float) -> None:
        self.silent_max_s = silent_max_s
        self._next_at_s = 0.0
        self._asked_at_s: float | None = None

    def asks(self, now_s: float) -> bool:
        """Whether to ask now: then it counts as asked. One question is open at a time."""
        if self._asked_at_s is not None or now_s < self._next_at_s:
            return False
        self._asked_at_s = now_s
        return True

    def heard(self, now_s: float) -> None:
        """Whatever it said, it is there."""
        self._asked_at_s = None
        self._next_at_s = now_s + self.silent_max_s / _PULSES_PER_SILENCE

    def begin(self) -> None:
        """A new connection: ask at once."""
        self._asked_at_s, self._next_at_s = None, 0.0

    def is_silent(self, now_s: float) -> bool:
        """Whether the answer is overdue."""
        return self._asked_at_s is not None and now_s - self._asked_at_s >= self.silent_max_s

    def wait_s(self, now_s: float) -> float:
        """Until something is to be done about it."""
        if self._asked_at_s is None:
            return max(0.0, self._next_at_s - now_s)
        if self.is_silent(now_s):
            return self.silent_max_s
        return self._asked_at_s + self.silent_max_s - now_s


class ProcessRuns:
    """`report` is called from this object's own thread; it must return soon and not raise."""

    def __init__(
        self,
        folder: Path,
        report: Callable[[RunReport], None],
        *,
        settings: KeeperSettings = KeeperSettings(),  # noqa: B008
        silent_max_s: float = SILENT_MAX_S,
        serves: keeper_folder.Serves | None = None,
    ) -> None:
        self._folder = folder.resolve()
        self._serves = serves
        self.keeper = self._claim()
        """The identity of the keeper of the folder. It changes with the folder only."""
        self._settings = [str(setting) for setting in settings]
        self._report = report
        self._asked: deque[wire.KeeperMessage] = deque()
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)
        self._closing = False
        self._book = Book()
        self._sock: socket.socket | None = None
        self._lines = wire.Lines()
        self._unsent = bytearray()
        self._pulse = KeeperHeartbeat(silent_max_s)
        self._up: bool | None = None  # as last reported
        self._why_down = ""
        self._pause_s = BACKOFF_FIRST_S
        self._begin("")

    @property
    def folder(self) -> Path:
        """Where the keeper is, without links."""
        return self._folder

    def _claim(self) -> str:
        """Make the folder ours if it is new, and say whose it is otherwise."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._serves is not None:
            keeper_folder.claim(self._folder, self._serves)
        return keeper_id(str(self._folder))

    def _meet(self) -> None:
        """The folder may have been given to another cluster, or be a new one, since we looked.

        What was asked of another keeper must not be asked of this one: its run would begin where
        no host looks for it.
        """
        try:
            keeper = self._claim()
        except keeper_folder.ServesAnother as trouble:
            raise KeeperUnavailable(str(trouble)) from trouble
        if keeper != self.keeper:
            self.keeper = keeper
            self._take_asked()
            self._book.forget_questions()

    def hello(self, host: str, epoch: int) -> None:
        self._ask({"q": "hello", "host": host, "epoch": epoch})

    def launch(self, host: str, epoch: int, *, runs: Sequence[RunRequest]) -> list[BadRun]:
        """The runs that cannot even be asked for; all others are."""
        bad: list[BadRun] = []
        part: list[wire.KeeperMessage] = []
        part_bytes = 0
        for run in runs:
            try:
                form, size_bytes = wire_form(run)
            except BadRun as trouble:
                bad.append(trouble)
                continue
            part_bytes += size_bytes
            if part and (len(part) == LAUNCHES_PER_LINE_MAX or part_bytes > LAUNCH_LINE_BYTES_MAX):
                self._ask({"q": "launch", "host": host, "epoch": epoch, "runs": part})
                part, part_bytes = [], size_bytes
            part.append(form)
        if part:
            self._ask({"q": "launch", "host": host, "epoch": epoch, "runs": part})
        return bad

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
        joined = None
        while joined is not self._thread:  # one that failed has put another in its place
            joined = self._thread
            joined.join()
        self._bell.close()
        self._ringer.close()

    def _ask(self, message: wire.KeeperMessage) -> None:
        self._asked.append(message)
        self._ring()

    def _ring(self) -> None:
        """A full bell has rung already, and a closed one has nobody to wake."""
        with contextlib.suppress(OSError):
            self._ringer.send(b"!")

    # The thread.

    def _begin(self, trouble: str) -> None:
        """The thread, or after it failed of this trouble, the next one."""
        self._thread = threading.Thread(
            target=self._run, args=(trouble,), name="process-runs", daemon=True
        )
        self._thread.start()

    def _run(self, trouble: str) -> None:
        """A failure that nobody foresaw goes to the thread's hook, which prints it; the next
        thread says what it was and begins anew, a little later each time."""
        try:
            if trouble:
                self._rest()
                self._say_down(trouble)
            self._work()
        except BaseException as failure:
            self._hang_up()
            if not self._closing:
                self._begin(f"its client failed: {type(failure).__name__}: {failure}")
            raise

    def _work(self) -> None:
        while not self._closing:
            try:
                self._connect()
                self._converse()
            except (OSError, wire.BadLine, KeeperUnavailable) as trouble:
                self._hang_up()
                self._say_down(str(trouble))
                self._rest()
        self._hang_up()

    def _say_up(self) -> None:
        self._pause_s = BACKOFF_FIRST_S
        if self._up is not True:
            self._up = True
            self._report(KeeperUp())

    def _say_down(self, why: str) -> None:
        if self._up is not False or why != self._why_down:
            self._up, self._why_down = False, why
            self._report(KeeperDown(why))

    def _connect(self) -> None:
        """First the keeper that may be there, then one of our own. Another one holding the lock
        is starting or leaving: the next try will tell."""
        self._meet()
        try:
            self._sock = dial(self._folder)
        except OSError:
            start_keeper(self._folder, self._settings)
            self._sock = dial(self._folder)
        self._lines, self._unsent = wire.Lines(), bytearray()
        self._pulse.begin()
        for message in self._book.again():
            self._unsent += wire.encode(message)

    def _hang_up(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _rest(self) -> None:
        """New questions are only noted down: `again` asks them of the next keeper."""
        until = time.monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, BACKOFF_LAST_S)
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
            now_s = time.monotonic()
            if self._pulse.asks(now_s):
                self._unsent += wire.encode(_ARE_YOU_THERE)
            self._push(sock)
            silent = self._pulse.is_silent(now_s)
            if self._closing and (silent or not (self._unsent or self._asked)):
                return
            if silent:
                self._say_down(f"no answer for {self._pulse.silent_max_s:g} s")
            poll = select.poll()
            poll.register(self._bell, select.POLLIN)
            poll.register(sock, select.POLLIN | (select.POLLOUT if self._unsent else 0))
            for fd, event in poll.poll(self._pulse.wait_s(now_s) * 1000 + 1):
                if fd == sock.fileno() and event & ~select.POLLOUT:
                    self._hear(sock)

    def _take_asked(self) -> Iterable[wire.KeeperMessage]:
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
        self._pulse.heard(time.monotonic())
        self._say_up()
        for message in self._lines.feed(data):
            self._book.strike(message)
            if message["a"] == "bad":
                self._book.forget_questions()
                raise KeeperUnavailable(f"the keeper refused a request: {message['why']}")
            if message["host"]:
                self._report(read(message))
