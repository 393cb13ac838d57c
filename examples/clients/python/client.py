"""Creates a pool and a job, waits for the end of the job, and prints the results of its tasks.

Usage: client.py [ADDRESS [POOL [COMMAND]]]
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).parent / "build" / "gen"))

import grpc  # noqa: E402

from peloton.api.v0.job import job_pb2, job_pb2_grpc  # noqa: E402
from peloton.api.v0.respool import respool_pb2, respool_pb2_grpc  # noqa: E402
from peloton.api.v0.task import task_pb2, task_pb2_grpc  # noqa: E402

TIMEOUT_S = 30
ENDED = (job_pb2.SUCCEEDED, job_pb2.FAILED, job_pb2.KILLED)
LIMITS = {"cpu": 1.0, "memory": 512.0, "disk": 512.0, "gpu": 0.0}
"""CPUs, and megabytes; a pool needs each of the four kinds."""


class AsTheOriginal(grpc.UnaryUnaryClientInterceptor):
    """Calls the services by the names that the original's clients use, with their metadata."""

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        # These services have no `v0` in their names on the wire, unlike in their protos.
        method = details.method.replace("/peloton.api.v0.", "/peloton.api.")
        service = "peloton-resmgr" if ".respool." in method else "peloton-jobmgr"
        metadata = [
            ("rpc-caller", "example-python"),
            ("rpc-service", service),
            ("rpc-encoding", "proto"),
            *credentials(),
        ]
        replaced = details._replace(method=method, metadata=metadata, timeout=TIMEOUT_S)
        return continuation(replaced, request)


def credentials() -> list[tuple[str, str]]:
    """Who calls: by name and password, or by the token of a cluster on this machine."""
    if "PELOTON_USERNAME" in os.environ:
        password = Path(os.environ["PELOTON_PASSWORD_FILE"]).read_text().strip()
        return [("username", os.environ["PELOTON_USERNAME"]), ("password", password)]
    if "PELOTON_TOKEN_FILE" in os.environ:
        token = Path(os.environ["PELOTON_TOKEN_FILE"]).read_text().strip()
        return [("authorization", f"Bearer {token}")]
    return []


def find_or_create_pool(channel: grpc.Channel, path: str) -> Any:
    """The id of the pool at a path such as /name, below the root."""
    pools = respool_pb2_grpc.ResourceManagerStub(channel)

    def lookup(of: str) -> Any:
        request = respool_pb2.LookupRequest(path=respool_pb2.ResourcePoolPath(value=of))
        return pools.LookupResourcePoolID(request).id

    found = lookup(path)
    if found.value:
        return found
    config = respool_pb2.ResourcePoolConfig(
        name=path.removeprefix("/"),
        parent=lookup("/"),
        policy=respool_pb2.PriorityFIFO,
        resources=[
            respool_pb2.ResourceConfig(kind=kind, reservation=0.0, limit=limit, share=1.0)
            for kind, limit in LIMITS.items()
        ],
    )
    answer = pools.CreateResourcePool(respool_pb2.CreateRequest(config=config))
    if answer.HasField("error"):
        raise SystemExit(f"the pool {path} was refused: {answer.error}")
    return answer.result


def create_job(channel: grpc.Channel, pool: Any, command: str) -> Any:
    """The id of a new job: three instances of a shell command."""
    task = task_pb2.TaskConfig(
        resource=task_pb2.ResourceConfig(cpuLimit=0.1, memLimitMb=16.0, diskLimitMb=16.0)
    )
    task.command.shell = True
    task.command.value = command
    config = job_pb2.JobConfig(
        name="example-python",
        type=job_pb2.BATCH,
        instanceCount=3,
        respoolID=pool,
        defaultConfig=task,
    )
    answer = job_pb2_grpc.JobManagerStub(channel).Create(job_pb2.CreateRequest(config=config))
    if answer.HasField("error"):
        raise SystemExit(f"the job was refused: {answer.error}")
    return answer.jobId


def wait(channel: grpc.Channel, job: Any) -> int:
    """The state in which a job has ended."""
    jobs = job_pb2_grpc.JobManagerStub(channel)
    while True:
        answer = jobs.Get(job_pb2.GetRequest(id=job))
        if answer.HasField("error"):
            raise SystemExit(f"the job cannot be read: {answer.error}")
        if answer.jobInfo.runtime.state in ENDED:
            return answer.jobInfo.runtime.state
        time.sleep(1)


def print_results(channel: grpc.Channel, job: Any) -> None:
    """State, exit code and address of the log of each task."""
    tasks = task_pb2_grpc.TaskManagerStub(channel)
    found = tasks.List(task_pb2.ListRequest(jobId=job)).result.value
    for instance, info in sorted(found.items()):
        request = task_pb2.BrowseSandboxRequest(jobId=job, instanceId=instance)
        files = tasks.BrowseSandbox(request)
        state = task_pb2.TaskState.Name(info.runtime.state)
        exit_code = info.runtime.terminationStatus.exit_code
        for path in files.paths:
            if path.endswith("/stdout"):
                query = urlencode({"path": path})
                log = f"http://{files.hostname}:{files.port}/files/download?{query}"
                print(f"task {instance} {state} exit {exit_code} {log}")


def main(address: str = "127.0.0.1:5397", pool: str = "/examples", command: str = "date") -> int:
    with grpc.insecure_channel(address) as plain:
        channel = grpc.intercept_channel(plain, AsTheOriginal())
        job = create_job(channel, find_or_create_pool(channel, pool), command)
        state = wait(channel, job)
        print(f"job {job.value} {job_pb2.JobState.Name(state)}")
        print_results(channel, job)
    return 0 if state == job_pb2.SUCCEEDED else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
