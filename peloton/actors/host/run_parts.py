"""What a run consists of: its containers, its ports, what is fetched for it, and its secrets.

A run of a pod with several containers has them in its spec; one with a single container has none
there, as its command is the run's own. It must not say how a container is started.

What a config says of a secret is which one, and where its run finds it; never what it holds. These
values are journaled and shown to everybody who may see the job. The data lies in a store of its
own, and is read only where a run is started.
"""

from __future__ import annotations

from collections.abc import Sequence

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
