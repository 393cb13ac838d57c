"""Daemons' claim shells on a real ZooKeeper: one owner per shard, whoever comes, goes or is cut."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from peloton.runtime.adapters.zookeeper_connection import now_s
from peloton.runtime.adapters.zookeeper_nodes import Paths
from tests.adapters.zookeeper.zookeeper_fixture import Deployment
from tests.contracts.memberships import end_session, identity_of, rest, wait
from tests.servers import zookeeper

SHARDS = 24
SESSION_S, HASTY_SESSION_S = 10.0, 1.2
"""Only a storm may end a session because somebody was kept from the processor for a moment; where a
session has to be over, a test ends it."""
STORM_S = 6.0
_clusters = itertools.count(1)


@pytest.fixture
def deployment() -> Iterator[Deployment]:
    yield from settled_deployment(SESSION_S)


@pytest.fixture
def hasty() -> Iterator[Deployment]:
    yield from settled_deployment(HASTY_SESSION_S)


def settled_deployment(session_s: float) -> Iterator[Deployment]:
    server = zookeeper.shared()
    made = Deployment(server.port, f"fleet-{next(_clusters)}", shards=SHARDS, session_s=session_s)
    for name in ("d1", "d2", "d3"):
        made.start(name)
    wait(made.settled)
    yield made
    assert not [daemon.root.broke for daemon in made.all if daemon.root.broke]
    made.end()


def test_three_daemons_share_the_shards_and_a_fourth_takes_its_part(deployment: Deployment):
    assert all(daemon.root.running for daemon in deployment.daemons.values())
    before = dict(deployment.epochs)
    newcomer = deployment.start("d4")
    wait(deployment.settled)
    moved = {shard for shard, epoch in deployment.epochs.items() if epoch != before.get(shard)}
    assert moved == set(newcomer.root.running), "and no more than its part moves"
    assert all(order in ("own", "drain") for d in deployment.all for order, _ in d.root.orders)


def ordered(daemon: Any, what: str) -> int:
    """How often it was ordered so far: who came first hands over to those who come later."""
    return [order for order, _ in daemon.root.orders].count(what)


def test_one_that_leaves_hands_over_and_one_that_dies_is_followed(deployment: Deployment):
    leaver = deployment.daemons.pop("d1")
    mine, before = len(leaver.root.running), ordered(leaver, "drain")
    leaver.drain()
    assert not leaver.root.running
    assert ordered(leaver, "drain") - before == mine
    wait(deployment.settled)
    killed = deployment.daemons.pop("d2")
    session = identity_of(killed.membership)
    killed.kill()
    assert session is not None
    end_session(session, f"127.0.0.1:{deployment.port}")
    wait(deployment.settled)


def test_one_that_was_cut_drops_all_it_had_and_begins_anew(deployment: Deployment):
    cut = deployment.daemons.pop("d1")
    mine, before = len(cut.root.running), ordered(cut, "drop")
    session = identity_of(cut.membership)
    cut.proxy.cut()
    assert session is not None
    end_session(session, f"127.0.0.1:{deployment.port}")
    wait(deployment.settled)
    wait(lambda: not cut.root.membership_status.current)
    assert len(cut.root.running) == mine
    deployment.daemons["d1"] = cut
    cut.proxy.mend()
    wait(deployment.settled)
    assert cut.handoff.member == "d1.2"
    assert ordered(cut, "drop") - before == mine


def test_a_service_emptied_by_an_operator_is_joined_anew_by_all(deployment: Deployment):
    operator = KazooClient(f"127.0.0.1:{deployment.port}")
    operator.start()
    paths = Paths(deployment.cluster)
    for folder in (paths.members, paths.owners):
        for name in operator.get_children(folder):
            remove(operator, f"{folder}/{name}")
    operator.stop()
    operator.close()
    wait(lambda: not any(daemon.handoff.member.endswith(".1") for daemon in deployment.all))
    wait(deployment.settled)


@pytest.mark.nightly
def test_after_a_storm_every_shard_is_with_its_first_in_rank(hasty: Deployment):
    deployment = hasty
    draw, operator = random.Random(0), KazooClient(f"127.0.0.1:{deployment.port}")
    operator.start()
    end_s = now_s() + STORM_S
    while now_s() < end_s:
        daemon = deployment.daemons[draw.choice(sorted(deployment.daemons))]
        what = draw.choice(["cut", "silence", "mend", "mend", "expire", "remove"])
        if what == "expire":
            # Looked at once: the session may end of itself at any moment.
            identity = identity_of(daemon.membership)
            if identity is not None:
                end_session(identity, f"127.0.0.1:{deployment.port}")
        elif what == "remove":
            remove_one(operator, deployment, draw)
        else:
            getattr(daemon.proxy, what)()
        rest(draw.random() * HASTY_SESSION_S)
    for daemon in deployment.all:
        daemon.proxy.mend()
    operator.stop()
    operator.close()
    wait(deployment.settled)


def remove_one(operator: KazooClient, deployment: Deployment, draw: random.Random) -> None:
    folder = draw.choice([Paths(deployment.cluster).owners, Paths(deployment.cluster).members])
    names = sorted(operator.get_children(folder))
    if names:
        remove(operator, f"{folder}/{draw.choice(names)}")


def remove(operator: KazooClient, path: str) -> None:
    try:
        operator.delete(path)
    except NoNodeError:
        pass  # its owner was faster
