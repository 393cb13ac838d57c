"""The port to files of runs on other machines.

The gateway serves files by this port and knows no backend; a backend that keeps files elsewhere
implements `FarFiles`, and the assembly hands it over. Every call may wait for a machine that does
not answer, for a bounded time, so it is made on threads that may wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol


class NoFile(Exception):
    """No such file or folder exists, or none that may be seen."""


class FilesRemoved(NoFile):
    """Files that existed and were removed; the text says by which rule."""


class FilesAway(Exception):
    """Files that their machine does not give now; the text says why. They may come back."""


class FarRun(NamedTuple):
    """A run, and the name of the host that it is or was on."""

    host: str
    run: str


class FarEntry(NamedTuple):
    """A file or folder in a listing. `mode` includes its kind, as `stat` has it."""

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
        """The size in bytes."""

    def read(self, start: int, length: int) -> bytes:
        """Read up to so many bytes, none at the end. Raises `NoFile` and `FilesAway`."""


class FarFiles(Protocol):
    """The files of the runs of some hosts."""

    def has_host(self, host: str) -> bool:
        """Return whether the files of runs on this host are found here."""

    def manager(self) -> tuple[str, str]:
        """Return address and port of the manager of these hosts; empty if it is not known now."""

    def listing(self, run: FarRun, parts: Sequence[str]) -> list[FarEntry]:
        """Return a folder's entries in the run's sandbox. Raises `NoFile` and `FilesAway`.

        Raises `FilesRemoved` if there is nothing of the run at all.
        """

    def open(self, run: FarRun, parts: Sequence[str]) -> AbstractContextManager[FarFile]:
        """Open a regular file in the run's sandbox; raises as `listing`."""
