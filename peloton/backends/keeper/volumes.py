"""The directories of volumes: `volumes/HOST/NAME` in the keeper's folder, outside of all sandboxes.

Turns a requested volume into a directory of the run's account, and a link to it below its sandbox.
A directory outlives every run that has it, and the keeper. It is removed here and nowhere else, on
the order of the host: so an order of a former owner, whom the keeper refuses, cannot remove what
the present one has promised. At once it only gets another name, so that a later volume of the same
instance begins empty. A volume that a run has must not be removed.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Iterable
from typing import Any

from .accounts import Account
from .disk import DISK, Disk, make_folder, sync_folder
from .kinds import KeeperRun, Record

FOLDER, REMOVED = "volumes", ".removed"
"""The second is within the first."""
VARIABLE = "PELOTON_VOLUME"
"""Tells a task where its volume is."""
_NAME = re.compile(r"[A-Za-z0-9%][A-Za-z0-9%._-]{0,250}/[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_PARTS = re.compile(r"[A-Za-z0-9._-]+")


def volume_of(sent: Any) -> Record:
    """Return a request's volume, checked. Raises ValueError, LookupError, TypeError."""
    name, path, mb = str(sent["name"]), str(sent["path"]), float(sent["mb"])
    if not _NAME.fullmatch(name):
        raise ValueError(f"not the name of a volume: {name!r}")
    parts = [part for part in path.split("/") if part]
    if not parts or not all(map(_PARTS.fullmatch, parts)) or {*parts} & {".", ".."}:
        raise ValueError(f"not the path of a volume: {path!r}")
    return {"name": name, "path": path, "mb": mb}


def folder_of(run: KeeperRun) -> str:
    """Return the directory of a run's volume, within the keeper's folder."""
    return f"{FOLDER}/{run.volume['name']}"


def limit_mb(run: KeeperRun) -> float:
    """Return the size limit of a run's volume in MB."""
    return float(run.volume["mb"])


class VolumeFolders:
    """The volumes of one keeper."""

    def __init__(self, folder: str, disk: Disk = DISK) -> None:
        self._folder = folder
        self._disk = disk

    def give(self, run: KeeperRun, sandbox: str) -> None:
        """Make the directory of a run's volume, and link it into the sandbox. Raises OSError."""
        account: Account | None = run.command.get("account")
        host = os.path.dirname(folder_of(run))
        for above, within in ((FOLDER, "."), (host, FOLDER)):
            if make_folder(above, self._disk):
                sync_folder(within, self._disk)
            if account is not None and not self._disk.stat(above).st_mode & stat.S_IXOTH:
                self._disk.chmod(above, 0o711)
        if make_folder(folder_of(run), self._disk):
            sync_folder(host, self._disk)
        if account is not None:  # nobody else may write into the folder above, or replace it
            os.chown(folder_of(run), account.uid, account.gid, follow_symlinks=False)
        if not run.container:
            self._link(run, sandbox, account=account)

    def remove(self, names: Iterable[str]) -> list[str]:
        """Put these volumes away; return those that are gone. Orders for others are repeated."""
        gone = []
        for name in names:
            if not _NAME.fullmatch(name):
                raise ValueError(f"not the name of a volume: {name!r}")
            try:
                self._put_away(name)
            except OSError:
                continue
            gone.append(name)
        return gone

    def _put_away(self, name: str) -> None:
        volume, trash = f"{FOLDER}/{name}", f"{FOLDER}/{REMOVED}"
        if not os.path.lexists(volume):
            return
        make_folder(trash, self._disk)
        places = (f"{trash}/{os.path.basename(name)}.{number}" for number in itertools.count())
        place = next(one for one in places if not os.path.lexists(one))
        if not os.access(volume, os.W_OK):  # its run has closed it, and only root may move that
            self._disk.chmod(volume, 0o700)
        self._disk.rename(volume, place)
        sync_folder(os.path.dirname(volume), self._disk)

    def _link(self, run: KeeperRun, sandbox: str, *, account: Account | None) -> None:
        """Link the volume below the sandbox, which is not given away yet."""
        *parts, last = (part for part in run.volume["path"].split("/") if part)
        for part in parts:
            sandbox = f"{sandbox}/{part}"
            make_folder(sandbox, self._disk)
            if account is not None:
                os.chown(sandbox, account.uid, account.gid, follow_symlinks=False)
        os.symlink(f"{self._folder}/{folder_of(run)}", f"{sandbox}/{last}")


def has_volume(run: KeeperRun) -> bool:
    return bool(run.volume) and run.end is None
