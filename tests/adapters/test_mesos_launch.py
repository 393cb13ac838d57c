"""What a spec asks of Mesos and of nobody else, on a real one: an executor of the task's own.

It must not look into the daemon: it is typed at.
"""

from __future__ import annotations

import base64
import shlex
import sys
from pathlib import Path

import pytest

from tests.adapters.mesos_daemon import job_file, on_mesos, said
from tests.adapters.test_daemon_wiring import until
from tests.conftest import ROOT
from tests.servers import mesos_home

pytestmark = pytest.mark.timeout(180)
EXECUTOR = ROOT / "tests" / "servers" / "own_executor.py"


def test_an_executor_of_a_tasks_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mesos_home.needed_home()
    with on_mesos(tmp_path, monkeypatch):
        said("respool", "create", "/HelloWorldPool", str(ROOT / "examples/hello_world_pool.yaml"))
        data = base64.b64encode(b"as it is").decode()
        task = {
            "executor": {"type": "CUSTOM", "executorid": {"value": "any"}, "data": data},
            "command": {
                "value": f"exec {shlex.join((sys.executable, str(EXECUTOR)))}",
                "environment": {"variables": [{"name": "SAID", "value": "said:"}]},
            },
        }
        file = job_file(tmp_path, "", type="SERVICE", instancecount=1, task=task)
        job = said("job", "create", "/HelloWorldPool", file).split()[1]
        until(lambda: "RUNNING" in said("task", "list", job))
        printed = said("task", "logs", job, "0").splitlines()
        assert printed == [
            f"AuroraExecutor thermos-{job}-0-1", "said: b'as it is' b'as it is'"
        ]  # fmt: skip
        said("job", "stop", job)
        until(lambda: "KILLED" in said("task", "list", job))
        assert said("task", "logs", job, "0").splitlines()[-1] == "ends"
