"""The messages between a daemon and its keeper, as values.

Turns requests into the keeper's wire form and its answers into reports. It must not judge what a
report means, and has no state.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from peloton.backends.keeper import wire
from peloton.backends.keeper.kinds import RUN_ID
from peloton.backends.keeper.limits import ENFORCE
from peloton.backends.keeper.secret_files import RunSecret
from peloton.backends.keeper_pods import ContainerOfRun as ContainerOfRun
from peloton.backends.keeper_pods import ContainersMoved as ContainersMoved
from peloton.backends.keeper_pods import PodPart as PodPart
from peloton.backends.keeper_pods import RunPod as RunPod
from peloton.backends.keeper_pods import read_containers

RunStateName = Literal["queued", "running", "ended"]
OutcomeName = Literal["SUCCEEDED", "FAILED", "KILLED", "LOST"]

RUN_BYTES_MAX = 4 * 1024 * 1024
"""Twice what a kernel takes for a program's arguments and environment."""
EARLIER_KEEPER = (
    "this keeper is of an earlier version and would start the run as its own user: end it with "
    "SIGTERM (its pid is in its file `lock`), it exits once its runs have ended"
)
"""Stands where a keeper of an earlier version expects a number, in requests that it must not obey:
it does not know the field that names the account, and refuses the run with this text."""
EARLIER_LIMITS = (
    "this keeper is of an earlier version and would not hold the run to its limits: end it with "
    "SIGTERM (its pid is in its file `lock`), it exits once its runs have ended"
)
"""The same for runs that must not begin without limits."""
EARLIER_IMAGES = (
    "this keeper is of an earlier version and would start the run without its image: end it with "
    "SIGTERM (its pid is in its file `lock`), it exits once its runs have ended"
)
"""The same for runs that are containers."""
EARLIER_SECRETS = (
    "this keeper is of an earlier version and would start the run without its secrets: end it with "
    "SIGTERM (its pid is in its file `lock`), it exits once its runs have ended"
)
"""The same for runs with secrets."""


EARLIER_PODS = (
    "this keeper is of an earlier version and would start one container of several: end it with "
    "SIGTERM (its pid is in its file `lock`), it exits once its runs have ended"
)
"""The same for runs of several containers."""
EARLIER_VOLUMES = (
    "this keeper is of an earlier version and would start the run without its volume: end it with "
    "SIGTERM (its pid is in its file `lock`), it exits once its runs have ended"
)
"""The same for runs that have volumes."""


_NEVER = "not carried out"
"""What keepers of earlier versions say of a command for a run of which they carry out none."""
_READ_FIRST = ("limits", "container", "pod")


class BadRun(Exception):
    """A run that cannot be requested, and why."""

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(why)
        self.run_id = run_id


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What a run may use besides memory, and what to do where no control group holds it to that
    (`keeper/limits.py`). 0 is no limit."""

    mode: str
    cpu: float = 0.0
    cpu_quota: bool = False
    pids: int = 0
    disk_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class RunContainer:
    """The image that a run is started from, the program of the engine that does it, and the
    indices of the gpus that it gets."""

    engine: str
    image: str
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RunVolume:
    """The volume of a run (`keeper/volumes.py`): where the run sees it, and how much it holds."""

    name: str
    path: str
    mb: float


@dataclass(frozen=True, slots=True)
class RunRequest:
    """`/bin/sh -c value` if `shell`, else exec of `value` with `arguments` as the whole argv
    (the first is the name the program sees; none at all means `value` alone). `user`, `caller` and
    `task_user` name its account (`keeper/accounts.py`); without them it runs as the keeper's.
    Without `limits` it is in no control group, and its memory alone is watched. With `container`
    it is one; with `pod` it consists of several, and its own command is not run. `checked`: its
    health will be checked by commands. `volume` is a directory of its own that outlives it. With
    `refusal` (outcome, reason and message) it is not started, unless it is known already: that is
    how it ends. After `max_running_s` it is told to end, and killed `grace_s` later; keepers of
    earlier versions leave that to their daemons."""

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
    """`exit_code` and `signal` are what the process left with; both None if nobody knows.

    `cpu_s` is of the first process and of those it has waited for, `peak_mb` of all in the control
    group, else of the largest process; 0 if not known."""

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
    """The answer to the kill of a run the keeper has no record of."""

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
    """All runs of a host that are not acknowledged. A launch made after the listing was
    requested may be missing in it. `keeper` is the identity of the keeper; empty if it is of an
    earlier version. `asked_at` is the time that was passed with the request; -inf for a list that
    nobody requested."""

    host: str
    runs: tuple[ListedRun, ...]
    at: float
    keeper: str = ""
    asked_at: float = -math.inf


@dataclass(frozen=True, slots=True)
class HelloAnswered:
    """`checks`: the keeper is of a version that checks health by commands; `removes`: that removes
    volumes; `holds`: that holds the files of jobs; `limits`: that ends runs which take too long."""

    host: str
    epoch: int
    checks: bool = False
    removes: bool = False
    holds: bool = False
    limits: bool = False


@dataclass(frozen=True, slots=True)
class KeeperVolumesRemoved:
    """These volumes are gone, or never were there, by their names at the keeper."""

    host: str
    volumes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunChecked:
    """The outcome of a check by a command; None: it was not carried out, and `never`: none of this
    run is."""

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
    """Nothing is known of any run for now. Sent once for each outage and reason."""

    why: str


RunReport = (
    RunStarted | ContainersMoved | KeeperRunEnded | RunUnknown | KeeperRunsListed | RunChecked
    | HelloAnswered | KeeperVolumesRemoved | HostEpochRefused | KeeperUp | KeeperDown
)  # fmt: skip


def wire_form(run: RunRequest) -> tuple[wire.KeeperMessage, int]:
    """A run in wire form, and its size in bytes. Raises BadRun if it cannot be encoded."""
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
            form |= {"memory_mb": EARLIER_KEEPER, "limit_mb": run.memory_mb, "as": names}
        if run.checked:
            form["checked"] = True
        if run.max_running_s:
            form["max_running"] = [run.max_running_s, run.grace_s]
        if run.limits is not None:
            form["limits"] = {"memory_mb": run.memory_mb, **asdict(run.limits)}
            if run.limits.mode == ENFORCE:
                form |= {"memory_mb": EARLIER_LIMITS, "limit_mb": EARLIER_LIMITS}
        if run.container is not None:
            form |= {"memory_mb": EARLIER_IMAGES, "limit_mb": EARLIER_IMAGES}
            form["container"] = {
                **asdict(run.container),
                "memory_mb": run.memory_mb,
                # A keeper that knows limits and no containers would read them elsewhere.
                "limits": form.pop("limits", None),
            }
        if run.pod is not None:
            form |= {"memory_mb": EARLIER_PODS, "limit_mb": EARLIER_PODS}
            limits = form.pop("limits", None)
            form["pod"] = {**asdict(run.pod), "memory_mb": run.memory_mb, "limits": limits}
        if run.secrets or run.refusal is not None:
            _put_secrets(form, run)
        if run.volume is not None:
            _put_volume(form, run, volume=run.volume)
        size_bytes = len(wire.encode(form))
    except (TypeError, ValueError) as trouble:
        raise BadRun(run.run_id, str(trouble)) from trouble
    if size_bytes > RUN_BYTES_MAX:
        why = f"command and environment have {size_bytes} bytes, more than {RUN_BYTES_MAX}"
        raise BadRun(run.run_id, why)
    return form, size_bytes


def _put_secrets(form: wire.KeeperMessage, run: RunRequest) -> None:
    """Wherever keepers of earlier versions look for a number they find the text."""
    form |= {"memory_mb": EARLIER_SECRETS, "limit_mb": EARLIER_SECRETS}
    for name in ("limits", "container", "pod"):
        if name in form:
            form[name] = {**form[name], "memory_mb": EARLIER_SECRETS}
    files = [[one.path, base64.b64encode(one.data).decode()] for one in run.secrets]
    form["secrets"] = {"memory_mb": run.memory_mb, "files": files, "refusal": run.refusal}


def _put_volume(form: wire.KeeperMessage, run: RunRequest, *, volume: RunVolume) -> None:
    form |= {"memory_mb": EARLIER_VOLUMES, "limit_mb": EARLIER_VOLUMES}
    # A keeper that knows these and no volumes would read them elsewhere.
    inner = {name: form.pop(name) for name in _READ_FIRST if name in form}
    if "secrets" in form:  # a keeper that knows these obeys the number there
        form["secrets"] = {**form["secrets"], "memory_mb": EARLIER_VOLUMES}
    form["volume"] = {**asdict(volume), "memory_mb": run.memory_mb, "run": inner}


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
        return KeeperRunsListed(host, runs, message["at"], message.get("keeper", ""))
    if answer == "unknown":
        return RunUnknown(host, message["run"])
    if answer == "hello":
        able = (bool(message.get(what, False)) for what in ("checks", "removes", "holds", "limits"))
        return HelloAnswered(host, message["epoch"], *able)
    if answer == "removed":
        return KeeperVolumesRemoved(host, tuple(message["volumes"]))
    if answer == "checked":
        ok, text = message["ok"], message["text"]
        never = bool(message.get("never", text == _NEVER))
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
