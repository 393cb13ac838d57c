"""The notifier: an ephemeral service that POSTs ends of jobs to URLs.

Turns an order of a job into a request of HTTP, repeated until a server takes it or the attempts are
used up, and reports the outcome to the job. Nothing of it is journaled: a job that has no answer
orders again, so an end may be posted more than once. No redirection is followed: it could lead to a
URL that the operator does not allow.
"""

from __future__ import annotations

import asyncio
import functools
import json
import ssl
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from peloton.actors.job.notice_messages import NOTIFIER, NoticeHandled, PostNotice
from peloton.backends.port import Tell
from peloton.http_client import BrokenAnswer, Request, status_from
from peloton.pauses import Pauses
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.shells.ephemeral import StatelessService
from peloton.runtime.shells.region import Region
from peloton.runtime.vocabulary import Key
from peloton.settings.daemon import DaemonSettings
from peloton.settings.notify import AllowedUrls, UrlParts, url_parts

CALL_S_MAX = 5.0
"""Of one attempt, with all it takes: finding the address, the handshake, the answer."""
CALLS_AT_ONCE = 16
UNDER_WAY_MAX = 1000
"""Ends that are being told, or wait for their next attempt. Jobs repeat what finds no room."""
KNOWN_MAX = 10_000
"""Outcomes that are kept for jobs that ask again before they have journaled them."""
NOT_ALLOWED = "its URL is not below a prefix that the operator of the cluster allows"
HEADERS = {"User-Agent": "peloton", "Content-Type": "application/json"}


class Retries(NamedTuple):
    """How often one end is tried, and the pauses between."""

    attempts_max: int = 8
    pauses: Pauses = Pauses(1.0, 60.0)


@functools.cache
def _tls() -> ssl.SSLContext:
    """Return the TLS context, made at need: to read all authorities takes 0.1 s."""
    return ssl.create_default_context()


class Notifier(StatelessService):
    """The ephemeral service behind `notifier/webhooks`."""

    key = NOTIFIER

    def __init__(
        self,
        allowed: AllowedUrls,
        *,
        cluster: str,
        report: Callable[[str], object],
        retries: Retries = Retries(),  # noqa: B008
    ) -> None:
        """Set up. `report` takes the orders that were given up, for the log of the daemon."""
        self._allowed = allowed
        self._cluster = cluster
        self._report = report
        self._retries = retries
        self._tell: Tell | None = None
        self._lock = threading.Lock()
        self._under_way: dict[tuple[Key, int], None] = {}
        self._known: dict[tuple[Key, int], NoticeHandled] = {}
        self._loop = asyncio.new_event_loop()
        self._slots = asyncio.Semaphore(CALLS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)

    def start(self, tell: Tell) -> None:
        """Begin. `tell` takes answers to jobs, from any thread."""
        self._tell = tell
        self._thread.start()

    def close(self) -> None:
        """Give up what is under way: its jobs will order it again, here or elsewhere."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def receive(self, envelopes: list[Envelope], now: float) -> Iterable[Envelope]:
        """Take orders; return answers to those whose outcome is known."""
        answers = []
        for envelope in envelopes:
            order = envelope.message
            if isinstance(order, PostNotice):
                known = self._taken(order)
                if known is not None:
                    answers.append(self._answer(order, known))
        return answers

    def _taken(self, order: PostNotice) -> NoticeHandled | None:
        """Begin an order if it is new and there is room; return its outcome, if there is one."""
        which = (order.job, order.notice.number)
        with self._lock:
            known = self._known.get(which)
            if known is not None or which in self._under_way:
                return known
            if len(self._under_way) >= UNDER_WAY_MAX:
                return None
            self._under_way[which] = None
        self._loop.call_soon_threadsafe(self._begin, order)
        return None

    # ---- on the thread of the loop ----

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    def _begin(self, order: PostNotice) -> None:
        task = self._loop.create_task(self._told(order))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _told(self, order: PostNotice) -> None:
        outcome = await self._outcome(order)
        which = (order.job, order.notice.number)
        with self._lock:
            del self._under_way[which]
            self._known[which] = outcome
            if len(self._known) > KNOWN_MAX:
                del self._known[next(iter(self._known))]
        if not outcome.posted:
            self._report(f"warning: the end of {order.job} is not told: {outcome.text}")
        assert self._tell is not None
        self._tell([self._answer(order, outcome)])

    async def _outcome(self, order: PostNotice) -> NoticeHandled:
        number = order.notice.number
        try:
            parts = url_parts(order.url)
        except ValueError:  # another version may allow more; the text would show the URL
            return NoticeHandled(number, False, "its URL cannot be called")
        if self._allowed.why_not(order.url):
            # Not that text: paths and queries of such URLs are secrets, and this goes to logs.
            return NoticeHandled(number, False, f"{parts.authority}: {NOT_ALLOWED}")
        body = notice_body(order, self._cluster)
        request = Request("POST", parts.target, parts.authority, HEADERS, body)
        for attempt in range(1, self._retries.attempts_max + 1):
            async with self._slots:
                problem = await self._attempt(parts, request)
            if not problem:
                return NoticeHandled(number, True, f"to {parts.authority}, attempt {attempt}")
            if attempt < self._retries.attempts_max:
                await asyncio.sleep(self._retries.pauses.after(attempt))
        text = f"{parts.authority}: {problem}, at the last of {self._retries.attempts_max} attempts"
        return NoticeHandled(number, False, text)

    async def _attempt(self, parts: UrlParts, request: Request) -> str:
        """Send one request; return what is wrong with its answer, or empty."""
        tls = _tls() if parts.scheme == "https" else None
        try:
            async with asyncio.timeout(CALL_S_MAX):
                status = await status_from(request, (parts.host, parts.port), tls=tls)
        except TimeoutError:
            return f"no answer within {CALL_S_MAX:g} s"
        except BrokenAnswer:
            return "what answers does not speak HTTP"
        except (OSError, ValueError) as error:  # ValueError: a bad name
            return str(error) or type(error).__name__
        return "" if 200 <= status < 300 else f"status {status}"

    def _answer(self, order: PostNotice, outcome: NoticeHandled) -> Envelope:
        return Envelope(order.job, outcome, sender=self.key)


def furnish_notifier(
    settings: DaemonSettings, region: Region, *, report: Callable[[str], object]
) -> Notifier:
    """Return the notifier of a daemon, which gets its mail from now on."""
    allowed = AllowedUrls(settings.notify.allow)
    notifier = Notifier(allowed, cluster=settings.cluster, report=report)
    notifier.start(region.tell)
    region.register_service(notifier.key, notifier, outward=True)
    return notifier


def notice_body(order: PostNotice, cluster: str) -> bytes:
    """Return the notice as JSON. Job and number name it, so that a receiver recognizes a repeat."""
    notice = order.notice
    found = {
        "job_id": order.job.partition("/")[2],
        "end": notice.number,
        "name": order.name,
        "owner": order.owner,
        "pool": order.pool_path,
        "state": notice.state.name,
        "instances": order.instances,
        "counts": dict(notice.counts),
        "created_at": _moment(order.created_at),
        "started_at": _moment(notice.started_at),
        "completed_at": _moment(notice.completed_at),
        "cluster": cluster,
    }
    return json.dumps(found).encode()


def _moment(at: float) -> str | None:
    """Return a moment of RFC 3339; none if it was never reached."""
    if not at:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
