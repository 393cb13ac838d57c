"""Daemons of one cluster as processes, each behind links of its own that can be cut.

Turns a folder and two servers into processes that are started, killed, frozen and stopped. A proxy
each is between a daemon and ZooKeeper, Cassandra and its peers, and can cut that connection. No
process may be left behind, whatever happens to the caller: it would outlive the storm.

Proxies instead of a packet filter: they need neither root nor a kernel module. Cutting the proxy
for peers means that no peer reaches this daemon while it reaches all; to partition a single pair,
each of the two blocks the other (`proxy.py`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import peloton
from peloton.chaos.nemesis.ground import Ground, MesosProcesses, OnKeeper, OnMesos
from peloton.chaos.nemesis.machine import KeeperMachine
from peloton.chaos.nemesis.proxy import Door
from peloton.chaos.nemesis.servers import ServerProcess

REPOSITORY = Path(peloton.__file__).parent.parent
CLUSTER, KEYSPACE = "nemesis", "nemesis"
SHARDS = {"jobmgr": 6, "resmgr": 1, "hostmgr": 4}
SPARES = 1
"""Daemons that do not run at first."""
LINKS = ("zookeeper", "cassandra", "peers")
CHECKPOINT_BYTES_MIN = 64 * 1024
"""Small, so that a storm of minutes has takeovers from checkpoints."""
EXIT_CANNOT_START = 69
"""The exit code of a daemon that finds no ZooKeeper or no Cassandra when it starts."""


class NemesisServers(NamedTuple):
    """The two servers, both running, and how to reach them."""

    zookeeper: ServerProcess
    cassandra: ServerProcess
    ports: Callable[[int], list[int]]
    owners: Callable[[str], Mapping[str, bytes]]
    """Nodes below a path of ZooKeeper, with their data. Raises OSError."""
    moved_clock: Path | None = None
    """A program that is `peloton` with another wall clock: its first argument, in seconds."""
    mesos: MesosProcesses | None = None
    """What the runs are on, if it is not a keeper."""

    def ground(self, folder: Path) -> Ground:
        """Return the ground of the runs."""
        return OnKeeper(folder / "keeper") if self.mesos is None else OnMesos(self.mesos)


class DaemonProcess:
    """A daemon, over all its processes."""

    def __init__(
        self, name: str, folder: Path, *, outside: NemesisServers, session_s: float
    ) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.frozen = False
        self.resting = False
        """It is not expected to run."""
        self.code = REPOSITORY
        """The folder of the program for its next process."""
        self.lives = 0
        self.clock_s = 0.0
        """How far the wall clock of its next process is ahead of the machine's."""
        self._moved_clock = outside.moved_clock
        self._backend = outside.ground(folder).backend()
        self.file = folder / f"{name}.yaml"
        self._errors = folder / f"{name}.log"
        exchange, grpc, http = outside.ports(3)
        self.address = f"127.0.0.1:{grpc}"
        self.door = Door(exchange)
        servers = (outside.zookeeper.port, outside.cassandra.port)
        self.links: dict[str, Door] = dict(
            zip(LINKS, (*map(Door, servers), self.door), strict=True)
        )
        listen = {"exchange": exchange, "grpc": grpc, "http": http}
        settings = self._settings(listen, session_s)
        self.file.write_text(yaml.safe_dump(settings))

    def start(self) -> None:
        """Start a process. Only from the main thread: it ends with the thread that started it."""
        assert not self.alive, f"{self.name} runs already"
        self.lives, self.frozen, self.resting = self.lives + 1, False, False
        program = ["-m", "peloton"]
        if self.clock_s and self._moved_clock is not None:
            program = [str(self._moved_clock), str(self.clock_s)]
        command = [sys.executable, *program, "daemon", "--config", str(self.file)]
        with self._errors.open("ab") as log:
            self.process = subprocess.Popen(
                [*_bound(), *command],
                cwd=self.code, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        """Whether the daemon's process has not ended."""
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        """The pid of the newest process."""
        return self.process.pid if self.process is not None else 0

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.frozen = False

    def leave(self) -> None:
        """Ask the process to hand over and end."""
        self._signal(signal.SIGTERM)

    def freeze(self) -> None:
        """Freeze the process: it keeps its connections, and does nothing."""
        self._signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        """Thaw the process, which continues as if no time had passed."""
        self._signal(signal.SIGCONT)
        self.frozen = False

    def close(self) -> None:
        """Close the daemon and its links for good."""
        self.kill()
        for link in self.links.values():
            link.close()

    def last_line(self) -> str:
        """Return the last line of the daemon's log."""
        lines = self._errors.read_text(errors="replace").splitlines()
        return lines[-1][:300] if lines else ""

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.alive:
            self.process.send_signal(number)

    def _settings(self, ports: dict[str, int], session_s: float) -> dict[str, Any]:
        listen: dict[str, str] = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        cassandra = {
            "contacts": ["127.0.0.1"],
            "port": self.links["cassandra"].port,
            "keyspace": KEYSPACE,
        }
        return {
            "cluster": CLUSTER,
            "listen": {**listen, "advertise": f"127.0.0.1:{self.links['peers'].port}"},
            "zookeeper": {
                "hosts": [f"127.0.0.1:{self.links['zookeeper'].port}"],
                "session_timeout_s": session_s,
            },
            "journal": {"cassandra": cassandra},
            "backend": self._backend,
            "shards": SHARDS,
            "limits": {"checkpoint_bytes_min": CHECKPOINT_BYTES_MIN},
        }


def _bound() -> Sequence[str]:
    """Return the prefix of a command that lets it end with this process, even if that is killed."""
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL") if setpriv else ()


class NemesisFleet:
    """All daemons of the cluster. They share a keeper, so every owner of a host finds its runs."""

    def __init__(
        self, folder: Path, outside: NemesisServers, *, daemons: int, session_s: float
    ) -> None:
        self.outside = outside
        self.ground = outside.ground(folder)
        self.keeper = folder / "keeper"
        self.machine = KeeperMachine(self.keeper)
        self.session_s = session_s
        self.codes = [REPOSITORY]
        """The folders of the versions that daemons may run."""
        self.daemons = [
            DaemonProcess(f"d{number}", folder, outside=outside, session_s=session_s)
            for number in range(daemons + SPARES)
        ]
        self.daemons_min = daemons
        for spare in self.daemons[daemons:]:
            spare.resting = True

    @property
    def servers(self) -> dict[str, ServerProcess]:
        """All servers, by name."""
        own = {"zookeeper": self.outside.zookeeper, "cassandra": self.outside.cassandra}
        return {**own, **self.ground.servers}

    def wanted(self) -> list[DaemonProcess]:
        """Return the daemons that belong to the cluster now, whether or not they run."""
        return [daemon for daemon in self.daemons if not daemon.resting]

    def resting(self) -> list[DaemonProcess]:
        """Return the daemons that may be added."""
        return [daemon for daemon in self.daemons if daemon.resting and not daemon.alive]

    def living(self) -> list[DaemonProcess]:
        """Return the daemons that run, and are not frozen."""
        return [daemon for daemon in self.daemons if daemon.alive and not daemon.frozen]

    def close(self) -> None:
        """Kill all processes of the cluster."""
        for daemon in self.daemons:
            daemon.close()
        end_keeper(self.keeper)
        self.machine.close()


def end_keeper(folder: Path) -> None:
    """Kill the keeper of this folder, its supervisor and its runs.

    They are found by the folder, which belongs to this storm alone: the keeper was started by a
    daemon, and outlives it. Processes that start others are looked for until there is none.
    """
    while found := [*_of_keeper(folder)]:
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _of_keeper(folder: Path) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            cwd = os.readlink(entry / "cwd")
            within = cwd == str(folder) or cwd.startswith(f"{folder}/")
            if str(folder).encode() in command.split(b"\0") or within:
                yield int(entry.name)
