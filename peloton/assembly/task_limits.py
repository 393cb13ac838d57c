"""The limits of tasks that this machine can enforce, and the warning about those that it cannot.

Turns settings and the machine into texts for people, and settings into those of the backend. The
keeper makes the control groups, and tries one before it relies on any.
"""

from __future__ import annotations

from collections.abc import Callable

from peloton.assembly.task_images import engine_text
from peloton.backends.keeper.group_roots import FoundRoot, find_root
from peloton.backends.keeper.limits import ENFORCE, OFF
from peloton.backends.process import TaskLimits
from peloton.failures import CannotStart
from peloton.runtime.core.health import NotReadyReason
from peloton.settings.daemon import DaemonSettings

COMPONENT = "limits"
_ANY = "peloton"
"""The name does not matter where nothing is made."""


def problem(settings: DaemonSettings, *, find: Callable[[str], FoundRoot] = find_root) -> str:
    """Return why limits that must be enforced cannot be; empty if they can."""
    mode = _mode(settings)
    note = limits_note(settings, find=find) if mode == ENFORCE else ""
    return f"backend.process.limits: {note}" if note else ""


def check_task_limits(settings: DaemonSettings) -> None:
    """Raise CannotStart for a problem."""
    text = problem(settings)
    if text:
        raise CannotStart(text)


def limits_note(settings: DaemonSettings, *, find: Callable[[str], FoundRoot] = find_root) -> str:
    """Return which wanted limits this machine cannot enforce; empty if it can enforce all."""
    if _mode(settings) == OFF:
        return ""
    try:
        found = find(_ANY)
    except OSError as error:
        found = FoundRoot(None, str(error))
    if found.place is None:
        return (
            f"tasks are not in control groups ({found.why}): memory is checked once a second, "
            "cpu and processes are not limited"
        )
    return f"of control groups this machine gives {found.why}" if found.why else ""


def health_notes(settings: DaemonSettings) -> tuple[NotReadyReason, ...]:
    """Return the same for health; no reason against being ready."""
    text = limits_note(settings)
    return (NotReadyReason(COMPONENT, text),) if text else ()


def machine_text() -> str:
    """Return two lines: the limits that this machine can enforce, and its container engine."""
    return f"{_groups_text()}\n{engine_text()}"


def _groups_text() -> str:
    try:
        found = find_root(_ANY)
    except OSError as error:
        return f"no control groups: {error}"
    if found.place is None:
        return f"no control groups: {found.why}"
    version, have = found.place.version, ", ".join(found.place.folders)
    return f"control groups version {version}: {have}" + (f"; {found.why}" if found.why else "")


def task_limits(settings: DaemonSettings, *, engine: str = "") -> TaskLimits:
    """Return the backend's settings of limits."""
    process = settings.backend.process
    if process is None:
        return TaskLimits()
    return TaskLimits(process.limits, process.cpu_quota, process.task_pids, process.images, engine)


def _mode(settings: DaemonSettings) -> str:
    process = settings.backend.process
    return process.limits if process is not None and "hostmgr" in settings.roles else OFF
