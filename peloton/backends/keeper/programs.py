"""What is executed for a run: the program, its arguments, its environment.

Turns a run into a `Program`. It must not start it, nor pass on more of the keeper's environment
than a task needs to find a shell.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from . import processes
from .accounts import Account
from .kinds import KeeperRun
from .volumes import VARIABLE, folder_of

# Enough to find a shell, and no secret.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")


def inherited() -> dict[str, str]:
    """What a task inherits from the keeper's environment."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


def program_of(
    run: KeeperRun, sandbox: str, *, folder: str, base: Mapping[str, str]
) -> processes.Program:
    """`sandbox` is its folder within the keeper's `folder`."""
    account: Account | None = run.command.get("account")
    environment = {
        **base,
        **(account.environment if account is not None else {}),
        "MESOS_SANDBOX": f"{folder}/{sandbox}",
        **({VARIABLE: f"{folder}/{folder_of(run)}"} if run.volume else {}),
        **run.command["environment"],
        processes.RUN_MARK: run.run_id,
        processes.KEEPER_MARK: folder,
    }
    value, arguments = run.command["value"], run.command["arguments"]
    if run.command["shell"]:
        shell = ["sh", "-c", value]
        return processes.Program("/bin/sh", shell, environment, sandbox, account)
    return processes.Program(value, arguments or [value], environment, sandbox, account)
