"""The keeper's socket and loop: one thread, one selector, one Unix socket.

Turns readable sockets and signals into calls of `Runs`, and its events into lines for the daemon
that last sent a hello for the host. Only the selector may wait: one thread serves all runs. A
daemon that stops reading is disconnected.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from typing import NamedTuple

from . import kinds, watch, wire
from .adoption import Left
from .checks import read_request
from .disk import DISK, Disk
from .identity import keeper_id
from .journal import KeeperJournalFailed
from .limits import amount_of
from .requests import BadRequest, EpochRefused
from .runs import Runs
from .supervised import Supervised, SupervisorGone
from .supervisor import say
from .wakeups import read_alarm, wake_on_signals

SOCKET_NAME = "socket"
UNSENT_BYTES_MAX = 64 * 1024 * 1024
# Adopted runs are no children: no SIGCHLD reports their end.
ADOPTED_ROUND_S = 0.2
_READ_BYTES = 262144
_LISTEN_BACKLOG = 16


class ServiceSettings(NamedTuple):
    idle_s: float
    round_s: float


class ClientConnection:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.lines = wire.Lines()
        self.unsent = bytearray()


class Service:
    def __init__(
        self,
        runs: Runs,
        settings: ServiceSettings,
        *,
        lock_fd: int,
        below: Supervised | None = None,
        disk: Disk = DISK,
    ) -> None:
        self._runs = runs
        self._disk = disk
        self._settings = settings
        self._lock_fd = lock_fd
        self._below = below
        self._identity = keeper_id(runs.folder, disk)
        self._selector = selectors.DefaultSelector()
        self._connections: set[ClientConnection] = set()
        self._owners: dict[str, ClientConnection] = {}
        self._exit_requested = False
        self._folder_gone = False
        now = time.monotonic()
        self._idle_since = now
        self._next_round = now
        self._next_adopted_round = now
        self._alarm = wake_on_signals(self._selector, self._request_exit)
        if below is not None:
            self._selector.register(below.descriptor, selectors.EVENT_READ)
        self._listener = self._listen()

    def take(self, left: Left) -> None:
        """Take over the ends from before this keeper began, before anything is due."""
        if self._below is not None:
            self._below.forget(self._runs.left.ended(left.ends))
        watch.check_adopted(self._runs)

    def _hear_supervisor(self, below: Supervised) -> None:
        """Read the supervisor's lines. If it has ended, this process takes its place.

        It has the runs as its children, and a successor takes over what is left of us. Nobody would
        keep their ends otherwise.
        """
        try:
            below.forget(self._runs.left.ended(below.read()))
        except SupervisorGone:
            self._selector.unregister(below.descriptor)
            self._below = None
            self._runs.commit()
            self._runs.write_acks()
            try:
                below.take_place()
            except OSError as trouble:
                self._runs.left.untold()
                say(f"nobody keeps the ends of runs any more: {trouble}")

    def _request_exit(self) -> None:
        """Exit as soon as no run is alive, and no sooner: SIGTERM."""
        self._exit_requested = True

    def _listen(self) -> socket.socket:
        """Listen by a relative name: a socket's path is limited to 107 bytes."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.setblocking(False)
        try:
            self._disk.unlink(SOCKET_NAME)
        except FileNotFoundError:
            pass
        listener.bind(SOCKET_NAME)
        self._disk.chmod(SOCKET_NAME, 0o600)
        listener.listen(_LISTEN_BACKLOG)
        self._selector.register(listener, selectors.EVENT_READ)
        return listener

    def serve(self) -> None:
        while not self._done():
            self._step(self._selector.select(self._timeout()))
        self._runs.write_acks()
        self._runs.limits.close()
        if not self._folder_gone:
            self._disk.unlink(SOCKET_NAME)

    def _step(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        """Handle what is ready, ends first: a run may have ended before its kill was read."""
        self._runs.reap()
        for key, mask in ready:
            if key.fileobj is self._listener:
                self._accept()
            elif self._below is not None and key.fd == self._below.descriptor:
                self._hear_supervisor(self._below)
            elif key.fd == self._alarm:
                read_alarm(self._alarm)
                self._runs.look_at_pods()
            elif mask & selectors.EVENT_READ:
                self._read(key.data)
        now = time.monotonic()
        self._runs.kill_overdue(now)
        self._rounds(now)
        self._runs.commit()
        self._send_events()
        if self._runs.busy or self._connections:
            self._idle_since = now

    def _rounds(self, now: float) -> None:
        if now >= self._next_adopted_round:
            self._next_adopted_round = now + ADOPTED_ROUND_S
            watch.check_adopted(self._runs)
        if now >= self._next_round:
            self._next_round = now + self._settings.round_s
            watch.check_all(self._runs)
            if not self._folder_is_ours():
                self._folder_gone = True
                self._runs.kill_all()

    def _folder_is_ours(self) -> bool:
        """Whether the lock file at the folder's path is still the one this keeper locked.

        Only the absence of the file is an answer: a disk that fails for a moment must not end all
        runs.
        """
        try:
            seen = self._disk.stat(f"{self._runs.folder}/lock")
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # the next round asks again
        ours = os.fstat(self._lock_fd)
        return (seen.st_dev, seen.st_ino) == (ours.st_dev, ours.st_ino)

    def _timeout(self) -> float:
        if self._runs.unfinished:
            return 0.0
        until = self._next_adopted_round if self._runs.adopted else self._next_round
        kill_at = self._runs.next_kill()
        if kill_at is not None:
            until = min(until, kill_at)
        return max(0.0, until - time.monotonic())

    def _done(self) -> bool:
        if self._folder_gone:
            return not (self._runs.by_pid or self._runs.adopted)
        if self._runs.busy:
            return False
        idle = not self._connections
        return self._exit_requested or (
            idle and time.monotonic() - self._idle_since >= self._settings.idle_s
        )

    # Connections.

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        connection = ClientConnection(sock)
        self._connections.add(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _drop(self, connection: ClientConnection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._selector.unregister(connection.sock)
            connection.sock.close()
            self._owners = {h: c for h, c in self._owners.items() if c is not connection}

    def _read(self, connection: ClientConnection) -> None:
        try:
            data = connection.sock.recv(_READ_BYTES)
            if not data:
                self._drop(connection)
                return
            for message in connection.lines.feed(data):
                self._answer(connection, message)
        except BlockingIOError:
            return
        except KeeperJournalFailed:
            self._drop(connection)  # the epoch was not journaled; the daemon reconnects
        except OSError:
            self._drop(connection)
        except (wire.BadLine, BadRequest, KeyError, TypeError, ValueError, AttributeError) as bad:
            self._send(connection, {"a": "bad", "why": f"{type(bad).__name__}: {bad}"})
            self._flush(connection)
            self._drop(connection)

    def _answer(self, connection: ClientConnection, message: wire.KeeperMessage) -> None:
        request = message["q"]
        if request == "ack":
            self._runs.ack(message["runs"])
            return
        if request == "lease":
            for job, for_s in message["jobs"].items():
                self._runs.sandboxes.kept.lease(job, amount_of(for_s))
            return
        host, epoch = message["host"], message["epoch"]
        try:
            self._runs.hello(host, epoch)
        except EpochRefused as refused:
            answer = {"a": "refused", "host": host, "epoch": epoch, "known": refused.known}
            self._send(connection, answer)
            return
        self._owners[host] = connection
        if request == "hello":
            answer = {"a": "hello", "host": host, "epoch": epoch, "version": wire.VERSION}
            self._send(connection, answer)
        elif request == "launch":
            self._runs.launch(host, message["runs"])
        elif request == "kill":
            for run_id, grace_s in message["runs"]:
                notice = str(message.get("notice", ""))
                self._runs.kill(host, run_id, grace_s=grace_s, notice=notice)
        elif request == "limit":
            for run_id, max_running_s in message["runs"]:
                self._runs.limit(host, run_id, max_running_s=amount_of(max_running_s))
        elif request == "check":
            self._runs.check(host, message["run"], asked=read_request(message))
        elif request == "remove":
            self._runs.remove_volumes(host, message["volumes"])
        elif request == "list":
            listed = {"runs": self._runs.listing(host), "keeper": self._identity}
            self._send(connection, {"a": "listed", "host": host, "at": time.time(), **listed})
        else:
            raise BadRequest(f"unknown request {request!r}")

    def _send_events(self) -> None:
        events, self._runs.events = self._runs.events, []
        for host, event in events:
            owner = self._owners.get(host)
            if owner is not None:
                self._send(owner, {"host": host, **event})
        for connection in list(self._connections):
            if connection.unsent:
                self._flush(connection)

    def _send(self, connection: ClientConnection, message: kinds.Record) -> None:
        connection.unsent += wire.encode(message)

    def _flush(self, connection: ClientConnection) -> None:
        try:
            while connection.unsent:
                sent = connection.sock.send(memoryview(connection.unsent)[:_READ_BYTES])
                del connection.unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(connection)
            return
        if len(connection.unsent) > UNSENT_BYTES_MAX:
            self._drop(connection)
        elif connection in self._connections:
            wanted = selectors.EVENT_READ
            if connection.unsent:
                wanted |= selectors.EVENT_WRITE
            self._selector.modify(connection.sock, wanted, connection)
