"""Requests of a daemon to start a run, checked.

Turns what was read from a socket into runs. Nothing of it is trusted.
"""

from __future__ import annotations

import base64

from . import accounts, kinds
from .ends import RunExit
from .engine import container_of
from .kinds import KeeperRun, Record
from .limits import amount_of, read_limits
from .pods import parts_of
from .secret_files import RunSecret, below, path_problem
from .stops import NOTICE, SAVED
from .volumes import volume_of

LOGS = ("stdout", "stderr")


class BadRequest(Exception):
    """The request is malformed."""


class EpochRefused(Exception):
    """The sender is not the host's owner any more; `known` is the owner's epoch."""

    def __init__(self, known: int) -> None:
        super().__init__(f"epoch {known} is known")
        self.known = known


# What reading a malformed request may raise.
MALFORMED = (BadRequest, KeyError, TypeError, ValueError, AttributeError)


def run_of(host: str, request: Record) -> KeeperRun:
    """Return the requested run. Raises one of MALFORMED."""
    run_id = request["run"]
    if not kinds.RUN_ID.fullmatch(run_id):
        raise BadRequest(f"not a run id: {run_id!r}")
    command = {
        "value": str(request["value"]),
        "shell": bool(request["shell"]),
        "arguments": [str(argument) for argument in request["arguments"]],
        "environment": {str(k): str(v) for k, v in request["environment"].items()},
    }
    volume = volume_of(request["volume"]) if "volume" in request else {}
    container, pod = request.get("container", {}), request.get("pod", {})
    limits = read_limits(request["limits"]) if "limits" in request else {}
    if "as" in request:
        command["as"] = accounts.wanted_of(request["as"])
    run = KeeperRun(run_id, host, command=command, memory_mb=amount_of(request["memory_mb"]))
    run.limits = limits
    run.checked = bool(request.get("checked", False))
    run.container = container_of(container) if container else {}
    if pod:
        parts = parts_of(pod)
        command |= {"parts": parts, "grace_s": amount_of(pod["grace_s"])}
        run.pod = [[part["name"], part["init"]] for part in parts]
        command["checked"] = str(pod.get("checked", ""))
    secrets = request.get("secrets") or {}
    run.secrets = tuple(map(_secret, secrets.get("files", ())))
    if secrets.get("refusal"):
        outcome, reason, message = map(str, secrets["refusal"])
        command["refusal"] = RunExit(outcome, reason, message)
    run.volume = volume
    if "max_running" in request:
        run.max_running_s, run.grace_s = map(amount_of, request["max_running"])
    if volume and below(volume["path"]).partition("/")[0] in _own_files(run):
        raise BadRequest(f"the path {volume['path']!r} of the volume is that of a file of the run")
    if volume and any(_meet(one.path, volume["path"]) for one in run.secrets):
        raise BadRequest("a secret and the volume have paths of which one lies below the other")
    return run


def _own_files(run: KeeperRun) -> set[str]:
    """Return the names of Peloton's own files in the run's sandbox."""
    logs = {f"{name}.{log}" for name, _ in run.pod for log in LOGS}
    return {*LOGS, NOTICE, SAVED, *logs}


def _meet(path: str, other: str) -> bool:
    """Return whether one path lies below the other.

    The account of a volume may have put links into it, which nobody must follow for a secret.
    """
    first, second = f"{below(path)}/", f"{below(other)}/"
    return first.startswith(second) or second.startswith(first)


def _secret(sent: list[str]) -> RunSecret:
    """Return a requested secret. No error may quote a value."""
    path, data = sent
    why = path_problem(str(path))
    if why:
        raise BadRequest(f"the path {path!r} of a secret {why}")
    return RunSecret(str(path), base64.b64decode(data, validate=True))
