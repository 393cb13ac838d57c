"""A small cluster behind a real gRPC server: pools, jobs and tasks in dictionaries.

A test sets the states it wants to see. Every call is written down with its metadata, and any call
can be made to fail so often as a test says.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import grpc

from peloton.api.v0.host import host_pb2 as host
from peloton.api.v0.host.svc import host_svc_pb2 as svc
from peloton.api.v0.host.svc import host_svc_pb2_grpc
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.job import job_pb2_grpc
from peloton.api.v0.respool import respool_pb2 as respool
from peloton.api.v0.respool import respool_pb2_grpc
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v0.task import task_pb2_grpc
from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import (
    ops_pb2_grpc,
    outputs_pb2_grpc,
    plans_pb2_grpc,
    schedules_pb2_grpc,
)
from peloton.ops.v1 import outputs_pb2 as outputs
from peloton.ops.v1 import plans_pb2 as plans
from peloton.ops.v1 import schedules_pb2 as schedules

JOB = "5e3c7c3a-0f0a-4c39-9d5c-0c3d6b7d1e11"
POOL = "7d6a4a52-2b1c-4a39-8f63-52f6c0f1a2b3"


class Call(NamedTuple):
    name: str
    request: Any
    metadata: dict[str, str]
    left_s: float = 0.0  # how much of its time it had when it came


class Cluster:
    """What the servicers answer from."""

    def __init__(self) -> None:
        self.pools = {"/": "root", "/hello": POOL}
        self.busy: set[str] = set()
        self.jobs: dict[str, job.JobInfo] = {}
        self.tasks: dict[str, dict[int, task.TaskInfo]] = {}
        self.events: list[task.PodEvent] = []
        self.sandbox = task.BrowseSandboxResponse()
        self.reasons: list[ops.Reason] = []
        self.waits: list[ops.WaitJobResponse] = []
        self.counts: dict[str, int] = {}
        # Each call of Watch takes the next one; after a None the stream is silent.
        self.streams: list[list[ops.WatchResponse | None]] = []
        self.holds_left, self.held_last = 1, threading.Event()
        self.hosts: list[ops.Host] = []
        self.host_infos: list[host.HostInfo] = []
        self.set_aside: list[ops.Quarantined] = []
        self.schedules: dict[str, schedules.ScheduleInfo] = {}
        self.planned_job = plans.PlanJobResponse()
        self.planned_pool = plans.PlanPoolResponse()
        self.explained_pool = plans.ExplainPoolResponse()
        self.pool_history = ops.PoolHistoryResponse()
        self.calls: list[Call] = []
        self.troubles: dict[str, list[tuple[grpc.StatusCode, str] | grpc.Status]] = {}
        self.made_by_key: dict[str, str] = {}
        self.next_id = JOB
        self.invalid_pool = ""  # what CreateResourcePool says is wrong where the pool exists
        self.warning = ""  # what Create and Update say of a job that they accept
        self.invalid_config = ""  # what Create says is wrong with whatever is sent

    def called(self, name: str) -> list[Call]:
        return [call for call in self.calls if call.name == name]

    def fail(self, name: str, *codes: grpc.StatusCode, text: str = "planted") -> None:
        self.troubles[name] = [(code, text) for code in codes]

    def warn(self, context: Any) -> None:
        if self.warning:
            context.set_trailing_metadata((("peloton-warning-bin", self.warning.encode()),))

    def add_job(self, state: str, *tasks: str, **config: Any) -> job.JobInfo:
        info = job.JobInfo()
        info.id.value = JOB
        info.config.name = "hello_world"
        info.config.owningTeam = "examples"
        info.config.instanceCount = len(tasks)
        info.config.MergeFrom(job.JobConfig(**config))
        info.runtime.state = job.JobState.Value(state)
        info.runtime.creationTime = "2026-11-21T05:00:00.123456789Z"
        self.jobs[JOB] = info
        self.tasks[JOB] = {}
        for number, name in enumerate(tasks):
            info.runtime.taskStats[name] += 1
            self.add_task(number, name)
        return info

    def add_task(self, number: int, state: str) -> task.TaskInfo:
        one = self.tasks[JOB][number] = task.TaskInfo(instanceId=number)
        one.jobId.value = JOB
        one.config.name = "hello"
        one.runtime.state = task.TaskState.Value(state)
        one.runtime.healthy = task.HealthState.DISABLED
        one.runtime.mesosTaskId.value = f"{JOB}-{number}-1"
        return one


class Recorder(grpc.ServerInterceptor):
    """Writes calls down and lets those fail that a test named."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = continuation(details)
        name = details.method.rsplit("/", 1)[-1]
        if handler is None:
            return None

        def answer(request: Any, context: grpc.ServicerContext) -> Any:
            metadata = dict(context.invocation_metadata())
            self.cluster.calls.append(Call(name, request, metadata, context.time_remaining()))
            troubles = self.cluster.troubles.get(name)
            if troubles:
                trouble = troubles.pop(0)
                if isinstance(trouble, grpc.Status):
                    context.abort_with_status(trouble)
                context.abort(*trouble)
            method = handler.unary_stream if handler.response_streaming else handler.unary_unary
            return method(request, context)

        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                answer, handler.request_deserializer, handler.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(
            answer, handler.request_deserializer, handler.response_serializer
        )


class Pools(respool_pb2_grpc.ResourceManagerServicer):
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def LookupResourcePoolID(self, request: Any, context: Any) -> respool.LookupResponse:
        answer = respool.LookupResponse()
        found = self.cluster.pools.get(request.path.value)
        if found:
            answer.id.value = found
        else:
            answer.error.notFound.message = "resource pool not found"
        return answer

    def GetResourcePool(self, request: Any, context: Any) -> respool.GetResponse:
        answer = respool.GetResponse()
        answer.poolinfo.id.CopyFrom(request.id)
        for kind, limit in (("cpu", 4.0), ("memory", 8000.0), ("disk", 100.0), ("gpu", 0.0)):
            answer.poolinfo.config.resources.add(kind=kind, limit=limit, reservation=1.0)
        return answer

    def CreateResourcePool(self, request: Any, context: Any) -> respool.CreateResponse:
        answer = respool.CreateResponse()
        path = f"/{request.config.name}"
        if path in self.cluster.pools:
            if self.cluster.invalid_pool:
                answer.error.invalidResourcePoolConfig.message = self.cluster.invalid_pool
            else:
                answer.error.alreadyExists.message = "resource pool exists"
            return answer
        self.cluster.pools[path] = answer.result.value = "new-pool"
        return answer

    def UpdateResourcePool(self, request: Any, context: Any) -> respool.UpdateResponse:
        answer = respool.UpdateResponse()
        if self.cluster.invalid_pool and not request.Force:
            answer.error.invalidResourcePoolConfig.message = self.cluster.invalid_pool
        return answer

    def DeleteResourcePool(self, request: Any, context: Any) -> respool.DeleteResponse:
        answer = respool.DeleteResponse()
        path = request.path.value
        if path in self.cluster.busy:
            answer.error.isBusy.message = "pool has allocation"
        elif self.cluster.pools.pop(path, None) is None:
            answer.error.notFound.message = "resource pool not found"
        return answer

    def Query(self, request: Any, context: Any) -> respool.QueryResponse:
        answer = respool.QueryResponse()
        for path, pool_id in self.cluster.pools.items():
            pool = answer.resourcePools.add()
            pool.id.value, pool.path.value = pool_id, path
            kind = pool.config.resources.add(kind="cpu", reservation=6, limit=12, share=1)
            pool.usage.add(kind=kind.kind, allocation=0.5)
        return answer


class Jobs(job_pb2_grpc.JobManagerServicer):
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def Create(self, request: Any, context: Any) -> job.CreateResponse:
        answer = job.CreateResponse()
        key = self.cluster.calls[-1].metadata.get("peloton-request-key", "")
        wanted = request.id.value or self.cluster.made_by_key.get(key) or self.cluster.next_id
        answer.jobId.value = self.cluster.made_by_key[key] = wanted
        if request.id.value in self.cluster.jobs:
            answer.error.alreadyExists.message = "job exists"
        elif request.config.type == job.DAEMON:
            answer.error.invalidConfig.message = "invalid job type: DAEMON"
        elif self.cluster.invalid_config:
            answer.error.invalidConfig.message = self.cluster.invalid_config
        elif request.id.value == "x":
            answer.error.invalidJobId.message = "JobID must be valid UUID"
        else:
            info = self.cluster.jobs[wanted] = job.JobInfo(config=request.config)
            info.id.value = wanted
            self.cluster.warn(context)
        return answer

    def Get(self, request: Any, context: Any) -> job.GetResponse:
        answer = job.GetResponse()
        info = self.cluster.jobs.get(request.id.value)
        if info is None:
            answer.error.notFound.message = "job not found"
        else:
            answer.jobInfo.CopyFrom(info)
        return answer

    def Update(self, request: Any, context: Any) -> job.UpdateResponse:
        info = self.cluster.jobs.get(request.id.value)
        if info is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "job not found")
        added = request.config.instanceCount - info.config.instanceCount
        if added < 0:
            text = "new instance count can't be less"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        self.cluster.warn(context)
        if not added:
            return job.UpdateResponse()
        return job.UpdateResponse(id=request.id, message=f"added {added} instances")

    def Refresh(self, request: Any, context: Any) -> job.RefreshResponse:
        if request.id.value not in self.cluster.jobs:
            context.abort(grpc.StatusCode.NOT_FOUND, "job not found")
        return job.RefreshResponse()

    def GetCache(self, request: Any, context: Any) -> job.GetCacheResponse:
        info = self.cluster.jobs.get(request.id.value)
        if info is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "Job not found in cache")
        return job.GetCacheResponse(runtime=info.runtime)

    def GetActiveJobs(self, request: Any, context: Any) -> job.GetActiveJobsResponse:
        return job.GetActiveJobsResponse(ids=[{"value": one} for one in self.cluster.jobs])

    def Delete(self, request: Any, context: Any) -> job.DeleteResponse:
        info = self.cluster.jobs.get(request.id.value)
        if info is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "job not found")
        elif info.runtime.state == job.RUNNING:
            text = "Job is not in a terminal state: RUNNING"
            context.abort(grpc.StatusCode.INTERNAL, text)
        return job.DeleteResponse()

    def Query(self, request: Any, context: Any) -> job.QueryResponse:
        answer = job.QueryResponse()
        for info in self.cluster.jobs.values():
            one = answer.results.add(id=info.id, runtime=info.runtime)
            one.name, one.owningTeam = info.config.name, info.config.owningTeam
            one.instanceCount = info.config.instanceCount
        answer.pagination.total = len(answer.results)
        return answer


class Tasks(task_pb2_grpc.TaskManagerServicer):
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def Get(self, request: Any, context: Any) -> task.GetResponse:
        answer = task.GetResponse()
        tasks = self.cluster.tasks.get(request.jobId.value)
        if tasks is None:
            answer.notFound.message = "job not found"
        elif request.instanceId not in tasks:
            answer.outOfRange.instanceCount = len(tasks)
        else:
            answer.result.CopyFrom(tasks[request.instanceId])
        return answer

    def GetCache(self, request: Any, context: Any) -> task.GetCacheResponse:
        one = self.cluster.tasks.get(request.jobId.value, {}).get(request.instanceId)
        if one is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "Task not found in cache")
        return task.GetCacheResponse(runtime=one.runtime)

    def List(self, request: Any, context: Any) -> task.ListResponse:
        answer = task.ListResponse()
        tasks = self.cluster.tasks.get(request.jobId.value)
        if tasks is None:
            answer.notFound.message = "job not found"
            return answer
        first, last = getattr(request.range, "from"), request.range.to
        for number, one in tasks.items():
            if first <= number < last:
                answer.result.value[number].CopyFrom(one)
        return answer

    def Query(self, request: Any, context: Any) -> task.QueryResponse:
        answer = task.QueryResponse()
        states = request.spec.taskStates
        for one in self.cluster.tasks[request.jobId.value].values():
            if not states or one.runtime.state in states:
                answer.records.append(one)
        answer.pagination.total = len(answer.records)
        return answer

    def Stop(self, request: Any, context: Any) -> task.StopResponse:
        answer = task.StopResponse()
        tasks = self.cluster.tasks.get(request.jobId.value)
        if tasks is None:
            answer.error.notFound.message = "job not found"
            return answer
        for number, info in tasks.items():
            chosen: Any = (getattr(one, "from") <= number < one.to for one in request.ranges)
            if info.runtime.state in (task.SUCCEEDED, task.FAILED, task.KILLED, task.LOST):
                chosen = ()
            if not request.ranges or any(chosen):  # as the job is stopped, all are
                answer.stoppedInstanceIds.append(number)
        runtime = self.cluster.jobs[request.jobId.value].runtime
        if not request.ranges:
            runtime.state = job.KILLED
            runtime.taskStats.clear()
            runtime.taskStats["KILLED"] = len(tasks)
        return answer

    def Start(self, request: Any, context: Any) -> task.StartResponse:
        return task.StartResponse(startedInstanceIds=[0, 1])

    def Restart(self, request: Any, context: Any) -> task.RestartResponse:
        return task.RestartResponse()

    def GetPodEvents(self, request: Any, context: Any) -> task.GetPodEventsResponse:
        return task.GetPodEventsResponse(result=self.cluster.events)

    def BrowseSandbox(self, request: Any, context: Any) -> task.BrowseSandboxResponse:
        return self.cluster.sandbox


class Outputs(outputs_pb2_grpc.OutputsServicer):
    """Nothing was printed; it is held so often as a test says."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def ReadOutputs(self, request: Any, context: Any) -> outputs.ReadOutputsResponse:
        return outputs.ReadOutputsResponse()

    def HoldOutputs(self, request: Any, context: Any) -> outputs.HoldOutputsResponse:
        self.cluster.holds_left -= 1
        if not self.cluster.holds_left:
            self.cluster.held_last.set()
        return outputs.HoldOutputsResponse()  # a daemon that has not reached its keeper


class Hosts(host_svc_pb2_grpc.HostServiceServicer):
    """Hosts that are down at once."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def QueryHosts(self, request: Any, context: Any) -> svc.QueryHostsResponse:
        found = [
            one
            for one in self.cluster.host_infos
            if one.state in (request.host_states or [one.state])
        ]
        return svc.QueryHostsResponse(host_infos=found)

    def ListHostPools(self, request: Any, context: Any) -> svc.ListHostPoolsResponse:
        pool = host.HostPoolInfo(name="default", hosts=[one.name for one in self.cluster.hosts])
        return svc.ListHostPoolsResponse(pools=[pool])

    def StartMaintenance(self, request: Any, context: Any) -> svc.StartMaintenanceResponse:
        self._set(request.hostname, host.HOST_STATE_DOWN, context)
        return svc.StartMaintenanceResponse(hostname=request.hostname)

    def CompleteMaintenance(self, request: Any, context: Any) -> svc.CompleteMaintenanceResponse:
        self._set(request.hostname, host.HOST_STATE_UP, context, code=grpc.StatusCode.NOT_FOUND)
        return svc.CompleteMaintenanceResponse(hostname=request.hostname)

    def _set(
        self, name: str, state: host.HostState, context: Any, *, code: Any = grpc.StatusCode.ABORTED
    ) -> None:
        for one in self.cluster.host_infos:
            if one.hostname == name:
                one.state = state
                return
        context.abort(code, "host is not a Peloton agent")


class Ops(ops_pb2_grpc.OpsServicer):
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def Why(self, request: Any, context: Any) -> ops.WhyResponse:
        if request.job_id not in self.cluster.jobs:
            context.abort(grpc.StatusCode.NOT_FOUND, "job not found")
        return ops.WhyResponse(reasons=self.cluster.reasons, counts=self.cluster.counts)

    def WaitJob(self, request: Any, context: Any) -> ops.WaitJobResponse:
        waits = self.cluster.waits
        return waits.pop(0) if len(waits) > 1 else waits[0]

    def Watch(self, request: Any, context: Any) -> Iterator[ops.WatchResponse]:
        for message in self.cluster.streams.pop(0):
            if message is None:
                ended = threading.Event()
                context.add_callback(ended.set)
                ended.wait()
                return
            yield message
        context.abort(grpc.StatusCode.UNAVAILABLE, "this daemon is stopping")

    def Story(self, request: Any, context: Any) -> ops.StoryResponse:
        if request.key == "job/nobody":
            context.abort(grpc.StatusCode.NOT_FOUND, "no such actor: job/nobody")
        line = ops.Line(at=0.5, cause="Started", because="first run", facts=["TaskRunning"])
        return ops.StoryResponse(lines=[line] if request.key == "task/x/7" else [])

    def ListHosts(self, request: Any, context: Any) -> ops.ListHostsResponse:
        return ops.ListHostsResponse(hosts=self.cluster.hosts)

    def PoolHistory(self, request: Any, context: Any) -> ops.PoolHistoryResponse:
        if request.path != self.cluster.pool_history.path:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no such pool: {request.path}")
        return self.cluster.pool_history

    def ListPools(self, request: Any, context: Any) -> ops.ListPoolsResponse:
        answer = ops.ListPoolsResponse()
        for path, pool_id in self.cluster.pools.items():
            pool = answer.pools.add(id=pool_id, path=path)
            kind = pool.kinds.add(kind="cpu", reservation=6, limit=12, share=1, type="ELASTIC")
            kind.demand, kind.allocation = 2.5, 0.5
            kind.entitlement = 9.0
        return answer

    def ShowHost(self, request: Any, context: Any) -> ops.ShowHostResponse:
        found = [host for host in self.cluster.hosts if host.name == request.name]
        if not found:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no such host: {request.name}")
        return ops.ShowHostResponse(host=found[0])

    def ForgetHost(self, request: Any, context: Any) -> ops.ForgetHostResponse:
        found = [host for host in self.cluster.hosts if host.name == request.name]
        if not found:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no such host: {request.name}")
        if found[0].runs and not request.lose_runs:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "it holds runs")
        self.cluster.hosts.remove(found[0])
        return ops.ForgetHostResponse(runs_lost=found[0].runs)

    def ListQuarantine(self, request: Any, context: Any) -> ops.ListQuarantineResponse:
        return ops.ListQuarantineResponse(quarantined=self.cluster.set_aside)

    def Redrive(self, request: Any, context: Any) -> ops.RedriveResponse:
        found = [one for one in self.cluster.set_aside if one.key == request.key]
        if not found:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such dead letter")
        return ops.RedriveResponse()


class Schedules(schedules_pb2_grpc.SchedulesServicer):
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def GetSchedule(self, request: Any, context: Any) -> schedules.GetScheduleResponse:
        info = self.cluster.schedules.get(request.name)
        if info is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such schedule")
        return schedules.GetScheduleResponse(info=info)

    def CheckSchedule(self, request: Any, context: Any) -> schedules.CheckScheduleResponse:
        return schedules.CheckScheduleResponse(moments=[9000.0, 95400.0])


class Plans(plans_pb2_grpc.PlansServicer):
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def PlanJob(self, request: Any, context: Any) -> plans.PlanJobResponse:
        return self.cluster.planned_job

    def PlanPool(self, request: Any, context: Any) -> plans.PlanPoolResponse:
        return self.cluster.planned_pool

    def ExplainPool(self, request: Any, context: Any) -> plans.ExplainPoolResponse:
        if request.path != self.cluster.explained_pool.pool.path:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no such pool: {request.path}")
        return self.cluster.explained_pool


@contextmanager
def held_port() -> Iterator[int]:
    """A port where nobody listens but servers of ours, by turns: nobody else can have it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextmanager
def serving(cluster: Cluster, port: int = 0) -> Iterator[str]:
    """The cluster behind a port of its own; the address."""
    server = grpc.server(ThreadPoolExecutor(4), interceptors=[Recorder(cluster)])
    respool_pb2_grpc.add_ResourceManagerServicer_to_server(Pools(cluster), server)
    job_pb2_grpc.add_JobManagerServicer_to_server(Jobs(cluster), server)
    task_pb2_grpc.add_TaskManagerServicer_to_server(Tasks(cluster), server)
    ops_pb2_grpc.add_OpsServicer_to_server(Ops(cluster), server)
    outputs_pb2_grpc.add_OutputsServicer_to_server(Outputs(cluster), server)
    host_svc_pb2_grpc.add_HostServiceServicer_to_server(Hosts(cluster), server)
    schedules_pb2_grpc.add_SchedulesServicer_to_server(Schedules(cluster), server)
    plans_pb2_grpc.add_PlansServicer_to_server(Plans(cluster), server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        # Till it is over: one that still listens would take the calls to whoever comes after it.
        server.stop(grace=None).wait()
