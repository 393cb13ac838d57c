"""A TCP proxy that stands between a client and a server, to be cut, silenced and mended.

Turns "nothing passes any more" into what the two ends then see: a connection that is gone (`cut`),
or one that stands and carries nothing (`silence`). It must not change what passes.
"""

from __future__ import annotations

import socket
import threading


class Proxy:
    """Listens on 127.0.0.1:`port` for connections to 127.0.0.1:`target`."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.accepted = 0
        self._passes = threading.Event()
        self._passes.set()
        self._refuses = False
        self._closed = False
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """All connections end, and none begins."""
        self._refuses = True
        self._hang_up()

    def silence(self) -> None:
        """What is sent from now on waits."""
        self._passes.clear()

    def mend(self) -> None:
        """Everything passes, and first of all what waited."""
        self._refuses = False
        self._passes.set()

    def close(self) -> None:
        """For good."""
        self._closed = True
        self.cut()
        self._passes.set()
        _close(self._listener)

    def _hang_up(self) -> None:
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            _close(one)

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            if self._refuses:
                _close(near)
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                _close(near)
                continue
            self._sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                self._passes.wait()
                sink.sendall(data)
        except OSError:
            pass  # cut
        _close(source)
        _close(sink)


def _close(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # not connected, or gone already
    one.close()
