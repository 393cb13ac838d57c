"""What workflows do to which instances: asked of a job's slices, as ranges, lists and events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from peloton.actors.job.messages import JobView
from peloton.actors.job.slice.messages import slice_key
from peloton.actors.job.slice.rollout_messages import GetRollout, RolloutView, StepStates
from peloton.actors.job.workflow.messages import HEALTHY_S, WorkflowStates, WorkflowView
from peloton.actors.task.messages import SLICE_SIZE
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.gateway.cluster.cluster_client import ClusterClient, Context
from peloton.gateway.translate.texts import client_name, rfc3339

Event = tuple[WorkflowStates, float]
Rollouts = tuple[RolloutView, ...]
_STATES = {
    StepStates.DONE: WorkflowStates.SUCCEEDED,
    StepStates.FAILED: WorkflowStates.FAILED,
}


def rollouts_of(
    cluster_client: ClusterClient, view: JobView, *, context: Context, instance: int | None = None
) -> Rollouts:
    """Return the last rollout of each slice, by its number; or only of that of one instance."""
    job_id = client_name(view.summary.job)
    numbers = range(view.slices)
    if instance is not None:
        numbers = range(instance // SLICE_SIZE, min(instance // SLICE_SIZE + 1, view.slices))
    asks = [(slice_key(job_id, number), GetRollout()) for number in numbers]
    found = {
        number: answer
        for number, answer in zip(numbers, cluster_client.each(asks, context), strict=True)
        if isinstance(answer, RolloutView)
    }
    return tuple(found.get(number, RolloutView()) for number in range(numbers.stop))


def members(rollouts: Rollouts, workflow: WorkflowView, *, name: str) -> list[int]:
    """Return the instances of this set of the rollouts; none of a workflow that is not the last
    one."""
    return [
        number * SLICE_SIZE + member
        for number, rollout in enumerate(rollouts)
        if rollout.number in workflow.rollouts
        for member in getattr(rollout, name)
    ]


def events_of(rollouts: Rollouts, workflow: WorkflowView, *, instance: int) -> list[Event]:
    """Return what the workflow did to an instance, the newest first; nothing for other
    instances."""
    number, member = divmod(instance, SLICE_SIZE)
    if number >= len(rollouts):
        return []
    rollout, found = rollouts[number], list[Event]()
    for step in rollout.steps:
        if step.number not in workflow.rollouts or member not in step.members:
            continue
        back = step.number != workflow.rollouts[0]
        rolling = WorkflowStates.ROLLING_BACKWARD if back else WorkflowStates.ROLLING_FORWARD
        found.append((_STATES.get(step.state, rolling), step.at))
    waits = rollout.number in workflow.rollouts and member in rollout.waiting
    if found or waits:
        found.insert(0, (WorkflowStates.INITIALIZED, workflow.created_at))
    return found[::-1]


def instances_with_events(rollouts: Rollouts, workflow: WorkflowView) -> Iterator[int]:
    """Yield the instances of a workflow, ascending."""
    for number, rollout in enumerate(rollouts):
        raw = rollout.waiting.raw if rollout.number in workflow.rollouts else 0
        for step in rollout.steps:
            raw |= step.members.raw if step.number in workflow.rollouts else 0
        for member in type(rollout.waiting)(raw):
            yield number * SLICE_SIZE + member


def wire_events(
    workflow: WorkflowView, events: list[Event], *, limit: int = 0
) -> list[stateless.WorkflowEvent]:
    """Return events as clients of v1alpha see them, at most `limit` of them, 0 for all."""
    return [
        stateless.WorkflowEvent(type=int(workflow.kind), state=int(state), timestamp=rfc3339(at))
        for state, at in (events[:limit] if limit else events)
    ]


def add_instances(
    found: stateless.WorkflowInfo, workflow: WorkflowView, *, rollouts: Rollouts
) -> None:
    """Add to the last workflow which instances it changes, and which are under way."""
    found.status.instances_current.extend(members(rollouts, workflow, name="current"))
    found.instances_added.extend(closed_ranges(members(rollouts, workflow, name="added")))
    found.instances_removed.extend(closed_ranges(members(rollouts, workflow, name="removed")))
    found.instances_updated.extend(closed_ranges(members(rollouts, workflow, name="updated")))


def closed_ranges(instances: Iterable[int]) -> Iterator[pod.InstanceIDRange]:
    """Yield ascending numbers as closed ranges."""
    first = last = -2
    for number in instances:
        if number == last + 1:
            last = number
            continue
        if first >= 0:
            yield pod.InstanceIDRange(to=last, **{"from": first})
        first = last = number
    if first >= 0:
        yield pod.InstanceIDRange(to=last, **{"from": first})


def healthy_s(sent: Any, field: str = "min_healthy_seconds") -> float:
    """Return how long all have to do their work at the end of a workflow, by what a client sent."""
    return float(getattr(sent, field)) if sent.HasField(field) else HEALTHY_S


def remaining(view: JobView, workflow: WorkflowView) -> int:
    """Return how many instances are left.

    For a daemon job at most as many as have hosts: an update that has just begun counts all numbers
    that hosts may get.
    """
    left = workflow.total - workflow.done - workflow.failed
    if not view.spec.is_daemon:
        return left
    over = workflow.done + workflow.failed
    return max(min(left, sum(dict(view.summary.counts).values()) - over), 0)
