"""The port to files of runs that lie on other machines, behind whatever runs tasks there.

The gateway serves files by these words and knows no backend; a backend that keeps files elsewhere
implements `FarFiles`, and the assembly hands it over. Everything here may wait for a machine that
does not answer, for a bounded time, so it is called on threads that may. It must not read more of
a file than it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol


class NoFile(Exception):
    """There is no such file or folder, or none that may be seen."""


class FilesRemoved(NoFile):
    """They were there, and are no more: the text says by which rule."""


class FilesAway(Exception):
    """The machine that has them does not give them: the text says why. They may come back."""


class FarRun(NamedTuple):
    """A run, and the name of the host that it is or was on."""

    host: str
    run: str


class FarEntry(NamedTuple):
    """A file or folder in a listing. `mode` has its kind, as `stat` has it."""

    name: str
    size: int
    mtime: float
    mode: int
    nlink: int
    uid: str
    gid: str


class FarFile(Protocol):
    """A regular file, as it was when it was opened; it may have grown since."""

    @property
    def size(self) -> int:
        """In bytes."""

    def read(self, start: int, length: int) -> bytes:
        """So many bytes or fewer, none at its end; raises `NoFile` and `FilesAway`."""


class FarFiles(Protocol):
    """The files of the runs of some hosts."""

    def has_host(self, host: str) -> bool:
        """Whether the files of runs on this host are found here."""

    def manager(self) -> tuple[str, str]:
        """Address and port of what manages these hosts; empty where it is not known now."""

    def listing(self, run: FarRun, parts: Sequence[str]) -> list[FarEntry]:
        """What is in a folder of its sandbox, by name; raises `NoFile` and `FilesAway`.

        `FilesRemoved` where there is nothing of the run at all.
        """

    def open(self, run: FarRun, parts: Sequence[str]) -> AbstractContextManager[FarFile]:
        """A regular file of its sandbox; raises as `listing`."""
