"""Fetches a file of a task's sandbox from the machine that ran it, over HTTP.

BrowseSandbox says where the machine is. No proxy is used, because the one for the web does not find
the machines of a cluster.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from peloton.sdk.errors import Denied, NotFound, ServerError, ServiceUnavailable, TimedOut

CHUNK_BYTES = 64 * 1024
PORT = "5051"
REMOVED = "filesRemoved"
"""The kind of the error that says that files were there, and are no more."""


class File(NamedTuple):
    """One file, and the address that serves it."""

    host: str
    port: str
    path: str

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        query = urllib.parse.urlencode({"path": self.path})
        return f"http://{host}:{self.port or PORT}/files/download?{query}"


def file_named(filename: str, paths: Iterable[str], *, host: str, port: str) -> File:
    """Return the file of this name among those of a sandbox; raises NotFound."""
    files = {path.rsplit("/", 1)[-1]: path for path in paths}
    if filename in files:
        return File(host, port, files[filename])
    there = f"there is {', '.join(sorted(files))}" if files else "the sandbox is empty"
    raise NotFound(f"filename:{filename} not found in sandbox files: {there}")


def download(file: File, *, timeout_s: float, start: int = 0) -> Iterator[bytes]:
    """Return the file in pieces, from byte `start` on.

    Connects at once, so that a file which does not exist fails here.
    """
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    headers = {"Range": f"bytes={start}-"} if start else {}
    try:
        answer = direct.open(urllib.request.Request(file.url, headers=headers), timeout=timeout_s)
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(CHUNK_BYTES).decode("utf-8", "replace").strip()
        if error.code == http.HTTPStatus.GONE:
            raise NotFound(said, kind=REMOVED) from None
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return iter(())  # it does not go so far yet
        if error.code == http.HTTPStatus.NOT_FOUND:
            raise NotFound(
                f"{file.path} is no longer on {file.host}: files of old runs are removed, and "
                "simulated runs leave none"
            ) from None
        if error.code == http.HTTPStatus.BAD_GATEWAY:
            raise ServiceUnavailable(said) from None
        if error.code == http.HTTPStatus.FORBIDDEN:
            text = f"{file.host}:{file.port} does not send {file.path}: its link has ended"
            raise Denied(text) from None
        raise ServerError(f"{file.url} answered {error.code} {error.reason}") from None
    except TimeoutError:
        raise TimedOut(f"{file.host}:{file.port} did not answer in time") from None
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        raise ServiceUnavailable(f"{file.host}:{file.port} does not answer: {reason}") from None
    whole = answer.status != http.HTTPStatus.PARTIAL_CONTENT
    return pieces(answer, file, skip=start if whole else 0)


def pieces(answer: http.client.HTTPResponse, file: File, *, skip: int = 0) -> Iterator[bytes]:
    """Yield what comes, less the first bytes if the agent knows no ranges and sends them again."""
    with answer:
        while True:
            try:
                piece = answer.read(CHUNK_BYTES)
            except (http.client.HTTPException, OSError) as error:
                raise ServiceUnavailable(f"{file.path} broke off: {error}") from None
            if not piece:
                if answer.length:  # of what was announced; `read` says nothing of it
                    raise ServiceUnavailable(f"{file.path} broke off") from None
                return
            skipped = min(skip, len(piece))
            skip -= skipped
            if skipped < len(piece):
                yield piece[skipped:]
