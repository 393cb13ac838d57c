"""The small HTTP server: health, version, metrics, and the files of sandboxes.

Each GET request is answered on a thread of its own. The server listens on loopback only, and must
answer only requests that call it by a name of loopback: a web page that makes its own name point
here could else read every sandbox through its visitor's browser.

Health, version and metrics are open to every user of the machine. Files are sent to clients that
show the token of the daemon, or a link of BrowseSandbox (`file_links.py`). Those with the token are
one caller, and those with a link are one with all others of that address, which a link does not
tell apart.
"""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, NamedTuple, TypeAlias

from peloton import __version__
from peloton.gateway.access.file_links import FileLinks
from peloton.gateway.access.guard import Guard
from peloton.gateway.access.principals import SharedQuota
from peloton.gateway.cluster.files_anywhere import FileRoots, FilesAnywhere
from peloton.gateway.cluster.sandboxes import SandboxFiles
from peloton.gateway.ops.endpoints import endpoints_json
from peloton.gateway.ops.health_notes import archive_notes, waiting_hosts
from peloton.gateway.ops.metrics import metrics_text
from peloton.gateway.server.http_transport import (
    FILES_MAX,
    BoundedServer,
    BoundedServer6,
    LimitedHandler,
)
from peloton.printable import escaped
from peloton.runtime.core.health import DaemonHealth, NotReadyReason
from peloton.runtime.core.principal import NONE, TOKEN, Principal
from peloton.runtime.far_files import FilesAway, FilesRemoved, NoFile
from peloton.runtime.shells.region import Region
from peloton.settings.config import Address, is_loopback

CLOSE_POLL_S = 0.05
SERVICE = re.compile(r"/services/([^/]{1,200})/endpoints")
NO_TOKEN = "send `Authorization: Bearer` and the token of this daemon\n"
RANGE = re.compile(r"bytes=(\d{1,18})-", re.ASCII)
NO_LINK = (
    "files are sent for a path that BrowseSandbox has answered, within ten minutes; or with "
    "`Authorization: Bearer` and the token of this daemon\n"
)
TEXT, BINARY, JSON = "text/plain; charset=utf-8", "application/octet-stream", "application/json"


Notes: TypeAlias = Callable[[], tuple[NotReadyReason, ...]]


class TooManyFiles(Exception):
    """A caller has as many connections for files as are left for all others, or none is left."""


class HttpAccess(NamedTuple):
    """Which clients get files: all, if nothing is set."""

    links: FileLinks | None = None
    knows: Callable[[str], bool] = lambda authorization: False


OPEN = HttpAccess()
HOLDER = Principal("who has the token of this daemon", TOKEN)


class HttpServer:
    """A server that listens from its construction until `close`."""

    def __init__(
        self,
        address: Address,
        cluster: Region,
        *,
        sandboxes: FileRoots,
        access: HttpAccess,
        notes: Notes = lambda: (),
    ) -> None:
        """Listen at the address.

        `notes`: what health says besides the condition of the cluster.
        """
        if not is_loopback(address.host):
            raise OSError(0, f"{address.host} is not a loopback address")
        here = SandboxFiles(sandboxes.here, (address.host, address.port))
        boxes = FilesAnywhere(here, sandboxes.far)

        class Bound(HttpHandler):
            pass

        self.places = SharedQuota("HTTP connections for files")
        """Of which each caller has a share."""
        Bound.cluster, Bound.boxes, Bound.access = cluster, boxes, access
        Bound.places, Bound.lock = self.places, threading.Lock()
        Bound.notes = staticmethod(notes)
        kind = BoundedServer6 if ":" in address.host else BoundedServer
        self._server = kind((address.host, address.port), Bound)
        self.address = Address(address.host, self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(CLOSE_POLL_S,),
            name="gateway-http",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening; answers under way end by themselves."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class HttpHandler(LimitedHandler):
    """The handler of one request."""

    cluster: Region
    boxes: FilesAnywhere
    access: HttpAccess
    places: SharedQuota
    lock: threading.Lock
    notes: Notes
    _begun = False  # whether an answer is under way

    def do_HEAD(self) -> None:
        """Answer as GET, without the body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Route the request and answer."""
        self.request_came()
        with Guard(self._failed, "the HTTP request"):
            try:
                self._route()
            except FilesRemoved as removed:
                self._no_file(HTTPStatus.GONE, escaped(str(removed)))
            except NoFile:
                self._no_file(HTTPStatus.NOT_FOUND, "no such file")
            except TooManyFiles as full:
                self._send_text(HTTPStatus.TOO_MANY_REQUESTS, f"{full}\n")
            except FilesAway as away:
                self._no_file(HTTPStatus.BAD_GATEWAY, escaped(str(away)))
            except OSError:
                # The client went away, or stopped reading; it learns it from the length.
                self.close_connection = True

    def _failed(self, code: int, details: str, *, trailing: Any) -> None:
        if not self._begun:
            self._send_text(HTTPStatus.INTERNAL_SERVER_ERROR, f"{details}\n")

    def _no_file(self, status: HTTPStatus, text: str) -> None:
        if self._begun:  # the client learns it from the length
            self.close_connection = True
        else:
            self._send_text(status, f"{text}\n")

    # ---- answers ----

    def _route(self) -> None:
        try:
            target = urllib.parse.urlsplit(self.path)
            query = urllib.parse.parse_qs(target.query)
        except ValueError:
            self._send_text(HTTPStatus.BAD_REQUEST, "invalid path in the URL\n")
            return
        if not is_loopback(_host_of(self.headers.get("Host", ""))):
            self._send_text(HTTPStatus.FORBIDDEN, "call this server by a name of loopback\n")
            return
        path = target.path.rstrip("/") or "/"
        known: dict[str, Callable[[], None]] = {
            "/health": lambda: self._condition(query, live=True),
            "/ready": lambda: self._condition(query, live=False),
            "/version": lambda: self._send_text(HTTPStatus.OK, __version__ + "\n"),
            "/metrics": lambda: self._answer(metrics_text(self.cluster), TEXT),
        }
        if path in known:
            known[path]()
        elif (service := SERVICE.fullmatch(path)) is not None:
            self._endpoints(service[1])
        elif path in ("/files/browse", "/files/download"):
            self._files(path, query.get("path", [""])[0])
        elif path.startswith("/files/"):
            self._proven(urllib.parse.unquote(path[len("/files") :]), self._download)
        else:
            self._send_text(HTTPStatus.NOT_FOUND, f"nothing at {escaped(path)}\n")

    def _condition(self, query: dict[str, list[str]], *, live: bool) -> None:
        """Answer `/health`, whether to restart this process, or `/ready`, whether to send it
        calls."""
        condition = self.cluster.daemon_health()
        others = (*waiting_hosts(self.cluster), *archive_notes(self.cluster, time.time()))
        reasons = (*condition.reasons, *condition.remarks, *others, *self.notes())
        well = condition.live if live else condition.ready
        status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
        wanted = query.get("format", [""])[0], self.headers.get("Accept", "")
        if wanted[0] == "json" or JSON in wanted[1]:
            self._answer(_json(condition, reasons), JSON, status=status)
            return
        first = "OK" if well else "not ready" if condition.live else "stopping"
        self._send_text(status, "".join(f"{escaped(str(line))}\n" for line in (first, *reasons)))

    def _endpoints(self, job: str) -> None:
        """Answer where the instances of a service are, to clients that may read files, too."""
        knows = self.access.knows(self.headers.get("Authorization", ""))
        if self.access.links is not None and not knows:
            self._send_text(HTTPStatus.FORBIDDEN, NO_TOKEN)
            return
        body, status = endpoints_json(self.cluster, job)
        self._answer(body, JSON, status=status)

    def _files(self, path: str, wanted: str) -> None:
        if not wanted:
            self._send_text(HTTPStatus.BAD_REQUEST, "Expecting 'path=value' in query.\n")
        else:
            self._proven(wanted, self._download if path == "/files/download" else self._browse)

    def _proven(self, wanted: str, answer: Callable[[str, str], None]) -> None:
        """Answer for a file or folder, if the client may have it."""
        links = self.access.links
        signed = links.opened(wanted) if links is not None else None
        knows = self.access.knows(self.headers.get("Authorization", ""))
        if signed is None and links is not None and not knows:
            self._send_text(HTTPStatus.FORBIDDEN, NO_LINK)
            return
        with self._place(knows=knows):
            if signed is not None:
                answer(signed.path, signed.proof)
            else:
                answer(wanted, "")

    @contextmanager
    def _place(self, *, knows: bool) -> Iterator[None]:
        """Take one of the connections for files. Raises TooManyFiles."""
        who = HOLDER if knows else Principal("", NONE, self.client_address[0])
        with self.lock:
            # The token of the daemon opens everything.
            why = self.places.take(who, lambda: knows, most=FILES_MAX)
        if why:
            raise TooManyFiles(why)
        try:
            yield
        finally:
            with self.lock:
                self.places.leave(who)

    def _browse(self, path: str, proof: str) -> None:
        found = [{**row, "path": f"{proof}{row['path']}"} for row in self.boxes.rows(path)]
        self._answer(json.dumps(found).encode(), JSON)

    def _download(self, path: str, proof: str) -> None:
        with self.boxes.open(path) as file:
            # A file that is still written is sent as far as it goes now.
            size, start = file.size, self._start()
            if start is None:
                self._begin(HTTPStatus.OK, BINARY, length=size)
            elif start >= size:
                status = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
                self._begin(status, TEXT, length=0, span=f"bytes */{size}")
                return
            else:
                span = f"bytes {start}-{size - 1}/{size}"
                status = HTTPStatus.PARTIAL_CONTENT
                self._begin(status, BINARY, length=size - start, span=span)
            for piece in file.pieces(start or 0) if self.command != "HEAD" else ():
                self.wfile.write(piece)

    def _start(self) -> int | None:
        """Return from which byte on; other forms of ranges are ignored, as HTTP allows."""
        wanted = RANGE.fullmatch(self.headers.get("Range", ""))
        return int(wanted[1]) if wanted is not None else None

    def _send_text(self, status: HTTPStatus, text: str) -> None:
        self._answer(text.encode(), TEXT, status=status)

    def _answer(self, body: bytes, kind: str, *, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._begin(status, kind, length=len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _begin(self, status: HTTPStatus, kind: str, *, length: int, span: str = "") -> None:
        self._begun = True
        self.send_response(status)
        if span:
            self.send_header("Content-Range", span)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        # What a task wrote is shown by no browser as a page of this server.
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()


def _host_of(header: str) -> str:
    """Return the host of a Host header, without its port and brackets."""
    try:
        return urllib.parse.urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _json(condition: DaemonHealth, reasons: Sequence[NotReadyReason]) -> bytes:
    listed = [
        {
            "component": reason.component,
            "text": reason.text,
            "shards": [f"{shard.group}/{shard.number}" for shard in reason.shards],
            "damaged": reason.damaged,
        }
        for reason in reasons
    ]
    found = {"live": condition.live, "ready": condition.ready, "reasons": listed}
    return json.dumps(found).encode() + b"\n"
