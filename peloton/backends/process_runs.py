"""Process runs: a daemon's side of the keeper.

Turns calls into lines for the keeper and its lines into reports; starts a keeper if none answers,
and a successor if one died. It must not block its caller, nor be the parent of a task, which has to
outlive the daemon.

One thread owns the socket. Requests without an answer are repeated to a successor: the keeper
answers a repeat from its records, so nothing is started twice. Reports may come twice.

A ping that a keeper can always answer separates a hung one from an idle one. Its connection is
kept: over another one, a listing could overtake a launch that is still in the first, and the run
would begin after its host concluded that it does not exist. If this thread fails on an unforeseen
error, another takes its place.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from peloton.actors.task.run_messages import HealthCheck
from peloton.backends import keeper_folder
from peloton.backends.keeper import wire
from peloton.backends.keeper.identity import keeper_id
from peloton.backends.keeper_calling import (
    KeeperUnavailable,
    UnansweredRequests,
    dial,
    hello_of,
    start_keeper,
)
from peloton.backends.keeper_messages import (
    BadRun,
    HostEpochRefused,
    KeeperDown,
    KeeperRunsListed,
    KeeperUp,
    RunReport,
    RunRequest,
    read_report,
    wire_form,
)
from peloton.backends.keeper_requests import KeeperHeartbeat, ListTimes, QueuedRequest
from peloton.pauses import Pauses

LAUNCHES_PER_LINE_MAX = 64
LAUNCH_LINE_BYTES_MAX = 8 * 1024 * 1024
BACKOFF = Pauses(0.02, 2.0)
SILENT_MAX_S = 10.0
"""How long the keeper may leave a ping unanswered. It answers none while it waits for a slow disk,
so a shorter limit would report it down when it is only busy."""
OTHER_VERSION = (
    "the keeper is of another version: end it with SIGTERM (its pid is in its file `lock`), it "
    "exits once its runs have ended"
)
_READ_BYTES = 262144
_PING = hello_of("", 0)  # for no host: every keeper answers it, and it changes nothing


class KeeperSettings(NamedTuple):
    """The arguments of a keeper, in order."""

    idle_s: float = 60.0  # without runs and daemons, until it exits
    sandboxes_kept_max: int = 1000
    round_s: float = 1.0  # between two checks of memory and of the folder
    sandboxes_kept_s: float = 0.0  # after the end; 0: no rule, as below
    sandboxes_kept_mb: int = 0  # of all ended runs
    disk_free_mb: int = 0  # is to stay free


class ProcessRuns:
    """The client of one keeper.

    `report` is called from this object's own thread; it must return soon and not raise.
    """

    def __init__(
        self,
        folder: Path,
        report: Callable[[RunReport], None],
        *,
        settings: KeeperSettings = KeeperSettings(),  # noqa: B008
        silent_max_s: float = SILENT_MAX_S,
        owner: keeper_folder.KeeperOwner | None = None,
    ) -> None:
        self._folder = folder.resolve()
        self._owner = owner
        self.keeper = self._claim()
        """The identity of the keeper of the folder. It changes with the folder only."""
        self._settings = [str(setting) for setting in settings]
        self._report = report
        self._requests: deque[QueuedRequest] = deque()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._closing = False
        self._unanswered = UnansweredRequests()
        self._list_times = ListTimes()
        self._sock: socket.socket | None = None
        self._lines = wire.Lines()
        self._unsent = bytearray()
        self._met = False  # whether the keeper has told that it is of our version
        self._heartbeat = KeeperHeartbeat(silent_max_s)
        self._up: bool | None = None  # as last reported
        self._why_down = ""
        self._failures = 0
        self._begin("")

    @property
    def folder(self) -> Path:
        """The keeper's folder, without links."""
        return self._folder

    def _claim(self) -> str:
        """Claim the folder for this cluster; return the identity of its keeper."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._owner is not None:
            keeper_folder.claim(self._folder, self._owner)
        return keeper_id(str(self._folder))

    def _check_identity(self) -> None:
        """Check that the folder still has this keeper: its owner may have changed.

        Requests for another keeper must not be sent to this one: their runs would begin where no
        host expects them.
        """
        try:
            keeper = self._claim()
        except keeper_folder.OwnedByAnother as trouble:
            raise KeeperUnavailable(str(trouble)) from trouble
        if keeper != self.keeper:
            self.keeper = keeper
            self._take_requests()
            self._unanswered.forget_requests()

    def hello(self, host: str, epoch: int) -> None:
        self._ask(hello_of(host, epoch))

    def launch(
        self, host: str, epoch: int, *, runs: Sequence[RunRequest], keeper: str = ""
    ) -> list[BadRun]:
        """Request the runs; return those that cannot be requested.

        If `keeper` is named, the request is for this keeper only: the folder may change before it
        is taken.
        """
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
                self._ask(_launch(host, epoch, runs=part), keeper=keeper)
                part, part_bytes = [], size_bytes
            part.append(form)
        if part:
            self._ask(_launch(host, epoch, runs=part), keeper=keeper)
        return bad

    def kill(self, host: str, run_id: str, *, grace_s: float, notice: str = "") -> None:
        """Send SIGTERM to the run's group, SIGKILL after the grace, under the hello's epoch."""
        ask = {"q": "kill", "host": host, "runs": [[run_id, grace_s]]}
        self._ask({**ask, "notice": notice} if notice else ask)

    def limit(self, host: str, run_ids: Sequence[str], *, max_running_s: float) -> None:
        """Limit the time of runs, 0 for no limit; not repeated if it is lost."""
        self._ask({"q": "limit", "host": host, "runs": [[run, max_running_s] for run in run_ids]})

    def check(self, host: str, run_id: str, *, number: int, check: HealthCheck) -> None:
        """Check the health of a run by its command; not repeated if it is lost."""
        ask = {"command": check.command, "unshared": check.unshared, "timeout_s": check.timeout_s}
        self._ask({"q": "check", "host": host, "run": run_id, "number": number, **ask})

    def remove(self, host: str, epoch: int, *, volumes: Sequence[str]) -> None:
        """Remove volumes, by their names at the keeper; not repeated if it is lost."""
        self._ask({"q": "remove", "host": host, "epoch": epoch, "volumes": [*volumes]})

    def ack(self, run_ids: Iterable[str]) -> None:
        """Acknowledge ends that are journaled. If this is lost, they are listed again."""
        self._ask({"q": "ack", "runs": list(run_ids)})

    def lease(self, job: str, for_s: float) -> None:
        """Keep the files of a job for so long. If this is lost, the next renewal does it."""
        self._ask({"q": "lease", "jobs": {job: for_s}})

    def list(self, host: str, *, asked_at: float = -math.inf) -> None:
        """Request all runs of the host; the list carries this time."""
        self._ask({"q": "list", "host": host}, asked_at=asked_at)

    def close(self) -> None:
        """Send the requests made before, and disconnect; the keeper goes on."""
        self._closing = True
        self._wake()
        joined = None
        while joined is not self._thread:  # one that failed has started another
            joined = self._thread
            joined.join()
        self._wake_reader.close()
        self._wake_writer.close()

    def _ask(
        self, message: wire.KeeperMessage, *, asked_at: float = -math.inf, keeper: str = ""
    ) -> None:
        self._requests.append(QueuedRequest(message, asked_at, keeper))
        self._wake()

    def _wake(self) -> None:
        """Wake the thread. A full socket wakes it anyway; a closed one has nobody to wake."""
        with contextlib.suppress(OSError):
            self._wake_writer.send(b"!")

    # The thread.

    def _begin(self, trouble: str) -> None:
        """Start the thread, or after it failed with this error, the next one."""
        self._thread = threading.Thread(
            target=self._run, args=(trouble,), name="process-runs", daemon=True
        )
        self._thread.start()

    def _run(self, trouble: str) -> None:
        """Run the loop.

        An unforeseen error goes to the thread's hook, which prints it; the next thread reports it
        and starts again, after a longer pause each time.
        """
        try:
            if trouble:
                self._pause()
                self._report_down(trouble)
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
                self._exchange()
            except (OSError, wire.BadLine, KeeperUnavailable) as trouble:
                self._hang_up()
                self._report_down(str(trouble))
                self._pause()
        self._hang_up()

    def _report_up(self) -> None:
        self._failures = 0
        if self._up is not True:
            self._up = True
            self._report(KeeperUp())

    def _report_down(self, why: str) -> None:
        if self._up is not False or why != self._why_down:
            self._up, self._why_down = False, why
            self._report(KeeperDown(why))

    def _connect(self) -> None:
        """Connect to the keeper that may run already, else start one.

        If another keeper holds the lock it is starting or exiting: the next attempt decides.
        """
        self._check_identity()
        try:
            self._sock = dial(self._folder)
        except OSError:
            start_keeper(self._folder, self._settings)
            self._sock = dial(self._folder)
        self._lines, self._unsent, self._met = wire.Lines(), bytearray(), False
        self._sock.sendall(wire.encode(_PING))  # all else waits for the answer
        self._heartbeat.begin(time.monotonic())
        self._list_times.new_connection()
        for message in self._unanswered.repeats():
            self._list_times.sent(message)
            self._unsent += wire.encode(message)

    def _hang_up(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _pause(self) -> None:
        """Pause. New requests are only recorded: `repeats` has them for the next keeper."""
        self._failures += 1
        until = time.monotonic() + BACKOFF.after(self._failures)
        while not self._closing and (left_s := until - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(self._wake_reader, select.POLLIN)
            if poll.poll(left_s * 1000):
                self._take_requests()

    def _exchange(self) -> None:
        sock = self._sock
        assert sock is not None
        while True:
            for message in self._take_requests():
                self._unsent += wire.encode(message)
            now_s = time.monotonic()
            if self._heartbeat.asks(now_s):
                self._unsent += wire.encode(_PING)
            self._push(sock)
            silent = self._heartbeat.is_silent(now_s)
            if self._closing and (silent or not (self._unsent or self._requests)):
                return
            if silent:
                self._report_down(f"no answer for {self._heartbeat.silent_max_s:g} s")
            poll = select.poll()
            poll.register(self._wake_reader, select.POLLIN)
            sends = select.POLLOUT if self._unsent and self._met else 0
            poll.register(sock, select.POLLIN | sends)
            for fd, event in poll.poll(self._heartbeat.wait_s(now_s) * 1000 + 1):
                if fd == sock.fileno() and event & ~select.POLLOUT:
                    self._receive(sock)

    def _take_requests(self) -> Iterable[wire.KeeperMessage]:
        with contextlib.suppress(BlockingIOError):
            self._wake_reader.recv(4096)
        taken = []
        while self._requests:
            request = self._requests.popleft()
            if request.keeper and request.keeper != self.keeper:
                continue  # its host compares once it learns that another keeper is up
            message = self._unanswered.record(request.message)
            if message is not None:
                self._list_times.sent(message, request.asked_at)
                taken.append(message)
        return taken

    def _push(self, sock: socket.socket) -> None:
        try:
            while self._unsent and self._met:
                sent = sock.send(memoryview(self._unsent)[:_READ_BYTES])
                del self._unsent[:sent]
        except BlockingIOError:
            return

    def _receive(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(_READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise KeeperUnavailable("the keeper closed the connection")
        self._heartbeat.received(time.monotonic())
        if self._met:
            self._report_up()
        for message in self._lines.feed(data):
            self._unanswered.settle(message)
            if message["a"] == "bad":
                self._unanswered.forget_requests()
                raise KeeperUnavailable(f"the keeper refused a request: {message['why']}")
            if message["a"] == "hello":
                self._meet(message)
            else:
                self._report(self._timed(read_report(message)))

    def _meet(self, hello: wire.KeeperMessage) -> None:
        """Take the keeper's greeting; refuse one of another version."""
        if hello.get("version") != wire.VERSION:
            raise KeeperUnavailable(OTHER_VERSION)
        self._met = True
        self._report_up()

    def _timed(self, report: RunReport) -> RunReport:
        if isinstance(report, KeeperRunsListed):
            return replace(report, asked_at=self._list_times.answered(report.host))
        if isinstance(report, HostEpochRefused):
            self._list_times.refused(report.host, known=report.known)
        return report


def _launch(host: str, epoch: int, *, runs: list[wire.KeeperMessage]) -> wire.KeeperMessage:
    return {"q": "launch", "host": host, "epoch": epoch, "runs": runs}
