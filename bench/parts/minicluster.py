"""A minicluster as a process of its own, and what it and its tasks have used.

Runs are simulated on a thread of the daemon with a name of its own, or real processes of a keeper.
It must not load it, nor leave a process behind.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from bench.parts.measure import (
    cpu_of_children_s,
    cpu_of_threads_s,
    cpu_of_tree_s,
    cpu_s,
    peak_bytes,
    resident_bytes,
    tree,
)
from bench.parts.process import ROOT, ServerProcess

SIMULATED_THREAD = "service-backend"
"""As the dispatcher names it: the simulated hosts have it for themselves."""
KEEPER_GONE_S_MAX = 20.0
LOOK_S = 0.05


class Hosts(NamedTuple):
    """Hosts that are alike. `slots`: as many tasks of one cpu fit."""

    count: int
    slots: float
    memory_mb: float = 100_000.0
    disk_mb: float = 100_000.0


class Used(NamedTuple):
    """CPU seconds, up to now or of a while."""

    at_s: float
    daemon_s: float  # without the simulated hosts
    simulated_s: float  # the simulated hosts
    keeper_s: float
    children_s: float  # the real tasks themselves
    client_s: float  # this process

    def since(self, before: Used) -> Used:
        """From then to now."""
        return Used(*(now - then for now, then in zip(self, before, strict=True)))

    def each(self, count: int, what: str = "task") -> str:
        """As text, for each of so many."""
        shown = {
            "daemon": self.daemon_s, "simulated hosts": self.simulated_s, "keeper": self.keeper_s,
            "children": self.children_s, "client": self.client_s,
        }  # fmt: skip
        parts = [f"{name} {s / count * 1e3:.3g}" for name, s in shown.items() if s]
        return f"cpu ms a {what}: " + ", ".join(parts)


class Minicluster:
    """One daemon with all roles, from `start` to `close`; it can be killed and started again."""

    def __init__(
        self, folder: Path, hosts: Hosts, *, backend: str = "simulated", duration_s: float = 1.0
    ) -> None:
        self.hosts = hosts
        self._folder = folder
        self._data = folder / "data"
        how = {"duration_s": duration_s} if backend == "simulated" else {}
        file = folder / "cluster.yaml"
        file.write_text(json.dumps({"backend": {backend: how}}))
        options = {
            "--cluster": file, "--data-dir": self._data, "--grpc": "127.0.0.1:0",
            "--http": "127.0.0.1:0", "--hosts": hosts.count, "--host-cpus": hosts.slots,
            "--host-memory-mb": hosts.memory_mb, "--host-disk-mb": hosts.disk_mb,
        }  # fmt: skip
        words = ["-m", "peloton", "minicluster", "--no-classic-ports", "--open-loopback"]
        self._words = words + [str(word) for pair in options.items() for word in pair]
        self._starts = 0
        self.start()

    def start(self) -> None:
        """Returns when it says that it is ready."""
        self._starts += 1
        errors = self._folder / f"log{self._starts}"
        self._server = ServerProcess(self._words, name="minicluster", folder=ROOT, errors=errors)
        self.pid, self.channel = self._server.pid, self._server.channel

    def kill(self) -> None:
        """SIGKILL; real tasks and the keeper live on."""
        self._server.close()

    @property
    def address(self) -> str:
        """Where it serves gRPC."""
        return self._server.address

    @property
    def journal(self) -> Path:
        """The file of the journal."""
        return self._data / "journal.sqlite"

    def used(self) -> Used:
        """CPU until now."""
        simulated_s = cpu_of_threads_s(self.pid, SIMULATED_THREAD)
        keeper = self.keeper()
        return Used(
            time.perf_counter(),
            cpu_of_tree_s(self.pid) - simulated_s,
            simulated_s,
            cpu_s(keeper) if keeper else 0.0,
            cpu_of_children_s(keeper) if keeper else 0.0,
            time.process_time(),
        )

    def resident_bytes(self) -> int:
        """Memory of the daemon."""
        return sum(map(resident_bytes, tree(self.pid)))

    def peak_bytes(self) -> int:
        """The most it was at once."""
        return sum(map(peak_bytes, tree(self.pid)))

    def close(self) -> None:
        """End all. A keeper exits when its folder is gone."""
        keeper = self.keeper()
        self.kill()
        # Under another name, as the keeper may be removing sandboxes in it at this moment.
        gone = self._data.rename(self._data.with_name("gone"))
        late = time.monotonic() + KEEPER_GONE_S_MAX
        while keeper and Path(f"/proc/{keeper}").exists():
            if time.monotonic() > late:
                raise SystemExit(f"the keeper {keeper} has not ended")
            time.sleep(LOOK_S)
        shutil.rmtree(gone)

    def keeper(self) -> int:
        """The process of its keeper; 0 while there is none."""
        lock = self._data / "keeper" / "lock"
        return int(lock.read_text() or 0) if lock.exists() else 0
