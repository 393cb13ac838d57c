"""peloton.api.v0.task.TaskManager: the instances of jobs.

Commands go to the job, queries to its slices. Calls that are not here are answered by
`unimplemented.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from peloton.actors.job.messages import (
    InstancesOrdered,
    JobStopped,
    JobView,
)
from peloton.api.v0.errors import errors_pb2 as errors
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.files_anywhere import FilesAnywhere
from peloton.gateway.cluster.instances import Instances
from peloton.gateway.cluster.named_jobs import NOT_FOUND, refuse
from peloton.gateway.cluster.run_files import NoFiles, files_of
from peloton.gateway.translate.actor_keys import parse_number
from peloton.gateway.translate.texts import client_name, known_job
from peloton.gateway.v0.job_query import BadQuery
from peloton.gateway.v0.task_query import TaskListing
from peloton.runtime.vocabulary import Bits, Refused

RUNS_DEFAULT = 10
INVALID_MAX = 1000
"""Instances in an answer that the job does not have; a range may name four billion."""


class TaskManager:
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(
        self, cluster_client: ClusterClient, sandboxes: FilesAnywhere, *, images_run: bool = False
    ) -> None:
        self._cluster_client = cluster_client
        self._sandboxes = sandboxes
        self._instances = Instances(cluster_client, images_run=images_run)

    def Get(self, sent: task.GetRequest, context: Context) -> Any:
        """Return one instance: as it is, and every run it had."""
        job = self._job(sent, context)
        if job is None:
            return task.GetResponse(notFound=_missing(sent))
        view = self._instances.one(job, sent.instanceId, context=context)
        if view is None:
            return task.GetResponse(outOfRange=_outside(sent, job))
        now = self._instances.now(job, view, context=context)
        past = self._instances.runs(job, view)[1:]
        return task.GetResponse(result=now, results=[now, *past])

    def GetCache(self, sent: task.GetCacheRequest, context: Context) -> Any:
        """Return the runtime and the labels of one instance."""
        job = self._job(sent, context)
        if job is None:
            end(context, Code.NOT_FOUND, text="Job not found in cache")
        view = self._instances.one(job, sent.instanceId, context=context)
        if view is None:
            end(context, Code.NOT_FOUND, text="Task not found in cache")
        (info,) = self._instances.infos(job, [view], context=context)
        return task.GetCacheResponse(runtime=info.runtime, labels=info.config.labels)

    def List(self, sent: task.ListRequest, context: Context) -> Any:
        """Return the instances in a range, all by default, with the reasons of those that wait."""
        job = self._job(sent, context)
        if job is None:
            return task.ListResponse(notFound=_missing(sent))
        start, stop = 0, None
        if sent.HasField("range"):
            start, stop = getattr(sent.range, "from"), sent.range.to
        views = list(self._cluster_client.instances(job, start, context=context, stop=stop))
        answer = task.ListResponse(result=task.ListResponse.Result())
        for info in self._instances.infos(job, views, context=context):
            answer.result.value[info.instanceId].CopyFrom(info)
        return answer

    def Query(self, sent: task.QueryRequest, context: Context) -> Any:
        """Return the instances that match; see `task_query`."""
        Error = task.QueryResponse.Error
        job = self._job(sent, context)
        if job is None:
            return task.QueryResponse(error=Error(notFound=_missing(sent)))
        try:
            page = TaskListing(self._cluster_client, job, context=context).page(sent.spec)
        except BadQuery as error:
            # The only error that the answer has a field for; the original sends it for all.
            wrong = errors.JobNotFound(id=sent.jobId, message=str(error))
            return task.QueryResponse(error=Error(notFound=wrong))
        infos = self._instances.infos(job, page.views, context=context)
        return task.QueryResponse(records=infos, pagination=page.pagination)

    def Stop(self, sent: task.StopRequest, context: Context) -> Any:
        """End instances; without ranges, the job."""
        Error = task.StopResponse.Error
        key = known_job(sent.jobId.value)
        if key is None:
            return task.StopResponse(error=Error(notFound=_missing(sent)))
        ranges = _ranges_of(sent)
        job = self._cluster_client.job(key, context)
        # Read before the command: after it, instances that never ran have ended by this very call.
        ended = Bits()
        if job is not None and not _is_whole(ranges, job):
            ended = self._instances.ended(job, context)
        answer = self._instances.stop(key, ranges, ended=ended, sent=sent, context=context)
        if not isinstance(answer, JobStopped):
            return task.StopResponse(error=Error(notFound=_missing(sent)))
        # From the answer, not from the read above: a repeated request gets the first answer, with
        # what had ended then.
        over = frozenset(answer.ended)
        in_ranges = self._numbers(job, answer.ranges, context=context)
        stopped = [instance for instance in in_ranges if instance not in over]
        invalid = _invalid(ranges, job.spec.instances) if job is not None else []
        return task.StopResponse(stoppedInstanceIds=stopped, invalidInstanceIds=invalid)

    def Start(self, sent: task.StartRequest, context: Context) -> Any:
        """Begin new runs of stopped instances; without ranges, of all of them."""
        job = self._job(sent, context)
        if job is None:
            error = task.StartResponse.Error(notFound=_missing(sent))
            return task.StartResponse(error=error)
        answer = self._order(sent, again=False, context=context)
        if not isinstance(answer, InstancesOrdered):
            return refuse(context, answer)
        started = self._numbers(job, answer.ranges, context=context)
        invalid = _invalid(_ranges_of(sent), job.spec.instances)
        return task.StartResponse(startedInstanceIds=started, invalidInstanceIds=invalid)

    def Restart(self, sent: task.RestartRequest, context: Context) -> Any:
        """Begin new runs of instances that were not stopped; without ranges, of all.

        Those that run are killed first.
        """
        answer = self._order(sent, again=True, context=context)
        return (
            task.RestartResponse()
            if isinstance(answer, InstancesOrdered)
            else refuse(context, answer)
        )

    def Refresh(self, sent: task.RefreshRequest, context: Context) -> Any:
        """Only whether they exist: nothing is cached that could be stale, and goals are resent."""
        job = self._job(sent, context)
        if job is None:
            end(context, Code.NOT_FOUND, text=NOT_FOUND)
        start, stop = getattr(sent.range, "from"), sent.range.to
        if sent.HasField("range") and start >= min(stop, job.spec.instances):
            end(context, Code.NOT_FOUND, text="tasks not found")
        return task.RefreshResponse()

    def GetPodEvents(self, sent: task.GetPodEventsRequest, context: Context) -> Any:
        """Return the events of the newest runs of an instance; of an unknown one, nothing."""
        job = self._job(sent, context)
        view = (
            self._instances.one(job, sent.instanceId, context=context) if job is not None else None
        )
        if job is None or view is None:
            return task.GetPodEventsResponse()
        only = None
        if sent.runId:
            only = _run_number(sent.runId)
            if only is None:
                text = f"{sent.runId!r} names no run"
                end(context, Code.INVALID_ARGUMENT, text=text, field="runId")
        runs_max = sent.limit or RUNS_DEFAULT
        found = self._instances.events(job, view, runs_max=runs_max, only=only)
        return task.GetPodEventsResponse(result=found)

    def DeletePodEvents(self, sent: task.DeletePodEventsRequest, context: Context) -> Any:
        """Hide the events until now of the runs 1 to `runId`."""
        job = self._job(sent, context)
        if job is None or sent.instanceId >= job.spec.instances:
            end(context, Code.NOT_FOUND, text=NOT_FOUND if job is None else "no such instance")
        if sent.runId:
            runs = (sent.runId, False)
            answer = self._instances.drop_events(
                job, sent.instanceId, runs=runs, sent=sent, context=context
            )
            if isinstance(answer, Refused):
                end(context, Code.FAILED_PRECONDITION, text=answer)
        return task.DeletePodEventsResponse()

    def BrowseSandbox(self, sent: task.BrowseSandboxRequest, context: Context) -> Any:
        """Return where the files of a run are, to be fetched over HTTP."""
        Error = task.BrowseSandboxResponse.Error
        job = self._job(sent, context)
        if job is None:
            return task.BrowseSandboxResponse(error=Error(notFound=_missing(sent)))
        view = self._instances.one(job, sent.instanceId, context=context)
        if view is None:
            return task.BrowseSandboxResponse(error=Error(outOfRange=_outside(sent, job)))
        runs = self._instances.runs(job, view)
        job_id = client_name(job.summary.job)
        found = files_of(self._sandboxes, job_id, view=view, runs=runs, named=sent.taskId)
        if found.missing is NoFiles.NO_RUN:
            return task.BrowseSandboxResponse(error=Error(outOfRange=_outside(sent, job)))
        if found.missing is NoFiles.NOT_RUN:
            # The second half is the original's, and known to its clients.
            text = f"{found.text}; taskinfo does not have hostname or agentID"
            error = Error(notRunning=task.TaskNotRunning(message=text))
            return task.BrowseSandboxResponse(error=error)
        if found.missing is not None:
            failure = task.BrowseSandboxFailure(message=found.text)
            return task.BrowseSandboxResponse(error=Error(failure=failure))
        return task.BrowseSandboxResponse(
            hostname=found.hostname,
            port=found.port,
            paths=found.paths,
            mesosMasterHostname=found.manager[0],
            mesosMasterPort=found.manager[1],
        )

    # ---- inside ----

    def _order(
        self, sent: task.StartRequest | task.RestartRequest, *, again: bool, context: Context
    ) -> Any:
        key = known_job(sent.jobId.value)
        if key is None:
            return Refused("NOT_FOUND", NOT_FOUND, "jobId")
        return self._instances.start(key, _ranges_of(sent), again=again, sent=sent, context=context)

    def _numbers(
        self, job: JobView | None, ranges: Iterable[tuple[int, int]], *, context: Context
    ) -> list[int]:
        """Return the instances in these ranges that exist."""
        every = [range(start, stop) for start, stop in ranges]
        if job is None or not (job.spec.is_daemon or job.unadded):
            return [one for some in every for one in some]
        views = self._cluster_client.instances(job, context=context)
        return [view.instance for view in views if any(view.instance in some for some in every)]

    def _job(self, sent: Any, context: Context) -> JobView | None:
        return self._cluster_client.job(known_job(sent.jobId.value), context)


def _missing(sent: Any) -> errors.JobNotFound:
    return errors.JobNotFound(id=sent.jobId, message=NOT_FOUND)


def _outside(sent: Any, job: JobView) -> task.InstanceIdOutOfRange:
    return task.InstanceIdOutOfRange(jobId=sent.jobId, instanceCount=job.spec.instances)


def _ranges_of(sent: Any) -> tuple[tuple[int, int], ...]:
    return tuple((getattr(one, "from"), one.to) for one in sent.ranges)


def _is_whole(ranges: Sequence[tuple[int, int]], job: JobView) -> bool:
    """Return whether the job as a whole is meant: no range, or one that covers all its
    instances."""
    if len(ranges) > 1:
        return False
    return all(start == 0 and stop >= job.spec.instances for start, stop in ranges)


def _invalid(ranges: Sequence[tuple[int, int]], instances: int) -> list[int]:
    """Return the first instances of ranges in which the job has none.

    A range that only ends beyond the last instance is not wrong: clients name "all" so.
    """
    found: dict[int, None] = {}
    for start, stop in ranges:
        if start >= instances:
            found.update(dict.fromkeys(range(start, min(stop, start + INVALID_MAX))))
        if len(found) >= INVALID_MAX:
            break
    return [*found][:INVALID_MAX]


def _run_number(text: str) -> int | None:
    """Return the number of a run that is named by it, or by its whole id."""
    return parse_number(text.rpartition("-")[2])
