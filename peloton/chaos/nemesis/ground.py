"""The ground of a storm's runs: a keeper that all daemons share, or the agents of a Mesos.

Turns either into the settings of a daemon, the actions that strike it, the notes of its runs, and
the run of a process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from peloton.backends.keeper import processes
from peloton.chaos.nemesis.servers import ServerProcess

HOSTS = tuple(f"host{number}" for number in range(4))
HOST_CPUS = 4.0
MESOS_ENGINE = "engine/mesos"
"""The actor through which the hosts of the Mesos get their runs."""
RUN_ON_MESOS = "PELOTON_POD_ID"


class Ground(Protocol):
    """The system that runs the tasks of a storm."""

    actions: Mapping[str, int]
    """What strikes it, with shares."""
    servers: Mapping[str, ServerProcess]
    """Of these actions' targets, those that are processes."""

    def backend(self) -> Mapping[str, Any]:
        """Return the backend setting of each daemon."""

    def notes(self) -> Iterator[tuple[str, Path]]:
        """Yield runs, and the folder in which each notes what it does."""

    def run_of(self, pid: int) -> str | None:
        """Return the run that this process belongs to."""


class OnKeeper:
    """Processes of the keeper in this folder."""

    actions: Mapping[str, int] = {"keeper kill": 3, "disk full": 2}
    servers: Mapping[str, ServerProcess] = {}

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def backend(self) -> Mapping[str, Any]:
        """Return the backend setting: all daemons share the folder."""
        hosts = [{"name": name, "cpus": HOST_CPUS} for name in HOSTS]
        return {"process": {"folder": "keeper", "hosts": hosts}}

    def notes(self) -> Iterator[tuple[str, Path]]:
        """Yield the sandboxes of the keeper."""
        runs = self._folder / "runs"
        yield from ((each.name, each) for each in (runs.iterdir() if runs.is_dir() else ()))

    def run_of(self, pid: int) -> str | None:
        """Return the run of a process, by the mark of the keeper."""
        return processes.marked_run(pid, str(self._folder.resolve()))


class MesosProcesses(NamedTuple):
    """A running Mesos: its master, its agents, and the folder where they keep their files."""

    address: str
    master: ServerProcess
    agents: tuple[ServerProcess, ...]
    folder: Path


class OnMesos:
    """Tasks of a Mesos, which one daemon at a time gives to its agents."""

    actions: Mapping[str, int] = {
        "engine kill": 3,
        "mesos-master restart": 2,
        "mesos-master pause": 1,
        "mesos-agent1 restart": 2,
        "mesos-agent2 restart": 1,
        "mesos-agent2 pause": 2,
        "mesos-agent3 pause": 1,
    }

    def __init__(self, mesos: MesosProcesses) -> None:
        self._mesos = mesos
        agents = {f"mesos-agent{number}": one for number, one in enumerate(mesos.agents, 1)}
        self.servers: Mapping[str, ServerProcess] = {"mesos-master": mesos.master, **agents}

    def backend(self) -> Mapping[str, Any]:
        """Return the backend setting. The agents define the hosts."""
        return {"mesos": {"master": self._mesos.address}}

    def notes(self) -> Iterator[tuple[str, Path]]:
        """Yield sandboxes on the agents, and in those of executors of ours.

        A run that began twice has two.
        """
        for sandbox in self._mesos.folder.glob("*/work/slaves/*/frameworks/*/executors/*/runs/*"):
            inside = sandbox / "runs"
            if sandbox.is_symlink():  # to the latest
                continue
            if inside.is_dir():
                yield from ((each.name, each) for each in inside.iterdir())
            else:
                yield sandbox.parent.parent.name, sandbox

    def run_of(self, pid: int) -> str | None:
        """Return the run of a process, by the variables of a task that works in a sandbox."""
        try:
            ours = os.readlink(f"/proc/{pid}/cwd").startswith(f"{self._mesos.folder}/")
            return processes.environment(pid).get(RUN_ON_MESOS) if ours else None
        except OSError:
            return None
