"""A real minicluster as a child process, and what tests ask of it.

Turns "a cluster with these options" into a process on free ports with a client. It must stop all
that it started, whatever the test did.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from peloton.sdk.client import Client
from peloton.sdk.errors import PelotonError
from peloton.testing.serving_process import ServingProcess
from tests import processes
from tests.cli.terminal import typed

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples"
WAIT_MAX_S = 90.0
"""For what happens within a second, on a machine that has other things to do."""
KEEPER = b"/keeper/__main__.py"
"""Of the command line of a keeper."""
ENDED = ("SUCCEEDED", "FAILED", "KILLED")


class Cluster(ServingProcess):
    """One minicluster; it may be killed and started again on the same folder."""

    def __init__(self, folder: Path, *options: str, **settings: Any) -> None:
        """`settings` are written to its file, beside the options."""
        super().__init__(folder)
        self.options = options
        if settings:
            file = folder / "cluster.yaml"
            file.write_text(json.dumps(settings))
            self.options = (*options, "--cluster", str(file))
        self._hosts = "hosts" in settings or bool({"--hosts", "--cluster"} & {*options})

    def words(self) -> list[str]:
        """What is typed behind the name of the program."""
        return [
            *("minicluster", "--data-dir", str(self.folder / "data")),
            *("--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--no-classic-ports"),
            # What a test expects must not depend on the machine.
            *(() if self._hosts else ("--hosts", "3")),
            *self.options,
        ]

    def client(self, timeout_s: float = 60.0) -> Client:
        """A client of the running cluster."""
        return Client(self.address, timeout_s=timeout_s)

    def cli(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """What a command of the command line prints, run in this process."""
        done = typed("--api", self.address, *words)
        if check and done.code != 0:
            raise AssertionError(f"{words} ended with {done.code}:\n{done.err}")
        return subprocess.CompletedProcess(words, done.code, done.out, done.err)


@contextlib.contextmanager
def running(folder: Path, *options: str, **settings: Any) -> Iterator[Cluster]:
    """A minicluster that is gone afterwards, with its tasks."""
    with started(Cluster(folder, *options, **settings)) as cluster:
        yield cluster


@contextlib.contextmanager
def started(cluster: Cluster) -> Iterator[Cluster]:
    """This one, which is gone afterwards, with its tasks."""
    try:
        cluster.start()
        yield cluster
    finally:
        if cluster.runs:
            cluster.kill()
        end_keeper(cluster.folder)


def end_keeper(folder: Path) -> None:
    """Kill the keeper of a folder and all its tasks: those that name the folder, or work there."""

    def of_folder() -> set[int]:
        working = {one.pid for one in processes.every() if one.works_in.startswith(str(folder))}
        return working | {one.pid for one in processes.naming(folder)}

    keepers = [one.pid for one in processes.naming(folder) if KEEPER in one.words]
    processes.end_all(of_folder, stopped_first=keepers)


def pool(client: Client, path: str = "/tests", cpus: float = 12.0) -> str:
    """A pool with room for everything in the customary small cluster."""
    limits = {"cpu": cpus, "memory": 6000.0, "disk": 50000.0, "gpu": 0.0}
    resources = [
        {"kind": kind, "reservation": 0.0, "limit": limit, "share": 1.0}
        for kind, limit in limits.items()
    ]
    client.pools.create(path, {"name": path.rpartition("/")[2], "resources": resources})
    return path


def job(instances: int, command: str, **extra: Any) -> dict[str, Any]:
    """A job of shell commands, small enough for hundreds at a time."""
    config = {
        "resource": {"cpuLimit": 0.01, "memLimitMb": 1.0, "diskLimitMb": 1.0},
        "command": {"shell": True, "value": command},
        **extra.pop("config", {}),
    }
    return {
        "name": "test",
        "type": "BATCH",
        "instanceCount": instances,
        "defaultConfig": config,
        **extra,
    }


def wait_for(wanted: Callable[[], Any], what: str, *, within_s: float = WAIT_MAX_S) -> Any:
    """Ask until there is an answer; a cluster that restarts meanwhile is asked again."""
    until = time.monotonic() + within_s
    last: object = None
    while time.monotonic() < until:
        try:
            last = wanted()
            if last:
                return last
        except PelotonError as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"waited {within_s:g} s for {what}; at last: {last}")


def until_there(file: Path) -> str:
    """A command that runs until the file is made: not for a time, which somebody may oversleep."""
    return f"while [ ! -e {file} ]; do sleep 0.05; done"


def counts(client: Client, job_id: str) -> tuple[str, dict[str, int]]:
    """State of a job, and its instances by state."""
    from peloton.sdk.jobs import state_name_of

    info = client.jobs.get(job_id).jobInfo
    stats = {name: int(count) for name, count in info.runtime.taskStats.items() if count}
    return state_name_of(info), stats


def ended(client: Client, job_id: str, within_s: float = WAIT_MAX_S) -> tuple[str, dict[str, int]]:
    """Wait until a job has ended; its state and counts."""

    def look() -> tuple[str, dict[str, int]] | None:
        state, found = counts(client, job_id)
        return (state, found) if state in ENDED else None

    found: tuple[str, dict[str, int]] = wait_for(
        look, f"the end of job {job_id}", within_s=within_s
    )
    return found
