"""One daemon whose hosts are the agents of a real Mesos, and what a test does to both.

Tests type commands to the daemon, and ask the master.
"""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from peloton.sdk.client import Client
from tests.adapters.test_daemon_wiring import until
from tests.adapters.test_fleet_words import foreground
from tests.cli.terminal import typed
from tests.conftest import ROOT
from tests.servers.mesos import PROBE_TIMEOUT_S, ROOMY, Mesos

EXAMPLE = ROOT / "examples" / "mesos.yaml"


def config_file(folder: Path, mesos: Mesos, *, keys: Path | None = None, **more: Any) -> Path:
    """The example's file for a daemon with this cluster; `keys`: the file with those of secrets."""
    settings = yaml.safe_load(EXAMPLE.read_text())
    settings["listen"] = dict.fromkeys(settings["listen"], "127.0.0.1:0")
    settings["backend"]["mesos"] |= {"master": mesos.address, **more}
    if keys is not None:
        settings["secrets"] = {"key_file": str(keys)}
    file = folder / "mesos.yaml"
    file.write_text(yaml.safe_dump(settings))
    return file


@contextlib.contextmanager
def on_mesos(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, agents: int = 2, **more: Any
) -> Iterator[Mesos]:
    """Mesos, and a daemon that has its agents as hosts, at which commands are typed from now on;
    `more` as in `config_file`."""
    mesos = Mesos(folder / "mesos", agents=agents, resources=ROOMY)
    file = config_file(folder, mesos, **more)
    try:
        mesos.launch()
        with foreground(["daemon", "--config", str(file)]) as address:
            monkeypatch.setenv("PELOTON_API", address)
            until(lambda: all(f"mesos.h{n + 1}" in said("host", "list") for n in range(agents)))
            yield mesos
    finally:
        mesos.stop()


def pool_for_tests(client: Client) -> Any:
    """A new pool with half of an agent."""
    resources = [
        {"kind": kind, "reservation": 0.0, "limit": limit, "share": 1.0}
        for kind, limit in (("cpu", 4.0), ("memory", 4000.0), ("disk", 4000.0), ("gpu", 0.0))
    ]
    return client.pools.create("/tests", {"name": "tests", "resources": resources})


def said(*words: str) -> str:
    """What a command prints, which must succeed."""
    printed = typed(*words)
    assert printed.code == 0, (words, printed)
    return printed.out


def operated(mesos: Mesos, kind: str, body: dict[str, Any] | None = None) -> Any:
    """What the master answers a call of its operators."""
    call = {"type": kind} | ({} if body is None else {kind.lower(): body})
    request = urllib.request.Request(
        f"http://127.0.0.1:{mesos.leader().port}/api/v1",
        json.dumps(call).encode(),
        {"Content-Type": "application/json", "Accept": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PROBE_TIMEOUT_S) as answer:
        text = answer.read()
    return json.loads(text)[kind.lower()] if text else None


def completed_tasks(mesos: Mesos, job: str) -> list[dict[str, Any]]:
    """Tasks of a job that are over for the master: once their last update was acknowledged, which
    takes a moment longer than it takes a client to know of it."""

    def found() -> list[dict[str, Any]]:
        tasks = operated(mesos, "GET_TASKS").get("completed_tasks", ())
        return [task for task in tasks if job in task["name"]]

    tasks: list[dict[str, Any]] = until(found)
    return tasks


def job_file(folder: Path, command: str, **more: Any) -> str:
    """The file of a job that runs this; `more` are further fields of its spec."""
    config: dict[str, Any] = {
        "name": "made_here", "type": "BATCH", "owningteam": "tests", "instancecount": 4,
        "sla": {"priority": 1, "preemptible": True},
    }  # fmt: skip
    task = {"resource": {"cpulimit": 0.1, "memlimitmb": 32, "disklimitmb": 10},
            "command": {"shell": True, "value": command}}  # fmt: skip
    file = folder / f"job-{len([*folder.iterdir()])}.yaml"
    file.write_text(yaml.safe_dump(config | {"defaultconfig": task | more.pop("task", {})} | more))
    return str(file)
