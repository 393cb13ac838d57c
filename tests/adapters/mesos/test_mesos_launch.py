"""What a spec asks of a real Mesos alone: an executor of the task's own, and containers.

Tests type commands to the daemon.
"""

from __future__ import annotations

import base64
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.adapters.mesos.mesos_daemon import completed_tasks, job_file, on_mesos, said
from tests.adapters.test_daemon_wiring import until
from tests.cli.terminal import typed
from tests.conftest import ROOT
from tests.servers import mesos_home
from tests.servers.mesos import Mesos

pytestmark = pytest.mark.timeout(180)
EXECUTOR = ROOT / "tests" / "servers" / "own_executor.py"


class Served(NamedTuple):
    """A Mesos, and a daemon at which commands are typed."""

    mesos: Mesos
    folder: Path

    def created(self, command: str, **more: Any) -> str:
        """A job of one instance; its id."""
        file = job_file(self.folder, command, instancecount=1, **more)
        return said("job", "create", "/HelloWorldPool", file).split()[1]

    def fails_with(self, container: dict[str, Any]) -> None:
        """A run in such a container reaches an agent, which cannot make one."""
        labels = [{"key": "kept", "value": "here"}]
        task = {"container": container, "restartpolicy": {"maxfailures": 0}, "labels": labels}
        job = self.created("true", task=task)
        assert "FAILED" in typed("job", "wait", job).out
        found = completed_tasks(self.mesos, job)
        assert all(task["container"] == container for task in found)
        assert all(labels[0] in task["labels"]["labels"] for task in found)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    mesos_home.needed_home()
    folder = tmp_path_factory.mktemp("launch")
    with pytest.MonkeyPatch.context() as patch, on_mesos(folder, patch) as mesos:
        said("respool", "create", "/HelloWorldPool", str(ROOT / "examples/hello_world_pool.yaml"))
        yield Served(mesos, folder)


def with_own_executor(said_there: str) -> dict[str, Any]:
    """A task that brings its executor, which says this."""
    data = base64.b64encode(b"as it is").decode()
    return {
        "executor": {"type": "CUSTOM", "executorid": {"value": "any"}, "data": data},
        "command": {
            "value": f"exec {shlex.join((sys.executable, str(EXECUTOR)))}",
            "environment": {"variables": [{"name": "SAID", "value": said_there}]},
        },
    }


def test_an_executor_of_a_tasks_own_that_does_not_obey_is_shut_down(served: Served) -> None:
    task = {**with_own_executor("deaf"), "killgraceperiodseconds": 1}
    job = served.created("", type="SERVICE", task=task)
    until(lambda: "RUNNING" in said("task", "list", job))
    said("job", "stop", job)
    until(lambda: "KILLED" in said("task", "list", job))
    assert "does not end" in said("task", "logs", job, "0").splitlines()


def test_an_executor_of_a_tasks_own(served: Served) -> None:
    job = served.created("", type="SERVICE", task=with_own_executor("said:"))
    until(lambda: "RUNNING" in said("task", "list", job))
    printed = said("task", "logs", job, "0").splitlines()
    assert printed == [f"AuroraExecutor thermos-{job}-0-1", "said: b'as it is' b'as it is'"]
    said("job", "stop", job)
    until(lambda: "KILLED" in said("task", "list", job))
    assert said("task", "logs", job, "0").splitlines()[-1] == "ends"


def test_the_master_takes_a_container_of_docker_as_the_spec_says_it(served: Served) -> None:
    """The agents here have no Docker: the run fails there."""
    docker = {
        "type": "DOCKER",
        "docker": {
            "image": "debian:12",
            "network": "HOST",
            "privileged": True,
            "parameters": [{"key": "cap-add", "value": "ALL"}],
        },
    }
    served.fails_with(docker)


def test_the_master_takes_volumes_as_the_spec_says_them(served: Served) -> None:
    """The agents here mount none, which needs a launcher with control groups: the run fails."""
    path = str(served.folder)
    one = {"container_path": "/in", "host_path": path, "mode": "RO"}
    two = {"container_path": "in", "host_path": path, "mode": "RW"}
    served.fails_with({"type": "MESOS", "volumes": [one, two]})
