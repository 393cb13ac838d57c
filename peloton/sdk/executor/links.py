"""The client's side of its workers: who connects, which calls each has, and what comes back.

One thread for each worker takes calls from the queue, sends many at a time if they are short, and
settles their futures. It must not know where workers come from: `LinkOwner` does.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

from peloton.sdk.errors import PelotonWarning
from peloton.sdk.executor import peers
from peloton.sdk.executor.answers import CallAnswer
from peloton.sdk.executor.calls import CallQueue, ExecutorCall
from peloton.sdk.executor.futures import CallPlace, PelotonFuture, WorkerId
from peloton.sdk.executor.outcome import CallOutcome
from peloton.sdk.executor.packing import unpack_outcome

CHUNK_S = 0.02
"""How much work a worker has at a time, besides the call that it runs."""
CHUNK_MAX = 500
MEAN_WEIGHT = 0.3
"""Of the newest calls, in the mean duration."""
FUNCTIONS_KEPT = 128
"""Functions that a worker keeps; the least recently called are forgotten."""
STRANGERS_MAX = 256
"""Connections that have not shown the token yet; further ones are closed."""

ACCEPT_AGAIN_S = 0.5
"""After a connection could not be accepted, for want of a descriptor."""


class WorkerSetup(NamedTuple):
    """What a worker is told first."""

    path: tuple[str, ...]
    folder: str


class LinkOwner(Protocol):
    """Who starts the workers; it is called in the threads of the links."""

    def arrived(self, worker: WorkerId, held: Collection[int]) -> Sequence[ExecutorCall]:
        """Note that a worker has connected that has these calls, or their answers, of a client
        before; return those that are wanted of it."""

    def settled(self, answer: CallAnswer, worker: WorkerId) -> None:
        """Note what came of a call, before its future has it."""

    def left(self, worker: WorkerId) -> None:
        """Note that a worker has ended because there was nothing to do, or was told to end."""

    def lost(self, worker: WorkerId, call: ExecutorCall | None) -> None:
        """Settle the call that a worker had when it ended."""


class WorkerLink:
    """One worker and the calls that it has."""

    def __init__(self, connection: Connection, worker: WorkerId, *, server: WorkerServer) -> None:
        self.worker = worker
        self.held: OrderedDict[int, ExecutorCall] = OrderedDict()
        self._connection = connection
        self._server = server
        self._calls = server.calls
        self._sending = threading.Lock()
        self._functions: OrderedDict[bytes, None] = OrderedDict()
        self._mean_s: float | None = None
        self._recalled = False
        self._is_over = False

    def run(self) -> None:
        """Keep the worker busy until it has ended."""
        try:
            while not self._is_over:
                if not self._give():
                    self._receive()
        except peers.BROKEN:
            pass  # it is lost, as it is where anything else goes wrong
        finally:
            self._connection.close()
            if not self._is_over:
                self.lose()

    def recall(self) -> None:
        """Ask for the calls that the worker has not begun; another one has none."""
        if len(self.held) > 1 and not self._recalled:
            self._recalled = True
            with contextlib.suppress(*peers.BROKEN), self._sending:
                peers.send(self._connection, "recall")

    # What it gets.

    def _give(self) -> bool:
        """Send calls, as many as are short enough; return whether there is no answer to wait
        for."""
        room = self._room()
        calls = self._calls.take(room, held=len(self.held), wait_s=0) if room else []
        if not calls and not self.held and calls is not None:
            self._server.recall_any(self)
            calls = self._calls.take(room, wait_s=self._server.idle_s)
        if calls and not self.held and self._connection.poll():
            # It has left, or is lost, since it had nothing to do: no call is to be blamed for that.
            self._calls.give_back(calls)
        elif calls:
            self._send(calls)
        elif not self.held:
            self._is_over = True
            with contextlib.suppress(*peers.BROKEN), self._sending:
                peers.send(self._connection, "end")
            self._server.owner.left(self.worker)
            return True
        return False

    def _room(self) -> int:
        """Return how many calls to send now: none while it has enough of them."""
        if self._mean_s is None:
            return 0 if self.held else 1
        wanted = min(int(CHUNK_S / max(self._mean_s, 1e-6)), CHUNK_MAX)
        share = self._calls.ready // (2 * max(len(self._server.links), 1)) + 1
        wanted = min(wanted, share)
        if wanted <= 1:
            return 0 if self.held else 1
        return 0 if len(self.held) > wanted else wanted

    def _send(self, calls: list[ExecutorCall]) -> None:
        functions, forgotten, sent = {}, [], []
        place = CallPlace(self.worker)
        for call in calls:
            function, arguments = call.work
            digest = function.digest
            if digest in self._functions:
                self._functions.move_to_end(digest)
            else:
                self._functions[digest] = None
                functions[digest] = (function.name, function.data)
            sent.append((call.number, digest, arguments))
            self.held[call.number] = call
            placed(call.future, place)
        while len(self._functions) > max(FUNCTIONS_KEPT, len(self.held)):
            forgotten.append(self._functions.popitem(last=False)[0])
        with self._sending:
            peers.send(self._connection, "calls", functions, forgotten, sent)

    # What comes back.

    def _receive(self) -> None:
        match peers.receive(self._connection):
            case ("answers", busy_s, answers):
                new = busy_s / len(answers)
                mean = self._mean_s
                self._mean_s = new if mean is None else mean + MEAN_WEIGHT * (new - mean)
                self._settle(answers)
            case ("returned", numbers):
                self._recalled = False
                self._mean_s = None  # the call that it has is a long one: it gets no others
                self._calls.give_back(self._taken(numbers))
            case ("checkpoint", number, function):
                for call in self._taken([number]):
                    call.work = call.work._replace(function=function)  # for the next worker
                    self._calls.give_back([call])
            case ("leaving", notice, number):
                self._is_over = True
                self._leave(notice, number)

    def _taken(self, numbers: Sequence[int]) -> list[ExecutorCall]:
        return [self.held.pop(number) for number in numbers if number in self.held]

    def _settle(self, answers: Sequence[CallAnswer]) -> None:
        done = []
        for answer in answers:
            call = self.held.pop(answer[0], None)
            if call is not None:
                self._server.owner.settled(answer, self.worker)
                settle(call, answer, worker=self.worker)
                done.append(call)
        self._calls.finished(done)

    def _leave(self, notice: str, number: int | None) -> None:
        """Give all calls to others; the one that ran counts as lost, unless it was preempted."""
        lost = self.held.pop(number, None) if number is not None and not notice else None
        self._calls.give_back([*self.held.values()])
        self.held.clear()
        self._server.owner.lost(self.worker, lost)

    def lose(self) -> None:
        """Give the calls of a lost worker to others, those that may be at fault one by one."""
        held = [*self.held.values()]
        self.held.clear()
        alone = held[0] if len(held) == 1 else None
        if alone is None:
            for call in held:
                call.is_alone = True
            self._calls.give_back(held)
        self._server.owner.lost(self.worker, alone)


class WorkerServer:
    """Where workers connect. `links` are those that have."""

    def __init__(
        self, calls: CallQueue, owner: LinkOwner, *, setup: WorkerSetup, token: bytes, idle_s: float
    ) -> None:
        self.calls = calls
        self.owner = owner
        self.idle_s = idle_s
        self.links: dict[WorkerId, WorkerLink] = {}
        self._setup = setup
        self._token = token
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._strangers = threading.Semaphore(STRANGERS_MAX)
        self._socket: socket.socket | None = None
        self._closed = threading.Event()

    def open(self, address: tuple[str, int]) -> tuple[str, int]:
        """Listen; return the address. Raises OSError."""
        self._socket = peers.serving(address)
        threading.Thread(target=self._accept, name="peloton-workers", daemon=True).start()
        host, port = self._socket.getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Let nobody in any more, and wait until all workers have ended."""
        self._closed.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._socket.close()
        while True:
            with self._lock:
                thread = next(iter(self._threads), None)
            if thread is None:
                return
            thread.join()

    def recall_any(self, idle: WorkerLink) -> None:
        """Ask the worker that has the most calls for those that it has not begun."""
        with self._lock:
            others = [link for link in self.links.values() if link is not idle]
        most = max(others, key=lambda link: len(link.held), default=None)
        if most is not None:
            most.recall()

    def _accept(self) -> None:
        assert self._socket is not None
        while True:
            try:
                opened, _ = self._socket.accept()
            except OSError as error:
                if self._closed.is_set():
                    return
                text = f"workers wait until this process can let them in: {error}"
                warnings.warn(text, PelotonWarning, stacklevel=2)
                self._closed.wait(ACCEPT_AGAIN_S)
                continue
            if not self._strangers.acquire(blocking=False):
                opened.close()
                continue
            thread = threading.Thread(target=self._serve, args=(opened,), daemon=True)
            thread.start()

    def _serve(self, opened: socket.socket) -> None:
        link = self._greeted(opened)
        if link is None:
            return
        try:
            link.run()
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
                if self.links.get(link.worker) is link:
                    del self.links[link.worker]

    def _greeted(self, opened: socket.socket) -> WorkerLink | None:
        """Return the link of a worker; None if it is none, or cannot work here."""
        try:
            connection = peers.welcomed(opened, self._token)
            _, about = peers.receive(connection)
        except (*peers.BROKEN, AuthenticationError, AssertionError):
            return None
        finally:
            self._strangers.release()
        worker = WorkerId(about["job"], about["instance"], about["run"])
        here = sys.version_info[:2]
        if about["python"] != here:
            text = "workers have Python {}.{}, this client has {}.{}: name another one as python="
            with contextlib.suppress(*peers.BROKEN):
                peers.send(connection, "refused", text.format(*about["python"], *here))
            return None
        link = WorkerLink(connection, worker, server=self)
        with self._lock:
            self.links[worker] = link
            self._threads.add(threading.current_thread())
        wanted = self.owner.arrived(worker, about["held"])
        link.held.update((call.number, call) for call in wanted)
        setup = {**self._setup._asdict(), "wanted": {call.number for call in wanted}}
        with contextlib.suppress(*peers.BROKEN):  # then the link will notice, too
            peers.send(connection, "welcome", setup)
        return link


def placed(future: Future[Any], place: CallPlace) -> None:
    """Note where a call is."""
    if isinstance(future, PelotonFuture):
        future.place = place


def settle(call: ExecutorCall, answer: CallAnswer, *, worker: WorkerId) -> None:
    """Give a future what came of its call."""
    _, has_result, data, (stdout, stderr) = answer
    placed(call.future, CallPlace(worker, stdout, stderr))
    settle_with(call, unpack_outcome(call.work.function.name, has_result, data=data))


def settle_with(call: ExecutorCall, found: CallOutcome) -> None:
    """Give a future an outcome."""
    if found.exception is not None:
        call.future.set_exception(found.exception)
    else:
        call.future.set_result(found.result)
