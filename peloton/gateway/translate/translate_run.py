"""Translates an instance for clients: its runtime, its past runs, and the events of both.

A slice's view of an instance becomes TaskInfo and PodEvent. Only the times of a run are stored, so
its events are derived from these; there is no event without a time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from peloton import ignored
from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.job.slice.usage import ran_s, usage
from peloton.actors.job.spec import JobSpec
from peloton.actors.resources import Resources
from peloton.actors.task.messages import (
    DEADLINE_EXCEEDED,
    PREEMPTED,
    SECRET_NOT_FOUND,
    End,
    PastRun,
    RunOutcome,
    TaskGoals,
)
from peloton.actors.task.run_messages import TaskHealth
from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.translate.health_checks import CHANGED, health_name, health_of, unchecked_text
from peloton.gateway.translate.reasons import Reason, retry_text, waits_for_retry
from peloton.gateway.translate.texts import client_name, pod_name, rfc3339, wire_usage
from peloton.gateway.translate.translate_task import merged
from peloton.runtime.vocabulary import Key

WIRE_TASK_GOALS = {
    TaskGoals.SUCCEEDED: task.SUCCEEDED,
    TaskGoals.RUNNING: task.RUNNING,
    TaskGoals.KILLED: task.KILLED,
    TaskGoals.DELETED: task.DELETED,
}
_STATES: dict[str, Any] = {value.name: value.number for value in task.TaskState.DESCRIPTOR.values}
_PREEMPTED = task.TerminationStatus.TERMINATION_STATUS_REASON_PREEMPTED_RESOURCES
_ON_REQUEST = task.TerminationStatus.TERMINATION_STATUS_REASON_KILLED_ON_REQUEST
_TOO_LONG = task.TerminationStatus.TERMINATION_STATUS_REASON_DEADLINE_TIMEOUT_EXCEEDED
_FAILED = task.TerminationStatus.TERMINATION_STATUS_REASON_FAILED
THROTTLED = "Task throttled due to failure"
"""The message of one that waits for its next attempt: clients of the original compare it."""


class Translator:
    """Translates instances of one job for clients.

    `images_run`: instances with an image are containers, and their events do not mention it.
    """

    def __init__(self, job_id: str, spec: JobSpec, *, images_run: bool = False) -> None:
        self._images_run = images_run
        self._job_id = job_id
        self._default = spec.default
        self._job_raw = spec.raw

    @functools.cached_property
    def _sla(self) -> job.SlaConfig:
        """Return the SLA config, parsed on demand, as only events need it."""
        return job.JobConfig.FromString(self._job_raw).sla

    def info(self, view: InstanceView, why: Reason | None = None) -> task.TaskInfo:
        """Return the instance as it is, with the reason why it is not at its goal."""
        runtime = self._base(view, view.run)
        runtime.state = _STATES[view.state]
        runtime.startTime = rfc3339(view.started_at)
        runtime.completionTime = rfc3339(view.ended_at)
        runtime.host = client_name(Key(view.host))
        if runtime.host:
            runtime.agentID.value = runtime.host
        runtime.failureCount = view.failures
        runtime.resourceUsage.update(_usage(view, view.ran_s))
        if view.outcome is not None:
            _put_end(runtime, view.outcome, on_request=view.goal == TaskGoals.KILLED)
        unchecked = unchecked_text(view)
        told = view.checked is not None and bool(view.checked[0])
        if view.code == "READY" or unchecked or (view.code == "HEALTH" and told):
            runtime.message = unchecked or view.because
        if why is not None:
            runtime.reason, runtime.message = why.code, why.message
        if waits_for_retry(view):
            runtime.message, runtime.throttleReason = THROTTLED, retry_text(view)
            runtime.nextAttemptTime = rfc3339(view.retry_at)
        for port in view.config.ports:
            if port.number:
                runtime.ports[port.name] = port.number
        return self._wrap(view, runtime)

    def runs(self, view: InstanceView) -> list[task.TaskInfo]:
        """Return every known run, the newest first."""
        return [self.info(view), *(self._past(view, run) for run in reversed(view.runs))]

    def config(self, view: InstanceView) -> task.TaskConfig:
        """Return what the instance runs. It must not be changed, as it is shared."""
        return merged(self._default.raw, view.config.raw)

    def _past(self, view: InstanceView, run: PastRun) -> task.TaskInfo:
        runtime = self._base(view, run.run)
        runtime.startTime = rfc3339(run.started_at)
        runtime.completionTime = rfc3339(run.ended_at)
        runtime.host = client_name(Key(run.host or ""))
        if runtime.host:
            runtime.agentID.value = runtime.host
        seconds = ran_s(run.started_at, run.ended_at, before=None)
        runtime.resourceUsage.update(_usage(view, seconds))
        runtime.state = task.LOST
        if run.outcome is not None:
            runtime.state = _STATES[run.outcome.end.name]
            _put_end(runtime, run.outcome, on_request=False)
        return self._wrap(view, runtime)

    def _base(self, view: InstanceView, run: int) -> task.RuntimeInfo:
        ran_by = _version_of(view, run)
        found = task.RuntimeInfo(
            mesosTaskId=self._run_id(view, run),
            desiredMesosTaskId=self._run_id(view, run),
            goalState=_wire_goal(view, run),
            configVersion=ran_by,
            desiredConfigVersion=_wanted_version(view, run, ran_by=ran_by),
            healthy=health_name(TaskHealth.INVALID if run < view.run else health_of(view)),
        )
        if run > 1:
            found.prevMesosTaskId.CopyFrom(self._run_id(view, run - 1))
        return found

    def _run_id(self, view: InstanceView, run: int) -> mesos.TaskID:
        return mesos.TaskID(value=pod_name(self._job_id, view.instance, run=run))

    def _wrap(self, view: InstanceView, runtime: task.RuntimeInfo) -> task.TaskInfo:
        return task.TaskInfo(
            instanceId=view.instance,
            jobId=peloton_pb2.JobID(value=self._job_id),
            config=self.config(view),
            runtime=runtime,
        )

    # ---- events ----

    def events(self, view: InstanceView, *, runs_max: int, only: int | None) -> list[task.PodEvent]:
        """Return the events of the newest runs, the newest run and event first."""
        runs = [(view.run, self._now(view))]
        runs += [(past.run, self._then(view, past)) for past in reversed(view.runs)]
        if only is not None:
            runs = [(run, events) for run, events in runs if run == only]
        found: list[task.PodEvent] = []
        for run, events in runs[:runs_max]:
            shown = list(events)
            until = _dropped_until(view, run)
            if until is not None:
                dropped_at = rfc3339(until)
                shown = [event for event in shown if event.timestamp > dropped_at]
            found += reversed(shown)
        return found

    def _now(self, view: InstanceView) -> Iterator[task.PodEvent]:
        past = view.runs[-1].ended_at if view.runs else view.created_at
        began_at = view.created_at if view.run == 1 else view.begun_at or past
        run = PastRun(
            view.run,
            view.host,
            view.started_at,
            view.ended_at,
            view.outcome,
            launched_at=view.launched_at,
        )
        # Between two runs the instance waits; how the last one ended is its outcome.
        end = view.outcome.end.name if view.outcome is not None else view.state
        return self._of_run(view, run, end=end, begun_at=began_at)

    def _then(self, view: InstanceView, past: PastRun) -> Iterator[task.PodEvent]:
        before = [run.ended_at for run in view.runs if run.run < past.run]
        known = before[-1] if before else view.created_at if past.run == 1 else None
        end = past.outcome.end.name if past.outcome is not None else "LOST"
        return self._of_run(view, past, end=end, begun_at=past.begun_at or known)

    def _of_run(
        self, view: InstanceView, run: PastRun, *, end: str, begun_at: float | None
    ) -> Iterator[task.PodEvent]:
        """Yield the events of one run, in order. `end` is the state in which it ended."""
        host, number = run.host or "", run.run
        if begun_at is not None:
            text = ignored.line(ignored.of_task(self.config(view), self._sla))
            yield self._event(view, number, state="INITIALIZED", at_s=begun_at, text=text)
        # What ended and never ran did not run without its image either.
        ran = run.started_at is not None or run.ended_at is None
        no_image = (
            self._no_image(view) if view.config.image and ran and not self._images_run else ""
        )
        if run.launched_at is not None:
            at_s = run.launched_at
            yield self._event(view, number, state="LAUNCHED", at_s=at_s, host=host, text=no_image)
        elif host:
            # Journaled by a version that kept this time for the last run only.
            at_s = run.started_at or run.ended_at
            text = "launched no later than this: the exact time is not kept"
            text += f"; {no_image}" if no_image else ""
            yield self._event(view, number, state="LAUNCHED", at_s=at_s, host=host, text=text)
        if run.started_at is not None:
            yield self._event(view, number, state="RUNNING", at_s=run.started_at, host=host)
        if view.checked is not None and number == view.run and run.ended_at is None:
            yield self._checked(view, host)
        if run.ended_at is not None:
            ended = health_name(TaskHealth.INVALID)
            event = self._event(
                view, number, state=end, at_s=run.ended_at, host=host, healthy=ended
            )
            yield _with_end(event, run.outcome)
            if number == view.run and waits_for_retry(view):
                yield self._waits(view, run)

    def _waits(self, view: InstanceView, run: PastRun) -> task.PodEvent:
        """Return the event that the next attempt is to come, and when."""
        event = self._event(
            view,
            run.run,
            state=view.state,
            at_s=run.ended_at,
            host=run.host or "",
            text=THROTTLED,
            healthy=health_name(TaskHealth.INVALID),
        )
        event.reason = f"{view.because}, next attempt at {rfc3339(view.retry_at)[:19]}Z"
        return event

    def _checked(self, view: InstanceView, host: str) -> task.PodEvent:
        """Return the last change of health of the present run; earlier ones are not kept."""
        assert view.checked is not None
        (text, since), name = view.checked, health_name(health_of(view))
        if view.ready > TaskHealth.UNKNOWN and view.health != TaskHealth.UNHEALTHY:
            word = "ready" if view.ready == TaskHealth.HEALTHY else "not ready"
            text = f"{word}: {text}" if text else word
        event = self._event(
            view, view.run, state="RUNNING", at_s=since, host=host, text=text, healthy=name
        )
        event.reason = CHANGED
        return event

    @staticmethod
    def _no_image(view: InstanceView) -> str:
        image = view.config.image
        return f"container image {image} is ignored: the command runs directly on the host"

    def _event(
        self, view: InstanceView, run: int, *, at_s: float | None, state: str, **rest: str
    ) -> task.PodEvent:
        host, ran_by = client_name(Key(rest.get("host", ""))), _version_of(view, run)
        return task.PodEvent(
            taskId=self._run_id(view, run),
            actualState=state,
            goalState=view.goal.name,
            timestamp=rfc3339(at_s),
            configVersion=ran_by,
            desiredConfigVersion=_wanted_version(view, run, ran_by=ran_by),
            agentID=host,
            hostname=host,
            message=rest.get("text", ""),
            prevTaskId=self._run_id(view, run - 1),
            healthy=rest.get("healthy") or _first_health(view),
            desriedTaskId=self._run_id(view, run),
        )


def _version_of(view: InstanceView, run: int) -> int:
    """Return the config version of a run; instances of batch jobs never get another one."""
    if run == view.run:
        return view.ran_by or view.config_version
    known = next((past.config_version for past in view.runs if past.run == run), 0)
    return known or view.config_version


def _wanted_version(view: InstanceView, run: int, *, ran_by: int) -> int:
    """Return the version the instance was to have then; of earlier runs only what they had is
    known."""
    return (view.coming or view.config_version) if run == view.run else ran_by


def _dropped_until(view: InstanceView, run: int) -> float | None:
    """Return until when the events of a run are hidden."""
    times = [at for dropped, at in view.dropped_runs if dropped == run]
    if view.dropped is not None and run <= view.dropped[0]:
        times.append(view.dropped[1])
    return max(times, default=None)


def _usage(view: InstanceView, seconds: float) -> dict[str, float]:
    """Return the limits times the seconds of ended runs, as the original counts."""
    return wire_usage(usage(view.config.resources or Resources(), seconds) if seconds else ())


def _first_health(view: InstanceView) -> str:
    """Return the health before any check has ended."""
    check = view.config.check
    checked = check is not None and check.of_health
    return health_name(TaskHealth.UNKNOWN if checked else TaskHealth.DISABLED)


def _wire_goal(view: InstanceView, run: int) -> Any:
    """Return the goal; for an instance that was preempted and is not run again, what ended it."""
    outcome, stopped = view.outcome, view.goal in (TaskGoals.KILLED, TaskGoals.DELETED)
    if run == view.run and view.state == "KILLED" and outcome is not None and not stopped:
        for_good = outcome.reason == PREEMPTED and view.config.kill_on_preempt
        if outcome.reason == SECRET_NOT_FOUND and view.goal == TaskGoals.SUCCEEDED:
            return task.KILLED
        return task.PREEMPTING if for_good else WIRE_TASK_GOALS[view.goal]
    return WIRE_TASK_GOALS[view.goal]


def _put_end(runtime: task.RuntimeInfo, outcome: RunOutcome, *, on_request: bool) -> None:
    runtime.message, runtime.reason = outcome.message, outcome.reason
    status = runtime.terminationStatus
    if outcome.end == End.FAILED:
        status.reason = _FAILED
    elif outcome.reason == DEADLINE_EXCEEDED:
        status.reason = _TOO_LONG
    elif outcome.reason == PREEMPTED:
        status.reason = _PREEMPTED
    elif outcome.end == End.KILLED and on_request:
        status.reason = _ON_REQUEST
    if outcome.exit_code is not None and outcome.exit_code > 0:
        status.exit_code = outcome.exit_code
    status.signal = outcome.signal


def _with_end(event: task.PodEvent, outcome: RunOutcome | None) -> task.PodEvent:
    if outcome is not None:
        event.message, event.reason = outcome.message, outcome.reason
    return event
