"""Workflows as clients of v1alpha see them: their status, and all that is kept of one."""

from __future__ import annotations

from peloton.actors.job.messages import JobView
from peloton.actors.job.workflow.messages import WorkflowTypes, WorkflowView
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.gateway.cluster.rollouts import Rollouts, add_instances, remaining, wire_events
from peloton.gateway.translate.texts import rfc3339


def workflow_status(view: JobView, workflow: WorkflowView) -> stateless.WorkflowStatus:
    """Return how far a workflow is.

    Its versions are those of the config, with the goal and workflow of now.
    """
    version = view.version
    rest = f"{version.goal}-{version.workflow}"
    return stateless.WorkflowStatus(
        type=int(workflow.kind),
        state=int(workflow.state),
        prev_state=int(workflow.previous),
        num_instances_completed=workflow.done,
        num_instances_remaining=remaining(view, workflow),
        num_instances_failed=workflow.failed,
        version={"value": f"{workflow.version}-{rest}"},
        prev_version={"value": f"{workflow.previous_version}-{rest}"},
        creation_time=rfc3339(workflow.created_at),
        update_time=rfc3339(workflow.updated_at),
        completion_time=rfc3339(workflow.completed_at or None),
    )


def workflow_info(
    view: JobView, workflow: WorkflowView, *, rollouts: Rollouts
) -> stateless.WorkflowInfo:
    """Return all that is kept of a workflow, its events the newest first."""
    found = stateless.WorkflowInfo(
        status=workflow_status(view, workflow), opaque_data={"data": workflow.opaque}
    )
    options = workflow.options
    if workflow.kind != WorkflowTypes.UPDATE:  # it knows no START and STOP
        found.restart_spec.batch_size = options.batch
        found.restart_spec.in_place = options.in_place
        found.restart_spec.min_healthy_seconds = int(options.healthy_s)
        for start, stop in workflow.ranges:
            # Closed, as all ranges in answers; those in requests are half-open.
            found.restart_spec.ranges.add(to=stop - 1, **{"from": start})
    else:
        found.update_spec.CopyFrom(
            stateless.UpdateSpec(
                batch_size=options.batch,
                rollback_on_failure=options.back,
                max_instance_retries=options.max_attempts,
                max_tolerable_instance_failures=options.tolerated,
                start_paused=options.paused,
                in_place=options.in_place,
                min_healthy_seconds=int(options.healthy_s),
            )
        )
    found.events.extend(wire_events(workflow, [*reversed(workflow.events)]))
    add_instances(found, workflow, rollouts=rollouts)
    return found
