"""The program that is executed for a run, with its arguments and environment.

Turns a run into a `Program`. No more of the keeper's environment may be passed on than a task needs
to find a shell: the rest is the daemon's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from . import processes
from .accounts import Account
from .kinds import KeeperRun, Record
from .volumes import VARIABLE, folder_of

_NONE: Mapping[str, str] = {}
# Enough to find a shell, and no secret.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")


def inherited() -> dict[str, str]:
    """Return what a task inherits from the keeper's environment."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


def program_of(
    run: KeeperRun,
    sandbox: str,
    *,
    folder: str,
    base: Mapping[str, str],
    own: Mapping[str, str] = _NONE,
) -> processes.Program:
    """Return the program of a run.

    `sandbox` is its folder within the keeper's `folder`; `own` are variables of one container of
    several, which those of the run for all of them override.
    """
    account: Account | None = run.command.get("account")
    environment = {
        **base,
        **(account.environment if account is not None else {}),
        "MESOS_SANDBOX": f"{folder}/{sandbox}",
        **own,
        **({VARIABLE: f"{folder}/{folder_of(run)}"} if run.volume else {}),
        **run.command["environment"],
        processes.RUN_MARK: run.run_id,
        processes.KEEPER_MARK: folder,
    }
    value, arguments = called(run.command)
    return processes.Program(value, arguments, environment, sandbox, account)


def called(command: Record) -> tuple[str, list[str]]:
    """Return the program of a command, and its arguments, of which the first is its name."""
    value, arguments = command["value"], command["arguments"]
    if command["shell"]:
        return "/bin/sh", ["sh", "-c", value]
    return value, arguments or [value]
