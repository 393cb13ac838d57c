"""Hosts that clients of the private services ask for: found in lists, and held by the hosts.

The answer has counts of the hosts by the first check that failed. Lists may be stale, so each host
decides again when it is to be held. A call that fails releases what it held, as far as hosts can be
reached; the rest ends by its time.
"""

from __future__ import annotations

import enum
import itertools
import random
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from peloton.actors.host.holds.hold_messages import HoldHost, HostHeld, ReleaseHold, comes_for
from peloton.actors.host.inventory.messages import HostView
from peloton.gateway.access.guard import CallEnded
from peloton.gateway.cluster.cluster_client import (
    ASKS_IN_FLIGHT_MAX,
    ClusterClient,
    Context,
)
from peloton.gateway.cluster.inventories import all_hosts, takes_work, unused_of
from peloton.gateway.translate.texts import client_name
from peloton.placement.filters import BEYOND_MOST, NOT_READY, RESULTS, SUITS, HostWant, suits
from peloton.runtime.vocabulary import Key, Refused, key

HOLD_S = 300.0
"""After so long a host that was neither used nor given back is free again, as in the original."""
HOLDS_MAX = 1000
"""Hosts that one call may hold; what is beyond counts as not wanted."""


class HostRanking(enum.Enum):
    """The order in which hosts are tried."""

    BY_NAME = "by name"
    TIGHTEST_FIRST = "tightest first"
    RANDOM = "random"


class Wanted(NamedTuple):
    """What a client asks for, and how many at most (0: no limit).

    `first` are the hosts to be tried first, with the tasks that the client brings to each; by it a
    host suits that is held for one of them. An empty name stands for whatever the host is held for.
    """

    want: HostWant
    most: int = 0
    first: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    ranking: HostRanking = HostRanking.BY_NAME

    def tasks_for(self, host: Key) -> tuple[str, ...]:
        """Return the tasks that the client brings to a host."""
        return self.first.get(client_name(host), ())


class Acquired(NamedTuple):
    """The hosts that are held now, and how many hosts each check has ruled out."""

    hosts: list[HostHeld]
    counts: dict[str, int]


def hold_hosts(cluster_client: ClusterClient, wanted: Wanted, *, context: Context) -> Acquired:
    """Hold hosts that suit; there may be none."""
    most = min(wanted.most or HOLDS_MAX, HOLDS_MAX)
    held: list[HostHeld] = []
    asked: list[tuple[Key, HoldHost]] = []
    counts: Counter[str] = Counter()
    suitable: list[Key] = []
    for view in _ordered(all_hosts(cluster_client, context), wanted):
        result = _suits_now(view, wanted)
        if result == SUITS:
            suitable.append(view.summary.host)
        else:
            counts[result] += 1
    holder = cluster_client.permissions.whose(context).text
    rest = iter(suitable)
    while len(held) < most:
        some = [*itertools.islice(rest, min(ASKS_IN_FLIGHT_MAX, most - len(held)))]
        if not some:
            break
        asks = [
            (host, new_hold(wanted.want, holder=holder, tasks=wanted.tasks_for(host)))
            for host in some
        ]
        asked += asks
        try:
            for answer in cluster_client.each(asks, context, changes=True):
                counts[_result(answer, context)] += 1
                held += [answer] if isinstance(answer, HostHeld) else []
        except CallEnded:
            _give_back(cluster_client, asked, who=holder)
            raise
    counts[BEYOND_MOST] += sum(1 for _ in rest)
    return Acquired(held, {name: count for name, count in sorted(counts.items()) if count})


def hinted(hints: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Return the tasks of hints, by host."""
    found: dict[str, tuple[str, ...]] = {}
    for host, task in hints:
        found[host] = (*found.get(host, ()), task)
    return found


def new_hold(want: HostWant, *, holder: str, tasks: tuple[str, ...]) -> HoldHost:
    """Return an order to hold a host for a client who brings these tasks."""
    return HoldHost(str(uuid.uuid4()), holder, HOLD_S, want, tasks)


def _suits_now(view: HostView, wanted: Wanted) -> str:
    summary, room = view.summary, view.summary.free
    ready = takes_work(view) and not view.hold
    if view.task_holds:
        tasks = {hold.task for hold in view.task_holds}
        ready = ready and comes_for(wanted.tasks_for(summary.host), tasks)
        room = unused_of(view)
    ports = None if summary.reserved is None else summary.reserved.ports
    return suits(summary, wanted.want, ready=ready, room=room, ports=ports)


def _give_back(
    cluster_client: ClusterClient, asked: Iterable[tuple[Key, HoldHost]], *, who: str
) -> None:
    """Release hosts that the client never learns of: else each repeat would hold more hosts for
    long."""
    for host, hold in asked:
        cluster_client.cluster.ask(host, ReleaseHold(hold.name), who=who)


def _result(answer: Any, context: Context) -> str:
    if isinstance(answer, HostHeld):
        return SUITS
    assert isinstance(answer, Refused)
    return answer.code if answer.code in RESULTS else NOT_READY


def matching_hosts(
    cluster_client: ClusterClient, wanted: Wanted, *, context: Context
) -> list[HostView]:
    """Return the hosts that would suit if nothing ran there. Conditions on tasks are ignored."""
    found = [
        view
        for view in _ordered(all_hosts(cluster_client, context), wanted)
        if suits(view.summary, wanted.want, ready=takes_work(view), room=view.summary.capacity)
        == SUITS
    ]
    return found[: wanted.most or None]


def _ordered(views: list[HostView], wanted: Wanted) -> list[HostView]:
    """Return hinted hosts first, then as the client wants them ranked."""

    def rank(view: HostView) -> tuple[bool, tuple[float, ...]]:
        amounts: tuple[float, ...] = ()
        if wanted.ranking is HostRanking.TIGHTEST_FIRST:
            free = view.summary.free
            amounts = (free.gpu, free.cpu, free.memory, free.disk)
        elif wanted.ranking is HostRanking.RANDOM:
            amounts = (random.random(),)
        return client_name(view.summary.host) not in wanted.first, amounts

    return sorted(views, key=rank)


def release_holds(
    cluster_client: ClusterClient, holds: Iterable[tuple[str, str]], *, context: Context
) -> Iterator[tuple[str, Any]]:
    """Release holds, by host and name; yield each with the answer of its host."""
    pairs = [*dict.fromkeys(pair for pair in holds if all(pair))]
    asks = [(key("host", host), ReleaseHold(name)) for host, name in pairs]
    answers = cluster_client.each(asks, context, changes=True)
    for (_, name), answer in zip(pairs, answers, strict=True):
        yield name, answer
