"""The messages between a daemon and its keeper, as values.

Turns requests into the keeper's wire form and its answers into reports. It has no state.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from peloton.actors.host.run_spec import RunSpec
from peloton.backends.keeper import wire
from peloton.backends.keeper.kinds import RUN_ID
from peloton.backends.keeper.secret_files import RunSecret

RunStateName = Literal["queued", "running", "ended"]
OutcomeName = Literal["SUCCEEDED", "FAILED", "KILLED", "LOST"]

RUN_BYTES_MAX = 4 * 1024 * 1024
"""Twice what a kernel takes for a program's arguments and environment."""


class BadRun(Exception):
    """A run that cannot be requested; the text says why."""

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(why)
        self.run_id = run_id


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of a run besides memory, and what to do without control groups.

    0 is no limit.
    """

    mode: str
    cpu: float = 0.0
    cpu_quota: bool = False
    pids: int = 0
    disk_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class PodPart:
    """A container of several: its command as in a request, and its own variables."""

    name: str
    value: str
    shell: bool = True
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    init: bool = False


@dataclass(frozen=True, slots=True)
class RunPod:
    """The containers of a run with several.

    `grace_s`: the time in which the others have to end once one has failed. `checked`: the
    container whose variables checks by commands get.
    """

    containers: tuple[PodPart, ...]
    grace_s: float = 30.0
    checked: str = ""


def pod_of(spec: RunSpec) -> RunPod | None:
    """Return the containers of a run with several."""
    if not spec.containers:
        return None
    parts = [
        PodPart(one.name, one.value, one.shell, one.arguments, dict(one.environment), one.init)
        for one in spec.containers
    ]
    checked = spec.check.container if spec.check is not None else ""
    return RunPod(tuple(parts), spec.kill_grace_s, checked)


@dataclass(frozen=True, slots=True)
class ContainerOfRun:
    """A container of a run with several, as far as it came."""

    name: str
    init: bool
    started_at: float
    ended_at: float
    exit_code: int | None
    signal: int | None


@dataclass(frozen=True, slots=True)
class ContainersMoved:
    """Containers of a run with several have begun or ended, and the run goes on."""

    host: str
    run_id: str
    containers: tuple[ContainerOfRun, ...]


def read_containers(told: Mapping[str, Any]) -> tuple[ContainerOfRun, ...]:
    """Return the containers in an end, a list or an event; none for a run of a single one."""
    return tuple(ContainerOfRun(**one) for one in told.get("containers", ()))


@dataclass(frozen=True, slots=True)
class RunContainer:
    """The image of a run, the program of the engine that starts it, and the indices of its gpus."""

    engine: str
    image: str
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RunVolume:
    """The volume of a run (`keeper/volumes.py`): its path for the run, and its size."""

    name: str
    path: str
    mb: float


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run to start: `/bin/sh -c value` if `shell`, else `value` with `arguments` as argv.

    The first argument is the name the program sees; none at all means `value` alone. `user`,
    `caller` and `task_user` name its account (`keeper/accounts.py`); without them it runs as the
    keeper's. Without `limits` it is in no control group, and its memory alone is watched. With
    `container` it is one; with `pod` it consists of several, and its own command is not run.
    `checked`: its health will be checked by commands. `volume` is a directory of its own that
    outlives it. With `refusal` (outcome, reason and message) it is not started, unless it is known
    already: it ends so. After `max_running_s` it is told to end, and killed `grace_s` later.
    """

    run_id: str
    host: str
    value: str
    shell: bool = True
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    memory_mb: float = 0.0
    user: str = ""
    caller: str = ""
    task_user: str = ""
    limits: RunLimits | None = None
    container: RunContainer | None = None
    pod: RunPod | None = None
    checked: bool = False
    secrets: tuple[RunSecret, ...] = ()
    refusal: tuple[str, str, str] | None = None
    volume: RunVolume | None = None
    max_running_s: float = 0.0
    grace_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RunStarted:
    host: str
    run_id: str
    pid: int
    at: float


@dataclass(frozen=True, slots=True)
class KeeperRunEnded:
    """The end of a run. `exit_code` and `signal` are the process's; None if not known.

    `cpu_s` is of the first process and of those it has waited for, `peak_mb` of all in the control
    group, else of the largest process; 0 if not known.
    """

    host: str
    run_id: str
    outcome: OutcomeName
    exit_code: int | None
    signal: int | None
    reason: str
    message: str
    at: float
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    containers: tuple[ContainerOfRun, ...] = ()


@dataclass(frozen=True, slots=True)
class RunUnknown:
    """The answer to the kill of a run of which the keeper has no record."""

    host: str
    run_id: str


@dataclass(frozen=True, slots=True)
class ListedRun:
    run_id: str
    state: RunStateName
    pid: int
    started_at: float
    ended: KeeperRunEnded | None
    containers: tuple[ContainerOfRun, ...] = ()  # of several, while it runs


@dataclass(frozen=True, slots=True)
class KeeperRunsListed:
    """All runs of a host that are not acknowledged.

    A launch made after the listing was requested may be missing in it. `keeper` is the identity of
    the keeper. `asked_at` is the time that was passed with the request; -inf for a list that nobody
    requested.
    """

    host: str
    runs: tuple[ListedRun, ...]
    at: float
    keeper: str = ""
    asked_at: float = -math.inf


@dataclass(frozen=True, slots=True)
class KeeperVolumesRemoved:
    """The volumes that are gone, by their names at the keeper; they may never have existed."""

    host: str
    volumes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunChecked:
    """The outcome of a check by a command.

    `ok` is None if the check was not carried out; `never`: none of this run is.
    """

    host: str
    run_id: str
    number: int
    ok: bool | None
    text: str
    never: bool = False


@dataclass(frozen=True, slots=True)
class HostEpochRefused:
    """Another owner of the host has a higher epoch: no request of this epoch is carried out."""

    host: str
    epoch: int
    known: int


@dataclass(frozen=True, slots=True)
class KeeperUp:
    """The keeper answers; a listing of every host that sent a hello follows by itself."""


@dataclass(frozen=True, slots=True)
class KeeperDown:
    """The keeper does not answer: nothing is known of any run. Sent once per outage."""

    why: str


RunReport = (
    RunStarted | ContainersMoved | KeeperRunEnded | RunUnknown | KeeperRunsListed | RunChecked
    | KeeperVolumesRemoved | HostEpochRefused | KeeperUp | KeeperDown
)  # fmt: skip


def wire_form(run: RunRequest) -> tuple[wire.KeeperMessage, int]:
    """Return a run in wire form, and its size in bytes. Raises BadRun if it cannot be encoded."""
    if not RUN_ID.fullmatch(run.run_id):
        raise BadRun(run.run_id, "not a run id")
    try:
        form: wire.KeeperMessage = {
            "run": run.run_id,
            "value": run.value,
            "shell": run.shell,
            "arguments": list(run.arguments),
            "environment": dict(run.environment),
            "memory_mb": run.memory_mb,
        }
        names = {"user": run.user, "caller": run.caller, "task_user": run.task_user}
        if any(names.values()):
            form["as"] = names
        if run.checked:
            form["checked"] = True
        if run.max_running_s:
            form["max_running"] = [run.max_running_s, run.grace_s]
        if run.limits is not None:
            form["limits"] = asdict(run.limits)
        if run.container is not None:
            form["container"] = asdict(run.container)
        if run.pod is not None:
            form["pod"] = asdict(run.pod)
        if run.secrets or run.refusal is not None:
            files = [[one.path, base64.b64encode(one.data).decode()] for one in run.secrets]
            form["secrets"] = {"files": files, "refusal": run.refusal}
        if run.volume is not None:
            form["volume"] = asdict(run.volume)
        size_bytes = len(wire.encode(form))
    except (TypeError, ValueError) as trouble:
        raise BadRun(run.run_id, str(trouble)) from trouble
    if size_bytes > RUN_BYTES_MAX:
        why = f"command and environment have {size_bytes} bytes, more than {RUN_BYTES_MAX}"
        raise BadRun(run.run_id, why)
    return form, size_bytes


def read_report(message: wire.KeeperMessage) -> RunReport:
    answer, host = message["a"], message["host"]
    if answer == "started":
        return RunStarted(host, message["run"], message["pid"], message["at"])
    if answer == "containers":
        return ContainersMoved(host, message["run"], read_containers(message))
    if answer == "ended":
        return _read_end(host, message["run"], end=message)
    if answer == "listed":
        runs = tuple(_read_listed(host, run) for run in message["runs"])
        return KeeperRunsListed(host, runs, message["at"], message["keeper"])
    if answer == "unknown":
        return RunUnknown(host, message["run"])
    if answer == "removed":
        return KeeperVolumesRemoved(host, tuple(message["volumes"]))
    if answer == "checked":
        ok, text, never = message["ok"], message["text"], message.get("never", False)
        return RunChecked(host, message["run"], message["number"], ok, text, never)
    if answer == "refused":
        return HostEpochRefused(host, message["epoch"], message["known"])
    raise wire.BadLine(f"an unknown answer: {answer!r}")


def _read_end(host: str, run_id: str, *, end: dict[str, Any]) -> KeeperRunEnded:
    return KeeperRunEnded(
        host,
        run_id,
        end["outcome"],
        end["exit_code"],
        end["signal"],
        end["reason"],
        end["message"],
        end["at"],
        end.get("cpu_s", 0.0),
        end.get("peak_mb", 0.0),
        read_containers(end),
    )


def _read_listed(host: str, run: dict[str, Any]) -> ListedRun:
    end = run["end"]
    ended = None if end is None else _read_end(host, run["run"], end=end)
    return ListedRun(run["run"], run["state"], run["pid"], run["at"], ended, read_containers(run))
