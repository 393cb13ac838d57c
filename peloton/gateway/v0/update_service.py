"""peloton.api.v0 UpdateService: workflows of services, for clients that know configs of v0.

Calls become commands of jobs. An update is named by its job and its number there. What only the job
can know at the moment of the change is checked by the job.
"""

from __future__ import annotations

from typing import Any

from peloton.actors.job.messages import OTHER_VERSION, JobView
from peloton.actors.job.stages import JobStates
from peloton.actors.job.workflow.messages import (
    OTHER_CONFIG,
    ControlWorkflow,
    ReplaceJob,
    WorkflowOptions,
    WorkflowOrdered,
    WorkflowOrders,
    WorkflowView,
)
from peloton.actors.respool.messages import pool_key
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.update import update_pb2
from peloton.api.v0.update.svc import update_svc_pb2 as svc
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.named_jobs import existing_job, refuse
from peloton.gateway.cluster.requests import request_of
from peloton.gateway.cluster.rollouts import healthy_s, members, remaining, rollouts_of
from peloton.gateway.translate.texts import canonical, client_name, job_of_update
from peloton.gateway.v0.config_specs import spec_wanted
from peloton.gateway.v0.opaque_data import opaque_of
from peloton.runtime.vocabulary import Refused

UPDATE_NOT_FOUND = "update not found"
NO_UPDATE_ID = "no update ID provided"


def update_name(view: JobView, workflow: WorkflowView) -> str:
    """Return the id of an update, as clients know it: that of its job, and its number there."""
    return f"{client_name(view.summary.job)}-{workflow.number}"


class UpdateService:
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(self, cluster_client: ClusterClient) -> None:
        self._cluster_client = cluster_client

    def CreateUpdate(self, sent: svc.CreateUpdateRequest, context: Context) -> Any:
        """Give a service another config, a batch of instances at a time."""
        if canonical(sent.jobId.value) is None:
            end(context, Code.INVALID_ARGUMENT, text="JobID must be of UUID format")
        view = existing_job(self._cluster_client, sent.jobId.value, context=context)
        wrong = _not_updatable(view, sent.jobConfig)
        if wrong is not None:
            end(context, wrong[0], text=wrong[1])
        config = job.JobConfig()
        config.CopyFrom(sent.jobConfig)
        version = config.changeLog.version
        if not version:  # of the command it would be one that is not compared
            end(context, Code.INVALID_ARGUMENT, text=Refused(OTHER_VERSION, OTHER_CONFIG))
        config.ClearField("changeLog")
        if not config.respoolID.value:
            config.respoolID.value = client_name(view.spec.pool)
        secrets = view.spec.default.secrets  # such a request has none of its own
        wanted = spec_wanted(self._cluster_client, config, context=context, secrets=secrets)
        command = ReplaceJob(
            wanted.spec,
            tuple(wanted.pieces.items()),
            options_of(sent.updateConfig),
            config=version,
            opaque=opaque_of(sent, context),
        )
        request = request_of(sent, context)
        key = view.summary.job
        answer = self._cluster_client.ask(key, command, context=context, request=request)
        if not isinstance(answer, WorkflowOrdered):
            assert isinstance(answer, Refused), answer
            refuse(context, answer)
        update_id = f"{client_name(key)}-{answer.number}"
        return svc.CreateUpdateResponse(updateID={"value": update_id})

    def GetUpdate(self, sent: svc.GetUpdateRequest, context: Context) -> Any:
        """Return one update: its config, and how far it is; with `statusOnly` only that."""
        view, workflow = self._known(sent.updateId.value, context)
        found = _info(view, workflow)
        if sent.statusOnly:
            found = update_pb2.UpdateInfo(updateId=found.updateId, status=found.status)
        return svc.GetUpdateResponse(updateInfo=found)

    def GetUpdateCache(self, sent: svc.GetUpdateCacheRequest, context: Context) -> Any:
        """Return the instances of an update by how far they are; of one that is not the last,
        none."""
        view, workflow = self._known(sent.updateId.value, context)
        rollouts = rollouts_of(self._cluster_client, view, context=context)
        sets = {
            name: members(rollouts, workflow, name=name)
            for name in ("waiting", "current", "done", "failed", "added", "updated")
        }
        every = (*sets["waiting"], *sets["current"], *sets["done"], *sets["failed"])
        return svc.GetUpdateCacheResponse(
            jobId={"value": client_name(view.summary.job)},
            state=int(workflow.state),
            instancesTotal=sorted(every),
            instancesDone=sets["done"],
            instancesCurrent=sets["current"],
            instancesAdded=sets["added"],
            instancesUpdated=sets["updated"],
            instancesFailed=sets["failed"],
        )

    def ListUpdates(self, sent: svc.ListUpdatesRequest, context: Context) -> Any:
        """Return the updates of a job that are kept, the newest first; at most `limit`, 0 for
        all."""
        if not sent.jobID.value:
            end(context, Code.INVALID_ARGUMENT, text="no job ID provided")
        view = existing_job(self._cluster_client, sent.jobID.value, context=context)
        some = view.workflows[: sent.limit] if sent.limit > 0 else view.workflows
        return svc.ListUpdatesResponse(updateInfo=[_info(view, one) for one in some])

    def PauseUpdate(self, sent: svc.PauseUpdateRequest, context: Context) -> Any:
        """Stop updating further instances until it is resumed."""
        self._control(sent, context, order=WorkflowOrders.PAUSE)
        return svc.PauseUpdateResponse()

    def ResumeUpdate(self, sent: svc.ResumeUpdateRequest, context: Context) -> Any:
        """Go on as before the pause."""
        self._control(sent, context, order=WorkflowOrders.RESUME)
        return svc.ResumeUpdateResponse()

    def AbortUpdate(self, sent: svc.AbortUpdateRequest, context: Context) -> Any:
        """Stop updating further instances; keep those already updated."""
        self._control(sent, context, order=WorkflowOrders.ABORT)
        return svc.AbortUpdateResponse()

    def RollbackUpdate(self, sent: svc.RollbackUpdateRequest, context: Context) -> Any:
        """Give the instances the configs before the update, a batch at a time."""
        self._control(sent, context, order=WorkflowOrders.ROLL_BACK)
        return svc.RollbackUpdateResponse()

    def _control(self, sent: Any, context: Context, *, order: WorkflowOrders) -> None:
        view, workflow = self._known(sent.updateId.value, context)
        opaque = "" if order == WorkflowOrders.ROLL_BACK else opaque_of(sent, context)
        command = ControlWorkflow(order, number=workflow.number, opaque=opaque)
        key, request = view.summary.job, request_of(sent, context)
        answer = self._cluster_client.ask(key, command, context=context, request=request)
        if isinstance(answer, Refused):
            refuse(context, answer)

    def _known(self, update_id: str, context: Context) -> tuple[JobView, WorkflowView]:
        if not update_id:
            end(context, Code.INVALID_ARGUMENT, text=NO_UPDATE_ID)
        job_id = job_of_update(update_id)
        if not job_id:
            end(context, Code.NOT_FOUND, text=UPDATE_NOT_FOUND)
        view = existing_job(self._cluster_client, job_id, context=context)
        named = update_id.lower()  # ids of jobs are known in either case
        found = [one for one in view.workflows if update_name(view, one) == named]
        if not found:
            end(context, Code.NOT_FOUND, text=UPDATE_NOT_FOUND)
        return view, found[0]


def _not_updatable(view: JobView, config: job.JobConfig) -> tuple[Code, str] | None:
    """Return why the job cannot have this config, as far as that cannot change during the call."""
    pool = config.respoolID.value
    wrong = (
        (not view.spec.is_service, "job must be of type service"),
        (not config.HasField("changeLog"), "missing changelog in job configuration"),
        (_type_of(config) != view.spec.job_type, "job type is immutable"),
        (
            bool(pool) and pool_key(pool) != view.spec.pool,
            "resource pool identifier is immutable",
        ),
    )
    for broken, text in wrong:
        if broken:
            return Code.INVALID_ARGUMENT, text
    if view.summary.state == JobStates.INITIALIZED:
        return Code.UNAVAILABLE, "cannot update partially created job"
    return None


def _type_of(config: job.JobConfig) -> str:
    known = job.JobType.DESCRIPTOR.values_by_number.get(config.type)
    return known.name if known is not None else ""


def options_of(config: update_pb2.UpdateConfig) -> WorkflowOptions:
    """Return how the client wants the update done."""
    return WorkflowOptions(
        batch=config.batchSize,
        max_attempts=config.maxInstanceAttempts,
        tolerated=config.maxFailureInstances,
        back=config.rollbackOnFailure,
        paused=config.startPaused,
        starts=config.startTasks,
        in_place=config.inPlace,
        healthy_s=healthy_s(config, "minHealthySeconds"),
    )


def _info(view: JobView, workflow: WorkflowView) -> update_pb2.UpdateInfo:
    options = workflow.options
    return update_pb2.UpdateInfo(
        updateId={"value": update_name(view, workflow)},
        jobId={"value": client_name(view.summary.job)},
        config=update_pb2.UpdateConfig(
            batchSize=options.batch,
            startPaused=options.paused,
            rollbackOnFailure=options.back,
            maxInstanceAttempts=options.max_attempts,
            maxFailureInstances=options.tolerated,
            startTasks=options.starts,
            inPlace=options.in_place,
            minHealthySeconds=int(options.healthy_s),
        ),
        status=update_pb2.UpdateStatus(
            numTasksDone=workflow.done,
            numTasksRemaining=remaining(view, workflow),
            numTasksFailed=workflow.failed,
            state=int(workflow.state),
        ),
        configVersion=workflow.version,
        prevConfigVersion=workflow.previous_version,
        opaque_data={"data": workflow.opaque},
    )
