"""Health and readiness checks between the wire and the actors, and the wire's words for health.

In the message of a task's config 0 and empty mean the default. What only the type of the job
decides is checked elsewhere.
"""

from __future__ import annotations

import re

from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.task import run_messages as hm
from peloton.actors.task.run_messages import HealthCheck, HttpProbe, TaskHealth
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.translate.bad_field import BadField

PORT_MAX = 65_535
FAILURES_MAX = 1000
SECONDS_MAX = 24 * 3600
_PATH = re.compile(r"/[!-~]{0,2047}", re.ASCII)
CHANGED = "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"
"""The original's reason of an event that tells a change of health."""
_WELL = (TaskHealth.DISABLED, TaskHealth.HEALTHY)
_ENDED = frozenset(("SUCCEEDED", "FAILED", "LOST", "KILLED", "DELETED"))


def to_check(sent: task.HealthCheckConfig, *, container: str = "") -> HealthCheck | None:
    """Return the check of a task or of one of its containers; None if it is not enabled.

    Raises BadField.
    """
    if not sent.enabled:
        return None
    config = task.HealthCheckConfig
    if sent.type not in (config.COMMAND, config.HTTP):
        names = {number: name for name, number in config.Type.items()}
        raise BadField("type", f"must be COMMAND or HTTP, got {names.get(sent.type, sent.type)}")
    by_command = sent.type == config.COMMAND
    return HealthCheck(
        command=_command(sent.commandCheck) if by_command else "",
        http=None if by_command else _http(sent.httpCheck),
        initial_s=_seconds(sent.initialIntervalSecs, "initialIntervalSecs") or hm.INITIAL_S,
        interval_s=_seconds(sent.intervalSecs, "intervalSecs") or hm.INTERVAL_S,
        timeout_s=_seconds(sent.timeoutSecs, "timeoutSecs") or hm.TIMEOUT_S,
        max_failures=_failures(sent.maxConsecutiveFailures) or hm.MAX_FAILURES,
        unshared=by_command and sent.commandCheck.unshareEnvironments,
        container=container if by_command else "",
    )


def _seconds(sent: int, field: str) -> float:
    if sent > SECONDS_MAX:
        raise BadField(field, f"must be ≤ {SECONDS_MAX}, got {sent}")
    return float(sent)


def _failures(sent: int) -> int:
    if sent > FAILURES_MAX:
        raise BadField("maxConsecutiveFailures", f"must be ≤ {FAILURES_MAX}, got {sent}")
    return sent


def _command(sent: task.HealthCheckConfig.CommandCheck) -> str:
    if not sent.command:
        raise BadField("commandCheck.command", "required field is missing")
    if "\0" in sent.command:
        raise BadField("commandCheck.command", "must not contain a NUL character")
    return sent.command


def _http(sent: task.HealthCheckConfig.HTTPCheck) -> HttpProbe:
    scheme, path = sent.scheme.lower() or "http", sent.path or "/"
    if scheme not in ("http", "https"):
        raise BadField("httpCheck.scheme", f"must be http or https, got {sent.scheme!r}")
    if not 1 <= sent.port <= PORT_MAX:
        raise BadField("httpCheck.port", f"must be from 1 to {PORT_MAX}, got {sent.port}")
    if not _PATH.fullmatch(path):
        text = "must begin with / and have no blanks or special characters"
        raise BadField("httpCheck.path", f"{text}, got {path[:100]!r}")
    return HttpProbe(sent.port, path, scheme)


def does_its_work(view: InstanceView) -> bool:
    """Return whether an instance that runs is well and ready, as far as it is checked."""
    return view.health in _WELL and view.ready in _WELL


def health_of(view: InstanceView) -> TaskHealth:
    """Return the health of the present run, also of one that is to begin."""
    if view.ended_at is not None or view.state in _ENDED:
        return TaskHealth.INVALID
    check = view.config.check
    if check is None or not check.of_health:
        return view.health
    if view.state == "RUNNING":
        return view.health
    return TaskHealth.UNKNOWN


def unchecked_text(view: InstanceView) -> str:
    """Return why no backend carries out a check of the run; empty if one does, or may yet."""
    check, off = view.config.check, TaskHealth.DISABLED
    if check is None or view.state != "RUNNING" or view.checked is None:
        return ""
    unchecked = check.of_health and view.health == off
    ungated = check.readiness is not None and view.ready == off
    return view.checked[0] if unchecked or ungated else ""


def health_name(health: TaskHealth) -> str:
    """Return the name of a health in v0."""
    return str(task.HealthState.Name(int(health)))
