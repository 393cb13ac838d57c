"""The command lines of a container engine, podman or docker, for a run.

Turns a run into the arguments that create its container, and the content of its file of variables.
A text of the run must not be taken for an option or for another image than the one it names, nor be
seen by other users of the machine if it may be a secret.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .kinds import KeeperRun, Record
from .limits import limits_of, memory_limit_mb

PODMAN, DOCKER = "podman", "docker"
ENGINES = (PODMAN, DOCKER)
"""The first is preferred."""
CONTAINER_SANDBOX = "/mnt/mesos/sandbox"
"""Where the sandbox is in the container: where Mesos has it."""
ENVIRONMENT_FD = 5
KEEPER_LABEL, RUN_LABEL = "peloton.keeper", "peloton.run"
IMAGE_CHARS_MAX = 512
_MB = 1024 * 1024
_CPU_SHARES, _SHARES_LEAST, _SHARES_MOST = 1024, 2, 262144
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_TAG = r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"@[A-Za-z0-9]+:[0-9a-fA-F]{32,128}"
_IMAGE = re.compile(f"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?:{_TAG})?(?:{_DIGEST})?")
# podman reads `dir:x` as the folder x of this machine, not as an image `dir` with a tag.
_TRANSPORTS = re.compile(
    "(atomic|containers-storage|dir|docker-archive|docker-daemon|oci|oci-archive|ostree|sif"
    "|tarball):"
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class ContainerRefused(Exception):
    """The run cannot be a container; the text says why."""


class RunUser(NamedTuple):
    """The user of a container, by numbers: its image need not know any name."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class ContainerSettings(NamedTuple):
    """The surroundings of a container: the keeper's mark, the sandbox, and the keeper's own limits.

    Limits are soft and hard, -1 for none, by the names that engines give them. `volume` is the
    directory of the run's volume, if it has one.
    """

    mark: str
    sandbox: str
    ulimits: Mapping[str, tuple[int, int]]
    volume: str = ""


def container_of(sent: Any) -> Record:
    """Return a request's container, checked. Raises ValueError, LookupError, TypeError."""
    engine, image = str(sent["engine"]), str(sent["image"])
    if not os.path.isabs(engine) or os.path.basename(engine) not in ENGINES:
        raise ValueError(f"not a container engine: {engine!r}")
    why = image_problem(image)
    if why:
        raise ValueError(why)
    found = {"engine": engine, "image": image}
    gpus = [int(one) for one in sent.get("gpus", ())]
    if min(gpus, default=0) < 0:
        raise ValueError(f"not indices of gpus: {gpus}")
    return found | {"gpus": gpus} if gpus else found


def image_problem(image: str) -> str:
    """Return why this cannot be the name of an image; empty if it can."""
    if len(image) > IMAGE_CHARS_MAX or not _IMAGE.fullmatch(image):
        return f"not the name of an image: {image[:IMAGE_CHARS_MAX]!r}"
    if _TRANSPORTS.match(image):
        return f"{image!r} names a place of this machine; write it with its registry"
    return ""


def name_of(mark: str, run_id: str) -> str:
    """Return the name of the run's container, which an engine accepts only once."""
    return f"peloton-{mark}-{run_id}"


def create_arguments(
    run: KeeperRun, place: ContainerSettings, *, user: RunUser | None = None
) -> list[str]:
    """Return all arguments after the engine's own name. Raises ContainerRefused."""
    if ":" in place.sandbox:
        raise ContainerRefused(f"an engine cannot mount {place.sandbox}: its path has a colon")
    found = [
        "create",
        f"--name={name_of(place.mark, run.run_id)}",
        f"--label={KEEPER_LABEL}={place.mark}",
        f"--label={RUN_LABEL}={run.run_id}",
        "--network=host",  # its ports are the host's, as those of any other run
        "--log-driver=none",  # its output goes to the sandbox
        f"--env-file=/dev/fd/{ENVIRONMENT_FD}",
        f"--volume={place.sandbox}:{CONTAINER_SANDBOX}",
        *([f"--volume={place.volume}:{volume_path(run)}"] if place.volume else []),
        f"--workdir={CONTAINER_SANDBOX}",
        *_secret_arguments(run),
        *(f"--ulimit={name}={low}:{high}" for name, (low, high) in place.ulimits.items()),
        *_user_arguments(user),
        *_limit_arguments(run),
        *_gpu_arguments(run),
    ]
    return found + _command_arguments(run)


def _secret_arguments(run: KeeperRun) -> list[str]:
    """Return the mounts of secrets; a path that is not absolute is in the sandbox."""
    found = []
    for file, path in run.command.get("mounts", ()):
        place = os.path.normpath(os.path.join(CONTAINER_SANDBOX, path))
        if ":" in file or ":" in place:
            raise ContainerRefused(f"an engine cannot mount a secret at {path!r}: it has a colon")
        found.append(f"--volume={file}:{place}:ro")
    return found


def volume_path(run: KeeperRun) -> str:
    """Return the path at which a container sees the volume of its run.

    A path that is not absolute begins at the sandbox.
    """
    return os.path.join(CONTAINER_SANDBOX, str(run.volume["path"]))


def _user_arguments(user: RunUser | None) -> list[str]:
    """Return the arguments that set the user, and keep programs from gaining privileges.

    The image is the caller's choice: a program of it that becomes root could leave another such
    program in the sandbox, which is on the host.
    """
    if user is None:
        return []
    groups = [f"--group-add={group}" for group in user.groups if group != user.gid]
    dropped = ["--cap-drop=ALL", "--security-opt=no-new-privileges"] if user.uid else []
    return [f"--user={user.uid}:{user.gid}", *groups, *dropped]


def _limit_arguments(run: KeeperRun) -> list[str]:
    """Return the limits, with that of memory in every mode: nobody else watches it."""
    wanted, found = limits_of(run), []
    memory_bytes = int(memory_limit_mb(run) * _MB)
    if memory_bytes:
        # With swap, the limit would only make the run slow.
        found += [f"--memory={memory_bytes}b", f"--memory-swap={memory_bytes}b"]
    if wanted.cpus:
        shares = max(_SHARES_LEAST, min(_SHARES_MOST, round(wanted.cpus * _CPU_SHARES)))
        found.append(f"--cpu-shares={shares}")
    if wanted.cpus and wanted.cpu_quota:
        found.append(f"--cpus={max(wanted.cpus, 0.01):.2f}")
    # Engines have a limit of their own where none is named.
    return [*found, f"--pids-limit={wanted.pids or -1}"]


def _gpu_arguments(run: KeeperRun) -> list[str]:
    """Return the arguments that give the gpus.

    podman takes the names of the container device interface (CDI), docker a list that it reads as a
    line of CSV, so that it has to be quoted.
    """
    gpus = run.container.get("gpus", ())
    if not gpus:
        return []
    if os.path.basename(run.container["engine"]) == PODMAN:
        return [f"--device=nvidia.com/gpu={one}" for one in gpus]
    return [f'--gpus="device={",".join(map(str, gpus))}"']


def _command_arguments(run: KeeperRun) -> list[str]:
    """Return the program and its arguments: the run's, never the image's own entry point.

    An engine names the program as its first argument, so another name in its place is lost.
    """
    value, arguments = run.command["value"], run.command["arguments"]
    if run.command["shell"]:
        program, rest = "/bin/sh", ["-c", value]
    else:
        program, rest = value, arguments[1:]
    if not program:
        raise ContainerRefused("it names no command")
    # podman reads a text that begins with a bracket as a list, and docker reads none as one.
    podman = os.path.basename(run.container["engine"]) == PODMAN
    entry = json.dumps([program]) if podman else program
    return [f"--entrypoint={entry}", run.container["image"], *rest]


def environment_file(environment: Mapping[str, str]) -> bytes:
    """Return one line for each variable. Raises ContainerRefused for what the form cannot hold."""
    lines = []
    for name, value in {"MESOS_SANDBOX": CONTAINER_SANDBOX, **environment}.items():
        if not _VARIABLE.fullmatch(name):
            raise ContainerRefused(f"variable {name!r}: an engine does not take such a name")
        if "\n" in value or "\r" in value:
            raise ContainerRefused(f"variable {name}: an engine does not take a line break in it")
        lines.append(f"{name}={value}\n")
    return "".join(lines).encode()
