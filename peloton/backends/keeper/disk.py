"""The keeper's calls to its files, as one object: tests hand it a disk that fails or forgets.

Each call is the one of the operating system. Every call that makes, changes, reads or removes a
file of the keeper's folder goes through it. Three kinds of files do not: those that a task's own
process opens, those in /proc, and secrets, which no record names.
"""

from __future__ import annotations

import os

_READ_BYTES = 1024 * 1024


class Disk:
    """The calls, with the names, arguments and errors that they have in `os`."""

    open = staticmethod(os.open)
    read = staticmethod(os.read)
    write = staticmethod(os.write)
    close = staticmethod(os.close)
    fsync = staticmethod(os.fsync)
    fdatasync = staticmethod(os.fdatasync)
    ftruncate = staticmethod(os.ftruncate)
    stat = staticmethod(os.stat)
    statvfs = staticmethod(os.statvfs)
    chmod = staticmethod(os.chmod)
    mkdir = staticmethod(os.mkdir)
    rename = staticmethod(os.rename)
    link = staticmethod(os.link)
    unlink = staticmethod(os.unlink)
    rmdir = staticmethod(os.rmdir)

    @staticmethod
    def scandir(path: str) -> os._ScandirIterator[str]:
        """Call `os.scandir`; its own type has too many forms to be handed on."""
        return os.scandir(path)


DISK = Disk()


def read_file(path: str, disk: Disk = DISK) -> bytes:
    """Read all of a file. Raises OSError."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        pieces = []
        while piece := disk.read(fd, _READ_BYTES):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        disk.close(fd)


def write_all(fd: int, data: bytes, *, disk: Disk = DISK) -> None:
    """Write every byte, in as many writes as it takes. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[disk.write(fd, view) :]


def replace_file(path: str, data: bytes, *, disk: Disk = DISK) -> None:
    """Replace the content of a file, whole or not at all, except in a power cut. Raises OSError."""
    fd = disk.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        write_all(fd, data, disk=disk)
    finally:
        disk.close(fd)
    disk.rename(f"{path}.new", path)


def sync_folder(path: str, disk: Disk = DISK) -> None:
    """Make the names in a folder safe. Raises OSError."""
    fd = disk.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        disk.fsync(fd)
    finally:
        disk.close(fd)


def make_folder(path: str, disk: Disk = DISK) -> bool:
    """Make a folder for its owner alone; return whether it is new. Raises OSError."""
    try:
        disk.mkdir(path, 0o700)
    except FileExistsError:
        return False
    return True
