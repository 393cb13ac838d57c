"""A web server that takes ends of jobs, for tests. It answers what it is told to, by turns."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAIT_S = 60.0


class Hooks:
    """From `with` to its end. `statuses` are those of the first answers; later ones are 200."""

    def __init__(self, statuses: Iterable[int] = ()) -> None:
        self._statuses = [*statuses]
        self._got: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.answering = threading.Lock()  # who holds it keeps each answer back
        hooks = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                hooks._got.put((self.path, json.loads(self.rfile.read(length))))
                with hooks.answering:
                    pass
                status = hooks._statuses.pop(0) if hooks._statuses else 200
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", f"{hooks.url}/elsewhere")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Hooks:
        # A short interval, or the end of each test waits half a second for it.
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def next(self) -> tuple[str, Any]:
        """Path and body of the next request."""
        return self._got.get(timeout=WAIT_S)

    def empty(self) -> bool:
        """Whether there was no other request."""
        return self._got.empty()
