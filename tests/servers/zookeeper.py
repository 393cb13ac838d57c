"""A ZooKeeper server, alone or as one of three, with ticks short enough for tests.

`ZooKeeper.start(folder)` returns when clients may come; `Ensemble.start(folder)` when there is a
leader. Sessions may be as short as 0.4 s, so that a test can outlive one. It is no pattern for
production: there a tick is ten times as long.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from tests.servers import cache
from tests.servers.process import Server, ServerFailed, free_ports

HERE = Path(__file__).parent
HEAP_MB = 64
TICK_MS = 200
PROBE_TIMEOUT_S = 5.0
LEADER_TIMEOUT_S = 60.0
LOOK_AGAIN_S = 0.05

JVM = (
    "-Xms16m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss256k -XX:-UsePerfData "
    "-XX:+ExitOnOutOfMemoryError -Djava.net.preferIPv4Stack=true "
    # A disk that is busy for seconds would outlast sessions. What a write left in the kernel is
    # there after a `kill -9`; only the end of the machine takes it, and the tests with it.
    "-Dzookeeper.forceSync=no"
).split()

SETTINGS = f"""\
tickTime={TICK_MS}
initLimit=40
syncLimit=150
minSessionTimeout={2 * TICK_MS}
maxSessionTimeout=10000
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=*
maxClientCnxns=0
preAllocSize=1024
"""


class Seat(NamedTuple):
    """Where one server of an ensemble speaks to the others."""

    quorum_port: int
    election_port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.quorum_port}:{self.election_port}"


class ZooKeeper(Server):
    """One server; `number` counts from 1 and is its seat among `seats`, if it is not alone."""

    name: ClassVar[str] = "ZooKeeper"

    def __init__(
        self, folder: Path, *, port: int = 0, number: int = 1, seats: Sequence[Seat] = ()
    ) -> None:
        super().__init__(folder, port or free_ports(1)[0])
        self.number = number
        self.seats = seats

    @classmethod
    def start(cls, folder: Path) -> ZooKeeper:
        """A new server that is alone, and answers."""
        server = cls(folder)
        server.launch()
        server.wait_until_ready()
        return server

    def configure(self) -> None:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        text = f"{SETTINGS}dataDir={data}\nclientPort={self.port}\n"
        if self.seats:
            (data / "myid").write_text(f"{self.number}\n")
            text += "quorumListenOnAllIPs=false\n"
            text += "".join(f"server.{at}={s.address}\n" for at, s in enumerate(self.seats, 1))
        (self.folder / "zoo.cfg").write_text(text)

    def command(self) -> list[str]:
        return [
            cache.java(), *JVM, f"-Xmx{HEAP_MB}m",
            f"-Dlogback.configurationFile=file://{HERE}/logback.xml",
            f"-Djava.io.tmpdir={self.folder}",  # what it unpacks there goes with the folder
            "-cp", f"{cache.libraries()}/*",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self.folder / "zoo.cfg"),
        ]  # fmt: skip

    def answers(self) -> bool:
        """Whether it serves: it says "imok" also while it has no leader to follow."""
        return self.mode() != ""

    def mode(self) -> str:
        """standalone, leader or follower; empty: it does not serve."""
        for line in self.ask("srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return ""

    def ask(self, word: str) -> str:
        """The answer to a four-letter word; empty when there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), PROBE_TIMEOUT_S) as probe:
                probe.settimeout(PROBE_TIMEOUT_S)
                probe.sendall(word.encode())
                answer = b""
                while part := probe.recv(4096):
                    answer += part
        except OSError:
            return ""
        return answer.decode(errors="replace")


class Ensemble:
    """Three servers that elect a leader; any two of them serve."""

    def __init__(self, folder: Path, *, size: int = 3) -> None:
        ports = free_ports(2 * size)
        seats = [Seat(ports[2 * at], ports[2 * at + 1]) for at in range(size)]
        self.servers = [
            ZooKeeper(folder / f"server-{number}", number=number, seats=seats)
            for number in range(1, size + 1)
        ]

    @classmethod
    def start(cls, folder: Path) -> Ensemble:
        """A new ensemble that serves."""
        ensemble = cls(folder)
        ensemble.launch()
        return ensemble

    def launch(self) -> None:
        """Start all, and return when all serve."""
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_until_ready()

    @property
    def address(self) -> str:
        """All of them, as clients are told."""
        return ",".join(server.address for server in self.servers)

    def leader(self) -> ZooKeeper:
        """The one that leads, as soon as one says so: busy ones may keep silent for a moment."""
        until_s, pause = time.monotonic() + LEADER_TIMEOUT_S, threading.Event()
        while time.monotonic() < until_s:
            for server in self.servers:
                if server.mode() == "leader":
                    return server
            pause.wait(LOOK_AGAIN_S)
        raise ServerFailed(f"no server leads within {LEADER_TIMEOUT_S:g} s")

    def followers(self) -> list[ZooKeeper]:
        """Those that follow now."""
        return [server for server in self.servers if server.mode() == "follower"]

    def stop(self) -> None:
        """All at once: the last two could not end in good order one after the other."""
        for server in self.servers:
            server.kill()


@functools.cache
def shared() -> ZooKeeper:
    """The one server of this process, for tests that do not kill it; it may be paused meanwhile.

    Each takes a cluster name of its own. It starts for the first who asks, and ends with the run.
    """
    server = ZooKeeper(Path(tempfile.mkdtemp(prefix="peloton-zookeeper-")))
    atexit.register(_end, server)
    server.launch()
    server.wait_until_ready()
    return server


def _end(server: ZooKeeper) -> None:
    # Nobody will read these data again.
    server.kill()
    shutil.rmtree(server.folder, ignore_errors=True)
