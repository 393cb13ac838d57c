"""A disk for a real keeper that is killed: it numbers all calls, fails at one, and can forget.

Turns a planned fault into what the keeper's file calls do in its own process, and keeps beside the
keeper's folder what would be left after a power cut: of each file the bytes of its last sync, of
each folder the names of its last sync. `cut_power` makes the folder so. A call before the planned
one is left as it is.

    calls        one line for each call: number, name, path
    failing      the fault has begun; while `mended` is missing, a lasting one goes on
    shadow/      what is safe: synced/INODE, names.json; kept/INODE holds the inode's number
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from peloton.backends.keeper.disk import Disk

CALLS = (
    "open", "read", "write", "close", "fsync", "fdatasync", "ftruncate", "stat", "chmod", "mkdir",
    "scandir", "rename", "link", "unlink", "rmdir",
)  # fmt: skip
CHANGES = (
    "write", "fsync", "fdatasync", "ftruncate", "mkdir", "rename", "link", "unlink", "chmod",
    "rmdir",
)  # fmt: skip
ROOM = ("write", "mkdir", "rename", "link", "fsync", "fdatasync")
"""What a full disk refuses; delayed allocation lets even a sync find no room."""

KERNELS = ("/proc/", "/sys/")
"""Files that no power cut has to bring back."""


class PlannedFault(NamedTuple):
    """At which call what happens. Call 0: nothing.

    at: its number, or its name and path: the first such call.
    what: "kill", "error", or "short" (half of a write; the next call is as always).
    late: behind the call, which has its effect.
    lasts: every change fails from there on, until the file `mended` is made.
    """

    at: int | str = 0
    what: str = "kill"
    late: bool = False
    number: int = errno.EIO
    lasts: bool = False


class BenchDisk(Disk):
    """The disk of one life of a keeper, whose working folder is its folder."""

    def __init__(self, bench: Path, fault: PlannedFault) -> None:
        self._bench = bench
        self._fault = fault
        self._count = 0
        self._failing = self._struck = False
        self._paths: dict[int, str] = {}
        self._gone: dict[int, tuple[int, int]] = {}  # inode → bytes that a failed sync dropped
        self._log = os.open(bench / "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for name in CALLS:
            setattr(self, name, self._numbered(name, getattr(os, name)))

    def _numbered(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._count += 1
            first = arguments[0]
            path = self._paths.get(first, "?") if isinstance(first, int) else str(first)
            said = f"{name} {os.path.relpath(path)}"
            os.write(self._log, f"{self._count} {said}\n".encode())
            hit = self._count == self._fault.at or (said == self._fault.at and not self._struck)
            self._struck = self._struck or hit
            if hit and not self._fault.late:
                arguments = self._strike(name, arguments)
            elif self._failing and self._refuses(name):
                self._fail(name, arguments)
            done = real(*arguments)
            self._follow(name, arguments, done)
            if hit and self._fault.late:
                self._strike(name, arguments)
            return done

        return call

    def _strike(self, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        (self._bench / "failing").touch()
        if self._fault.what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        self._failing = self._fault.lasts
        if name == "write" and (self._fault.what == "short" or self._fault.lasts):
            fd, data = arguments
            return fd, data[: max(1, len(data) // 2)]
        if self._fault.what == "error":
            self._fail(name, arguments)
        return arguments

    def _refuses(self, name: str) -> bool:
        if (self._bench / "mended").exists():
            self._failing = False
            return False
        return name in (ROOM if self._fault.number == errno.ENOSPC else CHANGES)

    def _fail(self, name: str, arguments: tuple[Any, ...]) -> None:
        """A sync that fails drops what was not safe: a later one succeeds without it."""
        if name in ("fsync", "fdatasync") and not self._fault.late:
            found = os.fstat(arguments[0])
            if stat.S_ISREG(found.st_mode):
                self._gone[found.st_ino] = (len(synced(self._bench, found.st_ino)), found.st_size)
        raise OSError(self._fault.number, os.strerror(self._fault.number))

    def _follow(self, name: str, arguments: tuple[Any, ...], done: Any) -> None:
        if name == "open":
            self._paths[done] = os.path.abspath(arguments[0])
            found = os.fstat(done)
            if arguments[1] & os.O_TRUNC:
                self._gone.pop(found.st_ino, None)  # what is written from now on is new
            if self._paths[done].startswith(KERNELS):
                return
            kept = self._bench / "shadow" / "kept" / str(found.st_ino)
            if stat.S_ISREG(found.st_mode) and not kept.exists():
                os.link(arguments[0], kept)
        elif name in ("fsync", "fdatasync"):
            found = os.fstat(arguments[0])
            path = self._paths[arguments[0]]
            if stat.S_ISDIR(found.st_mode):
                note_names(self._bench, Path(path))
            else:
                data = (self._bench / "shadow" / "kept" / str(found.st_ino)).read_bytes()
                start, end = self._gone.get(found.st_ino, (0, 0))
                data = data[:start] + bytes(end - start) + data[end:]
                replace(self._bench / "shadow" / "synced" / str(found.st_ino), data)


def make_bench(bench: Path) -> Path:
    """An empty bench; returns the folder for the keeper."""
    for name in ("shadow/kept", "shadow/synced", "keeper"):
        (bench / name).mkdir(parents=True)
    os.chmod(bench / "keeper", 0o700)
    return bench / "keeper"


def replace(path: Path, data: bytes) -> None:
    """Whoever reads it sees the old bytes or the new ones."""
    draft = path.with_name(f"{path.name}.draft")
    draft.write_bytes(data)
    draft.replace(path)


# ---- what is safe ----


def synced(bench: Path, inode: int) -> bytes:
    path = bench / "shadow" / "synced" / str(inode)
    return path.read_bytes() if path.exists() else b""


def safe_names(bench: Path) -> dict[str, dict[str, int]]:
    """Folder → name → inode of a file, 0 of a folder."""
    path = bench / "shadow" / "names.json"
    found: dict[str, dict[str, int]] = json.loads(path.read_bytes()) if path.exists() else {}
    return found


def note_names(bench: Path, folder: Path) -> None:
    names = safe_names(bench)
    names[os.path.relpath(folder, bench / "keeper")] = {
        entry.name: 0 if entry.is_dir() else entry.inode()
        for entry in os.scandir(folder)
        if entry.is_dir() or entry.is_file()
    }
    replace(bench / "shadow" / "names.json", json.dumps(names).encode())


def safe_file(bench: Path, name: str) -> bytes:
    """What a power cut would leave of a file of the keeper's folder."""
    inode = safe_names(bench).get(".", {}).get(name)
    return synced(bench, inode) if inode else b""


def cut_power(bench: Path, kept: str) -> None:
    """Undo what is not safe; the keeper and its tasks are dead.

    kept: "nothing", "names" (of files without the bytes), "half" (names, and half of the bytes).
    """
    folder = bench / "keeper"
    if kept == "nothing":
        names = safe_names(bench)
        _restore(bench, folder, names.get(".", {}))
        if (folder / "runs").is_dir():
            _restore(bench, folder / "runs", names.get("runs", {}))
        return
    for path in folder.iterdir():
        if path.is_file():
            safe, now = synced(bench, path.stat().st_ino), path.read_bytes()
            more = (len(now) - len(safe)) // 2 if kept == "half" else 0
            # The inode stays: the next life has to see what of it was safe.
            path.write_bytes(safe + now[len(safe) : len(safe) + max(0, more)])


def _restore(bench: Path, folder: Path, names: dict[str, int]) -> None:
    for path in folder.iterdir():
        if path.name not in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, inode in names.items():
        path = folder / name
        if inode == 0:
            path.mkdir(mode=0o700, exist_ok=True)
            continue
        data = synced(bench, inode)
        path.unlink(missing_ok=True)
        os.link(bench / "shadow" / "kept" / str(inode), path)
        path.write_bytes(data)
