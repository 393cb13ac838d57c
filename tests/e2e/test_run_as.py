"""The user as which the tasks of a real minicluster run, and that it says so.

Where the tests run as root, tasks run as `nobody`; elsewhere as the user of the tests.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import stat
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import cluster as c

ROOT = os.geteuid() == 0
NAME = "nobody" if ROOT else pwd.getpwuid(os.geteuid()).pw_name
UID = pwd.getpwnam(NAME).pw_uid
pytestmark = pytest.mark.needs_root("to run tasks as others, as far as it goes", possible=True)
SAID = "tasks run as root, where neither"


@pytest.fixture
def passable() -> Iterator[Path]:
    """A folder that other accounts may pass; pytest's own are closed to them."""
    before = os.umask(0)
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="peloton-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
    os.umask(before)


def health(cluster: c.Cluster) -> str:
    address = re.findall(r"ready: http (\S+)", cluster.errors())[-1]
    with urllib.request.urlopen(f"http://{address}/health", timeout=60) as answer:
        return str(answer.read().decode())


def open_to_others(data: Path) -> dict[str, str]:
    """All of ours that another user could open; what tasks leave in their folders is theirs."""
    runs = data / "keeper" / "runs"
    paths = [data, *(path for path in data.rglob("*") if ROOT or runs not in path.parents[1:])]
    found = {str(path.relative_to(data)): path.lstat() for path in paths}
    return {
        name: oct(stat.S_IMODE(status.st_mode))
        for name, status in found.items()
        if stat.S_IMODE(status.st_mode) & 0o077 and status.st_uid == os.geteuid()
    }


def test_tasks_run_as_the_account_for_them_and_go_on_with_the_cluster_killed(
    passable: Path,
) -> None:
    go = passable / "go"
    # Without limits health has nothing to say of a machine that cannot hold tasks to them.
    with c.running(passable, backend={"process": {"task_user": NAME, "limits": "off"}}) as cluster:
        data = passable / "data"
        told = [NAME] if ROOT else []  # a task of our own account inherits no such variable
        with cluster.client() as client:
            c.pool(client)
            short = str(client.jobs.create("/tests", c.job(1, "id -u; echo ${USER-}")).jobId.value)
            assert c.ended(client, short)[0] == "SUCCEEDED"
            assert cluster.cli("task", "logs", short, "0").stdout.split() == [str(UID), *told]
            # By its path, before and after a restart of the cluster.
            use = f"echo a >> $MESOS_SANDBOX/f; {c.until_there(go)}; cat $MESOS_SANDBOX/f; id -u"
            long = str(client.jobs.create("/tests", c.job(1, use)).jobId.value)
            c.wait_for(lambda: c.counts(client, long)[1].get("RUNNING") == 1, "it to run")
        passed = {".": "0o711", "keeper": "0o711", "keeper/runs": "0o711"} if ROOT else {}
        assert open_to_others(data) == passed
        cluster.kill()
        cluster.start()
        assert open_to_others(data) == passed
        go.touch()
        with cluster.client() as client:
            assert c.ended(client, long)[0] == "SUCCEEDED"
        assert cluster.cli("task", "logs", long, "0").stdout.split() == ["a", str(UID)]
        assert SAID not in cluster.errors() and "could be opened" not in cluster.errors()
        assert health(cluster) == "OK\n"


def test_without_such_an_account_root_says_as_whom_tasks_run(passable: Path) -> None:
    with c.running(passable) as cluster:
        with cluster.client() as client:
            c.pool(client)
            job = str(client.jobs.create("/tests", c.job(1, "id -u")).jobId.value)
            assert c.ended(client, job)[0] == "SUCCEEDED"
        assert cluster.cli("task", "logs", job, "0").stdout.split() == [str(os.geteuid())]
        assert (f"warning: {SAID}" in cluster.errors()) is ROOT
        assert ("backend.process.task_user names another account" in cluster.errors()) is ROOT
        assert ("tasks: run as root, where neither" in health(cluster)) is ROOT
        assert open_to_others(passable / "data") == {}
