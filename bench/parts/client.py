"""A client of the front door: pools, jobs, waits, and the check that each task ended once.

Turns sizes into calls of gRPC, as any client makes them. It must not look into the daemon: all it
knows is what the calls answer.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import grpc

from bench.parts.minicluster import Hosts
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2, job_pb2_grpc
from peloton.api.v0.respool import respool_pb2, respool_pb2_grpc
from peloton.api.v0.task import task_pb2, task_pb2_grpc
from peloton.backends.simulated import DURATION_VARIABLE
from peloton.ops.v1 import ops_pb2, ops_pb2_grpc

CALL_S_MAX = 60.0
POOL_S_MAX = 120.0
WAIT_CALL_S = 50.0
LOOK_S = 0.1
LIST_MAX = 1000


class TaskSize(NamedTuple):
    """What a task asks for, and how long it runs where that is simulated (None: as configured)."""

    cpu: float = 1.0
    memory_mb: float = 1.0
    disk_mb: float = 0.0
    duration_s: float | None = None


SMALL = TaskSize()


class Times(NamedTuple):
    """Of one task that ended, by the daemon's clock."""

    started_s: float
    ended_s: float


class Client:
    """Calls of one channel; safe to share between threads."""

    def __init__(self, channel: grpc.Channel, hosts: Hosts) -> None:
        self.jobs = job_pb2_grpc.JobManagerStub(channel)
        self.tasks = task_pb2_grpc.TaskManagerStub(channel)
        self.pools = respool_pb2_grpc.ResourceManagerStub(channel)
        self.ops = ops_pb2_grpc.OpsStub(channel)
        self._hosts = hosts

    def whole_pool(self, name: str = "bench") -> peloton_pb2.ResourcePoolID:
        """A pool that may use all hosts. Refused until the root knows them all."""
        hosts = self._hosts
        limits = {"cpu": hosts.slots, "memory": hosts.memory_mb, "disk": hosts.disk_mb}
        whole = {kind: limit * hosts.count for kind, limit in limits.items()}
        late = time.monotonic() + POOL_S_MAX
        while True:
            with contextlib.suppress(grpc.RpcError):
                made = self.pool(name, whole)
                if made.value:
                    return made
            if time.monotonic() > late:
                raise SystemExit(f"no pool within {POOL_S_MAX:g} s")
            time.sleep(LOOK_S)

    def pool(
        self, name: str, limits: Mapping[str, float], *, parent: str = "root"
    ) -> peloton_pb2.ResourcePoolID:
        """A pool below another; an empty id where it was refused."""
        config = respool_pb2.ResourcePoolConfig(name=name)
        config.parent.value = parent
        for kind, limit in limits.items():
            config.resources.add(kind=kind, reservation=0, limit=limit, share=1)
        made = self.pools.CreateResourcePool(
            respool_pb2.CreateRequest(config=config), timeout=CALL_S_MAX
        )
        return made.result

    def request(
        self, pool: peloton_pb2.ResourcePoolID, instances: int, *, size: TaskSize = SMALL
    ) -> job_pb2.CreateRequest:
        """For a job of so many instances; made once, sent often."""
        config = job_pb2.JobConfig(name="bench", instanceCount=instances, respoolID=pool)
        task = config.defaultConfig
        task.name = "bench"
        task.resource.cpuLimit, task.resource.memLimitMb = size.cpu, size.memory_mb
        task.resource.diskLimitMb = size.disk_mb
        task.command.shell, task.command.value = False, "/bin/true"
        if size.duration_s is not None:
            variables = task.command.environment.variables
            variables.add(name=DURATION_VARIABLE, value=str(size.duration_s))
        return job_pb2.CreateRequest(config=config)

    def create(self, request: job_pb2.CreateRequest) -> str:
        """The id of a new job."""
        answer = self.jobs.Create(request, timeout=CALL_S_MAX)
        if answer.HasField("error"):
            raise SystemExit(f"Create: {answer.error}")
        return str(answer.jobId.value)

    def wait(self, job: str, limit_s: float) -> None:
        """Until the job has ended, which must be in success."""
        late = time.monotonic() + limit_s
        while True:
            request = ops_pb2.WaitJobRequest(job_id=job, timeout_s=WAIT_CALL_S)
            answer = self.ops.WaitJob(request, timeout=WAIT_CALL_S + CALL_S_MAX)
            if answer.done:
                break
            if time.monotonic() > late:
                raise SystemExit(f"job {job} has not ended within {limit_s:g} s: {answer}")
        if answer.state != "SUCCEEDED":
            raise SystemExit(f"job {job}: {answer}")

    def state(self, job: str) -> Any:
        """The job's runtime."""
        request = job_pb2.GetRequest(id=peloton_pb2.JobID(value=job))
        return self.jobs.Get(request, timeout=CALL_S_MAX).jobInfo.runtime

    def runtimes(self, job: str, instances: int) -> dict[int, Any]:
        """Of every task of a job, by pages."""
        found: dict[int, Any] = {}
        for first in range(0, instances, LIST_MAX):
            pages = task_pb2.InstanceRange(**{"from": first, "to": first + LIST_MAX})
            asked = task_pb2.ListRequest(jobId=peloton_pb2.JobID(value=job), range=pages)
            listed = self.tasks.List(asked, timeout=CALL_S_MAX).result.value
            found |= {number: task.runtime for number, task in listed.items()}
        return found

    def running(self, job: str, instances: int) -> dict[int, tuple[str, str]]:
        """As which run and where each task of a job runs. Ends the benchmark if one does not."""
        tasks = self.runtimes(job, instances)
        wrong = [number for number, one in tasks.items() if one.state != task_pb2.RUNNING]
        if wrong or len(tasks) != instances:
            raise SystemExit(f"job {job}: {len(tasks)} tasks, not RUNNING: {wrong}")
        return {number: (one.mesosTaskId.value, one.host) for number, one in tasks.items()}

    def check_ended(self, jobs: Iterable[str], instances: int) -> list[Times]:
        """That every task of these jobs succeeded as its first run, and when. Ends the benchmark
        if not."""
        found = []
        for job in jobs:
            state = self.state(job).state
            tasks = self.runtimes(job, instances)
            wrong = {
                number: runtime
                for number, runtime in tasks.items()
                if runtime.state != task_pb2.SUCCEEDED
                or not runtime.startTime
                or not runtime.completionTime
            }
            if state != job_pb2.SUCCEEDED or len(tasks) != instances or wrong:
                raise SystemExit(f"job {job}: state {state}, {len(tasks)} tasks, wrong: {wrong}")
            found += [
                Times(seconds(runtime.startTime), seconds(runtime.completionTime))
                for runtime in tasks.values()
            ]
        return found


def seconds(stamp: str) -> float:
    """A time of the API as Unix time."""
    return datetime.fromisoformat(stamp).timestamp()
