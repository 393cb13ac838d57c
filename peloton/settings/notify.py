"""The URLs that may be notified of jobs' ends: `notify` of a daemon's file.

Turns prefixes into a test of URLs, and a URL into what a connection needs. A client names the URL
and the daemon calls it, so a URL that is not allowed by name is refused. Names are not looked up:
an answer could change before the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec

from peloton.settings.config import PORT_MAX, is_loopback

LOOPBACK = "loopback"
"""In place of a prefix: any port of this machine."""
URL_LENGTH_MAX = 2000
PORTS = {"http": 80, "https": 443}
HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?|[0-9a-f:.]*:[0-9a-f:.]*", re.ASCII)


class NotifySetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Allowed prefixes such as `https://example.com/hooks`, or `loopback`."""

    allow: list[str] = []


class UrlParts(NamedTuple):
    """A URL that can be called. `target` is its path with its query."""

    scheme: str
    host: str
    port: int
    path: str
    target: str

    @property
    def authority(self) -> str:
        """Host and port, as a request names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def url_parts(url: str) -> UrlParts:
    """Return the parts of a URL that means one place only. Raises ValueError."""
    if len(url) > URL_LENGTH_MAX:
        raise ValueError(f"a URL of {len(url)} characters, the limit is {URL_LENGTH_MAX}")
    if not url.isascii() or not url.isprintable() or any(sign in url for sign in ' \\"<>^`{|}'):
        raise ValueError(f"{url!r} has characters that a URL cannot have unescaped")
    parts = _split(url)
    if parts.scheme not in PORTS:
        raise ValueError(f"{url!r} is not a URL of http or https")
    host = parts.hostname or ""
    if "@" in parts.netloc:
        raise ValueError("a URL with a user name would show its password in listings")
    if HOST.fullmatch(host) is None:
        raise ValueError(f"{url!r} names no host")
    port = PORTS[parts.scheme] if parts.port is None else parts.port
    if not 1 <= port <= PORT_MAX:
        raise ValueError(f"{url!r}: port {port} is not between 1 and {PORT_MAX}")
    if "#" in url:
        raise ValueError(f"{url!r}: what follows a # is never sent")
    path = parts.path or "/"
    _check_path(url, path)
    return UrlParts(
        parts.scheme, host, port, path, f"{path}?{parts.query}" if parts.query else path
    )


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:  # such as brackets without an address, or a port of letters
        raise ValueError(f"{url!r} is not a URL: {error}") from None
    return parts


def _check_path(url: str, path: str) -> None:
    """Refuse a path that leads elsewhere than it seems: it would get around the prefixes."""
    plain = path.lower().replace("%2e", ".").replace("%3b", ";")
    if "%2f" in plain or "%5c" in plain or "%25" in plain or "//" in plain:
        raise ValueError(f"{url!r}: its path could be read in two ways")
    # Some servers cut off what follows a semicolon before they go back by dots.
    if any(part.partition(";")[0] in (".", "..") for part in plain.split("/")):
        raise ValueError(f"{url!r}: a path must not go back by dots")


class AllowedUrls:
    """The prefixes of an operator, which have passed `notify_problems`."""

    def __init__(self, prefixes: Iterable[str]) -> None:
        allowed = [*prefixes]
        self._loopback = LOOPBACK in allowed
        self._prefixes = [url_parts(prefix) for prefix in allowed if prefix != LOOPBACK]

    def why_not(self, url: str) -> str:
        """Return why the URL may not be called; empty if it may."""
        try:
            wanted = url_parts(url)
        except ValueError as error:
            return str(error)
        if self._loopback and is_loopback(wanted.host):
            return ""
        if any(_is_below(wanted, prefix) for prefix in self._prefixes):
            return ""
        if not self._loopback and not self._prefixes:
            return "the operator of the cluster allows no URL to be called"
        return f"{url} is not below a prefix that the operator of the cluster allows"


NO_URLS = AllowedUrls(())


def _is_below(wanted: UrlParts, prefix: UrlParts) -> bool:
    """Return whether a URL is below a prefix, by whole parts: /a does not allow /ab."""
    if wanted[:3] != prefix[:3]:
        return False
    folder = prefix.path.rstrip("/")
    return wanted.path == prefix.path or wanted.path.startswith(f"{folder}/")


def notify_problems(found: NotifySetting) -> Iterator[str]:
    """Yield what is wrong."""
    for number, prefix in enumerate(found.allow):
        if prefix == LOOPBACK:
            continue
        try:
            if "?" in prefix:
                raise ValueError(f"{prefix!r}: a prefix has no query")
            url_parts(prefix)
        except ValueError as error:
            yield f"notify.allow[{number}]: {error}; or say {LOOPBACK}"
