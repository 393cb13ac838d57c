"""A keeper's identity and its cluster: two small files in its folder, each made once.

Turns a folder into the keeper's identity, drawn at the first call, and into the cluster that
claimed it first. An existing file is never changed: hosts have journaled the identity, and know
their runs by it. A folder that is moved keeps both; a copy of it would have both as well.

Both sides use this module, the keeper and a daemon: requests name the keeper that is to get them.
"""

from __future__ import annotations

import os

from .disk import DISK, Disk, read_file, sync_folder, write_all

IDENTITY_NAME, CLUSTER_NAME = "identity", "cluster"
_BYTES = 8


def keeper_id(folder: str, disk: Disk = DISK) -> str:
    """Return the identity of the keeper of this folder."""
    return _made_once(os.path.join(folder, IDENTITY_NAME), os.urandom(_BYTES).hex(), disk=disk)


def cluster_of(folder: str, mark: str) -> str:
    """Return the mark of the cluster that claimed the folder first: `mark`, if none did."""
    return _made_once(os.path.join(folder, CLUSTER_NAME), mark, disk=DISK)


def private(path: str, flags: int) -> int:
    """Open a file that is made for its owner alone, whatever the umask of a daemon."""
    return os.open(path, flags, 0o600)


def _made_once(path: str, text: str, *, disk: Disk) -> str:
    """Return the content of the file; a new file gets `text`.

    Of concurrent writers one wins: the link is made to a complete file, and only if there is none.
    """
    found = _read(path, disk)
    if found is not None:
        return found
    draft = f"{path}.{os.urandom(_BYTES).hex()}"
    try:
        fd = disk.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            write_all(fd, f"{text}\n".encode(), disk=disk)
            disk.fsync(fd)
        finally:
            disk.close(fd)
        try:
            disk.link(draft, path)
        except FileExistsError:
            pass  # another process was first: its content counts
    finally:
        if os.path.exists(draft):
            disk.unlink(draft)
    sync_folder(os.path.dirname(path), disk)
    return _read(path, disk) or ""


def _read(path: str, disk: Disk) -> str | None:
    try:
        return read_file(path, disk).decode().strip()
    except FileNotFoundError:
        return None
