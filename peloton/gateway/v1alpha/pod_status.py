"""Instances as clients of v1alpha see them: pods with their spec, status and events.

The tasks of v0 become PodInfo, PodStatus and PodEvent, so that everything behind them is one path.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from peloton.actors.task.messages import RunOutcome
from peloton.actors.task.run_messages import ContainerEnd
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.gateway.translate.container_status import container_statuses
from peloton.gateway.translate.mesos_pods import image_of
from peloton.gateway.translate.pod_specs import pod_spec_of
from peloton.gateway.translate.texts import pod_name

POD_STATE, CONTAINER_STATE = "POD_STATE_", "CONTAINER_STATE_"
_POD_STATES: dict[str, Any] = dict(pod.PodState.items())
_CONTAINER_STATES: dict[str, Any] = dict(pod.ContainerState.items())
V0_STATES: dict[int, Any] = {
    _POD_STATES[POD_STATE + name]: number
    for name, number in task.TaskState.items()
    if POD_STATE + name in _POD_STATES
}
"""By the numbers of v1alpha, of which some are others."""


def pod_state_of(state: Any) -> Any:
    """Return the same state in v1alpha."""
    return _POD_STATES.get(POD_STATE + task.TaskState.Name(state), pod.POD_STATE_INVALID)


def pod_info_of(
    info: task.TaskInfo,
    outcome: RunOutcome | None = None,
    *,
    told: Iterable[ContainerEnd] = (),
    status_only: bool = False,
) -> pod.PodInfo:
    """Return a run of a pod, with its outcome if it has ended, else what was told of its
    containers.

    With `status_only` without its spec.
    """
    found = pod.PodInfo(status=pod_status_of(info, outcome, told=told))
    if not status_only:
        found.spec.CopyFrom(pod_spec_of(info.config, pod_name(info.jobId.value, info.instanceId)))
    return found


def pod_summary_of(
    info: task.TaskInfo, outcome: RunOutcome | None = None, *, told: Iterable[ContainerEnd] = ()
) -> pod.PodSummary:
    """Return the summary of a pod in a listing."""
    name = pod_name(info.jobId.value, info.instanceId)
    return pod.PodSummary(pod_name={"value": name}, status=pod_status_of(info, outcome, told=told))


def pod_status_of(
    info: task.TaskInfo, outcome: RunOutcome | None = None, *, told: Iterable[ContainerEnd] = ()
) -> pod.PodStatus:
    """Return the status of a run.

    Of several containers by its outcome, if it has ended, else by what was told of them.
    """
    runtime, ended = info.runtime, _as_ended(info, outcome)
    several = container_statuses(ended, outcome, told=told)
    found = pod.PodStatus(
        state=pod_state_of(runtime.state),
        pod_id={"value": runtime.mesosTaskId.value},
        start_time=runtime.startTime,
        completion_time=runtime.completionTime,
        host=runtime.host,
        init_containers_status=several.init if several is not None else (),
        containers_status=several.main if several is not None else [_container_of(ended)],
        desired_state=pod_state_of(runtime.goalState),
        message=runtime.message,
        reason=runtime.reason,
        failure_count=runtime.failureCount,
        version={"value": pod_version(runtime.configVersion)},
        desired_version={"value": pod_version(runtime.desiredConfigVersion)},
        resource_usage=runtime.resourceUsage,
        desired_pod_id={"value": runtime.desiredMesosTaskId.value},
        desiredHost=runtime.desiredHost,
        host_id=runtime.agentID.value,
        throttle_reason=runtime.throttleReason,
        next_attempt_time=runtime.nextAttemptTime,
    )
    if runtime.HasField("agentID"):
        found.agent_id.CopyFrom(runtime.agentID)
    if runtime.HasField("prevMesosTaskId"):
        found.prev_pod_id.value = runtime.prevMesosTaskId.value
    return found


def _as_ended(info: task.TaskInfo, outcome: RunOutcome | None) -> task.TaskInfo:
    """Return the task with the end of the run, also while the next run is to come."""
    if not info.runtime.throttleReason or outcome is None:
        return info
    found = task.TaskInfo()
    found.CopyFrom(info)
    found.runtime.message = outcome.message
    return found


def pod_version(config: int) -> str:
    """Return the version of a pod, which has only that of its config."""
    return f"{config}-0-0"


def pod_event_of(event: task.PodEvent) -> pod.PodEvent:
    """Return the same event in v1alpha; states are its names."""
    return pod.PodEvent(
        pod_id={"value": event.taskId.value},
        actual_state=POD_STATE + event.actualState,
        desired_state=POD_STATE + event.goalState,
        timestamp=event.timestamp,
        version={"value": pod_version(event.configVersion)},
        desired_version={"value": pod_version(event.desiredConfigVersion)},
        agent_id=event.agentID,
        hostname=event.hostname,
        message=event.message,
        reason=event.reason,
        prev_pod_id={"value": event.prevTaskId.value},
        healthy=pod.HealthState.Name(task.HealthState.Value(event.healthy)),
        desired_pod_id={"value": event.desriedTaskId.value},
    )


def _container_of(info: task.TaskInfo) -> pod.ContainerStatus:
    """Return the status of a pod's only container: the state of the pod, if containers have
    that."""
    runtime = info.runtime
    # What was lost ended nobody knows how, but not well.
    name = "FAILED" if runtime.state == task.LOST else task.TaskState.Name(runtime.state)
    state = _CONTAINER_STATES.get(CONTAINER_STATE + name, pod.CONTAINER_STATE_PENDING)
    found = pod.ContainerStatus(
        name=info.config.name,
        state=state,
        ports=runtime.ports,
        message=runtime.message,
        reason=runtime.reason,
        failure_count=runtime.failureCount,
        healthy={"state": int(runtime.healthy)},  # numbered alike, as reasons are
        image=image_of(info.config.container),
        start_time=runtime.startTime,
        completion_time=runtime.completionTime,
    )
    if runtime.HasField("terminationStatus"):
        ended = runtime.terminationStatus
        status = found.terminationStatus
        status.reason = int(ended.reason)  # type: ignore[assignment]
        status.exit_code, status.signal = ended.exit_code, ended.signal
    return found
