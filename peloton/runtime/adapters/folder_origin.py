"""The origin of a data folder: tells a folder from its copy.

Compares a folder with the file `origin` in it: new, unchanged, moved, or a copy. A copy has the run
ids of its original; both would start the same runs, and the copy could signal the original's
processes. What cannot be told apart counts as a copy, and a person decides.

    device and inode as recorded        the same, or moved on its file system
    another inode, original there       a copy
    another inode, same file system     a copy: what is moved there keeps its inode
    another file system, no original    moved
    another machine                     a copy, unless it was restored from a backup

Devices are numbered anew by a restart of the machine, so after one an inode at its path is enough.
"""

from __future__ import annotations

import enum
import json
import os
import socket
import struct
from pathlib import Path
from typing import Any, NamedTuple

from peloton.runtime.adapters import private_folder

ORIGIN = "origin"
_BYTES = 16
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MACHINE = Path("/etc/machine-id")
_BACKLOG = 128
_CREDENTIALS = struct.Struct("3i")


class Origin(NamedTuple):
    """The identity of a folder, and its place at the time of writing."""

    folder_id: str
    path: str
    device: int
    inode: int
    machine: str = ""
    boot: str = ""
    restored: bool = False
    """A person has restored it from a backup: the places above are those of the original."""


class FolderKind(enum.Enum):
    """The result of comparing a folder with its origin."""

    NEW = "new"
    SAME = "same"
    MOVED = "moved"
    COPY = "copy"


class OriginFinding(NamedTuple):
    """The finding about a folder; `text` is for people, empty if there is nothing to report."""

    kind: FolderKind
    text: str = ""
    folder_id: str = ""


class BadOrigin(OSError):
    """The origin file cannot be interpreted."""


def examine(path: Path) -> OriginFinding:
    """Compare a folder with its origin. Raises OSError."""
    known = read(path)
    if known is None:
        return OriginFinding(FolderKind.NEW)
    here = _here(path, known.folder_id)
    kind, text = _compared(known, here)
    return OriginFinding(kind, text, known.folder_id)


def _compared(known: Origin, here: Origin) -> tuple[FolderKind, str]:
    elsewhere = known.machine != here.machine and bool(known.machine and here.machine)
    elsewhere = elsewhere and known.boot != here.boot
    there = known.path == here.path
    same_device = known.device == here.device or (known.boot != here.boot and there)
    if known.inode == here.inode and same_device and not elsewhere:
        return FolderKind.SAME, "" if there else f"{here.path} was moved from {known.path}"
    copy = f"{here.path} is a copy of {known.path}"
    if not there and _is_there(known):
        return FolderKind.COPY, f"{copy}, which is still there"
    if known.restored:
        return FolderKind.MOVED, f"{here.path} was restored from a backup of {known.path}"
    if elsewhere:
        return FolderKind.COPY, f"{copy} on another machine"
    if known.device == here.device:
        return FolderKind.COPY, f"{copy}: a folder that is moved on its file system keeps its inode"
    return FolderKind.MOVED, f"{here.path} was moved from {known.path}, where it is no more"


def _is_there(known: Origin) -> bool:
    """Return whether the original is where it was; True if that place cannot be read."""
    try:
        found = read(Path(known.path))
    except OSError:
        return True
    return found is not None and found.folder_id == known.folder_id


def read(path: Path) -> Origin | None:
    """Return the origin of a folder, None if it has none. Raises OSError."""
    file = path / ORIGIN
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return Origin(**{name: found[name] for name in Origin._fields if name in found})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError) as error:
        raise BadOrigin(0, f"{file} is damaged: {error}") from error


def record(path: Path, folder_id: str = "") -> str:
    """Record that the folder is here; return its id, which is drawn unless it is given."""
    folder_id = folder_id or os.urandom(_BYTES).hex()
    here = _here(path, folder_id)
    if read(path) != here:
        write(path, here)
    return folder_id


def write(path: Path, origin: Origin) -> None:
    """Write atomically, also in a crash, and if two daemons of a machine begin at once."""
    text = json.dumps(origin._asdict())
    private_folder.replace(path / ORIGIN, text, draft=f".{os.urandom(_BYTES).hex()}")


def _here(path: Path, folder_id: str) -> Origin:
    found = path.stat()
    return Origin(
        folder_id, str(path.resolve()), found.st_dev, found.st_ino, _line(_MACHINE), _line(_BOOT)
    )


def _line(file: Path) -> str:
    """Return the content of a file; empty if there is none, as in many containers."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


class LeaseTaken(Exception):
    """A living process holds a folder with this id."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"the process with pid {pid} runs on a folder with the same id")
        self.pid = pid


class FolderLease:
    """A folder's id, taken on this machine until `close` or the process ends. Raises LeaseTaken.

    The lease is an abstract socket name, which no file system has and no crash leaves behind. A
    name that another user has taken is not obeyed.
    """

    def __init__(self, folder_id: str) -> None:
        name = f"\0peloton-folder-{folder_id}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(name)
            self._socket.listen(_BACKLOG)
        except OSError:
            self._socket.close()
            pid, user = _holder(name)
            if user in (os.geteuid(), 0):
                raise LeaseTaken(pid) from None

    def close(self) -> None:
        self._socket.close()


def _holder(name: str) -> tuple[int, int]:
    """Return process and user of a socket's owner; -1 if they cannot be determined."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(name)
            found = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return -1, -1
    pid, user, _ = _CREDENTIALS.unpack(found)
    return pid, user
