"""The way to the cluster: channels, deadlines, metadata, and repeats where they are safe.

Must not know any call by name, and never repeats one that may have changed something unnoticed:
a change is only said twice under a request key, by which the server knows the second for the first.
"""

from __future__ import annotations

import getpass
import random
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

import grpc

from peloton.sdk import errors, translate

CALLER = "peloton-python"
MESSAGE_BYTES_MAX = 256 * 1024 * 1024
# A call is tried so often at most, with growing pauses, and never beyond its deadline.
ATTEMPTS_MAX = 4
PAUSE_FIRST_S = 0.1
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
]


class Login(NamedTuple):
    """What basic authentication wants."""

    username: str
    password: str


class Method(NamedTuple):
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


class Wire:
    """Channels by address, opened when first used."""

    def __init__(
        self,
        api: str,
        *,
        roles: Mapping[str, str] | None = None,
        timeout_s: float,
        login: Login | None = None,
    ) -> None:
        self.addresses = dict(roles or {}) | {"api": api}
        strangers = sorted(set(self.addresses) - set(SERVICES))
        if strangers:
            raise ValueError(f"no such role: {', '.join(strangers)}")
        self.timeout_s = timeout_s
        self.login = login
        self._channels: dict[str, grpc.Channel] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()

    def call(
        self, method: Method, request: Any, *, how: How = READ, timeout_s: float | None = None
    ) -> Any:
        """The answer, or an exception of `errors`. The deadline is over all attempts together."""
        role = method.role if method.role in self.addresses else "api"
        address = self.addresses[role]
        rpc = getattr(method.stub(self._channel(address)), method.name)
        until = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        pause_s = PAUSE_FIRST_S
        for attempt in range(1, ATTEMPTS_MAX + 1):
            left_s = max(until - time.monotonic(), 0.001)
            try:
                return rpc(request, timeout=left_s, metadata=self._metadata(role, how))
            except grpc.RpcError as error:
                trouble = translate.status(error, address)
            again = how.repeat and type(trouble) is errors.Unavailable and attempt < ATTEMPTS_MAX
            # Clients that lost the same server must not come back in step.
            wait_s = pause_s * random.uniform(0.5, 1.5)
            if not again or time.monotonic() + wait_s >= until:
                raise trouble from None
            time.sleep(wait_s)
            pause_s *= 2
        raise AssertionError("the last attempt returns or raises")

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
        if self.login:
            metadata += [("username", self.login.username), ("password", self.login.password)]
        return metadata
