"""A TCP proxy in front of a daemon's port, which can block a single peer process.

Turns connections to a port into connections to the daemon behind it, and finds the process at the
other end of each. A connection whose process is not found is not blocked.

Without it a pair of daemons could not be partitioned: all have the same address, and only the
process that holds a socket distinguishes them. The kernel lists the sockets of a process in /proc.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path

LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F")
"""127.0.0.1 as the kernel writes it, as IPv4 and mapped into IPv6."""


class Passage:
    """A connection: the peer's end, the daemon's end, and whether anything passes."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near, self.far = near, far
        self.passes = threading.Event()
        self.passes.set()

    def begin(self) -> None:
        """Forward in both directions from now on."""
        for source, sink in ((self.near, self.far), (self.far, self.near)):
            with contextlib.suppress(OSError):  # closed already
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def close(self) -> None:
        """Close both ends, also while the passage is silenced."""
        self.passes.set()
        for one in (self.near, self.far):
            _close(one)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):  # cut
            while data := source.recv(65536):
                self.passes.wait()
                sink.sendall(data)
        _close(source)
        _close(sink)


class Door:
    """Listens on 127.0.0.1:`port` for connections to 127.0.0.1:`target`."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self.accepted = 0
        self._open: list[Passage] = []
        self._shut: dict[int | None, bool] = {}
        """The blocked process ids, and whether silently; None: all processes."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        """The address to connect to."""
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Close connections, and new ones, too."""
        self._bar(None, silent=False)

    def silence(self) -> None:
        """Keep connections open, and let nothing pass."""
        self._bar(None, silent=True)

    def part(self, pid: int, *, silent: bool) -> None:
        """Cut or silence the connections of this process alone."""
        self._bar(pid, silent=silent)

    def mend(self) -> None:
        """Forward everything again."""
        with self._lock:
            self._shut.clear()
            for passage in self._open:
                passage.passes.set()

    def close(self) -> None:
        """Stop for good."""
        _close(self._listener)
        with self._lock:
            for passage in self._open:
                passage.close()

    def _bar(self, pid: int | None, *, silent: bool) -> None:
        with self._lock:
            self._shut[pid] = silent
            for passage in self._open:
                self._judge(passage)

    def _judge(self, passage: Passage) -> None:
        """Forward, silence or close a connection, depending on its process."""
        for pid, silent in self._shut.items():
            if pid is None or _holds(pid, passage.near):
                if silent:
                    passage.passes.clear()
                else:
                    passage.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                _close(near)
                continue
            with self._lock:
                self._open = [each for each in self._open if each.near.fileno() >= 0]
                passage = Passage(near, far)
                self._open.append(passage)
                self._judge(passage)
                passage.begin()


def _holds(pid: int, near: socket.socket) -> bool:
    """Return whether the other end of this connection is a socket of that process."""
    try:
        theirs, ours = near.getpeername()[1], near.getsockname()[1]
        wanted = f"socket:[{_inode(theirs, ours)}]"
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed just now
                if os.readlink(entry) == wanted:
                    return True
    except OSError:
        pass  # the connection, or the process, has ended
    return False


def _inode(port: int, to: int) -> str:
    """Return the inode of the local socket that is bound to `port` and connected to `to`."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                here, _, ours = fields[1].partition(":")
                ends = ours == f"{port:04X}" and fields[2].endswith(f":{to:04X}")
                if ends and here in LOOPBACK:
                    return fields[9]
    return "none"


def _close(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # not connected, or gone already
    one.close()
