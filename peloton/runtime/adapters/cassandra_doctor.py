"""The journal's requirements on Cassandra, and which of them a given cluster violates.

`read_cluster` reads every server and the schema; `findings_of` turns that into findings, each with
its consequence and its remedy. The server itself accepts nearly all of these mistakes silently, and
their cost shows much later. Nothing is changed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement
from msgspec import Struct

from peloton.runtime.adapters import cassandra_schema
from peloton.runtime.adapters.cassandra_session import (
    CONDITIONAL,
    FAILURES,
    REQUEST_TIMEOUT_S,
    Connected,
    asking,
)
from peloton.runtime.core.journal import register
from peloton.runtime.ports import JournalRefused

VERSION_MIN = (4, 1, 6)
COPIES_MIN = 3
GC_GRACE_SECONDS_MIN = 864_000
GROUP_WINDOW_MAX_MS = 10.0
SAFE_SYNC = ("batch", "group")
SAFE_PAXOS = ("v1", "v2")
UNITS_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "m": 60e3, "h": 3600e3}
SETTINGS = (
    "commitlog_sync commitlog_sync_group_window paxos_variant write_request_timeout"
    " cas_contention_timeout read_request_timeout"
).split()
TIMEOUTS = ("write_request_timeout", "cas_contention_timeout")


class ServerReading(Struct, frozen=True):
    """A Cassandra server, as it describes itself; without settings if it could not be read."""

    address: str
    data_centre: str
    version: str
    schema_version: str = ""
    settings: dict[str, str] | None = None


class ClusterReading(Struct, frozen=True):
    """The state of a Cassandra cluster that the doctor judges: servers, keyspace and tables."""

    servers: tuple[ServerReading, ...]
    keyspace: str
    replication: dict[str, str] | None
    """Options of the keyspace, with the class; None: there is no keyspace."""
    durable_writes: bool = True
    differences: tuple[str, ...] = ()
    """How the tables differ from `schema.cql`."""
    table_options: dict[str, dict[str, int]] = {}
    format: int | None = None
    """That of the journal; None: no daemon has ever used it."""
    unread: str = ""
    """Why the format could not be read."""


class ServerFinding(Struct, frozen=True):
    """A deviation from the requirements. `wrong`: the guarantees fail, else the margin is small."""

    wrong: bool
    text: str
    remedy: str


# ---- judging ---------------------------------------------------------------------------------


def findings_of(reading: ClusterReading) -> list[ServerFinding]:
    """Return all findings, those about servers first."""
    return [
        *(finding for server in reading.servers for finding in _server(server)),
        *_agreement(reading),
        *_keyspace(reading),
        *_tables(reading),
        *_format(reading),
    ]


def _server(server: ServerReading) -> Iterator[ServerFinding]:
    where = server.address
    numbers = tuple(int(number) for number in re.findall(r"\d+", server.version)[:3])
    if numbers < VERSION_MIN:
        least = ".".join(str(number) for number in VERSION_MIN)
        text = f"{where} runs version {server.version}: before {least} a stale commit may come back"
        yield ServerFinding(True, text, "upgrade, best to the newest 5.0")
    if server.settings is None:
        yield ServerFinding(True, f"{where} did not return its settings", "is it up?")
        return
    sync = server.settings.get("commitlog_sync", "unknown")
    if sync not in SAFE_SYNC:
        text = f"{where}: commitlog_sync is {sync}: a killed server forgets what it acknowledged"
        yield ServerFinding(True, text, "commitlog_sync: batch, or group with a window of 1ms")
    window_ms = milliseconds(server.settings.get("commitlog_sync_group_window", ""))
    if sync == "group" and window_ms > GROUP_WINDOW_MAX_MS:
        text = f"{where}: commitlog_sync_group_window is {window_ms:g} ms; a commit waits for four"
        yield ServerFinding(False, text, "commitlog_sync_group_window: 1ms")
    paxos = server.settings.get("paxos_variant", "unknown")
    if paxos not in SAFE_PAXOS:
        text = f"{where}: paxos_variant is {paxos}: reads and refusals may miss a write"
        yield ServerFinding(True, text, "paxos_variant: v2")
    for name in TIMEOUTS:
        limit_ms = milliseconds(server.settings.get(name, ""))
        if limit_ms >= REQUEST_TIMEOUT_S * 1000:
            text = (
                f"{where}: {name} is {limit_ms:g} ms, but requests time out after "
                f"{REQUEST_TIMEOUT_S:g} s: its own error arrives too late"
            )
            yield ServerFinding(False, text, f"{name}: 2000ms")


def _agreement(reading: ClusterReading) -> Iterator[ServerFinding]:
    schemas = {server.schema_version for server in reading.servers if server.schema_version}
    if len(schemas) > 1:
        text = f"the servers have {len(schemas)} different schemas"
        yield ServerFinding(True, text, "wait until all are up; see `nodetool describecluster`")
    versions = {server.version for server in reading.servers}
    if len(versions) > 1:
        text = f"the servers run different versions: {', '.join(sorted(versions))}"
        yield ServerFinding(False, text, "finish the upgrade")


def _keyspace(reading: ClusterReading) -> Iterator[ServerFinding]:
    name = reading.keyspace
    if reading.replication is None:
        yield ServerFinding(True, f"there is no keyspace {name}", _apply(reading))
        return
    if not reading.durable_writes:
        text = f"keyspace {name}: durable_writes is off: nothing goes to the commit log"
        yield ServerFinding(True, text, f"ALTER KEYSPACE {name} WITH durable_writes = true")
    for centre, copies in _copies(reading).items():
        where = f"keyspace {name}, data centre {centre}"
        live = sum(server.data_centre == centre for server in reading.servers if server.settings)
        if copies > live:
            text = (
                f"{where}: {copies} copies, {live} servers: conditional writes "
                "may succeed where plain ones cannot"
            )
            yield ServerFinding(True, text, "add servers, or keep fewer copies")
        elif copies < COPIES_MIN:
            text = f"{where}: {_counted(copies)}: a lost server stops or loses the journal"
            yield ServerFinding(False, text, f"keep {COPIES_MIN} copies on as many servers")


def _apply(reading: ClusterReading) -> str:
    """The command that makes the tables, with as many copies as the servers allow."""
    servers = Counter(server.data_centre for server in reading.servers)
    options = [f"--replication {at}:{min(servers[at], COPIES_MIN)}" for at in sorted(servers)]
    return " ".join(["peloton schema apply", *options])


def _copies(reading: ClusterReading) -> dict[str, int]:
    """Return the number of copies by data centre; one for all servers under SimpleStrategy."""
    assert reading.replication is not None
    options = {name: text for name, text in reading.replication.items() if name != "class"}
    if "replication_factor" in options:
        factor = int(options["replication_factor"].split("/")[0])
        return dict.fromkeys(sorted({server.data_centre for server in reading.servers}), factor)
    return {name: int(text.split("/")[0]) for name, text in options.items()}


def _counted(copies: int) -> str:
    return "1 copy" if copies == 1 else f"{copies} copies"


def _tables(reading: ClusterReading) -> Iterator[ServerFinding]:
    if reading.replication is None:
        return
    for difference in reading.differences:
        missing = difference.startswith("table ") and difference.endswith(" is missing")
        remedy = _apply(reading) if missing else "a person has to decide; see schema.cql"
        yield ServerFinding(True, difference, remedy)
    for name, options in reading.table_options.items():
        if options.get("default_time_to_live", 0):
            text = f"table {name}: rows vanish after {options['default_time_to_live']} s"
            yield ServerFinding(True, text, f"ALTER TABLE {name} WITH default_time_to_live = 0")
    grace_s = reading.table_options.get("shard_registers", {}).get("gc_grace_seconds")
    if grace_s is not None and grace_s < GC_GRACE_SECONDS_MIN:
        text = (
            f"table shard_registers: gc_grace_seconds is {grace_s}: a promise in flight may expire"
        )
        remedy = f"ALTER TABLE shard_registers WITH gc_grace_seconds = {GC_GRACE_SECONDS_MIN}"
        yield ServerFinding(True, text, remedy)


def _format(reading: ClusterReading) -> Iterator[ServerFinding]:
    if reading.unread:
        text = f"the format of the journal cannot be read: {reading.unread}"
        yield ServerFinding(True, text, "enough servers have to be up: run the doctor again then")
    if reading.format is None:
        return
    try:
        register.check_format(reading.format)
    except JournalRefused as error:
        text, _, remedy = str(error).partition(". ")
        yield ServerFinding(True, text, remedy)


def milliseconds(text: str) -> float:
    """A duration in the server's notation; 0 if there is none."""
    match = re.fullmatch(r"(\d+)\s*([a-zµ]+)", text)
    return float(match[1]) * UNITS_MS.get(match[2], 0.0) if match else 0.0


# ---- reading ---------------------------------------------------------------------------------


def read_cluster(connected: Connected, keyspace: str) -> ClusterReading:
    """Read every server that the cluster knows, and the schema. Raises Unreachable."""
    with asking():
        return _read(connected, keyspace)


def _read(connected: Connected, keyspace: str) -> ClusterReading:
    session = connected.session
    hosts = sorted(connected.cluster.metadata.all_hosts(), key=lambda host: str(host.endpoint))
    servers = tuple(_read_server(session, host) for host in hosts)
    found = _rows(
        session,
        "SELECT replication, durable_writes FROM system_schema.keyspaces WHERE keyspace_name = %s",
        keyspace,
    )
    if not found:
        return ClusterReading(servers, keyspace, None)
    options = _rows(
        session,
        "SELECT table_name, gc_grace_seconds, default_time_to_live FROM system_schema.tables"
        " WHERE keyspace_name = %s",
        keyspace,
    )
    names = [table.name for table in cassandra_schema.tables()]
    record, unread = _read_format(session, keyspace)
    return ClusterReading(
        servers,
        keyspace,
        {str(name): str(value) for name, value in found[0]["replication"].items()},
        bool(found[0]["durable_writes"]),
        tuple(cassandra_schema.differences(session, keyspace)),
        {
            row["table_name"]: {
                "gc_grace_seconds": row["gc_grace_seconds"],
                "default_time_to_live": row["default_time_to_live"],
            }
            for row in options
            if row["table_name"] in names
        },
        record,
        unread,
    )


def _read_format(session: Any, keyspace: str) -> tuple[int | None, str]:
    """Return the format, or the reason why it cannot be read; the rest is reported all the same."""
    try:
        return cassandra_schema.read_format(session, keyspace), ""
    except FAILURES as error:
        return None, f"{type(error).__name__}: {error}"


def _read_server(session: Any, host: Any) -> ServerReading:
    """Read one server: its settings are in virtual tables that only it can read."""
    address, centre = str(host.endpoint), str(host.datacenter)
    version = str(host.release_version or "unknown")
    one = ConsistencyLevel.ONE
    local = SimpleStatement(
        "SELECT release_version, schema_version FROM system.local", consistency_level=one
    )
    names = ", ".join(f"'{name}'" for name in SETTINGS)
    settings = SimpleStatement(
        f"SELECT name, value FROM system_views.settings WHERE name IN ({names})",
        consistency_level=one,
    )
    try:
        row = session.execute(local, execution_profile=CONDITIONAL, host=host).one()
        settings_rows = session.execute(settings, execution_profile=CONDITIONAL, host=host)
    except FAILURES:
        return ServerReading(address, centre, version)
    pairs = {each["name"]: each["value"] or "" for each in settings_rows}
    schema_version = str(row["schema_version"])
    return ServerReading(address, centre, row["release_version"], schema_version, pairs)


def _rows(session: Any, text: str, *values: object) -> list[dict[str, Any]]:
    return list(session.execute(text, values, execution_profile=CONDITIONAL))
