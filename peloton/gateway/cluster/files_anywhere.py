"""The files of runs wherever they lie: below a folder of this machine, or on another one.

The path says which: `/RUN/stdout` is here, `/RUN@HOST/stdout` is on that host. Both are answered in
the same form.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from peloton.gateway.cluster.sandboxes import CUSTOMARY, LISTED_MAX, SandboxFiles, run_and_parts
from peloton.runtime.far_files import FarEntry, FarFile, FarFiles, FarRun, NoFile

AT = "@"
PIECE_BYTES = 64 * 1024


class FileRoots(NamedTuple):
    """The folder below which files are here, and the sources of files on other machines."""

    here: Path
    far: Sequence[FarFiles] = ()


class OpenFile(NamedTuple):
    """An open file: `read` takes where to begin and how much to read at most."""

    size: int
    read: Callable[[int, int], bytes]

    def pieces(self, start: int) -> Iterator[bytes]:
        """Yield the bytes from there to the end that the file had when it was opened."""
        while start < self.size:
            piece = self.read(start, min(PIECE_BYTES, self.size - start))
            if not piece:
                return
            start += len(piece)
            yield piece


class FilesAnywhere:
    """The files of `here` and `far`, by one kind of path."""

    def __init__(self, here: SandboxFiles, far: Sequence[FarFiles] = ()) -> None:
        self.here = here
        self._far = far

    def far_of(self, host: str) -> FarFiles | None:
        """Return the source of files of runs on this host, if they are not here."""
        return next((each for each in self._far if each.has_host(host)), None)

    def far_paths(self, far: FarFiles, run: FarRun, *, over: bool) -> list[str]:
        """Return the paths of a run's files on another machine; the customary ones while none
        are there."""
        try:
            names = [e.name for e in far.listing(run, ()) if stat.S_ISREG(e.mode)][:LISTED_MAX]
        except NoFile:
            if over:
                raise
            names = [*CUSTOMARY]
        return self.here.signed(f"{run.run}{AT}{run.host}", names)

    def rows(self, path: str) -> list[dict[str, Any]]:
        """Return what is in a folder, as it is told over HTTP."""
        far = self._far_run(path)
        if far is None:
            return [_row(entry.path, entry.status) for entry in self.here.listing(path)]
        files, run, first, parts = far
        found = files.listing(run, parts)[:LISTED_MAX]
        return [_far_row("/" + "/".join((first, *parts, entry.name)), entry) for entry in found]

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[OpenFile]:
        """Open a regular file."""
        far = self._far_run(path)
        if far is None:
            with self.here.open(path) as file:
                size = os.fstat(file).st_size
                yield OpenFile(size, lambda start, length: os.pread(file, length, start))
            return
        files, run, _, parts = far
        if not parts:
            raise NoFile(path)
        with files.open(run, parts) as found:
            yield _opened(found)

    def _far_run(self, path: str) -> tuple[FarFiles, FarRun, str, list[str]] | None:
        if AT not in path or not self._far:
            return None
        first, parts = run_and_parts(path)
        run, separator, host = first.partition(AT)
        if not separator:
            return None
        far = self.far_of(host)
        if far is None:
            raise NoFile(path)
        return far, FarRun(host, run), first, parts


def _opened(found: FarFile) -> OpenFile:
    return OpenFile(found.size, found.read)


def _row(path: str, status: os.stat_result) -> dict[str, Any]:
    entry = FarEntry(
        "", status.st_size, status.st_mtime, status.st_mode, status.st_nlink,
        str(status.st_uid), str(status.st_gid),
    )  # fmt: skip
    return _far_row(path, entry)


def _far_row(path: str, entry: FarEntry) -> dict[str, Any]:
    return {
        "path": path,
        "size": entry.size,
        "mtime": entry.mtime,
        "mode": stat.filemode(entry.mode),
        "nlink": entry.nlink,
        "uid": entry.uid,
        "gid": entry.gid,
    }
