"""The way to the cluster: channels, deadlines, metadata, and repeats where they are safe.

A cluster may have several addresses: a call goes to the next one where nobody answers, and from
then on that one is asked first. Must not know any call by name, and never repeats one that may have
changed something unnoticed: a change is only said twice under a request key, by which the server
knows the second for the first, or where the first never left, for want of a connection.
"""

from __future__ import annotations

import getpass
import itertools
import random
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import grpc

from peloton.sdk import errors, translate
from peloton.sdk.addresses import Addresses

CALLER = "peloton-python"
MESSAGE_BYTES_MAX = 256 * 1024 * 1024
# Every address is tried so often at most, with growing pauses, and never beyond the deadline.
ROUNDS_MAX = 4
PAUSE_FIRST_S, PAUSE_S_MAX = 0.1, 2.0
SERVICES = {
    "jobmgr": "peloton-jobmgr",
    "resmgr": "peloton-resmgr",
    "hostmgr": "peloton-hostmgr",
    "api": "peloton-apiserver",
}


def user() -> str:
    """Who runs this, for the cluster's records; no proof of anything. Empty where unknown."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""
    return name if name.isascii() and name.isprintable() else ""


USER = user()
OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # A cluster is never behind the proxy one browses the web through.
    ("grpc.enable_http_proxy", 0),
    # Left to itself gRPC waits up to two minutes before it dials a daemon that came back.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A machine that lost its power says nothing; a question of ours to it would wait in vain.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
]


class Login(NamedTuple):
    """What basic authentication wants."""

    username: str
    password: str


class RpcName(NamedTuple):
    """One call: whose it is, the generated stub it is in, and its name there."""

    role: str
    stub: Any
    name: str


class How(NamedTuple):
    """May a call be repeated when nobody answers, and under which key."""

    repeat: bool
    key: str = ""


READ = How(repeat=True)
ONCE = How(repeat=False)


def keyed(key: str | None) -> How:
    """A change that is safe to repeat: the server remembers what it answered to this key."""
    return How(repeat=True, key=key or str(uuid.uuid4()))


class RpcCall(NamedTuple):
    """One call under way; `until` is when its time is over."""

    method: RpcName
    request: Any
    how: How
    until: float


class Wire:
    """Channels by address, opened when first used."""

    def __init__(self, places: Addresses, *, timeout_s: float, login: Login | None = None) -> None:
        self.timeout_s = timeout_s
        self._places = places
        self._login = login
        self._channels: dict[str, grpc.Channel] = {}
        self._reached: set[str] = set()
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()

    def call(
        self, method: RpcName, request: Any, *, how: How = READ, timeout_s: float | None = None
    ) -> Any:
        """The answer, or an exception of `errors`. The deadline is over all attempts together."""
        until = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        call = RpcCall(method, request, how, until)
        pause_s = PAUSE_FIRST_S
        trouble: errors.PelotonError
        for turn in itertools.count(1):
            try:
                addresses = self._places.of(method.role)
            except errors.ServiceUnavailable as error:
                # Nobody knows where they are. Whoever was there before may be found again.
                trouble, again = error, turn > 1
            else:
                try:
                    return self._ask_all(call, addresses)
                except _Over as over:
                    # Nothing else is caught: what may have been heard is not said again.
                    trouble, again = over.trouble, True
            # Clients that lost the same server must not come back in step.
            wait_s = pause_s * random.uniform(0.5, 1.5)
            wait_s = max(wait_s, _retry_s(trouble) * random.uniform(1.0, 1.5))
            more = again and (self._places.patient or turn < ROUNDS_MAX)
            if not more or time.monotonic() + wait_s >= until:
                raise trouble from None
            time.sleep(wait_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
            self._places.look_again()
        raise AssertionError("the last turn returns or raises")

    def stream(self, method: RpcName, request: Any) -> Iterator[Any]:
        """The messages of a server's stream, of the first address that answers; it has no deadline.

        Raises when the stream ends with a status; whoever calls knows how to go on. Closing the
        iterator ends the call.
        """
        troubles: list[errors.PelotonError] = []
        for address in self._places.of(method.role):
            metadata = self._metadata(self._places.who(method.role), READ)
            call = getattr(method.stub(self._channel(address)), method.name)(
                request, metadata=metadata
            )
            begun = False
            try:
                for message in call:
                    if not begun:
                        self._places.answered(method.role, address)
                    begun = True
                    yield message
                return
            except grpc.RpcError as error:
                trouble = translate.status(error, address)
                if begun or not isinstance(trouble, errors.ServiceUnavailable):
                    raise trouble from None
                troubles.append(trouble)
            finally:
                call.cancel()
        self._places.look_again()
        raise _together(troubles)

    def _ask_all(self, call: RpcCall, addresses: tuple[str, ...]) -> Any:
        """The first answer of one after the other; raises `_Over`, or what one said is wrong."""
        troubles: list[errors.PelotonError] = []
        for at, address in enumerate(addresses, 1):
            left_s = _left_s(call)
            if len(addresses) > 1 or (self._places.patient and not call.how.repeat):
                # One that is not there must not use up the time of those behind it.
                trouble = self._reach(call, address, wait_s=left_s / (len(addresses) - at + 1))
                if trouble is not None:
                    troubles.append(trouble)
                    continue
                # One that is there has all of it: a slow answer is no silence.
                left_s = _left_s(call)
            try:
                answer = self._ask(call, address, wait_s=left_s)
            except errors.ServiceUnavailable as error:
                self._reached.discard(address)
                if not call.how.repeat or isinstance(error, errors.TimedOut):
                    raise
                troubles.append(error)
            else:
                self._places.answered(call.method.role, address)
                return answer
        raise _Over(_together(troubles))

    def _ask(self, call: RpcCall, address: str, *, wait_s: float) -> Any:
        rpc = getattr(call.method.stub(self._channel(address)), call.method.name)
        metadata = self._metadata(self._places.who(call.method.role), call.how)
        try:
            return rpc(call.request, timeout=wait_s, metadata=metadata)
        except grpc.RpcError as error:
            raise translate.status(error, address) from None

    def _reach(
        self, call: RpcCall, address: str, *, wait_s: float
    ) -> errors.ServiceUnavailable | None:
        """Ask for its health before anything is said; why not, if that fails: nothing was said.

        Not by watching the channel: its watcher is a thread of gRPC's own, which fails aloud if the
        channel is closed just then.
        """
        if call.how.repeat and address in self._reached:
            return None
        ask = self._channel(address).unary_unary(HEALTH_CHECK)
        try:
            ask(b"", timeout=wait_s)
        except grpc.RpcError as error:
            # Whoever says anything at all, such as that he does not know that call, is there.
            if error.code() in _NOBODY:
                text = f"{address} does not answer: no connection"
                return errors.ServiceUnavailable(text, kind=errors.NO_CONNECTION)
        self._reached.add(address)
        return None

    def _channel(self, address: str) -> grpc.Channel:
        with self._lock:
            if address not in self._channels:
                self._channels[address] = grpc.insecure_channel(address, options=OPTIONS)
            return self._channels[address]

    def _metadata(self, role: str, how: How) -> list[tuple[str, str]]:
        metadata = [
            ("rpc-caller", CALLER),
            ("rpc-service", SERVICES[role]),
            ("rpc-encoding", "proto"),
        ]
        if USER:
            metadata.append(("peloton-user", USER))
        if how.key:
            metadata.append(("peloton-request-key", how.key))
        if self._login:
            metadata += [("username", self._login.username), ("password", self._login.password)]
        return metadata


HEALTH_CHECK = "/grpc.health.v1.Health/Check"  # of all that a server does, asked with no bytes
_NOBODY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def _left_s(call: RpcCall) -> float:
    return max(call.until - time.monotonic(), 0.001)


class _Over(Exception):
    """All addresses were tried; nothing happened that a repeat would do twice."""

    def __init__(self, trouble: errors.PelotonError) -> None:
        super().__init__()
        self.trouble = trouble


def _retry_s(trouble: errors.PelotonError) -> float:
    """After how long the server wants to be asked again; 0 where it did not say."""
    return trouble.retry_s if isinstance(trouble, errors.ServiceUnavailable) else 0.0


def _together(troubles: list[errors.PelotonError]) -> errors.PelotonError:
    """What to tell of several that did not answer: all of it."""
    if len(troubles) > 1:
        text = "; ".join(str(one) for one in troubles)
        kinds = {one.kind for one in troubles}
        kind = kinds.pop() if len(kinds) == 1 else "UNAVAILABLE"
        return errors.ServiceUnavailable(text, kind=kind, retry_s=max(map(_retry_s, troubles)))
    return troubles[0]
