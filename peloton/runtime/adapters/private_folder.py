"""Folders for one user alone: the owner is checked, modes are tightened, whatever the umask.

Turns a folder into one that no other user can open: 0700, and 0600 for the files that are named.
What is in it may hold secrets (environments of tasks), and who can read a lock file can hold it.
Links are not followed, and entries of other users stay as they are.

Root's folders may be passed by others (0711) where its keeper starts tasks as other accounts: they
see no name in it, and reach only the sandboxes that are theirs.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path

FOLDER_MODE, FILE_MODE = 0o700, 0o600
PASSED_MODE = 0o711
_OTHERS = 0o077


class FolderOfAnother(PermissionError):
    """The folder belongs to another user, who could replace every file in it."""

    def __init__(self, owner: int) -> None:
        us = os.geteuid()
        super().__init__(
            errno.EPERM,
            f"it belongs to user {user_name(owner)}, and this process runs as {user_name(us)}: "
            "start it as that user, name another folder, or change its owner with chown",
        )


def user_name(uid: int) -> str:
    """Return the user's name for people, or the number if there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def opener(path: str, flags: int) -> int:
    """Open a file for `open`: a new one is accessible to this user alone."""
    return os.open(path, flags | os.O_NOFOLLOW, FILE_MODE)


def make(path: Path) -> None:
    """Create the folder for this user alone if it is missing. Its parents are made as usual."""
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


def write(file: Path, data: bytes) -> None:
    """Write a file for us alone; its content is safe from a power cut. Raises OSError."""
    with open(file, "wb", opener=opener) as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())


def replace(file: Path, text: str, *, draft: str = "") -> None:
    """Replace the content of a file, whole or not at all, also in a crash. Raises OSError.

    `draft` distinguishes the drafts of several writers.
    """
    fresh = file.with_name(f"{file.name}{draft}.new")
    write(fresh, text.encode())
    fresh.replace(file)


def sync(path: Path) -> None:
    """Make the names in the folder safe from a power cut. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def secure(path: Path, names: Iterable[str] | None = None) -> list[str]:
    """Tighten the folder and its entries of these names, or all; return what others could open.

    Raises FolderOfAnother, OSError. Links, and entries of other users, stay as they are.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise FolderOfAnother(found.st_uid)
        said = []
        # The folder first: from here on no other user opens what is in it.
        if _is_open(found):
            os.fchmod(descriptor, FOLDER_MODE)
            said.append(_text(path, found.st_mode, FOLDER_MODE))
        for name in sorted(os.listdir(descriptor) if names is None else names):
            said += _secure_entry(descriptor, name, at=path)
    finally:
        os.close(descriptor)
    return said


def let_pass(path: Path) -> None:
    """Let other accounts pass through this folder of root's without listing it."""
    if not path.stat().st_mode & stat.S_IXOTH:
        path.chmod(PASSED_MODE)


def _is_open(found: os.stat_result) -> bool:
    """Return whether others may do more than pass through a folder of root's."""
    mode = stat.S_IMODE(found.st_mode)
    passed = mode == PASSED_MODE and stat.S_ISDIR(found.st_mode) and found.st_uid == 0
    return bool(mode & _OTHERS) and not passed


def _secure_entry(folder: int, name: str, *, at: Path) -> list[str]:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        folders = stat.S_ISDIR(found.st_mode)
        ours = found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode)
        if not ours or not _is_open(found):
            return []
        mode = FOLDER_MODE if folders else FILE_MODE
        os.chmod(name, mode, dir_fd=folder)
    except FileNotFoundError:  # it was removed meanwhile, as SQLite removes its log
        return []
    return [_text(at / name, found.st_mode, mode)]


def _text(path: Path, before: int, now: int) -> str:
    return f"{path} could be opened by other users: its mode was {before & 0o777:04o}, is {now:04o}"
