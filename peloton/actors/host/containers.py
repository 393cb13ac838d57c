"""What a run consists of: its containers, its ports, and what is fetched for it.

A run of a pod with several containers has them in its spec; one with a single container has none
there, as its command is the run's own. It must not say how a container is started.
"""

from __future__ import annotations

from peloton.runtime.vocabulary import Value


class Port(Value, frozen=True, gc=False, array_like=True):
    """A port of a run: a fixed number, or 0 for one that the host picks and passes in `env`."""

    name: str
    number: int = 0
    env: str = ""


class Uri(Value, frozen=True, gc=False, array_like=True):
    """A file that is fetched into the sandbox before the command begins, named `output_file` or as
    at its source. `extract`: an archive is unpacked as well. `cache`: it may be one kept earlier.
    """

    value: str
    executable: bool = False
    extract: bool = True
    cache: bool = False
    output_file: str = ""


class MesosWords(Value, frozen=True, gc=False, array_like=True):
    """What of a run only hosts of Mesos understand, in the words of Mesos, as JSON; or "".

    `executor`: the description of the one that runs the command, but for what follows from the run.
    `container`: in what it runs, where that is more than an image in one of Mesos' own kind.
    """

    executor: str = ""
    container: str = ""


class Container(Value, frozen=True, gc=False, array_like=True):
    """One of several in a pod: its command as in a `Command`, and its variables beside the run's.

    Those with `init` come first, are started one after the other, and have to exit with 0 before
    the others are started together.
    """

    name: str
    value: str
    shell: bool = True
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    image: str = ""
    init: bool = False
