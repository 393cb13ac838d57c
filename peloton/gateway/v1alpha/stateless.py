"""peloton.api.v1alpha JobService: services, by their entity versions.

Its calls become commands of jobs and queries; calls that are not here are answered by
`unimplemented.py`. The job compares versions, because only it knows its own at the moment of the
change.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from peloton.actors.job.messages import (
    NOT_TERMINAL,
    OTHER_VERSION,
    DeleteJob,
    JobDeleted,
    JobStarted,
    JobStopped,
    StartJob,
    StopJob,
)
from peloton.actors.job.spec import INVALID
from peloton.actors.job.stages import EntityVersion
from peloton.actors.job.workflow.messages import (
    ControlWorkflow,
    RestartJob,
    WorkflowOptions,
    WorkflowOrdered,
    WorkflowOrders,
)
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.gateway.access.guard import CallEnded
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.named_jobs import existing_job, named_job, refuse
from peloton.gateway.cluster.requests import request_of
from peloton.gateway.cluster.rollouts import (
    events_of,
    healthy_s,
    instances_with_events,
    rollouts_of,
    wire_events,
)
from peloton.gateway.server.long_calls import LongCall
from peloton.gateway.translate.stateless_specs import job_spec_of, partial_spec_of, spec_text
from peloton.gateway.translate.texts import canonical, client_name, known_job
from peloton.gateway.translate.translate_job import job_config_of
from peloton.gateway.v0.job_query import BY_ID
from peloton.gateway.v0.job_secrets import (
    SecretsOfCall,
    forget_secrets,
    has_secrets,
    masked,
    secrets_v1,
)
from peloton.gateway.v0.opaque_data import opaque_of
from peloton.gateway.v0.whole_configs import whole_config
from peloton.gateway.v1alpha.pod_query import query_pods, stream_pods
from peloton.gateway.v1alpha.spec_versions import config_at
from peloton.gateway.v1alpha.stateless_create import ServiceCreation
from peloton.gateway.v1alpha.stateless_diff import replace_diff
from peloton.gateway.v1alpha.stateless_patch import patched
from peloton.gateway.v1alpha.stateless_query import query_jobs, stream_jobs
from peloton.gateway.v1alpha.stateless_replace import expecting, replacement
from peloton.gateway.v1alpha.stateless_status import job_status_of, stateless_summary
from peloton.gateway.v1alpha.workflow_status import workflow_info
from peloton.runtime.core.reading.filters import AMONG, Where
from peloton.runtime.core.reading.listing import ListViews, SortOrder
from peloton.runtime.vocabulary import Message, Refused

UNEXPECTED = Refused(OTHER_VERSION, "unexpected entity version")
WRONG = (Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED, Code.NOT_FOUND)
"""Refusals of what a request says, which depend on no version of the job."""
NAMED_JOBS_MAX = 1000
"""Jobs of one name in an answer, the newest ones."""
VERSION_PART_MAX = 2**64
_VERSION = re.compile(r"([0-9]{1,20})-([0-9]{1,20})-([0-9]{1,20})", re.ASCII)


class StatelessJobs:
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(self, cluster_client: ClusterClient) -> None:
        self._cluster_client = cluster_client

    def CreateJob(self, sent: svc.CreateJobRequest, context: Context) -> Any:
        """Create a service; see `stateless_create`."""
        return ServiceCreation(self._cluster_client, sent, context=context).answer()

    def ReplaceJob(self, sent: svc.ReplaceJobRequest, context: Context) -> Any:
        """Give a service another spec, a batch of pods at a time, if the job has this version."""
        if canonical(sent.job_id.value) is None:
            end(context, Code.INVALID_ARGUMENT, text="JobID must be of UUID format")
        view = existing_job(self._cluster_client, sent.job_id.value, context=context)
        secrets = SecretsOfCall(self._cluster_client, context)
        with self._version_first(sent, context):
            command = replacement(
                self._cluster_client, sent, view=view, context=context, secrets=secrets
            )
        answer = self._changed(
            sent,
            context,
            command=lambda expected: expecting(command, expected),
            spec=sent.spec,
            secrets=secrets,
        )
        assert isinstance(answer, WorkflowOrdered), answer
        return svc.ReplaceJobResponse(version={"value": str(answer.version)})

    def PatchJob(self, sent: svc.PatchJobRequest, context: Context) -> Any:
        """Change some fields of the spec of a service, as `ReplaceJob` with the others as they
        are."""
        if canonical(sent.job_id.value) is None:
            end(context, Code.INVALID_ARGUMENT, text="JobID must be of UUID format")
        view = existing_job(self._cluster_client, sent.job_id.value, context=context)
        # Of another version than the expected one, it is refused by the job.
        known = job_spec_of(whole_config(self._cluster_client, view, context=context))
        replace = svc.ReplaceJobRequest(
            job_id=sent.job_id,
            version=sent.version,
            spec=patched(known, sent.spec),
            secrets=sent.secrets,
            update_spec=sent.update_spec,
            opaque_data=sent.opaque_data,
        )
        return svc.PatchJobResponse(version=self.ReplaceJob(replace, context).version)

    def GetReplaceJobDiff(self, sent: svc.GetReplaceJobDiffRequest, context: Context) -> Any:
        """Return what `ReplaceJob` would do to which pods, if the job has this version."""
        if canonical(sent.job_id.value) is None:
            end(context, Code.INVALID_ARGUMENT, text="JobID must be of UUID format")
        view = existing_job(self._cluster_client, sent.job_id.value, context=context)
        if sent.version.value != str(view.version):
            end(context, Code.ABORTED, text=UNEXPECTED)
        return replace_diff(self._cluster_client, sent.spec, view=view, context=context)

    def StartJob(self, sent: svc.StartJobRequest, context: Context) -> Any:
        """Begin new runs of all stopped instances, if the job has this version."""
        answer = self._changed(sent, context, command=lambda expected: StartJob(expected))
        assert isinstance(answer, JobStarted), answer
        return svc.StartJobResponse(version={"value": str(answer.version)})

    def StopJob(self, sent: svc.StopJobRequest, context: Context) -> Any:
        """End all instances, if the job has this version."""
        answer = self._changed(sent, context, command=lambda expected: StopJob(expected=expected))
        assert isinstance(answer, JobStopped), answer
        if answer.version is None:  # of a batch job, whose version nobody compares
            view = self._cluster_client.job(named_job(sent.job_id.value, context), context)
            version = "" if view is None else str(view.version)
        else:
            version = str(answer.version)
        return svc.StopJobResponse(version={"value": version})

    def DeleteJob(self, sent: svc.DeleteJobRequest, context: Context) -> Any:
        """Delete the job, if it has this version, and has ended or `force` is set."""
        key = named_job(sent.job_id.value, context)
        had_secrets = has_secrets(self._cluster_client, key, context=context)
        answer = self._changed(
            sent, context, command=lambda expected: DeleteJob(sent.force, expected)
        )
        assert isinstance(answer, JobDeleted), answer
        if had_secrets:
            forget_secrets(self._cluster_client, key)
        return svc.DeleteJobResponse()

    def RestartJob(self, sent: svc.RestartJobRequest, context: Context) -> Any:
        """Begin new runs of instances, a batch at a time, if the job has this version."""
        spec = sent.restart_spec
        ranges = tuple((getattr(one, "from"), one.to) for one in spec.ranges)
        options = WorkflowOptions(
            batch=spec.batch_size, in_place=spec.in_place, healthy_s=healthy_s(spec)
        )
        with self._version_first(sent, context):
            opaque = opaque_of(sent, context)
        answer = self._changed(
            sent,
            context,
            command=lambda expected: RestartJob(ranges, options, expected, opaque),
        )
        assert isinstance(answer, WorkflowOrdered), answer
        return svc.RestartJobResponse(version={"value": str(answer.version)})

    def PauseJobWorkflow(self, sent: svc.PauseJobWorkflowRequest, context: Context) -> Any:
        """Stop updating further instances until it is resumed."""
        version = self._controlled(sent, context, order=WorkflowOrders.PAUSE)
        return svc.PauseJobWorkflowResponse(version={"value": version})

    def ResumeJobWorkflow(self, sent: svc.ResumeJobWorkflowRequest, context: Context) -> Any:
        """Go on as before the pause."""
        version = self._controlled(sent, context, order=WorkflowOrders.RESUME)
        return svc.ResumeJobWorkflowResponse(version={"value": version})

    def AbortJobWorkflow(self, sent: svc.AbortJobWorkflowRequest, context: Context) -> Any:
        """Stop updating further instances; keep those already updated."""
        version = self._controlled(sent, context, order=WorkflowOrders.ABORT)
        return svc.AbortJobWorkflowResponse(version={"value": version})

    def ListJobWorkflows(self, sent: svc.ListJobWorkflowsRequest, context: Context) -> Any:
        """Return the workflows of a job that are kept, the newest first; at most
        `updates_limit`."""
        if not sent.job_id.value:
            end(context, Code.INVALID_ARGUMENT, text="no job id provided")
        view = existing_job(self._cluster_client, sent.job_id.value, context=context)
        some = view.workflows[: sent.updates_limit] if sent.updates_limit else view.workflows
        if not some:
            return svc.ListJobWorkflowsResponse()
        rollouts = rollouts_of(self._cluster_client, view, context=context)
        infos = [workflow_info(view, one, rollouts=rollouts) for one in some]
        if sent.instance_events:
            limit = sent.instance_events_limit
            for info, one in zip(infos, some, strict=True):
                for instance in instances_with_events(rollouts, one):
                    events = wire_events(
                        one, events_of(rollouts, one, instance=instance), limit=limit
                    )
                    info.instance_events.add(instance_id=instance, events=events)
        return svc.ListJobWorkflowsResponse(workflow_infos=infos)

    def GetWorkflowEvents(self, sent: svc.GetWorkflowEventsRequest, context: Context) -> Any:
        """Return what the last workflow did to one instance, the newest first; at most `limit`."""
        if canonical(sent.job_id.value) is None:
            end(context, Code.INVALID_ARGUMENT, text="job ID must be of UUID format")
        view = existing_job(self._cluster_client, sent.job_id.value, context=context)
        if not view.workflows:
            end(context, Code.UNAVAILABLE, text="job runtime does not have workflow")
        one, instance = view.workflows[0], sent.instance_id
        rollouts = rollouts_of(self._cluster_client, view, context=context, instance=instance)
        events = wire_events(one, events_of(rollouts, one, instance=instance), limit=sent.limit)
        return svc.GetWorkflowEventsResponse(events=events)

    def _controlled(self, sent: Any, context: Context, *, order: WorkflowOrders) -> str:
        with self._version_first(sent, context):
            opaque = opaque_of(sent, context)
        answer = self._changed(
            sent,
            context,
            command=lambda expected: ControlWorkflow(order, expected, opaque=opaque),
        )
        assert isinstance(answer, WorkflowOrdered), answer
        return str(answer.version)

    def RefreshJob(self, sent: svc.RefreshJobRequest, context: Context) -> Any:
        """Only whether it exists: nothing is cached that could be stale, and goals are resent."""
        existing_job(self._cluster_client, sent.job_id.value, context=context)
        return svc.RefreshJobResponse()

    def GetJob(self, sent: svc.GetJobRequest, context: Context) -> Any:
        """Return a job: its summary alone, its spec of one version alone, or spec and status."""
        asked = _version_of(sent.version.value)
        if sent.version.value and asked is None:
            end(context, Code.INVALID_ARGUMENT, text="entityVersion has wrong format")
        view = existing_job(self._cluster_client, sent.job_id.value, context=context)
        if sent.summary_only:
            return svc.GetJobResponse(summary=stateless_summary(view))
        version = view.spec.config_version if asked is None else asked.config
        config = config_at(self._cluster_client, view, version=version, context=context)
        info = stateless.JobInfo(
            job_id={"value": client_name(view.summary.job)}, spec=job_spec_of(config)
        )
        if asked is not None:
            return svc.GetJobResponse(job_info=info)
        info.status.CopyFrom(job_status_of(view))
        found = svc.GetJobResponse(job_info=info, secrets=secrets_v1(view))
        if view.workflows:
            rollouts = rollouts_of(self._cluster_client, view, context=context)
            found.workflow_info.CopyFrom(workflow_info(view, view.workflows[0], rollouts=rollouts))
            current = found.workflow_info.status.instances_current
            info.status.workflow_status.instances_current.extend(current)
            found.job_info.status.CopyFrom(info.status)
        return found

    def GetJobCache(self, sent: svc.GetJobCacheRequest, context: Context) -> Any:
        """Return the status of a job, and the parts of its spec that the original keeps in
        memory."""
        view = self._cluster_client.job(known_job(sent.job_id.value), context)
        if view is None:
            end(context, Code.NOT_FOUND, text="job not found in cache")
        spec = partial_spec_of(job_config_of(view))
        return svc.GetJobCacheResponse(spec=spec, status=job_status_of(view))

    def QueryJobs(self, sent: svc.QueryJobsRequest, context: Context) -> Any:
        """Return the jobs that match; see `stateless_query`."""
        return query_jobs(self._cluster_client, sent, context=context)

    def QueryPods(self, sent: svc.QueryPodsRequest, context: Context) -> Any:
        """Return the pods of a job that match; see `pod_query`."""
        return query_pods(self._cluster_client, sent, context=context)

    async def ListPods(self, sent: svc.ListPodsRequest, call: LongCall) -> None:
        """Stream the pods of a job; see `pod_query`."""
        await stream_pods(self._cluster_client, sent, call=call)

    async def ListJobs(self, sent: svc.ListJobsRequest, call: LongCall) -> None:
        """Stream every job; see `stateless_query`."""
        await stream_jobs(self._cluster_client, call)

    def GetJobIDFromJobName(self, sent: svc.GetJobIDFromJobNameRequest, context: Context) -> Any:
        """Return the jobs of exactly that name, the newest first."""
        rights = self._cluster_client.rights(context)
        tests = (
            Where("name", AMONG, words=(sent.job_name,)),
            *(rights.listing if rights is not None else ()),
        )
        order = (SortOrder("created_at", down=True), BY_ID)
        query = ListViews("job", tests, order, limit=NAMED_JOBS_MAX)
        found = self._cluster_client.listing(query, context)
        if not found.items:
            text = f'job id for job name not found: "{sent.job_name}"'
            end(context, Code.NOT_FOUND, text=text)
        ids = [{"value": client_name(line.job)} for line in found.items]
        return svc.GetJobIDFromJobNameResponse(job_id=ids)

    @contextlib.contextmanager
    def _version_first(self, sent: Any, context: Context) -> Iterator[None]:
        """Answer a wrong version first, whatever else is wrong with the request.

        A right version is not compared here: the job recognises a repeat that missed its answer by
        it.
        """
        try:
            yield
        except CallEnded as error:
            if error.code in WRONG:
                view = existing_job(self._cluster_client, sent.job_id.value, context=context)
                if sent.version.value != str(view.version):
                    end(context, Code.ABORTED, text=UNEXPECTED)
            raise

    def _changed(
        self,
        sent: Any,
        context: Context,
        *,
        command: Callable[[EntityVersion], Message],
        spec: stateless.JobSpec | None = None,
        secrets: SecretsOfCall | None = None,
    ) -> Any:
        """Return the answer to a command that only a client that knows the job's version may give.

        `spec`: in whose terms fields are named in a refusal. `secrets`: stored before the command.
        """
        key, expected = named_job(sent.job_id.value, context), _version_of(sent.version.value)
        if expected is None:
            # No job has such a version; whether there is the job decides what is answered.
            existing_job(self._cluster_client, sent.job_id.value, context=context)
            end(context, Code.ABORTED, text=UNEXPECTED)
        # A repeat under the same key gets the answer it missed: by now the version is another.
        client = self._cluster_client
        request = request_of(masked(sent, client.secrets), context)
        if secrets is not None:
            secrets.store()
        answer = self._cluster_client.ask(key, command(expected), context=context, request=request)
        if not isinstance(answer, Refused):
            return answer
        if secrets is not None:
            secrets.withdraw()
        if spec is not None and answer.code == INVALID:
            text = spec_text(f"{answer.field}: {answer.text}", spec)
            end(context, Code.INVALID_ARGUMENT, text=f"invalid job spec: {text}")
        return _refuse(context, answer)


def _version_of(text: str) -> EntityVersion | None:
    """Return the version that a client names; None if no job can have it."""
    found = _VERSION.fullmatch(text)
    if found is None:
        return None
    parts = [int(part) for part in found.groups()]
    version = EntityVersion(*parts)
    # Leading zeros are another text, and texts are compared.
    return version if max(parts) < VERSION_PART_MAX and str(version) == text else None


def _refuse(context: Context, refused: Refused) -> NoReturn:
    if refused.code == OTHER_VERSION:
        end(context, Code.ABORTED, text=UNEXPECTED)
    if refused.code == NOT_TERMINAL:
        end(context, Code.ABORTED, text=Refused(NOT_TERMINAL, "job is not stopped"))
    refuse(context, refused)
