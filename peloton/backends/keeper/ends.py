"""The reason of a run's end, from its exit status and the reason for which it was killed.

Turns them into outcome, reason and message, without changing the run.
"""

from __future__ import annotations

import signal
from typing import NamedTuple

from . import kinds
from .container_run import ENDED, NO_CREATE, NO_ENGINE, NO_IMAGE, NOT_STARTED, STOPPED
from .kinds import KeeperRun
from .limits import memory_limit_mb
from .processes import NOT_FOUND_STATUS, NOT_RUNNABLE_STATUS

SIGNAL_BASE = 128
"""What engines add to the number of the signal that ended a container."""
_NOT_MADE = {
    NO_IMAGE: (kinds.FAILED, kinds.IMAGE_UNAVAILABLE),
    NO_CREATE: (kinds.FAILED, kinds.NO_CONTAINER),
    NO_ENGINE: (kinds.LOST, kinds.NO_ENGINE),
}


class RunExit(NamedTuple):
    outcome: str
    reason: str
    message: str


def limited(run: KeeperRun, found: RunExit) -> RunExit:
    """Return the end as found, or the time limit if the run ended after that."""
    if not run.late or run.over_limit:
        return found
    text = f"{kinds.RUN_LIMIT}: ran longer than {run.max_running_s:g} s"
    return RunExit(kinds.KILLED, kinds.RUN_LIMIT, text)


def exit_of(run: KeeperRun, status: int) -> RunExit:
    """Return the end of a run whose leader was reaped.

    A limit counts more than a kill that was requested: the request may have come while the run was
    being killed.
    """
    if run.over_limit:
        return RunExit(kinds.FAILED, run.over_reason, run.over_limit)
    message = f"exit code {status}" if status >= 0 else f"signal {_signal_name(-status)}"
    if run.kill_requested:
        return RunExit(kinds.KILLED, kinds.KILL_REQUESTED, message)
    outcome = kinds.SUCCEEDED if status == 0 else kinds.FAILED
    return RunExit(outcome, kinds.EXITED if status >= 0 else kinds.SIGNALLED, message)


def adopted_exit_of(run: KeeperRun) -> RunExit:
    """Return the end of an adopted run, whose exit status may not be known."""
    if run.exit:
        return exit_of(run, run.exit[0])
    if run.over_limit:
        return RunExit(kinds.FAILED, run.over_reason, run.over_limit)
    message = "killed on request" if run.kill_requested else ""
    return RunExit(kinds.LOST, kinds.KEEPER_DIED, message)


def pod_exit_of(run: KeeperRun, told: kinds.Record) -> tuple[RunExit, int | None]:
    """Return the end of a pod by its watcher's report, with the deciding container's status."""
    if not told.get("over"):
        if run.over_limit or run.kill_requested:
            return exit_of(run, -signal.SIGKILL), -signal.SIGKILL
        return RunExit(kinds.LOST, kinds.POD_UNWATCHED, ""), None
    if told["why_lost"]:
        killed = run.over_limit or run.kill_requested
        lost = RunExit(kinds.LOST, kinds.NOT_STARTED, told["why_lost"])
        return (exit_of(run, -signal.SIGKILL) if killed else lost), None
    failed = told["failed"]
    if failed is None and run.kill_requested and not told["ready_at"]:
        return RunExit(kinds.KILLED, kinds.KILL_REQUESTED, "not all containers had started"), None
    if failed is None:
        return exit_of(run, 0), 0
    name, init = run.pod[failed]
    _, _, status, why = told["containers"][failed]
    found = exit_of(run, status)
    whose = f"{'init container' if init else 'container'} {name}"
    if run.over_limit:
        return found, status
    if why:
        reason = found.reason if run.kill_requested else kinds.NOT_RUNNABLE
        return found._replace(reason=reason, message=f"{whose}: {why}"), status
    return found._replace(message=f"{whose}: {found.message}"), status


def container_exit_of(run: KeeperRun, told: kinds.Record) -> tuple[RunExit, int | None]:
    """Return the end of a container by its watcher's report, with its exit status if any."""
    kind, status = told["is"], int(told.get("status", 0))
    text = str(told.get("text", ""))
    if kind == ENDED and told.get("oom") and not (run.kill_requested or run.over_limit):
        limit = f"out of memory: limit {memory_limit_mb(run):g} MB"
        return RunExit(kinds.FAILED, kinds.OOM, limit), status
    if kind == ENDED:
        found = exit_of(run, status)
        if status > SIGNAL_BASE:
            found = found._replace(message=f"{found.message}{_signalled(run, status)}")
        return found, status
    if run.over_limit:
        return RunExit(kinds.FAILED, run.over_reason, run.over_limit), None
    if kind == STOPPED or run.kill_requested:
        return RunExit(kinds.KILLED, kinds.KILL_REQUESTED, text or "not started yet"), None
    if kind == NOT_STARTED:
        # As a shell says it; other numbers are the engine's own.
        known = status if status in (NOT_RUNNABLE_STATUS, NOT_FOUND_STATUS) else None
        return RunExit(kinds.FAILED, kinds.NOT_RUNNABLE, text), known
    outcome, reason = _NOT_MADE.get(kind, (kinds.LOST, kinds.CONTAINER_GONE))
    return RunExit(outcome, reason, text), None


def _signalled(run: KeeperRun, status: int) -> str:
    """Return the reason of a container's end by a signal. Not every engine reports memory."""
    said = f", the container's signal {_signal_name(status - SIGNAL_BASE)}"
    asked = run.kill_requested or run.over_limit
    if status - SIGNAL_BASE == signal.SIGKILL and run.memory_mb > 0 and not asked:
        return f"{said}, perhaps out of memory: limit {memory_limit_mb(run):g} MB"
    return said


def _signal_name(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)
