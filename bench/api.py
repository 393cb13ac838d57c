"""What a client of the gRPC front door gets: reads and creates, beside an empty echo call.

    script/bench api                                       about a minute
    script/bench api --calls 500 --creates 200 --pairs 1
    script/bench api --against FOLDER                      another checkout beside it, by turns

The server is a minicluster with simulated runs, a process of its own; this process is the client,
and the echo a third one that is served by `grpc.aio`, with messages of the same sizes. CPU is of
the server's process for each call: on a machine whose cores client and server share it says more
than calls a second. A create's CPU is stated until its answer, and until its task has ended. A run
counts only if each job ended once. It must not gate a test, and what it prints can be compared
within one run only.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grpc

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts import echo  # noqa: E402
from bench.parts.measure import cpu_s, machine, quantile, ratio, spread  # noqa: E402
from bench.parts.process import ROOT, ServerProcess  # noqa: E402
from bench.parts.session import until  # noqa: E402
from peloton.api.v0 import peloton_pb2  # noqa: E402
from peloton.api.v0.job import job_pb2, job_pb2_grpc  # noqa: E402
from peloton.api.v0.query import query_pb2  # noqa: E402
from peloton.api.v0.respool import respool_pb2, respool_pb2_grpc  # noqa: E402
from peloton.api.v0.task import task_pb2, task_pb2_grpc  # noqa: E402

JOBS = "/peloton.api.v0.job.JobManager"
CALL_S_MAX = 30.0
HOST = {"cpu": 10.0, "memory": 100_000.0, "disk": 100_000.0}
LARGE = 1000
LISTED = 10
CHECKED_EACH = 50
"""Of the answers of a load so many are skipped for each that is checked: the client costs, too."""

Check = Callable[[bytes], None]


class Load(NamedTuple):
    """What is sent again and again, and how an answer is judged."""

    method: str
    requests: Sequence[bytes]
    check: Check


class Ran(NamedTuple):
    """What a load came to."""

    calls: int
    took_s: float
    call_s: list[float]
    cpu_s: float
    answers: list[bytes]

    def line(self) -> str:
        """As text."""
        cpu_us = self.cpu_s / self.calls * 1e6
        return f"{self.calls / self.took_s:6,.0f}/s, {spread(self.call_s)}, cpu {cpu_us:5.0f} us"


class Server(ServerProcess):
    """One that takes loads."""

    def run(self, load: Load, *, threads: int) -> Ran:
        """Send all requests in a closed loop of so many threads."""
        call = self.channel.unary_unary(load.method)
        rest, took, answers = iter(load.requests), [], []
        lock = threading.Lock()
        failed: list[BaseException] = []

        def work() -> None:
            try:
                for number in itertools.count():
                    with lock:
                        request = next(rest, None)
                    if request is None:
                        return
                    begun = time.perf_counter()
                    answer = call(request, timeout=CALL_S_MAX)
                    took.append(time.perf_counter() - begun)
                    answers.append(answer)
                    if number % CHECKED_EACH == 0:
                        load.check(answer)
            except BaseException as error:
                failed.append(error)

        some = [threading.Thread(target=work) for _ in range(threads)]
        cpu, begun = cpu_s(self.pid), time.perf_counter()
        for thread in some:
            thread.start()
        for thread in some:
            thread.join()
        if failed:
            raise SystemExit(f"{self.name}: {load.method}: {failed[0]!r}")
        took_s = time.perf_counter() - begun
        return Ran(len(took), took_s, took, cpu_s(self.pid) - cpu, answers)


class Cluster(Server):
    """A minicluster with a pool."""

    def __init__(self, tree: Path, *, name: str, folder: Path, hosts: int) -> None:
        options = {
            "--backend": "simulated", "--data-dir": folder / "data", "--grpc": "127.0.0.1:0",
            "--http": "127.0.0.1:0", "--hosts": hosts,
            "--host-cpus": HOST["cpu"], "--host-memory-mb": HOST["memory"],
            "--host-disk-mb": HOST["disk"],
        }  # fmt: skip
        words = ["-m", "peloton", "minicluster", "--no-classic-ports", "--open-loopback"]
        words += [str(word) for pair in options.items() for word in pair]
        super().__init__(words, name=name, folder=tree, errors=folder / "log")
        self._http = self.errors().partition("ready: http ")[2].split()[0]
        self._jobs = job_pb2_grpc.JobManagerStub(self.channel)
        self._tasks = task_pb2_grpc.TaskManagerStub(self.channel)
        self._pools = respool_pb2_grpc.ResourceManagerStub(self.channel)
        self._created = 0
        self.pool = peloton_pb2.ResourcePoolID()
        until(lambda: self._made_pool(hosts), f"{name}: the pool")

    def _made_pool(self, hosts: int) -> bool:
        # Refused until the root knows all hosts.
        config = respool_pb2.ResourcePoolConfig(name="bench")
        config.parent.value = "root"
        for kind, limit in HOST.items():
            config.resources.add(kind=kind, reservation=0, limit=limit * hosts, share=1)
        with contextlib.suppress(grpc.RpcError):
            made = self._pools.CreateResourcePool(respool_pb2.CreateRequest(config=config))
            self.pool.CopyFrom(made.result)
        return bool(self.pool.value)

    def config(self, size: int) -> bytes:
        """A request for a job of so many tasks."""
        config = job_pb2.JobConfig(name="bench", instanceCount=size, respoolID=self.pool)
        task = config.defaultConfig
        task.name = "bench"
        task.resource.cpuLimit, task.resource.memLimitMb = 1.0, 10.0
        task.command.shell, task.command.value = True, "true"
        request = job_pb2.CreateRequest(config=config)
        return bytes(request.SerializeToString())

    def create(self, count: int, *, size: int, threads: int) -> tuple[Ran, float, list[str]]:
        """So many jobs to their ends: the calls, CPU seconds of it all, and their ids."""
        cpu = cpu_s(self.pid)
        load = Load(f"{JOBS}/Create", [self.config(size)] * count, _created)
        ran = self.run(load, threads=threads)
        ids = [_created(answer) for answer in ran.answers]
        self._created += count * size
        until(self._all_ended, f"{self.name}: {self._created} tasks SUCCEEDED")
        cpu = cpu_s(self.pid) - cpu
        if len(dict.fromkeys(ids)) != count:
            raise SystemExit(f"{self.name}: {count} creates made {len(dict.fromkeys(ids))} jobs")
        for job_id in ids:
            self._check_ended(job_id, size)
        return ran, cpu, ids

    def _all_ended(self) -> bool:
        """By the cluster's own count of instances; any other end than success is wrong."""
        with urllib.request.urlopen(f"http://{self._http}/metrics", timeout=20) as answer:
            lines = [line for line in answer.read().decode().splitlines() if "instances{" in line]
        found = {line.split('"')[1]: int(float(line.rpartition(" ")[2])) for line in lines}
        wrong = sum(found.get(state, 0) for state in ("FAILED", "LOST", "KILLED"))
        if wrong or found.get("SUCCEEDED", 0) > self._created:
            raise SystemExit(f"{self.name}: tasks went wrong: {found}")
        return found.get("SUCCEEDED", 0) == self._created

    def _check_ended(self, job_id: str, size: int) -> None:
        name = peloton_pb2.JobID(value=job_id)
        info = self._jobs.Get(job_pb2.GetRequest(id=name), timeout=CALL_S_MAX).jobInfo
        asked = task_pb2.ListRequest(jobId=name)
        tasks = self._tasks.List(asked, timeout=CALL_S_MAX).result.value
        again = [n for n, one in tasks.items() if not one.runtime.mesosTaskId.value.endswith("-1")]
        if info.runtime.state != job_pb2.SUCCEEDED or len(tasks) != size or again:
            raise SystemExit(f"{self.name}: job {job_id}: {info.runtime}, run again: {again}")


# ---- the loads ----


def _created(answer: bytes) -> str:
    found = job_pb2.CreateResponse.FromString(answer)
    if found.HasField("error"):
        raise SystemExit(f"Create: {found.error}")
    return str(found.jobId.value)


def get(ids: Sequence[str], calls: int, *, size: int) -> Load:
    """Get of these jobs by turns."""
    requests = [_get(job_id) for job_id in ids]

    def check(answer: bytes) -> None:
        info = job_pb2.GetResponse.FromString(answer).jobInfo
        if info.runtime.state != job_pb2.SUCCEEDED or info.config.instanceCount != size:
            raise SystemExit(f"Get: {info}")

    return Load(f"{JOBS}/Get", list(itertools.islice(itertools.cycle(requests), calls)), check)


def query(calls: int) -> Load:
    """The first page of all jobs, the newest first."""
    by = query_pb2.OrderBy(order=query_pb2.OrderBy.DESC)
    by.property.value = "creation_time"
    pages = query_pb2.PaginationSpec(limit=LISTED, orderBy=[by], maxLimit=100)
    asked = job_pb2.QueryRequest(spec=job_pb2.QuerySpec(pagination=pages), summaryOnly=True)

    def check(answer: bytes) -> None:
        found = job_pb2.QueryResponse.FromString(answer)
        if len(found.results) != LISTED:
            raise SystemExit(f"Query: {len(found.results)} jobs: {found.error}")

    return Load(f"{JOBS}/Query", [asked.SerializeToString()] * calls, check)


def empty(request: bytes, answer: bytes, calls: int) -> Load:
    """Echoes of these sizes."""

    def check(found: bytes) -> None:
        if len(found) != len(answer):
            raise SystemExit(f"echo: {len(found)} bytes")

    padded = len(answer).to_bytes(4, "big") + bytes(max(0, len(request) - 4))
    return Load(echo.METHOD, [padded] * calls, check)


def _get(job_id: str) -> bytes:
    request = job_pb2.GetRequest(id=peloton_pb2.JobID(value=job_id))
    return bytes(request.SerializeToString())


class Calls:
    """All loads of one run, on all servers by turns."""

    def __init__(self, clusters: Sequence[Cluster], echoes: Server, chosen: Any) -> None:
        self._clusters, self._echoes, self._chosen = clusters, echoes, chosen
        self._found: dict[tuple[str, str], list[Ran]] = defaultdict(list)

    def run(self) -> Iterator[str]:
        """Lines."""
        chosen = self._chosen
        loads = {cluster: self._loads(cluster) for cluster in self._clusters}
        for turn, threads in itertools.product(range(chosen.pairs), chosen.threads):
            clusters = self._clusters if turn % 2 == 0 else self._clusters[::-1]
            for name in [*loads[clusters[0]]]:
                case, sizes = f"{name} x{threads}", (b"", b"")
                for cluster in clusters:
                    load = loads[cluster][name]
                    ran = cluster.run(load, threads=threads)
                    sizes = load.requests[0], ran.answers[0]
                    yield self._note(case, cluster.name, ran)
                yield self._echo(case, *sizes, threads=threads)
            if threads == max(chosen.threads):
                yield from self._creates(clusters, threads)
        yield from self._ratios()

    def _loads(self, cluster: Cluster) -> dict[str, Load]:
        calls = self._chosen.calls
        small = cluster.create(self._chosen.jobs, size=1, threads=8)[2]
        (large,) = cluster.create(1, size=self._chosen.large, threads=1)[2]
        return {
            "Get small": get(small, calls, size=1),
            "Get large": get([large], calls, size=self._chosen.large),
            "Query": query(calls),
        }

    def _creates(self, clusters: Sequence[Cluster], threads: int) -> Iterator[str]:
        case, sizes = f"Create x{threads}", (b"", b"")
        for cluster in clusters:
            ran, cpu, _ = cluster.create(self._chosen.creates, size=1, threads=threads)
            sizes = cluster.config(1), ran.answers[0]
            whole = ran._replace(cpu_s=cpu)
            yield self._note(case, cluster.name, ran)
            yield self._note(f"{case} to the end", cluster.name, whole)
        yield self._echo(case, *sizes, threads=threads)

    def _echo(self, case: str, request: bytes, answer: bytes, *, threads: int) -> str:
        load = empty(request, answer, self._chosen.calls)
        return self._note(case, "echo", self._echoes.run(load, threads=threads))

    def _note(self, case: str, name: str, ran: Ran) -> str:
        self._found[case, name].append(ran)
        return f"{case:<22} {name:<8} {ran.line()}  ({ran.calls} calls)"

    def _ratios(self) -> Iterator[str]:
        names = [cluster.name for cluster in self._clusters]
        pairs = [(name, "echo") for name in names] + [*itertools.pairwise(names[::-1])]
        for case in dict.fromkeys(case for case, _ in self._found):
            for above, below in pairs:
                both = [*zip(self._found[case, above], self._found[case, below], strict=False)]
                if both:
                    cpu = [_cpus(a, b) for a, b in both]
                    rates = [(a.calls / a.took_s, b.calls / b.took_s) for a, b in both]
                    p50, p99 = (
                        [(quantile(a.call_s, share), quantile(b.call_s, share)) for a, b in both]
                        for share in (0.5, 0.99)
                    )
                    yield (
                        f"# {case:<22} {above} / {below}: cpu a call {ratio(cpu)}, "
                        f"calls/s {ratio(rates)}, p50 {ratio(p50)}, p99 {ratio(p99)}"
                    )


def _cpus(above: Ran, below: Ran) -> tuple[float, float]:
    # The kernel counts in ticks: a tiny run may have used none.
    tick = 1 / os.sysconf("SC_CLK_TCK")
    return max(above.cpu_s, tick) / above.calls, max(below.cpu_s, tick) / below.calls


def run(chosen: argparse.Namespace) -> Iterator[str]:
    """Start the servers, and load them by turns."""
    trees = {"here": ROOT}
    if chosen.against:
        trees["against"] = Path(chosen.against).resolve()
    with contextlib.ExitStack() as stack:
        made = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peloton-bench-")))
        yield from machine(made)
        words = [str(ROOT / "bench" / "parts" / "echo.py")]
        echoes = Server(words, name="echo", folder=ROOT, errors=made / "echo")
        stack.enter_context(contextlib.closing(echoes))
        clusters = []
        for name, tree in trees.items():
            (made / name).mkdir()
            cluster = Cluster(tree, name=name, folder=made / name, hosts=chosen.hosts)
            clusters.append(stack.enter_context(contextlib.closing(cluster)))
        yield from Calls(clusters, echoes, chosen).run()


def options(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--calls", type=int, default=2000, help="reads of each kind")
    add("--creates", type=int, default=1000, help="jobs of one task")
    add("--threads", type=int, nargs="+", default=[1, 16])
    add("--jobs", type=int, default=100, help="small jobs that are read by turns")
    add("--large", type=int, default=LARGE, help="instances of the large job")
    add("--hosts", type=int, default=100)
    add("--pairs", type=int, default=2, help="how often all is repeated")
    add("--against", help="the folder of another checkout, whose server has its turns too")
    return parser.parse_args(args)


if __name__ == "__main__":
    for line in run(options()):
        print(line, flush=True)
