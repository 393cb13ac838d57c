"""Tasks, the instances of a job: get, list, query, start, stop, restart, events, sandbox.

A range is a pair of instance numbers, the second one excluded; no range means all.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.query import query_pb2 as query
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v0.task import task_pb2_grpc
from peloton.sdk import sandbox, translate
from peloton.sdk.calls import Calls, M, call, stream
from peloton.sdk.errors import NotFound, OutOfRange, ServerError, ServiceUnavailable
from peloton.sdk.jobs import number_of
from peloton.sdk.ops import Silence
from peloton.sdk.rpc import RpcName, keyed

INSTANCE_MAX = 2**31 - 1
EVERY_INSTANCE = (0, INSTANCE_MAX)
Range = tuple[int, int]
# How often a followed file is polled.
FOLLOW_PAUSE_S = 0.5
OVER = (task.SUCCEEDED, task.FAILED, task.KILLED, task.LOST, task.DELETED)
# These two answers carry their errors beside the result, not in an `error` of their own.
BESIDE = ("notFound", "outOfRange")


class TaskQuery(NamedTuple):
    """Which instances of a job, and in which order. Empty fields do not filter."""

    states: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    page: tuple[int, int] = (0, 100)
    sort: tuple[str, ...] = ()
    order: str = "ASC"


def method(name: str) -> RpcName:
    return RpcName("jobmgr", task_pb2_grpc.TaskManagerStub, name)


def job_id(value: str) -> peloton_pb2.JobID:
    return peloton_pb2.JobID(value=value)


def range_of(pair: Range) -> task.InstanceRange:
    # `from` is a keyword of Python.
    return task.InstanceRange(**{"from": pair[0], "to": pair[1]})


class TaskCalls(Calls[M]):
    """The calls about the instances of one job."""

    @call
    async def get(self, job: str, instance: int) -> task.GetResponse:
        """Return the instance as it is (`result`) and every run it had (`results`)."""
        request = task.GetRequest(jobId=job_id(job), instanceId=instance)
        return translate.inside(await self._wire.call(method("Get"), request), fields=BESIDE)

    @call
    async def cache(self, job: str, instance: int) -> task.GetCacheResponse:
        """Return the runtime and the labels of an instance."""
        request = task.GetCacheRequest(jobId=job_id(job), instanceId=instance)
        answer: task.GetCacheResponse = await self._wire.call(method("GetCache"), request)
        return answer

    @call
    async def list(self, job: str, *, only: Range = EVERY_INSTANCE) -> task.ListResponse:
        request = task.ListRequest(jobId=job_id(job), range=range_of(only))
        return translate.inside(
            await self._wire.call(method("List"), request), fields=("notFound",)
        )

    @call
    async def query(self, job: str, wanted: TaskQuery) -> task.QueryResponse:
        order = number_of(query.OrderBy.Order, wanted.order, what="order")
        by = [
            query.OrderBy(order=order, property=query.PropertyPath(value=name))
            for name in wanted.sort
        ]
        offset, limit = wanted.page
        spec = task.QuerySpec(
            pagination=query.PaginationSpec(offset=offset, limit=limit, orderBy=by),
            taskStates=[
                number_of(task.TaskState, name, what="task state") for name in wanted.states
            ],
            names=wanted.names,
            hosts=wanted.hosts,
        )
        request = task.QueryRequest(jobId=job_id(job), spec=spec)
        return translate.inside(await self._wire.call(method("Query"), request))

    @call
    async def start(
        self, job: str, ranges: Sequence[Range] = (), *, request_key: str | None = None
    ) -> task.StartResponse:
        """Begin new runs of stopped instances; others are left as they are."""
        request = task.StartRequest(jobId=job_id(job), ranges=map(range_of, ranges))
        return translate.inside(
            await self._wire.call(method("Start"), request, how=keyed(request_key))
        )

    @call
    async def stop(
        self, job: str, ranges: Sequence[Range] = (), *, request_key: str | None = None
    ) -> task.StopResponse:
        """Stop instances; without ranges the job itself, not only its instances of this moment."""
        request = task.StopRequest(jobId=job_id(job), ranges=map(range_of, ranges))
        return translate.inside(
            await self._wire.call(method("Stop"), request, how=keyed(request_key))
        )

    @call
    async def restart(
        self, job: str, ranges: Sequence[Range] = (), *, request_key: str | None = None
    ) -> task.RestartResponse:
        """Begin new runs with fresh attempts; instances that run are killed first."""
        request = task.RestartRequest(jobId=job_id(job), ranges=map(range_of, ranges))
        answer = await self._wire.call(method("Restart"), request, how=keyed(request_key))
        return translate.inside(answer, fields=BESIDE)

    @call
    async def refresh(self, job: str, only: Range = EVERY_INSTANCE) -> task.RefreshResponse:
        """Whether there are such instances: there is nothing to refresh."""
        request = task.RefreshRequest(jobId=job_id(job), range=range_of(only))
        answer: task.RefreshResponse = await self._wire.call(method("Refresh"), request)
        return answer

    @call
    async def events(
        self, job: str, instance: int, *, run: str = "", runs_max: int = 0
    ) -> task.GetPodEventsResponse:
        """Return the events of the instance, newest run first. 0 leaves the limit to the server."""
        request = task.GetPodEventsRequest(
            jobId=job_id(job), instanceId=instance, limit=runs_max, runId=run
        )
        return translate.inside(await self._wire.call(method("GetPodEvents"), request))

    @call
    async def browse(self, job: str, instance: int, *, run: str = "") -> task.BrowseSandboxResponse:
        """Return where the files of a run are; of the current run if none is named."""
        request = task.BrowseSandboxRequest(jobId=job_id(job), instanceId=instance, taskId=run)
        try:
            return translate.inside(await self._wire.call(method("BrowseSandbox"), request))
        except OutOfRange as error:
            if not run or instance >= error.instance_count:
                raise
            # The contract has one name for both.
            text = f"instance {instance} of job {job} has no run {run!r}; `task get` lists its runs"
            raise NotFound(text, kind="noSuchRun") from None
        except ServerError as error:
            if error.kind != "failure":
                raise
            raise NotFound(str(error), kind=sandbox.REMOVED) from None

    @stream
    async def logs(
        self, job: str, instance: int, *, run: str = "", filename: str = "stdout"
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of one file of the sandbox, piece by piece."""
        file = await self._file(job, instance, run=run, filename=filename)
        async with aclosing(self._wire.download(file)) as pieces:
            async for piece in pieces:
                yield piece

    @stream
    async def follow(
        self, job: str, instance: int, *, run: str = "", filename: str = "stdout",
        pause_s: float = FOLLOW_PAUSE_S,
    ) -> AsyncGenerator[bytes, None]:  # fmt: skip
        """Yield the bytes of a file, and what is added to it until the run has ended.

        Asks again every `pause_s`. Waits for the run to begin, and for the file to be made: a run
        that goes on may yet make it.
        """
        silence, start, run_id, job = (
            Silence(None, self._wire.now),
            0,
            run,
            await self._wire.job_id(job, changes=False),
        )
        while True:
            asked_s, over = self._wire.now(), True
            try:
                if not run_id:
                    run_id = await self._begun(job, instance)
                # Checked first: what is read after the end is then complete.
                over = bool(run_id) and await self._is_over(job, instance, run=run_id)
                if run_id:
                    file = await self._file(job, instance, run=run_id, filename=filename)
                    async with aclosing(self._wire.download(file, start=start)) as pieces:
                        async for piece in pieces:
                            start += len(piece)
                            yield piece
                silence.is_over()
            except NotFound:
                # Before its run is over, only the file can be what is not there.
                if over:
                    raise
                silence.is_over()
            except ServiceUnavailable as error:
                silence.goes_on(asked_s, error)
                over = False
            if over:
                return
            await self._wire.sleep(pause_s)

    async def _begun(self, job: str, instance: int) -> str:
        """Return the id of the run that has files; empty while there is none to come."""
        runtime = (await self.get(job, instance)).result.runtime
        if not runtime.host and runtime.state not in OVER:
            return ""
        return str(runtime.mesosTaskId.value)

    async def _is_over(self, job: str, instance: int, *, run: str) -> bool:
        """Return whether nothing is added any more: the run has ended, or another one has begun."""
        runtime = (await self.get(job, instance)).result.runtime
        return runtime.mesosTaskId.value != run or runtime.state in OVER

    async def _file(self, job: str, instance: int, *, run: str, filename: str) -> sandbox.File:
        found = await self.browse(job, instance, run=run)
        return sandbox.file_named(filename, found.paths, host=found.hostname, port=found.port)
