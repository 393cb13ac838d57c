"""Functions as tasks of a real cluster: their workers, and what becomes of who is lost."""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.sdk.client import Client
from peloton.sdk.errors import CanNeverRun, NotFound
from peloton.sdk.executor import PelotonExecutor, WorkerLost, task
from peloton.sdk.executor.session import executors_folder
from peloton.sdk.tasks import OVER
from tests.e2e import cluster as c

pytest.importorskip("cloudpickle", reason="the extra `executor` is not installed")
pytestmark = pytest.mark.slow

SMALL = {"cpu": 0.1, "memory_mb": 100.0}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[c.Cluster]:
    with c.running(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def client(cluster: c.Cluster) -> Iterator[Client]:
    with cluster.client() as found:
        yield found


def said(text: str) -> int:
    print(text)
    return os.getpid()


@task(**SMALL)
def doubled(value: int) -> int:
    return 2 * value


def over(client: Client, job: str) -> bool:
    """Whether each instance of a job has ended."""
    found = client.tasks.list(job).result.value.values()
    return all(info.runtime.state in OVER for info in found)


def test_a_batch_of_functions_is_one_job(client: Client) -> None:
    with PelotonExecutor(3, client=client, **SMALL) as executor:
        with executor.batch():
            futures = [executor.submit(said, f"call {number}") for number in range(30)]
        pids = {future.result(c.WAIT_MAX_S) for future in futures}
        assert 1 <= len(pids) <= 3, "workers take many calls"
        (job,) = {future.job for future in futures}
        assert client.jobs.get(job).jobInfo.config.instanceCount == 3
        assert futures[7].logs() == "call 7\n"
        assert futures[7].why() == ("the call has ended",)
        large = executor.map(lambda number: number + 1, range(2000))
        assert list(large) == list(range(1, 2001))
        assert executor.submit(doubled, 4).result(c.WAIT_MAX_S) == 8
    assert c.ended(client, job)[0] in ("SUCCEEDED", "KILLED"), "some may not have begun in time"
    assert futures[7].logs() == "call 7\n", "also afterwards"


def test_a_call_that_ends_its_workers_says_how_they_ended(client: Client) -> None:
    with PelotonExecutor(1, client=client, retries=1, **SMALL) as executor:
        bad = executor.submit(os._exit, 9)
        with pytest.raises(WorkerLost, match=r"_exit: .* \(exit code 9 .*\); attempts: 2"):
            bad.result(c.WAIT_MAX_S)
        assert executor.submit(pow, 2, 3).result(c.WAIT_MAX_S) == 8, "others go on"


def test_where_no_worker_can_begin_calls_fail(client: Client) -> None:
    words = ["sh", "-c", "echo no such python >&2; exit 3"]
    with PelotonExecutor(2, client=client, python=words, **SMALL) as executor:
        future = executor.submit(pow, 2, 3)
        with pytest.raises(WorkerLost, match=r"could begin: exit code 3.*said: no such python"):
            future.result(c.WAIT_MAX_S)
    with (
        pytest.warns(match="can never be admitted"),
        PelotonExecutor(2, client=client, cpu=1000, memory_mb=1) as executor,
    ):
        future = executor.submit(pow, 2, 3)
        with pytest.raises(CanNeverRun, match="requested 1000 cpu") as raised:
            future.result(c.WAIT_MAX_S)
        assert raised.value.reasons
    with pytest.raises(NotFound):
        PelotonExecutor(2, client=client, pool="/nowhere")


def test_workers_come_and_go_with_the_calls(client: Client) -> None:
    with PelotonExecutor(2, client=client, idle_s=0.05, **SMALL) as executor:
        first = executor.submit(os.getpid)
        first.result(c.WAIT_MAX_S)
        c.wait_for(lambda: over(client, first.job), "the end of the worker that has nothing to do")
        second = executor.submit(os.getpid)
        assert second.result(c.WAIT_MAX_S) != first.result()
        assert second.job != first.job


def test_workers_elsewhere_get_their_token_as_a_secret(tmp_path: Path) -> None:
    key = tmp_path / "secrets.key"
    key.touch(0o600)
    key.write_bytes(base64.b64encode(bytes(32)))
    with (
        c.running(tmp_path, secrets={"key_file": str(key)}) as cluster,
        cluster.client() as client,
        PelotonExecutor(
            1, client=client, elsewhere=True, python=[sys.executable],
            env={"PYTHONPATH": str(c.ROOT)}, **SMALL,
        ) as executor,
    ):  # fmt: skip
        future = executor.submit(os.getcwd)
        sandbox = Path(future.result(c.WAIT_MAX_S))
        assert sandbox != Path.cwd() and (sandbox / "token").is_symlink()
        config = client.jobs.get(future.job).jobInfo.config
        assert "PATH" not in {one.name for one in config.defaultConfig.environment.variables}


RESUMED = """
import sys
from pathlib import Path
from peloton.sdk.client import Client
from peloton.sdk.executor import PelotonExecutor

def answer(number, gate):
    while number and not Path(gate).exists():
        import time
        time.sleep(0.05)
    return number

executor = PelotonExecutor(2, client=Client(sys.argv[1]), name="mine", cpu=0.1, memory_mb=100.0)
if sys.argv[2] == "first":
    futures = executor.map_array(answer, range(5), [sys.argv[3]] * 5)
    futures[0].result()
    while not (futures[1].running() and futures[2].running()):
        pass
    print(futures[0].job, flush=True)
    sys.stdin.read()
else:
    print(len(executor.resumed), flush=True)
    Path(sys.argv[3]).touch()
    print([future.result(90) for future in executor.resumed])
    print(len({future.place.worker.job for future in executor.resumed}))
    executor.shutdown()
"""


def test_a_client_that_is_killed_is_followed_by_another_of_its_name(
    cluster: c.Cluster, tmp_path: Path
) -> None:
    def client_of(part: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", RESUMED, cluster.address, part, str(tmp_path / "gate")]
        return subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=c.ROOT
        )

    with client_of("first") as first:
        assert first.stdout is not None
        job = first.stdout.readline().strip()
        first.kill()
    with client_of("second") as second:
        out, _ = second.communicate(timeout=c.WAIT_MAX_S)
    assert second.returncode == 0
    assert out.splitlines() == ["5", "[0, 1, 2, 3, 4]", "1"], "by the workers of the first"
    with cluster.client() as client:
        c.wait_for(lambda: over(client, job), "the end of the workers")


class Steps:
    """Work in steps, that goes on elsewhere with the next one."""

    def __init__(self) -> None:
        self.began: list[str] = []

    def __call__(self, there: str, gate: str) -> list[str]:
        self.began.append(os.environ["PELOTON_POD_ID"])
        Path(there).touch()
        while len(self.began) == 1 and not Path(gate).exists():
            pass
        return self.began

    def checkpoint(self) -> Steps:
        return self


def test_a_preempted_worker_hands_on_what_it_has_done(tmp_path: Path) -> None:
    size = ("--hosts", "1", "--host-cpus", "1", "--host-memory-mb", "2000")
    with (
        c.running(tmp_path, *size, preemption={"after": "1s"}) as cluster,
        cluster.client() as client,
    ):
        for name, reserved in (("low", 0.0), ("high", 1.0)):
            kinds = {"cpu": (reserved, 1.0), "memory": (reserved * 1000, 2000.0)}
            kinds["disk"] = (0.0, 20000.0)
            resources = [
                {"kind": kind, "reservation": least, "limit": most, "share": 1.0}
                for kind, (least, most) in kinds.items()
            ]
            client.pools.create(f"/{name}", {"name": name, "resources": resources})
        there = tmp_path / "there"
        wanted = {"pool": "/low", "cpu": 1.0, "memory_mb": 100.0, "preemptible": True}
        with PelotonExecutor(1, client=client, retries=0, **wanted) as executor:
            future = executor.submit(Steps(), str(there), str(tmp_path / "never"))
            c.wait_for(there.exists, "the first step")
            needs = {"resource": {"cpuLimit": 1.0, "memLimitMb": 10.0}}
            until = c.until_there(tmp_path / "free")
            other = client.jobs.create("/high", c.job(1, until, config=needs)).jobId.value
            c.wait_for(lambda: c.counts(client, other)[1] == {"RUNNING": 1}, "who needs the room")
            assert not future.done()
            assert "waits for a worker" in future.why()[0] or future.running()
            (tmp_path / "free").touch()
            first, second = future.result(c.WAIT_MAX_S)
            assert (first[-2:], second[-2:]) == ("-1", "-2"), "two runs of one instance"


def test_a_call_that_was_cancelled_is_not_run_by_the_next_client(
    client: Client, tmp_path: Path
) -> None:
    folder, gate = executors_folder() / "cancelling", tmp_path / "gate"
    executor = PelotonExecutor(1, client=client, name="cancelling", **SMALL)
    running = executor.submit(subprocess.run, c.until_there(gate), shell=True)
    c.wait_for(running.running, "the call that has the worker")
    waiting = executor.submit(gate.touch)
    assert waiting.why()[0] == "waits for a worker: 1 connected, 1 at most"
    assert "instance 0 of job" in running.why()[0] and len(running.why()) > 1
    assert waiting.cancel()
    assert b"cancelled" in (folder / "calls").read_bytes()
    gate.touch()
    assert running.result(c.WAIT_MAX_S).returncode == 0
    executor.shutdown()
    assert not folder.exists()


def busy(number: int) -> tuple[int, int]:
    sum(range(20_000))  # long enough that few are sent ahead
    return number, os.getpid()


def test_workers_that_are_killed_cost_no_call(client: Client) -> None:
    killed: set[int] = set()
    with PelotonExecutor(3, client=client, retries=20, **SMALL) as executor:
        futures = executor.map_array(busy, range(3000))
        for future in concurrent.futures.as_completed(futures, timeout=c.WAIT_MAX_S):
            _, pid = future.result()
            if len(killed) < 6 and pid not in killed:
                killed.add(pid)
                with contextlib.suppress(ProcessLookupError):  # it has died with others' calls
                    os.kill(pid, signal.SIGKILL)
    assert len(killed) == 6
    assert [future.result()[0] for future in futures] == list(range(3000))
