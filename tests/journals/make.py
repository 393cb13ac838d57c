"""Makes the golden journal of a version: a small data folder that every later version must read.

    .venv/bin/python -m tests.journals.make

writes `tests/journals/VERSION/journal.sqlite.xz` for the version of the checkout it runs in. Run it
once, from the commit that is released, then `PELOTON_RECORD_GOLDEN=1 pytest
tests/journals/test_golden_journals.py` to record what is read from it, and commit both. It must not
be run again for a version that was released: the file stands for journals that people have.

The journal holds jobs that succeeded, run, wait, were stopped and were deleted, their slices and
tasks, pools, hosts, rows of what has ended, remembered request keys, and a checkpoint with frames
after it.
"""

from __future__ import annotations

import lzma
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from peloton import __version__
from peloton.assembly.daemon import Daemon
from peloton.sdk.client import Client
from peloton.sdk.errors import PelotonError
from peloton.settings.daemon import parse

HERE = Path(__file__).parent
SHARDS = {"jobmgr": 2, "resmgr": 1, "hostmgr": 1}
HOSTS = [
    {"name": "a", "cpus": 4.0, "attributes": {"zone": "one"}},
    {"name": "b", "cpus": 2.0, "gpus": 1.0},
]
WAIT_S_MAX = 60.0
CHECKPOINT_BYTES = 2500
"""Small, so that busy shards write a checkpoint, and large enough to leave a tail after it."""


def main() -> int:
    """Make the golden journal of the installed version; 1 if there is one."""
    target = HERE / __version__ / "journal.sqlite.xz"
    if target.exists():
        print(f"{target} is there: a journal of a released version never changes", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        run(folder)
        dense = Path(name) / "dense.sqlite"
        database = sqlite3.connect(folder / "journal.sqlite")
        database.execute("VACUUM INTO ?", (str(dense),))
        database.close()
        with closing(sqlite3.connect(dense)) as alone, alone:
            alone.execute("DELETE FROM witness")  # which is no part of the file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(lzma.compress(dense.read_bytes(), preset=9))
    print(f"{target}: {target.stat().st_size} bytes")
    return 0


def run(folder: Path) -> None:
    """Run a daemon over the folder, with one of everything, and leave it in good order."""
    daemon = Daemon(parse(settings(folder), folder), failed=lambda: None)
    try:
        until(daemon.greeted.done)
        with Client(str(daemon.grpc)) as client:
            work(client)
    finally:
        daemon.stop()


def settings(folder: Path) -> dict[str, Any]:
    """Of a daemon that is alone, with runs that only pretend."""
    return {
        "cluster": "golden",
        "listen": dict.fromkeys(("exchange", "grpc", "http"), "127.0.0.1:0"),
        "journal": {"sqlite": {"folder": str(folder)}},
        "backend": {"simulated": {"hosts": HOSTS, "duration_s": 1.0, "seed": 1}},
        "shards": SHARDS,
        "limits": {"checkpoint_bytes_min": CHECKPOINT_BYTES},
    }


def work(client: Client) -> None:
    """What a few people do with a cluster."""
    client.pools.create("/prod", pool("prod", cpu=4.0, reserved=0.5))
    client.pools.create("/prod/web", pool("web", cpu=2.0))
    client.pools.create("/prod/api", pool("api", cpu=2.0))
    client.pools.create("/test", pool("test", cpu=2.0), request_key="pool-1")
    succeeded = create(client, "/prod/web", job("succeeded", 3))
    deleted = create(client, "/test", job("deleted", 2))
    for name in (succeeded, deleted):
        client.ops.wait(name)
    until(lambda: deleted_well(client, deleted))
    stopped = create(client, "/test", job("stopped", 4, cpu=0.5))
    waiting = create(client, "/prod/api", job("waiting", 1002, cpu=1.0, memories={7: 64.0}))
    until(lambda: "RUNNING" in states(client, waiting))
    client.jobs.stop(stopped)
    client.ops.wait(stopped)
    create(client, "/prod/web", job("impossible", 1, cpu=1.0, zone="nowhere"))
    client.jobs.create("/test", job("running", 2), request_key="job-1")
    running = client.jobs.create("/test", job("running", 2), request_key="job-1").jobId.value
    until(lambda: "RUNNING" in states(client, running))


def deleted_well(client: Client, name: str) -> bool:
    """Delete a job as soon as that is allowed."""
    try:
        client.jobs.delete(name)
    except PelotonError:
        return False
    return True


def create(client: Client, pool_path: str, spec: dict[str, Any]) -> str:
    return client.jobs.create(pool_path, spec).jobId.value


def states(client: Client, name: str) -> dict[str, int]:
    return dict(client.jobs.get(name).jobInfo.runtime.taskStats)


def pool(name: str, cpu: float, reserved: float = 0.25) -> dict[str, Any]:
    kinds = {"cpu": cpu, "memory": 4096.0, "disk": 40000.0, "gpu": 0.0}
    return {
        "name": name,
        "policy": "PriorityFIFO",
        "resources": [
            {"kind": kind, "reservation": reserved * amount, "limit": amount, "share": 1}
            for kind, amount in kinds.items()
        ],
    }


def job(
    name: str,
    count: int,
    *,
    cpu: float = 0.25,
    zone: str = "",
    memories: dict[int, float] | None = None,
) -> dict[str, Any]:
    config: dict[str, Any] = {
        "name": name,
        "resource": {"cpulimit": cpu, "memlimitmb": 32, "disklimitmb": 10},
        "command": {"shell": True, "value": "true"},
    }
    if zone:
        config["constraint"] = {
            "type": "LABEL_CONSTRAINT",
            "labelconstraint": {
                "kind": "HOST",
                "condition": "CONDITION_EQUAL",
                "requirement": 1,
                "label": {"key": "zone", "value": zone},
            },
        }
    own = {
        number: {**config, "resource": {**config["resource"], "memlimitmb": memory}}
        for number, memory in (memories or {}).items()
    }
    return {
        "name": name,
        "type": "BATCH",
        "instancecount": count,
        "sla": {"priority": 1, "preemptible": True},
        "defaultconfig": config,
        "instanceconfig": own,
    }


def until(done: Callable[[], object]) -> None:
    end_s, pause = time.monotonic() + WAIT_S_MAX, threading.Event()
    while not done():
        if time.monotonic() > end_s:
            raise TimeoutError("the cluster does not come to it")
        pause.wait(0.05)


if __name__ == "__main__":
    sys.exit(main())
