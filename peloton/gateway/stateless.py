"""peloton.api.v1alpha JobService: services, by their entity versions.

Turns its calls into commands of jobs. Serves what needs no spec in the form of v1alpha; other calls
are answered by `unimplemented.py`. It must not compare versions itself: only the job knows its own
at the moment of the change.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

from peloton.actors.job.decide import NOT_TERMINAL
from peloton.actors.job.entity_version import EntityVersion
from peloton.actors.job.messages import (
    ControlWorkflow,
    DeleteJob,
    JobDeleted,
    JobStarted,
    JobStopped,
    RestartJob,
    StartJob,
    StopJob,
    WorkflowOrdered,
)
from peloton.actors.job.orders import OTHER_VERSION
from peloton.actors.job.workflow.messages import WorkflowOptions, WorkflowOrders
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.gateway.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.job_query import BY_ID
from peloton.gateway.named_jobs import existing_job, named_job, refresh, refuse
from peloton.gateway.requests import request_of
from peloton.gateway.stateless_status import stateless_summary
from peloton.gateway.texts import client_name
from peloton.gateway.workflow_status import workflow_info
from peloton.runtime.core.listing import AMONG, ListViews, SortOrder, Where
from peloton.runtime.vocabulary import Message, Refused

UNEXPECTED = "unexpected entity version"
NAMED_JOBS_MAX = 1000
"""Jobs of one name in an answer, the newest ones."""
VERSION_PART_MAX = 2**64
_VERSION = re.compile(r"([0-9]{1,20})-([0-9]{1,20})-([0-9]{1,20})", re.ASCII)


class StatelessJobs:
    """The calls; one method for each, named as on the wire."""

    def __init__(self, cluster_client: ClusterClient) -> None:
        self._cluster_client = cluster_client

    def StartJob(self, sent: svc.StartJobRequest, context: Context) -> Any:
        """All instances that were stopped begin new runs, if the job has this version."""
        answer = self._changed(sent, context, command=lambda expected: StartJob(expected))
        assert isinstance(answer, JobStarted), answer
        return svc.StartJobResponse(version={"value": str(answer.version)})

    def StopJob(self, sent: svc.StopJobRequest, context: Context) -> Any:
        """All instances end, if the job has this version."""
        answer = self._changed(sent, context, command=lambda expected: StopJob(expected=expected))
        assert isinstance(answer, JobStopped), answer
        if answer.version is None:  # of a batch job, whose version nobody compares
            view = self._cluster_client.job(named_job(sent.job_id.value, context), context)
            version = "" if view is None else str(view.version)
        else:
            version = str(answer.version)
        return svc.StopJobResponse(version={"value": version})

    def DeleteJob(self, sent: svc.DeleteJobRequest, context: Context) -> Any:
        """The job vanishes, if it has this version, and has ended or `force` is set."""
        answer = self._changed(
            sent, context, command=lambda expected: DeleteJob(sent.force, expected)
        )
        assert isinstance(answer, JobDeleted), answer
        return svc.DeleteJobResponse()

    def RestartJob(self, sent: svc.RestartJobRequest, context: Context) -> Any:
        """New runs of instances, a batch at a time, if the job has this version."""
        spec = sent.restart_spec
        if spec.in_place:
            text = "in-place restart is not supported yet: a run goes to whichever host has room"
            end(context, Code.UNIMPLEMENTED, text=text, field="restart_spec.in_place")
        ranges = tuple((getattr(one, "from"), one.to) for one in spec.ranges)
        options = WorkflowOptions(batch=spec.batch_size)
        answer = self._changed(
            sent,
            context,
            command=lambda expected: RestartJob(ranges, options, expected, sent.opaque_data.data),
        )
        assert isinstance(answer, WorkflowOrdered), answer
        return svc.RestartJobResponse(version={"value": str(answer.version)})

    def PauseJobWorkflow(self, sent: svc.PauseJobWorkflowRequest, context: Context) -> Any:
        """Begin with no more instances until it is resumed."""
        version = self._controlled(sent, context, order=WorkflowOrders.PAUSE)
        return svc.PauseJobWorkflowResponse(version={"value": version})

    def ResumeJobWorkflow(self, sent: svc.ResumeJobWorkflowRequest, context: Context) -> Any:
        """Go on as before the pause."""
        version = self._controlled(sent, context, order=WorkflowOrders.RESUME)
        return svc.ResumeJobWorkflowResponse(version={"value": version})

    def AbortJobWorkflow(self, sent: svc.AbortJobWorkflowRequest, context: Context) -> Any:
        """Begin with no more instances; what was changed stays so."""
        version = self._controlled(sent, context, order=WorkflowOrders.ABORT)
        return svc.AbortJobWorkflowResponse(version={"value": version})

    def ListJobWorkflows(self, sent: svc.ListJobWorkflowsRequest, context: Context) -> Any:
        """The workflows of a job that are kept, the newest first; at most `updates_limit`."""
        if not sent.job_id.value:
            end(context, Code.INVALID_ARGUMENT, text="no job id provided")
        if sent.instance_events:
            text = "events of single instances are not kept yet: list without instance_events"
            end(context, Code.UNIMPLEMENTED, text=text, field="instance_events")
        view = existing_job(self._cluster_client, sent.job_id.value, context=context)
        some = view.workflows[: sent.updates_limit] if sent.updates_limit else view.workflows
        infos = [workflow_info(view, one) for one in some]
        return svc.ListJobWorkflowsResponse(workflow_infos=infos)

    def _controlled(self, sent: Any, context: Context, *, order: WorkflowOrders) -> str:
        opaque = sent.opaque_data.data
        answer = self._changed(
            sent,
            context,
            command=lambda expected: ControlWorkflow(order, expected, opaque=opaque),
        )
        assert isinstance(answer, WorkflowOrdered), answer
        return str(answer.version)

    def RefreshJob(self, sent: svc.RefreshJobRequest, context: Context) -> Any:
        """The job looks at its goal again; nothing is cached that could be stale."""
        refresh(self._cluster_client, sent.job_id.value, context=context)
        return svc.RefreshJobResponse()

    def GetJob(self, sent: svc.GetJobRequest, context: Context) -> Any:
        """The summary of a job."""
        text = sent.version.value
        if text and _version_of(text) is None:
            end(context, Code.INVALID_ARGUMENT, text="entityVersion has wrong format")
        view = existing_job(self._cluster_client, sent.job_id.value, context=context)
        if text or not sent.summary_only:
            text = "GetJob without summary_only is not supported yet: specs have no form of v1alpha"
            end(context, Code.UNIMPLEMENTED, text=text)
        return svc.GetJobResponse(summary=stateless_summary(view))

    def GetJobIDFromJobName(self, sent: svc.GetJobIDFromJobNameRequest, context: Context) -> Any:
        """The jobs of exactly that name, the newest first."""
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

    def _changed(
        self, sent: Any, context: Context, *, command: Callable[[EntityVersion], Message]
    ) -> Any:
        """The answer to a command that only who knows the job's version may give."""
        key, expected = named_job(sent.job_id.value, context), _version_of(sent.version.value)
        if expected is None:
            # No job has such a version; whether there is the job decides what is answered.
            existing_job(self._cluster_client, sent.job_id.value, context=context)
            end(context, Code.ABORTED, text=UNEXPECTED)
        # A repeat under the same key gets the answer it missed: by now the version is another.
        request = request_of(sent, context)
        answer = self._cluster_client.ask(key, command(expected), context=context, request=request)
        return _refuse(context, answer) if isinstance(answer, Refused) else answer


def _version_of(text: str) -> EntityVersion | None:
    """The version that a client names; None where no job can have it."""
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
        end(context, Code.ABORTED, text="job is not stopped")
    refuse(context, refused)
