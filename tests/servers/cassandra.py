"""A Cassandra server of one node, small enough for a test machine, safe enough for the journal.

`Cassandra.start(folder)` returns when clients may come. The settings are those that the journal
demands (`peloton doctor` names them) and little memory besides; a test that wants a server which is
*wrong* hands in other settings. Its sizes are for tests, not for production.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from tests.servers import cache
from tests.servers.process import Server, free_ports

HERE = Path(__file__).parent
HEAP_MB = 384
OPTIONS_REQUEST = bytes.fromhex("040000000500000000")
SUPPORTED = 6
PROBE_TIMEOUT_S = 5.0

# Doors that Java shut after the server was written; without them it dies on its first class.
EXPORTS = (
    "java.base/jdk.internal.misc java.management.rmi/com.sun.jmx.remote.internal.rmi "
    "java.rmi/sun.rmi.registry java.rmi/sun.rmi.server java.sql/java.sql java.base/java.lang.ref "
    "jdk.unsupported/sun.misc jdk.compiler/com.sun.tools.javac.file jdk.attach/sun.tools.attach"
).split()
OPENS = (
    *(
        f"java.base/{package}"
        for package in (
            "java.lang.module jdk.internal.loader jdk.internal.ref jdk.internal.reflect "
            "jdk.internal.math jdk.internal.module jdk.internal.util.jar sun.nio.ch java.io "
            "java.lang.reflect java.lang java.util"
        ).split()
    ),
    "jdk.management/com.sun.management.internal",
    "jdk.compiler/com.sun.tools.javac",
)
QUICK_START = "-XX:TieredStopAtLevel=1"
"""Compiles little: a server is there sooner, and each request costs several times as much."""
JVM = (
    "-Xms32m -XX:+UseSerialGC -Xss384k -XX:+PerfDisableSharedMem -XX:+ExitOnOutOfMemoryError "
    f"-XX:MaxDirectMemorySize=256m {QUICK_START} "
    "-Dcassandra-foreground=yes -Dcassandra.skip_wait_for_gossip_to_settle=0 "
    "-Dcassandra.ring_delay_ms=0 -Dcassandra.superuser_setup_delay_ms=0 "
    "-Dcassandra.consistent.rangemovement=false -Djava.net.preferIPv4Stack=true "
    "-Djdk.attach.allowAttachSelf=true -Dio.netty.tryReflectionSetAccessible=true "
    "-Dio.netty.allocator.maxOrder=11 -Dio.netty.allocator.useCacheForAllThreads=true"
).split()

# Everything that may be left to no default: where, how much, and how carefully.
SETTINGS = """\
cluster_name: tests
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: GossipingPropertyFileSnitch
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
start_native_transport: true
commitlog_sync: batch
commitlog_segment_size: 16MiB
commitlog_total_space: 256MiB
paxos_variant: v2
paxos_state_purging: repaired
auto_snapshot: false
snapshot_before_compaction: false
incremental_backups: false
hinted_handoff_enabled: false
key_cache_size: 0MiB
row_cache_size: 0MiB
counter_cache_size: 0MiB
memtable_heap_space: 64MiB
memtable_offheap_space: 16MiB
file_cache_enabled: false
file_cache_size: 16MiB
networking_cache_size: 16MiB
concurrent_reads: 8
concurrent_writes: 16
concurrent_counter_writes: 2
concurrent_materialized_view_writes: 2
concurrent_compactors: 1
memtable_flush_writers: 1
compaction_throughput: 0MiB/s
stream_throughput_outbound: 24MiB/s
disk_failure_policy: stop
commit_failure_policy: stop
read_request_timeout: 5000ms
range_request_timeout: 10000ms
write_request_timeout: 2000ms
cas_contention_timeout: 2000ms
request_timeout: 10000ms
truncate_request_timeout: 60000ms
slow_query_log_timeout: 0ms
auto_bootstrap: false
dynamic_snitch: false
native_transport_max_request_data_in_flight_per_ip: 64MiB
native_transport_max_request_data_in_flight: 128MiB
"""
PLACES = """\
data_file_directories: [{folder}/data]
commitlog_directory: {folder}/commitlog
saved_caches_directory: {folder}/saved_caches
hints_directory: {folder}/hints
cdc_raw_directory: {folder}/cdc_raw
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: "127.0.0.1:{storage_port}"}}]
storage_port: {storage_port}
native_transport_port: {port}
"""


class Cassandra(Server):
    """One node, data centre dc1."""

    name: ClassVar[str] = "Cassandra"
    data_centre: ClassVar[str] = "dc1"
    without: ClassVar[tuple[str, ...]] = ()
    """Flags of the JVM to leave out."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        storage_port: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, port or free_ports(1)[0])
        self.storage_port = storage_port or free_ports(1)[0]
        self.settings = dict(settings or {})

    @classmethod
    def start(cls, folder: Path, *, settings: Mapping[str, str] | None = None) -> Cassandra:
        """A new server that answers; `settings` replace lines of the configuration."""
        server = cls(folder, settings=settings)
        server.launch()
        server.wait_until_ready()
        return server

    def configure(self) -> None:
        conf = self.folder / "conf"
        conf.mkdir(exist_ok=True)
        lines = [line for line in SETTINGS.splitlines() if line.split(":")[0] not in self.settings]
        lines += [f"{name}: {value}" for name, value in self.settings.items()]
        places = PLACES.format(folder=self.folder, storage_port=self.storage_port, port=self.port)
        (conf / "cassandra.yaml").write_text("\n".join(lines) + "\n" + places)
        (conf / "rackdc.properties").write_text(f"dc={self.data_centre}\nrack=rack1\n")

    def command(self) -> list[str]:
        conf = self.folder / "conf"
        return [
            cache.java(), *(flag for flag in JVM if flag not in self.without), f"-Xmx{HEAP_MB}m",
            *(f"--add-exports={door}=ALL-UNNAMED" for door in EXPORTS),
            *(f"--add-opens={door}=ALL-UNNAMED" for door in OPENS),
            f"-Dcassandra.config=file://{conf}/cassandra.yaml",
            f"-Dcassandra-rackdc.properties=file://{conf}/rackdc.properties",
            f"-Dlogback.configurationFile=file://{HERE}/logback.xml",
            f"-Dcassandra.storagedir={self.folder}",
            f"-Djava.io.tmpdir={self.folder}",  # what it unpacks there goes with the folder
            "-cp", f"{cache.libraries()}/*", "org.apache.cassandra.service.CassandraDaemon",
        ]  # fmt: skip

    def answers(self) -> bool:
        """Whether it says what it supports: the protocol's own first question."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), PROBE_TIMEOUT_S) as probe:
                probe.settimeout(PROBE_TIMEOUT_S)
                probe.sendall(OPTIONS_REQUEST)
                answer = probe.recv(9)
        except OSError:
            return False
        return len(answer) >= 5 and answer[4] == SUPPORTED


@functools.cache
def shared() -> Cassandra:
    """The one server of this process, for tests that do not kill it; it may be paused meanwhile.

    Each takes a keyspace of its own. It starts for the first who asks, and ends with the run.
    """
    folder = Path(tempfile.mkdtemp(prefix="peloton-cassandra-"))
    server = Cassandra(folder)
    atexit.register(_end, server)
    server.launch()
    server.wait_until_ready()
    return server


def _end(server: Cassandra) -> None:
    # Nobody will read these data again, so there is nothing to flush and no need to wait.
    server.kill()
    shutil.rmtree(server.folder, ignore_errors=True)
