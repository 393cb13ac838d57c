"""The statuses of the containers of a pod that has several.

A task of v0, and what is known of the containers of its run, become one ContainerStatus for each
container: what its end says, once the run has ended, else what its host told last. A container of
which nothing was told has the status of the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from peloton.actors.task.messages import End, RunOutcome
from peloton.actors.task.run_messages import ContainerEnd
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.gateway.translate.several_containers import containers_in
from peloton.gateway.translate.texts import rfc3339

NOT_STARTED = "was not started"
_STATES: dict[Any, tuple[Any, Any]] = {
    task.LAUNCHED: (pod.CONTAINER_STATE_LAUNCHED, pod.CONTAINER_STATE_PENDING),
    task.STARTING: (pod.CONTAINER_STATE_STARTING, pod.CONTAINER_STATE_PENDING),
    task.RUNNING: (pod.CONTAINER_STATE_SUCCEEDED, pod.CONTAINER_STATE_RUNNING),
}
"""Of init containers, and of the others, by the state of a pod that has not ended."""
_ENDED: dict[Any, Any] = {
    task.SUCCEEDED: pod.CONTAINER_STATE_SUCCEEDED,
    task.FAILED: pod.CONTAINER_STATE_FAILED,
    task.KILLED: pod.CONTAINER_STATE_KILLED,
    task.LOST: pod.CONTAINER_STATE_FAILED,
}
"""Of a container, by the state of its pod, where its own end is not known."""
_KILLING = (task.KILLING, task.PREEMPTING)


class ContainerStatuses(NamedTuple):
    """The statuses of one run, in the order of its spec."""

    init: list[pod.ContainerStatus]
    main: list[pod.ContainerStatus]


def container_statuses(
    info: task.TaskInfo, outcome: RunOutcome | None = None, *, told: Iterable[ContainerEnd] = ()
) -> ContainerStatuses | None:
    """Return the statuses of a run of several containers, or None for a run of a single one.

    `outcome` is known once the run has ended, `told` is what was told of the containers before. A
    single container is in the state of its pod.
    """
    spec = containers_in(info.config)
    if spec is None:
        return None
    known = _ends(spec, outcome.containers if outcome is not None else tuple(told))
    run = _Run(info.runtime, outcome, _first_failed(known.values()))
    return ContainerStatuses(
        init=[run.status(one, known.get(one.name), init=True) for one in spec.init_containers],
        main=[run.status(one, known.get(one.name), init=False) for one in spec.containers],
    )


def _ends(spec: pod.PodSpec, told: Sequence[ContainerEnd]) -> dict[str, ContainerEnd]:
    """Return the ends of the containers, by name; a host that does not know names tells all in
    order."""
    specs = (*spec.init_containers, *spec.containers)
    named = [_named(end, one.name) for end, one in zip(told, specs, strict=False)]
    return {end.name: end for end in named}


def _named(end: ContainerEnd, name: str) -> ContainerEnd:
    if end.name:
        return end
    return ContainerEnd(
        name, end.init, end.started_at, end.ended_at, exit_code=end.exit_code, signal=end.signal
    )


def _first_failed(ends: Iterable[ContainerEnd]) -> str:
    """Return the container whose end was that of the run; empty if none failed."""
    failed = [one for one in ends if one.exit_code or one.signal]
    return min(failed, key=lambda one: one.ended_at).name if failed else ""


class _Run(NamedTuple):
    runtime: task.RuntimeInfo
    outcome: RunOutcome | None
    failed: str

    def status(
        self, spec: pod.ContainerSpec, told: ContainerEnd | None, *, init: bool
    ) -> pod.ContainerStatus:
        runtime = self.runtime
        health = runtime.healthy if spec.HasField("liveness_check") else task.DISABLED
        found = pod.ContainerStatus(
            name=spec.name,
            state=self._state(told, init=init),
            failure_count=runtime.failureCount,
            healthy={"state": int(health)},  # the numbers of health are the same
            image=spec.image or spec.container.docker.image,
        )
        for port in spec.ports:
            if port.name in runtime.ports:
                found.ports[port.name] = runtime.ports[port.name]
        if told is None:
            self._put_of_pod(found, init=init)
        else:
            self._put_told(found, told)
        return found

    def _state(self, told: ContainerEnd | None, *, init: bool) -> Any:
        state = self.runtime.state
        if told is not None and not told.started_at:
            return pod.CONTAINER_STATE_PENDING
        if told is not None and self._is_over(told):
            return self._ended(told)
        if told is not None:
            killing = state in _KILLING
            return pod.CONTAINER_STATE_KILLING if killing else pod.CONTAINER_STATE_RUNNING
        if state in _KILLING:
            begun = init and bool(self.runtime.startTime)
            return pod.CONTAINER_STATE_SUCCEEDED if begun else pod.CONTAINER_STATE_KILLING
        if state in _ENDED:
            return _ENDED[state]
        pending = pod.CONTAINER_STATE_PENDING
        return _STATES.get(state, (pending, pending))[0 if init else 1]

    def _ended(self, end: ContainerEnd) -> Any:
        if end.exit_code == 0:
            return pod.CONTAINER_STATE_SUCCEEDED
        if self.by_pod or (self.failed and end.name != self.failed):
            return pod.CONTAINER_STATE_KILLED
        return pod.CONTAINER_STATE_FAILED

    @property
    def by_pod(self) -> bool:
        """Return whether what ends badly does so because its pod is killed."""
        if self.outcome is None:
            return self.runtime.state in _KILLING
        return self.outcome.end == End.KILLED

    def _put_of_pod(self, found: pod.ContainerStatus, *, init: bool) -> None:
        """Put what the pod says of a container that has not ended, or whose end is unknown."""
        runtime = self.runtime
        found.message, found.reason = runtime.message, runtime.reason
        if not init:  # an init container began before, and when is told with the end
            found.start_time = runtime.startTime
        if runtime.state in _ENDED:
            found.completion_time = runtime.completionTime

    def _put_told(self, found: pod.ContainerStatus, told: ContainerEnd) -> None:
        found.start_time = rfc3339(told.started_at or None)
        found.completion_time = rfc3339(told.ended_at or None)
        if self._is_over(told) and told.started_at:
            self._put_end(found, told)
        elif self.outcome is not None:
            found.message = NOT_STARTED
        else:
            found.message, found.reason = self.runtime.message, self.runtime.reason

    def _is_over(self, told: ContainerEnd) -> bool:
        return bool(told.ended_at) or self.outcome is not None

    def _put_end(self, found: pod.ContainerStatus, end: ContainerEnd) -> None:
        status = found.terminationStatus
        if end.exit_code is not None and end.exit_code > 0:
            status.exit_code = end.exit_code
        status.signal = end.signal
        if found.state == pod.CONTAINER_STATE_FAILED:
            status.reason = pod.TerminationStatus.TERMINATION_STATUS_REASON_FAILED
            found.message, found.reason = self.runtime.message, self.runtime.reason
            if self.outcome is None:  # what is said of the pod is not yet about this end
                found.message, found.reason = _how(end), ""
        elif found.state == pod.CONTAINER_STATE_KILLED:
            status.reason = int(self.runtime.terminationStatus.reason)
            failed = bool(self.failed) and end.name != self.failed
            text = f"ended because container {self.failed} failed"
            found.message = self.runtime.message if self.by_pod or not failed else text


def _how(end: ContainerEnd) -> str:
    how = f"exit code {end.exit_code}" if end.exit_code is not None else f"signal {end.signal}"
    return f"{'init container' if end.init else 'container'} {end.name}: {how}"
