"""Checks whether a daemon's advertised address leads to it, and whether it reaches its peers.

Turns settings and the members that are up into problems, by connecting as the daemon would: it
listens at the same address, with the same certificate, and dials its own address and each peer. It
must not join, nor send anything by which a peer takes it for a daemon of the fleet.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from peloton.assembly.exchange import open_exchange
from peloton.failures import CannotStart
from peloton.runtime.adapters.exchange_errors import is_about_trust, was_open
from peloton.runtime.adapters.grpc_exchange import GrpcExchange
from peloton.runtime.core.reach.contacts import named
from peloton.runtime.ports import MemberNode
from peloton.runtime.shells.own_address import NO_ANSWER, own_greeting
from peloton.settings.daemon import DaemonSettings

ANSWER_S_MAX = 5.0


class _Events:
    """The events of streams."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.ended: dict[int, str] = {}
        self._changed = threading.Condition()

    def accepted(self, stream: int) -> None: ...

    def arrived(self, stream: int, data: bytes) -> None:
        with self._changed:
            self.frames.append(data)
            self._changed.notify_all()

    def closed(self, stream: int, text: str) -> None:
        with self._changed:
            self.ended[stream] = text
            self._changed.notify_all()

    def wait(self, so: Callable[[], bool], until_s: float) -> None:
        """Wait until the condition holds, or until that time (monotonic)."""
        with self._changed:
            self._changed.wait_for(so, max(until_s - time.monotonic(), 0.0))


def problems(settings: DaemonSettings, members: Mapping[str, MemberNode]) -> Iterator[str]:
    """Yield what keeps this daemon and its peers apart, except a busy address."""
    try:
        exchange = open_exchange(settings)
    except CannotStart:
        return  # ports and files are checked by themselves
    events = _Events()
    exchange.listen(events)
    try:
        address = settings.listen.advertise or exchange.address
        yield from _own(exchange, events, address=address, field=_field(settings))
        peers = {name: node for name, node in members.items() if node.address != address}
        yield from _peers(exchange, events, peers=peers)
    finally:
        exchange.stop()


def _field(settings: DaemonSettings) -> str:
    return "listen.advertise" if settings.listen.advertise else "listen.exchange"


def _own(exchange: GrpcExchange, events: _Events, *, address: str, field: str) -> Iterator[str]:
    greeting = own_greeting(f"check-{secrets.token_hex(8)}")
    stream = exchange.dial(address)
    exchange.send(stream, greeting)
    until_s = time.monotonic() + ANSWER_S_MAX
    events.wait(lambda: greeting in events.frames or stream in events.ended, until_s)
    if greeting not in events.frames:
        why = events.ended.get(stream, NO_ANSWER)
        yield f"{field}: {address} does not lead to this daemon: {why}"
    exchange.close(stream)


def _peers(
    exchange: GrpcExchange, events: _Events, *, peers: Mapping[str, MemberNode]
) -> Iterator[str]:
    """Yield peers with which certificates do not match; and all, if most are silent."""
    greeting = own_greeting(f"check-{secrets.token_hex(8)}")
    streams = {exchange.dial(node.address): name for name, node in sorted(peers.items())}
    for stream in streams:
        exchange.send(stream, greeting)  # it closes the stream of a daemon that is no member
    until_s = time.monotonic() + ANSWER_S_MAX
    events.wait(lambda: streams.keys() <= events.ended.keys(), until_s)
    whys = {name: events.ended.get(stream, "no answer") for stream, name in streams.items()}
    silent = {name: why for name, why in whys.items() if not was_open(why)}
    most = 2 * len(silent) > len(
        peers
    )  # a single one may be down, which is not this daemon's fault
    for name, why in silent.items():
        if most or is_about_trust(why):
            yield f"listen.exchange: {named(name, peers[name].address)} is out of reach: {why}"
