"""Tasks, the instances of a job: get, list, query, start, stop, restart, events, sandbox.

A range is a pair of instance numbers, the second one excluded; no range means all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.query import query_pb2 as query
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v0.task import task_pb2_grpc
from peloton.sdk import sandbox, translate
from peloton.sdk.errors import NotFound, OutOfRange, ServerError, ServiceUnavailable
from peloton.sdk.jobs import number_of
from peloton.sdk.ops import Silence
from peloton.sdk.wire import ONCE, RpcName, Wire, keyed

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


class TaskCalls:
    """The calls about the instances of one job."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def get(self, job: str, instance: int) -> task.GetResponse:
        """Return the instance as it is (`result`) and every run it had (`results`)."""
        request = task.GetRequest(jobId=job_id(job), instanceId=instance)
        return translate.inside(self._wire.call(method("Get"), request), fields=BESIDE)

    def cache(self, job: str, instance: int) -> task.GetCacheResponse:
        """Return the runtime and the labels of an instance."""
        request = task.GetCacheRequest(jobId=job_id(job), instanceId=instance)
        answer: task.GetCacheResponse = self._wire.call(method("GetCache"), request)
        return answer

    def list(self, job: str, *, only: Range = EVERY_INSTANCE) -> task.ListResponse:
        request = task.ListRequest(jobId=job_id(job), range=range_of(only))
        return translate.inside(self._wire.call(method("List"), request), fields=("notFound",))

    def query(self, job: str, wanted: TaskQuery) -> task.QueryResponse:
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
        return translate.inside(self._wire.call(method("Query"), request))

    def start(self, job: str, ranges: Sequence[Range] = ()) -> task.StartResponse:
        """Begin new runs of stopped instances; others are left as they are."""
        request = task.StartRequest(jobId=job_id(job), ranges=map(range_of, ranges))
        return translate.inside(self._wire.call(method("Start"), request, how=ONCE))

    def stop(self, job: str, ranges: Sequence[Range] = ()) -> task.StopResponse:
        """Stop instances; without ranges the job itself, not only its instances of this moment."""
        request = task.StopRequest(jobId=job_id(job), ranges=map(range_of, ranges))
        return translate.inside(self._wire.call(method("Stop"), request, how=keyed(None)))

    def restart(
        self, job: str, ranges: Sequence[Range] = (), *, request_key: str | None = None
    ) -> task.RestartResponse:
        """Begin new runs with fresh attempts; instances that run are killed first.

        Without a key the call is sent once: a repeat would restart them twice.
        """
        how = ONCE if request_key is None else keyed(request_key)
        request = task.RestartRequest(jobId=job_id(job), ranges=map(range_of, ranges))
        answer = self._wire.call(method("Restart"), request, how=how)
        return translate.inside(answer, fields=BESIDE)

    def refresh(self, job: str, only: Range = EVERY_INSTANCE) -> task.RefreshResponse:
        """Whether there are such instances: there is nothing to refresh."""
        request = task.RefreshRequest(jobId=job_id(job), range=range_of(only))
        answer: task.RefreshResponse = self._wire.call(method("Refresh"), request)
        return answer

    def events(
        self, job: str, instance: int, *, run: str = "", runs_max: int = 0
    ) -> task.GetPodEventsResponse:
        """Return the events of the instance, newest run first. 0 leaves the limit to the server."""
        request = task.GetPodEventsRequest(
            jobId=job_id(job), instanceId=instance, limit=runs_max, runId=run
        )
        return translate.inside(self._wire.call(method("GetPodEvents"), request))

    def browse(self, job: str, instance: int, *, run: str = "") -> task.BrowseSandboxResponse:
        """Return where the files of a run are; of the current run if none is named."""
        request = task.BrowseSandboxRequest(jobId=job_id(job), instanceId=instance, taskId=run)
        try:
            return translate.inside(self._wire.call(method("BrowseSandbox"), request))
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

    def logs(
        self, job: str, instance: int, *, run: str = "", filename: str = "stdout"
    ) -> Iterator[bytes]:
        """Yield the bytes of one file of the sandbox, piece by piece."""
        file = self._file(job, instance, run=run, filename=filename)
        return sandbox.download(file, timeout_s=self._wire.timeout_s)

    def outputs(
        self, job: str, instance: int, *, filenames: Sequence[str] = ("stdout", "stderr")
    ) -> dict[str, Iterator[bytes]]:
        """Return the bytes of several files of the newest run; files that do not exist are left
        out."""
        found = self.browse(job, instance)
        paths = {path.rsplit("/", 1)[-1]: path for path in found.paths}
        files = {
            name: sandbox.File(found.hostname, found.port, paths[name])
            for name in filenames
            if name in paths
        }
        return {
            name: sandbox.download(file, timeout_s=self._wire.timeout_s)
            for name, file in files.items()
        }

    def follow(
        self, job: str, instance: int, *, run: str = "", filename: str = "stdout",
        pause_s: float = FOLLOW_PAUSE_S,
    ) -> Iterator[bytes]:  # fmt: skip
        """Yield the bytes of a file, and what is added to it until the run has ended.

        Asks again every `pause_s`. Waits for the run to begin, and for the file to be made: a run
        that goes on may yet make it.
        """
        silence, start, run_id, job = Silence(None), 0, run, self._wire.job_id(job, False)
        while True:
            asked_s, over = time.monotonic(), True
            try:
                if not run_id:
                    run_id = self._begun(job, instance)
                # Checked first: what is read after the end is then complete.
                over = bool(run_id) and self._is_over(job, instance, run=run_id)
                if run_id:
                    file = self._file(job, instance, run=run_id, filename=filename)
                    for piece in sandbox.download(
                        file, timeout_s=self._wire.timeout_s, start=start
                    ):
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
            time.sleep(pause_s)

    def _begun(self, job: str, instance: int) -> str:
        """Return the id of the run that has files; empty while there is none to come."""
        runtime = self.get(job, instance).result.runtime
        if not runtime.host and runtime.state not in OVER:
            return ""
        return str(runtime.mesosTaskId.value)

    def _is_over(self, job: str, instance: int, *, run: str) -> bool:
        """Return whether nothing is added any more: the run has ended, or another one has begun."""
        runtime = self.get(job, instance).result.runtime
        return runtime.mesosTaskId.value != run or runtime.state in OVER

    def _file(self, job: str, instance: int, *, run: str, filename: str) -> sandbox.File:
        found = self.browse(job, instance, run=run)
        return sandbox.file_named(filename, found.paths, host=found.hostname, port=found.port)
