"""Links to the files of a run that need no other proof, for a while.

A link is the path of a file with a signature. Callers of BrowseSandbox get such links, so clients
of the original's fetch files as they did. The key is that of one process and is never written
anywhere: a link ends with the process that made it, at the latest.

    /~EXPIRES.SIGNATURE/RUN/stdout        good for all files of RUN until EXPIRES
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

LINK_S = 600
SIGNED = re.compile(r"/(?P<proof>~(?P<until>[0-9]{1,12})\.[\w-]{22})(?P<path>/.*)", re.DOTALL)


class Signed(NamedTuple):
    """A signed path: the proof before the path, and the path."""

    proof: str
    path: str


class FileLinks:
    """The links of one process: they are signed and checked."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Take a clock as `now` that cannot be set back, which would make links live longer."""
        self._key = secrets.token_bytes(32)
        self._now = now

    def proof(self, run: str) -> str:
        """Return what to put before the paths of this run."""
        return self._proof(run, int(self._now()) + LINK_S)

    def opened(self, path: str) -> Signed | None:
        """Return the path of a link; None if its signature is not valid, or not any more."""
        found = SIGNED.fullmatch(path)
        if found is None or int(found["until"]) < self._now():
            return None
        run = found["path"].lstrip("/").partition("/")[0]
        wanted = self._proof(run, int(found["until"]))
        if not hmac.compare_digest(wanted.encode(), found["proof"].encode()):
            return None
        return Signed(f"/{wanted}", found["path"])

    def _proof(self, run: str, until: int) -> str:
        said = f"{until}/{run}".encode(errors="surrogatepass")
        signature = hmac.digest(self._key, said, hashlib.sha256)[:16]
        return f"~{until}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"
