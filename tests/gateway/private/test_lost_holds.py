"""Hosts that a call has held when it fails: its caller never learns their names."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import grpc
import pytest

from peloton.actors.host.holds.hold_messages import HoldHost, HostHeld, ReleaseHold
from peloton.actors.host.inventory.messages import HostView
from peloton.actors.host.stages import HostStates
from peloton.actors.resources import UNIT, Resources
from peloton.gateway.access.guard import CallEnded
from peloton.gateway.cluster.cluster_client import ClusterClient
from peloton.gateway.private.host_offers import Wanted, hold_hosts
from peloton.placement.filters import HostWant
from peloton.placement.messages import HostSummary
from peloton.runtime.vocabulary import Key, Refused, Unavailable, key
from tests.gateway.cluster.test_answers import Call

ROOM = Resources(UNIT)


def summary(host: Key) -> HostSummary:
    return HostSummary(host, 1, ROOM, ROOM)


class Hosts:
    """Three of them, of which b answers as it is told; and what is held by now."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.held: dict[str, Key] = {}

    def shards_of(self, kind: str) -> list[Key]:
        return [key("shard", "0")]

    def ask(self, to: Key, message: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if isinstance(message, HoldHost):
            self.held[message.name] = to
            taken = HostHeld(message.name, ROOM, 1.0, summary(to))
            future.set_result(self.answer if to == key("host", "b") else taken)
        elif isinstance(message, ReleaseHold):
            del self.held[message.name]
        else:
            views = [HostView(summary(key("host", name)), HostStates.UP, 0) for name in "abc"]
            future.set_result(tuple(views))
        return future


def test_a_call_that_fails_gives_back_what_it_held() -> None:
    hosts = Hosts(Unavailable("it moves"))
    client = ClusterClient(hosts)  # type: ignore[arg-type]
    with pytest.raises(CallEnded) as caught:
        hold_hosts(client, Wanted(HostWant()), context=Call())
    assert caught.value.code == grpc.StatusCode.UNAVAILABLE and not hosts.held


def test_a_call_that_is_answered_keeps_it() -> None:
    hosts = Hosts(Refused("MISMATCH", "taken", again=True))
    client = ClusterClient(hosts)  # type: ignore[arg-type]
    found = hold_hosts(client, Wanted(HostWant()), context=Call())
    assert [one.summary.host for one in found.hosts] == [key("host", "a"), key("host", "c")]
    assert {one.name for one in found.hosts} <= hosts.held.keys()
