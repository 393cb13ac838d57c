"""The members of a fleet, as a command reads them once, on a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peloton.runtime.adapters.zookeeper_nodes import Paths, member_bytes, read_cluster_nodes
from peloton.runtime.ports import MemberNode, Unreachable
from tests.adapters.zookeeper.zookeeper_bench import Bench
from tests.servers import zookeeper


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(zookeeper.shared().address)
    yield made
    made.close()


def read(bench: Bench) -> dict[str, MemberNode | None]:
    return read_cluster_nodes(bench.address, bench.paths, timeout_s=20.0).members


def test_every_member_says_which_level_it_knows(bench: Bench) -> None:
    a, b = bench.daemon("a"), bench.daemon("b")
    bench.operator.set(bench.paths.member(b.member), b'{"address": "b:1", "roles": []}')
    new = MemberNode("c:1", ("jobmgr",), level=3)
    bench.operator.create(bench.paths.member("c.1"), member_bytes(new))
    bench.operator.create(bench.paths.member("d.1"), b"no member")
    found = read(bench)
    assert sorted(found) == sorted([a.member, b.member, "c.1", "d.1"])
    assert found["c.1"] == new
    assert found[b.member] == MemberNode("b:1", ()), "of the version before: it says no level"
    assert found["d.1"] is None


def test_a_fleet_that_never_was_has_no_members(bench: Bench) -> None:
    assert read(bench) == {}


def test_a_server_that_is_away_is_named() -> None:
    with pytest.raises(Unreachable, match="ZooKeeper at 127.0.0.1:1"):
        read_cluster_nodes("127.0.0.1:1", Paths("none", root="/none"), timeout_s=0.2)
