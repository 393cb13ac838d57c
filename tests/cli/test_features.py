"""`peloton features raise`: only with every member of that very fleet behind it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from peloton.commands.features import FleetLevels, check_cluster, read_cluster, would_raise
from peloton.runtime.adapters.fenced_rows import FencedRows, read_record
from peloton.runtime.adapters.zookeeper_nodes import (
    ClusterMark,
    ClusterNodes,
    mark_bytes,
    member_bytes,
)
from peloton.runtime.ports import JournalRefused, MemberNode
from peloton.runtime.shells.features import raise_level
from peloton.runtime.simulation.memory_rows import MemoryRows
from peloton.settings.daemon import DaemonSettings, parse
from tests.cli.terminal import typed
from tests.servers import zookeeper

REPOSITORY = Path(__file__).parents[2]
PROCESS = bytes(15) + b"1"


def journal() -> FencedRows:
    made = FencedRows(MemoryRows(), process=bytes(16))
    made.bootstrap({"a": 1})
    return made


def member(level: int) -> MemberNode:
    return MemberNode("a:1", ("jobmgr",), level=level)


def test_it_is_raised_when_all_members_know_it() -> None:
    made = journal()
    assert raise_level(made, {"d1": member(2), "d2": member(3)}, known=2) == 2
    assert made.level() == 2


@pytest.mark.parametrize("other", [member(1), MemberNode("old:1", ("jobmgr",)), None])
def test_one_member_that_does_not_know_it_is_named(other: MemberNode | None) -> None:
    made = journal()
    with pytest.raises(JournalRefused, match="level 2 is not known to d2: upgrade"):
        raise_level(made, {"d1": member(2), "d2": other}, known=2)
    assert made.level() == 0


def test_a_fleet_that_is_down_says_nothing() -> None:
    with pytest.raises(JournalRefused, match="no daemon is up"):
        raise_level(journal(), {}, known=1)


def test_a_dry_run_says_it_and_raises_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    made, members = journal(), {"d1": member(3)}
    assert would_raise(FleetLevels(made, 0, members, 2)) == made.level() == 0
    assert capsys.readouterr().out == "would raise the level from 0 to 2: no way back\n"
    assert would_raise(FleetLevels(made, 2, members, 2)) == 2
    assert "would change nothing" in capsys.readouterr().out
    with pytest.raises(JournalRefused, match="level 4 is not known to d1"):
        would_raise(FleetLevels(made, 0, members, 4))


def test_a_daemon_that_is_alone_needs_no_word(tmp_path: Path) -> None:
    config = tmp_path / "daemon.yaml"
    config.write_text(
        "cluster: a\njournal: {sqlite: {folder: data}}\n"
        "backend: {simulated: {hosts: [{name: a}]}}\n"
    )
    printed = typed("features", "raise", "--config", str(config))
    assert printed.code == 64 and "raises the level itself" in printed.err


# ---- which cluster it is ----


def settings(folder: Path, cluster: str = "east", **zookeeper: object) -> DaemonSettings:
    raw = {
        "cluster": cluster,
        "journal": {"cassandra": {"contacts": ["127.0.0.1"], "port": 1}},
        "zookeeper": {"hosts": ["127.0.0.1:1"], **zookeeper},
        "listen": {"exchange": "127.0.0.1:0"},
        "backend": {"simulated": {"hosts": [{"name": "a"}]}},
    }
    return parse(raw, folder)


def rows_of(cluster: str, sizes: dict[str, int]) -> MemoryRows:
    rows = MemoryRows()
    FencedRows(rows, process=PROCESS).bootstrap(sizes, name=cluster)
    return rows


def nodes(journal_id: bytes = PROCESS, cluster: str = "east") -> ClusterNodes:
    return ClusterNodes({}, mark_bytes(ClusterMark(journal_id.hex(), cluster)))


def test_the_members_of_one_cluster_do_not_count_for_the_journal_of_another(
    tmp_path: Path,
) -> None:
    east = settings(tmp_path)
    record = read_record(rows_of("west", east.sizes))
    with pytest.raises(JournalRefused, match="belongs to cluster 'west', .* of cluster 'east'"):
        check_cluster(east, record, nodes=nodes())


def test_a_root_that_another_journal_has_claimed_is_refused(tmp_path: Path) -> None:
    """Of two clusters of one name, by a config that was copied."""
    east = settings(tmp_path)
    record = read_record(rows_of("east", east.sizes))
    with pytest.raises(JournalRefused, match=f"belongs to cluster 'east' .journal {b'2'.hex()}"):
        check_cluster(east, record, nodes=nodes(b"2"))
    with pytest.raises(JournalRefused, match="belongs to a cluster that cannot be read"):
        check_cluster(east, record, nodes=ClusterNodes({}, b"junk"))


def test_a_record_without_a_name_is_of_any_cluster(tmp_path: Path) -> None:
    east = settings(tmp_path)
    record = read_record(rows_of("", east.sizes))
    assert check_cluster(east, record, nodes=nodes()) == record
    assert check_cluster(east, record, nodes=ClusterNodes({})) == record


def test_a_journal_that_nobody_used_is_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(JournalRefused, match="no daemon has ever used this journal"):
        check_cluster(settings(tmp_path), read_record(MemoryRows()), nodes=nodes())


def test_shard_counts_of_the_config_are_compared_too(tmp_path: Path) -> None:
    east = settings(tmp_path)
    record = read_record(rows_of("east", {**east.sizes, "jobmgr": 99}))
    with pytest.raises(JournalRefused, match="shard counts never change"):
        check_cluster(east, record, nodes=nodes())


@pytest.fixture
def client() -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.shared().address)
    client.start(timeout=60)
    yield client
    client.stop()
    client.close()


def test_mark_and_members_are_read_from_zookeeper(client: KazooClient, tmp_path: Path) -> None:
    root = f"/features-{os.getpid()}"
    east = settings(tmp_path, hosts=[zookeeper.shared().address], root=root)
    rows = rows_of("east", east.sizes)
    FencedRows(rows, process=PROCESS).raise_level(3)
    try:
        record, found = read_cluster(east, rows)
        assert (record.name, record.level, found) == ("east", 3, {})
        client.create(f"{root}/east/members/a-1", member_bytes(member(1)), makepath=True)
        client.create(f"{root}/east/members/b-1", b"junk")
        client.create(f"{root}/.cluster", nodes().mark)
        assert read_cluster(east, rows)[1] == {"a-1": member(1), "b-1": None}
        client.set(f"{root}/.cluster", nodes(b"2").mark)
        with pytest.raises(JournalRefused, match=f"remove the node {root}/.cluster"):
            read_cluster(east, rows)
    finally:
        client.delete(root, recursive=True)


DOWN = """
from pathlib import Path
from peloton.commands import features
from peloton.runtime.ports import Unreachable
from tests.cli.test_features import read_cluster, rows_of, settings

features.TIMEOUT_S = 0.5
east = settings(Path("."))
try:
    read_cluster(east, rows_of("east", east.sizes))
except Unreachable as error:
    print(error)
"""


def test_a_zookeeper_that_is_down_is_one_line() -> None:
    """In a process of its own: what kazoo logs goes to the last handler there is."""
    line = [sys.executable, "-c", DOWN]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, cwd=REPOSITORY)
    (told,) = (done.stdout + done.stderr).splitlines()
    assert told.startswith("ZooKeeper at 127.0.0.1:1") and done.returncode == 0
