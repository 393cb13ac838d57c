"""What the doctor finds: of each precondition, kept and broken, without a server.

test_cassandra.py shows that a real server says its settings as they are read here.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from peloton.runtime.adapters.cassandra_doctor import (
    ClusterReading,
    ServerReading,
    findings_of,
    milliseconds,
)
from peloton.runtime.ports import JOURNAL_FORMAT

GOOD_SETTINGS = {
    "commitlog_sync": "batch", "commitlog_sync_group_window": "0ms", "paxos_variant": "v2",
    "write_request_timeout": "2000ms", "cas_contention_timeout": "2000ms",
}  # fmt: skip
SERVERS = tuple(
    ServerReading(f"10.0.0.{n}:9042", "dc1", "5.0.9", "schema-1", GOOD_SETTINGS) for n in (1, 2, 3)
)
GOOD = ClusterReading(
    SERVERS,
    "peloton",
    {"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "3"},
    table_options={"shard_registers": {"gc_grace_seconds": 864_000, "default_time_to_live": 0}},
)


def with_setting(name: str, value: str) -> ClusterReading:
    first = replace(SERVERS[0], settings=GOOD_SETTINGS | {name: value})
    return replace(GOOD, servers=(first, *SERVERS[1:]))


def with_options(name: str, value: int) -> ClusterReading:
    return replace(
        GOOD,
        table_options={"shard_registers": GOOD.table_options["shard_registers"] | {name: value}},
    )


def with_server(**changes: object) -> ClusterReading:
    return replace(GOOD, servers=(replace(SERVERS[0], **changes), *SERVERS[1:]))


def test_a_good_cluster_has_no_findings() -> None:
    assert findings_of(GOOD) == []


@pytest.mark.parametrize(
    ("reading", "wrong", "text"),
    [
        (with_setting("commitlog_sync", "periodic"), True, "forgets what it acknowledged"),
        (with_setting("paxos_variant", "v1_without_linearizable_reads"), True, "paxos_variant"),
        (with_setting("cas_contention_timeout", "5s"), False, "too late"),
        (with_server(version="4.1.5"), True, "stale commit"),
        (with_server(version="unknown"), True, "stale commit"),
        (with_server(version="5.0.8"), False, "different versions"),
        (with_server(settings=None), True, "did not return its settings"),
        (with_server(schema_version="schema-2"), True, "2 different schemas"),
        (replace(GOOD, replication=None), True, "there is no keyspace"),
        (replace(GOOD, durable_writes=False), True, "durable_writes"),
        (replace(GOOD, servers=SERVERS[:2]), True, "3 copies, 2 servers"),
        (replace(GOOD, replication={"class": "x", "dc1": "1"}), False, "1 copy"),
        (replace(GOOD, replication={"class": "x", "elsewhere": "3"}), True, "3 copies, 0 servers"),
        (replace(GOOD, replication={"class": "x", "replication_factor": "5"}), True, "5 copies"),
        (replace(GOOD, differences=("table frames is missing",)), True, "frames is missing"),
        (replace(GOOD, unread="Unavailable"), True, "cannot be read: Unavailable"),
        (with_options("gc_grace_seconds", 3600), True, "gc_grace_seconds is 3600"),
        (with_options("default_time_to_live", 60), True, "vanish after 60 s"),
    ],
)
def test_what_is_not_kept_is_named(reading: ClusterReading, wrong: bool, text: str) -> None:
    findings = [finding for finding in findings_of(reading) if text in finding.text]
    assert [finding.wrong for finding in findings] == [wrong]
    assert findings[0].remedy


@pytest.mark.parametrize(
    ("found", "remedy"), [(4, "Start the version that wrote it"), (99, "Use the version")]
)
def test_another_format_is_named_with_the_version_to_use(found: int, remedy: str) -> None:
    (finding,) = findings_of(replace(GOOD, format=found))
    assert finding.wrong and finding.remedy.startswith(remedy)
    assert findings_of(replace(GOOD, format=JOURNAL_FORMAT)) == []


def test_a_window_counts_only_where_there_is_one() -> None:
    wide = with_setting("commitlog_sync_group_window", "20ms")
    assert findings_of(wide) == []
    group = replace(SERVERS[0], settings={**GOOD_SETTINGS, "commitlog_sync": "group"})
    assert findings_of(replace(GOOD, servers=(group, *SERVERS[1:]))) == []
    late = replace(group, settings={**group.settings, "commitlog_sync_group_window": "20ms"})
    (finding,) = findings_of(replace(GOOD, servers=(late, *SERVERS[1:])))
    assert "waits for four" in finding.text and not finding.wrong


@pytest.mark.parametrize(
    ("text", "value"), [("2000ms", 2000), ("2s", 2000), ("1m", 60_000), ("", 0), ("soon", 0)]
)
def test_durations_are_read_as_the_server_says_them(text: str, value: float) -> None:
    assert milliseconds(text) == value
