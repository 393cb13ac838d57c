"""TLS in front of a server that speaks none.

It ends TLS, and passes bytes on in both directions until either side hangs up.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading

from peloton.runtime.adapters.grpc_exchange import Tls

_BYTES = 65536


class TlsFront:
    """Listens from its construction until `close`. `asks`: clients must show a certificate of the
    same authority. `mute`: it never answers in TLS."""

    def __init__(self, behind: int, tls: Tls, *, asks: bool = False, mute: bool = False) -> None:
        self._behind, self._mute = behind, mute
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(tls.certificate, tls.key)
        if asks:
            self._context.load_verify_locations(tls.ca)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self.failures: list[str] = []
        """Of handshakes."""
        self.shaken = 0
        """Connections whose handshake was done."""
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> TlsFront:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up on all."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in [*self._open]:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self._open.add(sock)
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        if self._mute:
            return  # it stays open
        try:
            client = self._context.wrap_socket(plain, server_side=True)
        except OSError as error:
            self.failures.append(str(error))
            plain.close()
            return
        self.shaken += 1
        self._open.add(client)
        there = ("127.0.0.1", self._behind)
        with contextlib.suppress(OSError), client, socket.create_connection(there) as behind:
            self._open.add(behind)
            _pass_on(client, behind)


def _pass_on(client: ssl.SSLSocket, behind: socket.socket) -> None:
    while True:
        pending = [client] if client.pending() else []
        readable = pending or select.select([client, behind], [], [])[0]
        for one, other in ((client, behind), (behind, client)):
            if one in readable:
                data = one.recv(_BYTES)
                if not data:
                    return
                other.sendall(data)
