"""peloton.api.v0.job.JobManager: jobs.

Each call reads the job again, so that no answer is older than the call. Calls that are not here are
answered by `unimplemented.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peloton.actors.job.messages import OTHER_VERSION, DeleteJob, GetJob, JobSummary, JobView
from peloton.actors.job.workflow.messages import (
    OTHER_CONFIG,
    RestartJob,
    WorkflowOptions,
    WorkflowOrdered,
)
from peloton.actors.job.workflow.messages import WorkflowTypes as Types
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.errors import errors_pb2 as errors
from peloton.api.v0.job import job_pb2 as job
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.named_jobs import NOT_FOUND, existing_job, named_job, refuse
from peloton.gateway.cluster.requests import request_of
from peloton.gateway.cluster.rollouts import healthy_s
from peloton.gateway.server.calls import Later
from peloton.gateway.translate.texts import client_name, known_job
from peloton.gateway.translate.translate_job import job_info_of, runtime_of, summary_of
from peloton.gateway.v0.archived_jobs import includes_archived, with_archived
from peloton.gateway.v0.job_create import Creation
from peloton.gateway.v0.job_query import ACTIVE, BY_ID, BadQuery, list_query, page_of_jobs
from peloton.gateway.v0.job_secrets import forget_secrets, has_secrets, secrets_v0
from peloton.gateway.v0.job_update import JobUpdate
from peloton.gateway.v0.whole_configs import whole_config
from peloton.runtime.core.reading.listing import ListViews
from peloton.runtime.vocabulary import Key, Refused

LAST_ANSWERS_MAX, LAST_BYTES_MAX = 1024, 16 * 1024
"""How many answers of Get are kept in their encoded form, and up to which size."""


class JobManager:
    """The calls of the service; one method for each, named as on the wire."""

    at_once = {"Create": "create_at_once", "Get": "get_at_once", "Query": "query_at_once"}

    def __init__(self, cluster_client: ClusterClient) -> None:
        self._cluster_client = cluster_client
        self._last: dict[Key, tuple[JobView, bytes]] = {}  # the encoded answers last given

    def Create(self, sent: job.CreateRequest, context: Context) -> Any:
        """Create a job; see `job_create`."""
        return Creation(self._cluster_client, sent, context=context).answer()

    def create_at_once(self, sent: job.CreateRequest, context: Context) -> bytes | Later | None:
        """Answer `Create` if only the job has to be waited for; else return None."""
        if sent.files or sent.HasField("filesOf"):  # files are written
            return None
        return Creation(self._cluster_client, sent, context=context).at_once()

    def Get(self, sent: job.GetRequest, context: Context) -> Any:
        """Return a job with its config, the instances' own included, and its runtime."""
        view = self._cluster_client.job(known_job(sent.id.value), context)
        if view is None:
            # Not `notFound`: the original sends that only where the config alone is missing.
            unread = errors.JobGetRuntimeFail(id=sent.id, message=NOT_FOUND)
            return job.GetResponse(error=job.GetResponse.Error(getRuntimeFail=unread))
        info = job_info_of(view)
        if view.spec.own_configs:
            whole = whole_config(self._cluster_client, view, context=context)
            info.config.CopyFrom(whole)
        return job.GetResponse(jobInfo=info, secrets=secrets_v0(view))

    def get_at_once(self, sent: job.GetRequest, context: Context) -> bytes | None:
        """Return the encoded answer of `Get` if nothing has to be waited for; else None."""
        key = known_job(sent.id.value)
        view = self._cluster_client.cluster.read(key, GetJob()) if key is not None else None
        if not isinstance(view, JobView) or view.spec.own_configs:
            return None
        last = self._last.get(view.summary.job)
        # A job is read much more often than it changes, by everybody who waits for it.
        if last is not None and last[0] == view:
            return last[1]
        found = job.GetResponse(jobInfo=job_info_of(view), secrets=secrets_v0(view))
        data = bytes(found.SerializeToString())
        if len(data) <= LAST_BYTES_MAX:
            self._last[view.summary.job] = view, data
            if len(self._last) > LAST_ANSWERS_MAX:
                del self._last[next(iter(self._last))]
        return data

    def Query(self, sent: job.QueryRequest, context: Context) -> Any:
        """Return the jobs that match; see `job_query`."""
        if not sent.HasField("spec"):
            return job.QueryResponse()
        try:
            rights = self._cluster_client.rights(context)
            query = list_query(sent, now_s=self._cluster_client.execution.now(), rights=rights)
            found = self._cluster_client.listing(query, context)
            if includes_archived(query):
                found = with_archived(self._cluster_client, query, found=found, context=context)
            pages = sent.spec.pagination
            lines, pagination = page_of_jobs(found.items, pages, matched=found.matched)
        except BadQuery as error:
            wrong = job.QueryResponse.Error(err=errors.UnknownError(message=str(error)))
            return job.QueryResponse(error=wrong)
        records = [] if sent.summaryOnly else self._records(lines, context)
        return job.QueryResponse(
            results=[summary_of(line) for line in lines],
            records=records,
            pagination=pagination,
            spec=sent.spec,
        )

    def query_at_once(self, sent: job.QueryRequest, context: Context) -> bytes | None:
        """Return the encoded answer of `Query` for few summaries that are all here; else None."""
        # Texts that are searched may be long, and are put together first.
        if not sent.summaryOnly or not sent.HasField("spec") or sent.spec.keywords:
            return None
        try:
            rights = self._cluster_client.rights(context)
            query = list_query(sent, now_s=self._cluster_client.execution.now(), rights=rights)
            if includes_archived(query):
                return None  # to read the archive takes long
            found = self._cluster_client.listing_at_once(query)
            if found is None:
                return None
            pages = sent.spec.pagination
            lines, pagination = page_of_jobs(found.items, pages, matched=found.matched)
        except BadQuery:
            return None  # `Query` answers what is wrong
        results = [summary_of(line) for line in lines]
        answer = job.QueryResponse(results=results, pagination=pagination, spec=sent.spec)
        return bytes(answer.SerializeToString())

    def Delete(self, sent: job.DeleteRequest, context: Context) -> Any:
        """Delete a job that has ended."""
        key = named_job(sent.id.value, context)
        had_secrets = has_secrets(self._cluster_client, key, context=context)
        request = request_of(sent, context)
        answer = self._cluster_client.ask(key, DeleteJob(), context=context, request=request)
        if isinstance(answer, Refused):
            code = Code.NOT_FOUND if answer.code == "NOT_FOUND" else Code.INTERNAL
            end(context, code, text=answer)
        if had_secrets:
            forget_secrets(self._cluster_client, key)
        return job.DeleteResponse()

    def Update(self, sent: job.UpdateRequest, context: Context) -> Any:
        """Add instances to a job; see `job_update`."""
        return JobUpdate(self._cluster_client, sent, context=context).answer()

    def Refresh(self, sent: job.RefreshRequest, context: Context) -> Any:
        """Only whether it exists: nothing is cached that could be stale, and goals are resent."""
        existing_job(self._cluster_client, sent.id.value, context=context)
        return job.RefreshResponse()

    def Restart(self, sent: job.RestartRequest, context: Context) -> Any:
        """Begin new runs of instances of a service, a batch at a time."""
        how = sent.restartConfig
        return job.RestartResponse(**self._roll(sent, how, context=context, kind=Types.RESTART))

    def Start(self, sent: job.StartRequest, context: Context) -> Any:
        """Begin new runs of stopped instances of a service, a batch at a time."""
        how = sent.startConfig
        return job.StartResponse(**self._roll(sent, how, context=context, kind=Types.START))

    def Stop(self, sent: job.StopRequest, context: Context) -> Any:
        """End instances of a service, a batch at a time."""
        how = sent.stopConfig
        return job.StopResponse(**self._roll(sent, how, context=context, kind=Types.STOP))

    def GetActiveJobs(self, sent: job.GetActiveJobsRequest, context: Context) -> Any:
        """Return the ids of all jobs that have not ended."""
        rights = self._cluster_client.rights(context)
        tests = (ACTIVE, *(rights.listing if rights is not None else ()))
        found = self._cluster_client.listing(
            ListViews("job", tests, (BY_ID,), ranked=True), context
        )
        ids = [peloton_pb2.JobID(value=client_name(line.job)) for line in found.items]
        return job.GetActiveJobsResponse(ids=ids)

    def GetCache(self, sent: job.GetCacheRequest, context: Context) -> Any:
        """Return the runtime of a job, and the parts of its config that the original keeps in
        memory."""
        view = self._cluster_client.job(known_job(sent.id.value), context)
        if view is None:
            end(context, Code.NOT_FOUND, text="Job not found in cache")
        info = job_info_of(view)
        kept = job.JobConfig(type=info.config.type, instanceCount=info.config.instanceCount)
        for field in ("changeLog", "sla", "respoolID"):
            if info.config.HasField(field):
                getattr(kept, field).CopyFrom(getattr(info.config, field))
        return job.GetCacheResponse(config=kept, runtime=info.runtime)

    def _records(self, lines: Sequence[JobSummary], context: Context) -> list[job.JobInfo]:
        found = []
        views = self._cluster_client.each(((line.job, GetJob()) for line in lines), context)
        for line, view in zip(lines, views, strict=True):
            if isinstance(view, JobView):
                found.append(job_info_of(view))
            else:
                # Deleted between the listing and now: the line is still what was listed.
                job_id = peloton_pb2.JobID(value=client_name(line.job))
                found.append(job.JobInfo(id=job_id, runtime=runtime_of(line)))
        return found

    def _roll(self, sent: Any, how: Any, *, context: Context, kind: Types) -> dict[str, Any]:
        """Begin a workflow of a service; the fields of the answer."""
        view = existing_job(self._cluster_client, sent.id.value, context=context)
        if not view.spec.is_service:
            text = f"{kind.name} supported only for service jobs"
            end(context, Code.INVALID_ARGUMENT, text=text)
        if not sent.resourceVersion:
            end(context, Code.INVALID_ARGUMENT, text=Refused(OTHER_VERSION, OTHER_CONFIG))
        steady_s = 0.0 if kind is Types.STOP else healthy_s(how, "minHealthySeconds")
        options = WorkflowOptions(batch=how.batchSize, healthy_s=steady_s)
        ranges = tuple((getattr(one, "from"), one.to) for one in sent.ranges)
        command = RestartJob(ranges, options, kind=kind, config=sent.resourceVersion)
        key, request = view.summary.job, request_of(sent, context)
        answer = self._cluster_client.ask(key, command, context=context, request=request)
        if not isinstance(answer, WorkflowOrdered):
            assert isinstance(answer, Refused), answer
            refuse(context, answer)
        update_id = f"{client_name(key)}-{answer.number}"
        return {"resourceVersion": answer.version.config, "updateID": {"value": update_id}}
