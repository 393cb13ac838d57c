"""A job as clients of v1alpha see it: its status and its summary."""

from __future__ import annotations

from peloton.actors.job.messages import JobView
from peloton.actors.job.stages import JobGoals
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.gateway.translate.texts import client_name, nanoseconds, rfc3339
from peloton.gateway.translate.translate_job import config_versions
from peloton.gateway.v1alpha.workflow_status import workflow_status

POD_STATE = "POD_STATE_"
GOALS = {
    JobGoals.SUCCEEDED: stateless.JOB_STATE_SUCCEEDED,
    JobGoals.RUNNING: stateless.JOB_STATE_RUNNING,
    JobGoals.KILLED: stateless.JOB_STATE_KILLED,
    JobGoals.DELETED: stateless.JOB_STATE_DELETED,
}


def job_status_of(view: JobView) -> stateless.JobStatus:
    """Return the status of a job; its pods counted by state, and by the version of their config."""
    line = view.summary
    found = stateless.JobStatus(
        revision=peloton_pb2.Revision(
            created_at=nanoseconds(line.created_at), updated_at=nanoseconds(line.updated_at)
        ),
        state=int(line.state),
        creation_time=rfc3339(line.created_at),
        desired_state=GOALS[view.goal],
        version={"value": str(view.version)},
    )
    if view.workflows:
        found.workflow_status.CopyFrom(workflow_status(view, view.workflows[0]))
    for name, count in line.counts:
        found.pod_stats[POD_STATE + name] = count
    for version, count in config_versions(line).items():
        if count:
            found.pod_configuration_version_stats[f"{version}-0-0"] = count
    return found


def stateless_summary(view: JobView) -> stateless.JobSummary:
    """Return the summary of a job in a listing."""
    line, spec = view.summary, view.spec
    found = stateless.JobSummary(
        job_id={"value": client_name(line.job)},
        name=line.name,
        owner=line.owner,
        owning_team=line.owner,
        instance_count=line.instances,
        respool_id={"value": client_name(line.pool)},
        status=job_status_of(view),
        sla=stateless.SlaSpec(
            priority=spec.priority,
            preemptible=spec.preemptible,
            revocable=spec.revocable,
            maximum_unavailable_instances=spec.maximum_unavailable,
        ),
    )
    for key, value in line.labels:
        found.labels.add(key=key, value=value)
    return found
