"""What a run is: its command, containers and ports, what is fetched for it, and its secrets.

A run of a pod with several containers has them in its spec; one with a single container has none
there, as its command is the run's own. How a container is started is its backend's business.

What a config says of a secret is which one, and where its run finds it; never what it holds. These
values are journaled and shown to everybody who may see the job. The data lies in a store of its
own, and is read only where a run is started.
"""

from __future__ import annotations

from collections.abc import Sequence

from peloton.actors.host.machine_messages import VolumeConfig
from peloton.actors.resources import Resources
from peloton.actors.task.run_messages import HealthCheck
from peloton.placement.messages import Constraint, Label, port_label
from peloton.runtime.vocabulary import Value


class Port(Value, frozen=True, gc=False, array_like=True):
    """A port of a run: a fixed number, or 0 for one that the host picks and passes in `env`."""

    name: str
    number: int = 0
    env: str = ""


class Uri(Value, frozen=True, gc=False, array_like=True):
    """A file that is fetched into the sandbox before the command begins.

    It is named `output_file`, or as at its source. `extract`: an archive is unpacked as well.
    `cache`: a copy kept earlier may be used.
    """

    value: str
    executable: bool = False
    extract: bool = True
    cache: bool = False
    output_file: str = ""


class MesosWords(Value, frozen=True, gc=False, array_like=True):
    """The parts of a run that only hosts of Mesos understand, as JSON in the format of Mesos; or
    "".

    `executor`: the description of the executor that runs the command, without what follows from the
    run. `container`: the container, if it is more than an image in Mesos' own container type.
    """

    executor: str = ""
    container: str = ""


class Container(Value, frozen=True, gc=False, array_like=True):
    """One of several containers in a pod: its command, as in a `Command`, and its own variables.

    The variables are added to the run's. Containers with `init` are started first, one after the
    other, and have to exit with 0 before the others are started together.
    """

    name: str
    value: str
    shell: bool = True
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    image: str = ""
    init: bool = False


SECRETS_MAX = 64
"""Of one job."""
PATH_CHARS_MAX = 1024
_LOGS = (("stdout",), ("stderr",))


class SecretRef(Value, frozen=True, gc=False, array_like=True):
    """A secret by its id in the store of secrets, and the path of its file."""

    id: str
    path: str


class RunSpec(Value, frozen=True, gc=False, array_like=True):
    """What a host needs to run one instance; shared by all members with the same config.

    With several `containers`, the command is that of the first which is no init container. `user`
    and `caller` are as in a `Command`. `apart` is one of `labels`: the host accepts no more runs
    with it than the launch allows. `asks`: the slice ends the run if the host goes down.
    `max_running_s`: a backend that can ends the run after so long.
    """

    resources: Resources
    value: str
    shell: bool = True
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    ports: tuple[Port, ...] = ()
    kill_grace_s: float = 30.0
    image: str = ""  # backends without containers report that they ignore it
    user: str = ""
    caller: str = ""
    labels: tuple[Label, ...] = ()
    constraint: Constraint | None = None
    apart: Label | None = None
    priority: int = 0  # of those on slack
    asks: bool = False
    containers: tuple[Container, ...] = ()
    check: HealthCheck | None = None
    secrets: tuple[SecretRef, ...] = ()
    volume: VolumeConfig | None = None  # made with the grant, unless the host has it
    uris: tuple[Uri, ...] = ()
    mesos: MesosWords | None = None
    max_running_s: float | None = None

    @property
    def once_started(self) -> RunSpec | None:
        """Return what a host keeps of the spec while the run goes on: how it is checked."""
        return None if self.check is None else RunSpec(self.resources, "", check=self.check)

    @property
    def all_labels(self) -> tuple[Label, ...]:
        """Return the labels that the host counts while it holds such a run, including those of
        fixed ports."""
        return (*self.labels, *(port_label(port.number) for port in self.ports if port.number))


def place(path: str) -> tuple[str, ...]:
    """Return the parts of a path below a sandbox: an absolute one begins there as well."""
    return tuple(part for part in path.split("/") if part not in ("", "."))


def path_problem(path: str) -> str:
    """Return why a file cannot have this path below a sandbox; empty if it can."""
    parts = place(path)
    if not parts or path.endswith("/"):
        return "names no file"
    if ".." in parts:
        return "leaves the sandbox"
    if not path.isprintable():
        return "has a character that cannot be printed"
    if len(path) > PATH_CHARS_MAX:
        return f"has {len(path)} characters, the limit is {PATH_CHARS_MAX}"
    return "is the log of a run" if parts in _LOGS else ""


def clash(paths: Sequence[str]) -> str:
    """Return which two of these paths exclude each other; empty if all can exist together."""
    known: dict[tuple[str, ...], str] = {}
    for path in paths:
        if place(path) in known:
            return f"{path} and {known[place(path)]} are the same file"
        known[place(path)] = path
    for path in paths:
        parts = place(path)
        for length in range(1, len(parts)):
            if parts[:length] in known:
                return f"{path} lies below {known[parts[:length]]}, which is a file"
    return ""
