"""How a run ended: what its exit status, and what it was killed for, say of it.

Turns them into outcome, reason and message. It must not change the run.
"""

from __future__ import annotations

import signal
from typing import NamedTuple

from . import kinds
from .kinds import KeeperRun


class RunExit(NamedTuple):
    outcome: str
    reason: str
    message: str


def exit_of(run: KeeperRun, status: int) -> RunExit:
    """Of a run whose leader was reaped. A limit counts more than a kill that was asked for: that
    may have come while it was being killed."""
    if run.over_limit:
        return RunExit(kinds.FAILED, run.over_reason, run.over_limit)
    message = f"exit code {status}" if status >= 0 else f"signal {_signal_name(-status)}"
    if run.kill_requested:
        return RunExit(kinds.KILLED, kinds.KILL_REQUESTED, message)
    outcome = kinds.SUCCEEDED if status == 0 else kinds.FAILED
    return RunExit(outcome, kinds.EXITED if status >= 0 else kinds.SIGNALLED, message)


def adopted_exit_of(run: KeeperRun) -> RunExit:
    """Of an adopted run, whose exit status cannot be known; what it was killed for is."""
    if run.over_limit:
        return RunExit(kinds.FAILED, run.over_reason, run.over_limit)
    message = "killed on request" if run.kill_requested else ""
    return RunExit(kinds.LOST, kinds.KEEPER_DIED, message)


def _signal_name(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)
