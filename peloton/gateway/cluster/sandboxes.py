"""The files that runs leave behind, opened one folder at a time below one root.

A path is walked by descriptors that follow no link, so nothing outside of the root can be reached,
even by a change between a check and an open: no path is ever resolved as a text. In the sandbox of
another account, files of a third one are not served either: they are hard links to what that
account may not read. A pipe is not served, as reading it would block.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from peloton.gateway.access.file_links import FileLinks
from peloton.runtime.far_files import FilesRemoved, NoFile

REMOVED_FILES = ("removed", "removed.before")
"""Beside the sandboxes; the older one last. Each line: run, rule, the rule's number, time."""
RULES = {
    "count": "of ended runs those of {limit:.0f} are kept (keep_sandboxes)",
    "age": "those of ended runs are kept for {limit:g} s (keep_sandboxes_for)",
    "bytes": "those of ended runs may take {limit:.0f} MB, the oldest go (keep_sandboxes_mb)",
    "free": "{limit:.0f} MB of the disk, or 5 % of it, stay free (keep_sandboxes_free_mb)",
}
LISTED_MAX = 1000
FOLDERS_DEEP_MAX = 32
CUSTOMARY = ("stdout", "stderr")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileEntry(NamedTuple):
    """A file in a listing."""

    path: str
    status: os.stat_result


class SandboxFiles:
    """The sandboxes below `root`, each at `RUN`; and the address that serves them.

    Sandboxes of runs since a rollback of the journal was accepted have its number: the newest
    counts.
    """

    def __init__(
        self, root: Path | None, address: tuple[str, int], *, links: FileLinks | None = None
    ) -> None:
        """Take the root and the address; `links` signs the paths for clients, if the server asks
        for that."""
        self._root = root
        self._links = links
        self._generation = _generation(root) if root is not None else 0
        self.address = address

    @property
    def leaves_files(self) -> bool:
        """Return whether runs leave files on this machine at all."""
        return self._root is not None

    def has(self, run: str) -> bool:
        """Return whether the files of a run are here."""
        try:
            with self._folder(run, []):
                return True
        except NoFile:
            return False

    def why_removed(self, run: str) -> str:
        """Return by which rule the files of a run were removed; empty if they were not, or long
        ago."""
        try:
            with self._folder(run, []):
                return ""
        except FilesRemoved as removed:
            return str(removed)
        except NoFile:
            return ""

    def names(self, run: str) -> list[str]:
        """Return the files at the top of a run's sandbox; the customary ones if none can be
        seen."""
        try:
            found = [e for e in self.listing(f"/{run}") if stat.S_ISREG(e.status.st_mode)]
        except NoFile:
            return [*CUSTOMARY]
        return sorted(entry.path.rpartition("/")[2] for entry in found)

    def paths(self, run: str) -> list[str]:
        """Return the paths of the same files, as clients are to ask for them."""
        return self.signed(run, self.names(run))

    def signed(self, first: str, names: Iterable[str]) -> list[str]:
        """Return paths of files below `first`, as clients are to ask for them."""
        proof = f"/{self._links.proof(first)}" if self._links is not None else ""
        return [f"{proof}/{first}/{name}" for name in names]

    def listing(self, path: str) -> list[FileEntry]:
        """Return what is in a folder, by name; without links, and names that are not UTF-8.

        Such a name can be sent in no message and is part of no path that a client can ask for.
        """
        run, parts = run_and_parts(path)
        with self._folder(run, parts) as (folder, _):
            found = []
            names = sorted(filter(_is_utf8, os.listdir(folder)))
            for name in names[:LISTED_MAX]:
                with contextlib.suppress(OSError):
                    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if not stat.S_ISLNK(status.st_mode):
                        found.append(FileEntry("/" + "/".join((run, *parts, name)), status))
            return found

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[int]:
        """Open a regular file and yield its descriptor."""
        run, parts = run_and_parts(path)
        if not parts:
            raise NoFile(path)
        with self._folder(run, parts[:-1]) as (folder, owner):
            try:
                file = os.open(parts[-1], _FILE, dir_fd=folder)
            except OSError as error:
                raise NoFile(path) from error
        try:
            found = os.fstat(file)
            foreign = owner != os.geteuid() and found.st_uid != owner
            if foreign or not stat.S_ISREG(found.st_mode):
                raise NoFile(path)
            yield file
        finally:
            os.close(file)

    @contextlib.contextmanager
    def _folder(self, run: str, parts: list[str]) -> Iterator[tuple[int, int]]:
        """Yield the descriptor of a folder, and the user who owns its sandbox."""
        if self._root is None:
            raise NoFile("no sandboxes here")
        folder = -1
        try:
            folder = os.open(self._root, _FOLDER)
            folder = _enter(folder, self._newest(run, folder))
            owner = os.fstat(folder).st_uid
            for part in parts:
                folder = _enter(folder, part)
        except OSError as error:
            if folder >= 0:
                os.close(folder)
            raise self._missing(run, parts, because=error) from error
        try:
            yield folder, owner
        finally:
            os.close(folder)

    def _missing(self, run: str, parts: list[str], *, because: OSError) -> NoFile:
        if isinstance(because, FileNotFoundError) and self._root is not None:
            why = why_removed(self._root.parent, self._all_names(run))
            if why and not any((self._root / name).exists() for name in self._all_names(run)):
                return FilesRemoved(why)
        return NoFile("/".join((run, *parts)))

    def _newest(self, run: str, root: int) -> str:
        return next((name for name in self._all_names(run) if _is_there(name, root)), run)

    def _all_names(self, run: str) -> list[str]:
        """Return the names that a run's folder may have, the newest first."""
        return [*(f"{run}.g{number}" for number in range(self._generation, 0, -1)), run]


def _generation(root: Path) -> int:
    """Return the generation, which the keeper's folder has beside the sandboxes."""
    try:
        return int((root.parent / "generation").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _enter(folder: int, name: str) -> int:
    """Open a folder within another one, which is closed if there is one."""
    inner = os.open(name, _FOLDER, dir_fd=folder)
    os.close(folder)
    return inner


def _is_there(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_utf8(name: str) -> bool:
    """Return whether a name is UTF-8: Python marks other bytes by lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def run_and_parts(path: str) -> tuple[str, list[str]]:
    """Return the run and the parts below its sandbox; raises NoFile for any other path."""
    parts = [part for part in path.split("/") if part]
    strange = any(part in (".", "..") or "\0" in part for part in parts)
    if not parts or strange or len(parts) > FOLDERS_DEEP_MAX:
        raise NoFile(path)
    return parts[0], parts[1:]


def why_removed(folder: Path, names: Collection[str]) -> str:
    """Return why the sandbox of a run, under any of these names, is not there; empty: unknown.

    Nothing may depend on these lines of the keeper, which are a courtesy.
    """
    for file in REMOVED_FILES:
        try:
            lines = (folder / file).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for line in reversed(lines):
            run, _, rest = line.partition("\t")
            if run in names:
                return _removed_text(run, rest)
    return ""


def _removed_text(run: str, rest: str) -> str:
    try:
        rule, limit, at = rest.split("\t")
        when = datetime.datetime.fromtimestamp(float(at), datetime.UTC)
        because = RULES[rule].format(limit=float(limit))
    except (ValueError, KeyError, OverflowError):
        return ""
    return f"the files of run {run} were removed at {when:%Y-%m-%d %H:%M:%SZ}: {because}"
