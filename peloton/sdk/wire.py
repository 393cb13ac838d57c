"""Sends calls to the cluster: channels, deadlines, metadata, and retries if they are safe.

A cluster may have several addresses: if one does not answer, or refuses the caller, a call goes to
the next, which is then tried first. A call that may have changed something must not be repeated, as
it could take effect twice: a change is repeated only under a request key, by which the server
recognizes it, or if the first copy was never sent because there was no connection, or was refused
before it was looked at.
"""

from __future__ import annotations

import getpass
import itertools
import random
import threading
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

import grpc

from peloton.pauses import Pauses
from peloton.sdk import errors, sandbox, translate
from peloton.sdk.addresses import Addresses
from peloton.sdk.credentials import CallRoute, Credentials
from peloton.sdk.rpc import READ, How, RpcName, is_header_text
from peloton.sdk.transports import MetadataPairs, Transport

CALLER = "peloton-python"
MESSAGE_BYTES_MAX = 256 * 1024 * 1024
# Every address is tried so often at most, with growing pauses, and never beyond the deadline.
ROUNDS_MAX = 4
PAUSES = Pauses(0.1, 2.0)
SERVICES = {
    "jobmgr": "peloton-jobmgr",
    "resmgr": "peloton-resmgr",
    "hostmgr": "peloton-hostmgr",
    "api": "peloton-apiserver",
}


def user() -> str:
    """Return the user of this process, for the cluster's records; no proof of anything. Empty if
    unknown."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""
    return name if name.isascii() and name.isprintable() else ""


USER = user()
OPTIONS: list[tuple[str, object]] = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # A cluster is never behind the proxy one browses the web through.
    ("grpc.enable_http_proxy", 0),
    # Left to itself gRPC waits up to two minutes before it dials a daemon that came back.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A machine without power never answers: keepalive ends the calls to it.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
]


WARNING = "peloton-warning-bin"
"""Trailing metadata of an answer: what is accepted and will not do what is wanted, in UTF-8."""


def warn(text: str) -> None:
    """Warn as the server says, unless a program wants something else."""
    warnings.warn(text, errors.PelotonWarning, stacklevel=2)


class RpcCall(NamedTuple):
    """One call under way; `until` is when its time is over."""

    method: RpcName
    request: Any
    how: How
    until: float


class Wire:
    """Channels by what is dialled, opened when first used."""

    def __init__(
        self,
        addresses: Addresses,
        *,
        timeout_s: float,
        credentials: Credentials,
        transport: Transport,
    ) -> None:
        self.timeout_s = timeout_s
        self._transport = transport
        self.now, self.sleep = transport.now, transport.sleep
        self._addresses = addresses
        for name, text in credentials.login._asdict().items() if credentials.login else ():
            if not is_header_text(text):
                raise errors.BadSpec("must be printable ASCII characters", field=name)
        self._routes = transport.routes(credentials)
        self._channels: dict[str, Any] = {}
        self._reached: set[str] = set()
        self._lock = threading.Lock()
        self._closed = False
        self.warned: Callable[[str], None] = warn
        self.fill: Callable[..., Awaitable[None]]
        """Puts ids where a request names jobs, as `names.fill` does for a caller."""
        self.job_id: Callable[..., Awaitable[str]]
        """The id of a job that is named so, for what makes several calls about it."""

    async def close(self) -> None:
        with self._lock:
            channels, self._channels = self._channels, {}
            self._closed = True
        await self._transport.close(list(channels.values()))

    async def call(
        self, method: RpcName, request: Any, *, how: How = READ, timeout_s: float | None = None
    ) -> Any:
        """Return the answer, or raise an exception of `errors`. The deadline is for all
        attempts."""
        await self.fill(request, changes=how != READ)
        until = self.now() + (self.timeout_s if timeout_s is None else timeout_s)
        call = RpcCall(method, request, how, until)
        trouble: errors.PelotonError
        for turn in itertools.count(1):
            try:
                addresses = await self.addresses(method.role)
            except errors.ServiceUnavailable as error:
                # The addresses are unknown. If they were known before, they may be found again.
                trouble, again = error, turn > 1
            else:
                try:
                    return await self._try_all(call, addresses)
                except _Over as over:
                    # Nothing else is caught: what may have arrived is not sent again.
                    trouble, again = over.trouble, True
            # Jitter: clients that lost the same server must not retry at the same moment.
            wait_s = PAUSES.after(turn) * random.uniform(0.5, 1.5)
            wait_s = max(wait_s, _retry_s(trouble) * random.uniform(1.0, 1.5))
            more = again and (self._addresses.patient or turn < ROUNDS_MAX)
            if not more or self.now() + wait_s >= until:
                raise trouble from None
            await self.sleep(wait_s)
            self._addresses.refresh()
        raise AssertionError("the last turn returns or raises")

    async def addresses(self, role: str) -> tuple[str, ...]:
        if self._addresses.patient:  # it may have to look them up
            return await self._transport.apart(self._addresses.of, role)
        return self._addresses.of(role)

    async def stream(self, method: RpcName, request: Any) -> AsyncGenerator[Any, None]:
        """Yield the messages of a server's stream, of the first address that answers; it has no
        deadline.

        Raises when the stream ends with a status; the caller knows how to go on. Closing the
        generator ends the call.
        """
        await self.fill(request, changes=False)
        troubles: list[errors.PelotonError] = []
        for address in await self.addresses(method.role):
            try:
                async with aclosing(self._stream_of(method, request, address=address)) as messages:
                    async for message in messages:
                        yield message
                return
            except _NotBegun as refused:
                troubles.append(refused.trouble)
        self._addresses.refresh()
        raise _together(troubles)

    async def download(self, file: sandbox.File, *, start: int = 0) -> AsyncGenerator[bytes, None]:
        """Yield the pieces of a file of a sandbox, from byte `start` on."""
        download = partial(sandbox.download, timeout_s=self.timeout_s, start=start)
        pieces = await self._transport.apart(download, file)
        while (piece := await self._transport.apart(next, pieces, b"")) != b"":
            yield piece

    async def _stream_of(
        self, method: RpcName, request: Any, *, address: str
    ) -> AsyncGenerator[Any, None]:
        """Yield the messages of one address; raise `_NotBegun` if it does not answer."""
        metadata = self._metadata(self._addresses.service(method.role), READ)
        begun, refused = False, False
        while True:
            try:
                route = self._routes.to(address)
            except errors.ServiceUnavailable as error:
                raise _NotBegun(error) from None
            rpc = self._rpc(method, route.target)
            call = self._transport.stream(rpc, request, metadata=[*metadata, *route.metadata])
            try:
                async with aclosing(call) as messages:
                    async for message in messages:
                        if not begun:
                            self._addresses.answered(method.role, address)
                        begun = True
                        yield message
                return
            except grpc.RpcError as error:
                if not begun and not refused and self._is_known_now(error, address):
                    refused = True
                    continue
                if self._closed:  # whoever reads on must not open another channel
                    raise errors.PelotonError("the client is closed", kind="CLOSED") from None
                trouble = self._failed(error, address)
                if begun or not isinstance(trouble, errors.ServiceUnavailable | errors.Denied):
                    raise trouble from None
                raise _NotBegun(trouble) from None

    async def _try_all(self, call: RpcCall, addresses: tuple[str, ...]) -> Any:
        """Call one address after another; raises `_Over`, or the error that one answered."""
        troubles: list[errors.PelotonError] = []
        for at, address in enumerate(addresses, 1):
            left_s = self._left_s(call)
            if len(addresses) > 1 or (self._addresses.patient and not call.how.repeat):
                # An address that is down must not use up the time of the next ones.
                share_s = left_s / (len(addresses) - at + 1)
                absent = await self._reach(call, address, wait_s=share_s)
                if absent is not None:
                    troubles.append(absent)
                    continue
                # One that is up gets all the rest: a slow answer is not a missing one.
                left_s = self._left_s(call)
            try:
                answer = await self._send(call, address, wait_s=left_s)
            except errors.ServiceUnavailable as error:
                self._reached.discard(address)
                # A closed channel ends its calls, too: those are not repeated on another one.
                if not call.how.repeat or self._closed or isinstance(error, errors.TimedOut):
                    raise
                troubles.append(error)
            except errors.Denied as error:
                # Nothing was done. This daemon may know users, tokens or rules of an earlier time.
                troubles.append(error)
            else:
                self._addresses.answered(call.method.role, address)
                return answer
        if all(isinstance(trouble, errors.Denied) for trouble in troubles):
            raise troubles[0]  # nobody else can be asked
        trouble = _together(troubles)
        if isinstance(trouble, errors.Denied):
            raise trouble  # who is down may stay so: a person has to know that they were refused
        raise _Over(trouble)

    async def _send(self, call: RpcCall, address: str, *, wait_s: float) -> Any:
        metadata = self._metadata(self._addresses.service(call.method.role), call.how)
        try:
            route = self._routes.to(address)
            return await self._send_by(route, call, metadata=metadata, wait_s=wait_s)
        except grpc.RpcError as error:
            if not self._is_known_now(error, address):
                raise self._failed(error, address) from None
        try:
            route = self._routes.to(address)
            return await self._send_by(route, call, metadata=metadata, wait_s=wait_s)
        except grpc.RpcError as error:
            raise self._failed(error, address) from None

    async def _send_by(
        self, route: CallRoute, call: RpcCall, *, metadata: MetadataPairs, wait_s: float
    ) -> Any:
        rpc = self._rpc(call.method, route.target)
        answer, trailing = await self._transport.unary(
            rpc, call.request, timeout_s=wait_s, metadata=[*metadata, *route.metadata]
        )
        for key, value in trailing or ():
            if key == WARNING:
                self.warned(value.decode(errors="replace"))
        return answer

    def _rpc(self, method: RpcName, target: str) -> Any:
        return getattr(method.stub(self._channel(target)), method.name)

    def _failed(self, error: grpc.RpcError, address: str) -> errors.PelotonError:
        """Return the exception of a call; it names a certificate of the client that may be the
        cause."""
        found = translate.status(error, address)
        if error.code() is grpc.StatusCode.UNAVAILABLE and (unfit := self._unfit()):
            found.message += unfit
            found.args = (found.message,)
        return found

    def _unfit(self) -> str:
        return "".join(f"; {text}" for text in self._routes.certificate_texts(good=False))

    def _is_known_now(self, error: grpc.RpcError, address: str) -> bool:
        """Return whether a daemon that did not know the client would now: it was started after the
        look-up.

        What was refused so has had no effect, and may be sent again.
        """
        if error.code() is not grpc.StatusCode.UNAUTHENTICATED:
            return False
        return self._routes.is_changed(address)

    async def _reach(
        self, call: RpcCall, address: str, *, wait_s: float
    ) -> errors.ServiceUnavailable | None:
        """Check the health of an address before the call is sent; return the error if that fails.

        Not by watching the channel: its watcher is a thread of gRPC, which prints a traceback if
        the channel is closed at that moment.
        """
        if call.how.repeat and address in self._reached:
            return None
        try:
            target = self._routes.to(address).target
        except errors.ServiceUnavailable as error:
            return error
        check = self._channel(target).unary_unary(HEALTH_CHECK)
        try:
            await self._transport.unary(check, b"", timeout_s=wait_s, metadata=[])
        except grpc.RpcError as error:
            # Any answer, even that the call is unknown, shows that it is up.
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                text = f"{address} does not answer: no connection{self._unfit()}"
                return errors.ServiceUnavailable(text, kind=errors.NO_CONNECTION)
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                # It may be connected and busy. Nothing but the check was sent.
                text = f"{address} did not answer a health check in {wait_s:.3g} s"
                return errors.ServiceUnavailable(text, kind=errors.NO_ANSWER)
        self._reached.add(address)
        return None

    def _channel(self, target: str) -> Any:
        with self._lock:
            first = not self._channels
            if target not in self._channels:
                self._channels[target] = self._routes.channel(
                    target, OPTIONS, module=self._transport.grpc
                )
            found = self._channels[target]
        for text in self._routes.certificate_texts(good=True) if first else ():
            self.warned(text)
        return found

    def _left_s(self, call: RpcCall) -> float:
        return max(call.until - self.now(), 0.001)

    def _metadata(self, role: str, how: How) -> MetadataPairs:
        metadata = [
            ("rpc-caller", CALLER),
            ("rpc-service", SERVICES[role]),
            ("rpc-encoding", "proto"),
        ]
        if USER:
            metadata.append(("peloton-user", USER))
        if how.key:
            metadata.append(("peloton-request-key", how.key))
        return metadata


HEALTH_CHECK = "/grpc.health.v1.Health/Check"  # of the whole server: an empty request


class _NotBegun(Exception):
    """A stream was not begun by an address."""

    def __init__(self, trouble: errors.PelotonError) -> None:
        super().__init__()
        self.trouble = trouble


class _Over(Exception):
    """All addresses were tried; nothing happened that a repeat would do twice."""

    def __init__(self, trouble: errors.PelotonError) -> None:
        super().__init__()
        self.trouble = trouble


def _retry_s(trouble: errors.PelotonError) -> float:
    """Return the delay that the server proposed for a repeat, or 0."""
    return trouble.retry_s if isinstance(trouble, errors.ServiceUnavailable) else 0.0


def _together(troubles: list[errors.PelotonError]) -> errors.PelotonError:
    """Return one error with the texts of all addresses; one that refused the client does not
    answer better later."""
    if len(troubles) > 1:
        text = "; ".join(str(one) for one in troubles)
        for one in troubles:
            if isinstance(one, errors.Denied):
                return errors.Denied(text, kind=one.kind)
        kinds = {one.kind for one in troubles}
        kind = kinds.pop() if len(kinds) == 1 else "UNAVAILABLE"
        return errors.ServiceUnavailable(text, kind=kind, retry_s=max(map(_retry_s, troubles)))
    return troubles[0]
