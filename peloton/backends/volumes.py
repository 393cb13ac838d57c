"""The volumes of virtual hosts: their names at the keeper, and the removal of their directories.

The keeper makes a directory with the first run that has it (`keeper/volumes.py`); this removes it
when the host has journaled that nobody may have it any more. At once it only gets another name, so
that a later volume of the same instance begins empty; deleting may take long and has a thread of
its own. It must not decide whether a volume may go.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from peloton.actors.host.messages import StartRun
from peloton.backends.keeper.volumes import FOLDER
from peloton.backends.keeper_messages import RunVolume

_REMOVED = ".removed"
_LOG = logging.getLogger("peloton.keeper")


def volume_of(host: str, run: StartRun) -> RunVolume | None:
    """The volume of a run of this virtual host; None if it has none."""
    config = run.spec.volume
    if config is None:
        return None
    name = run.run.rpartition("-")[0]
    return RunVolume(f"{_folder_name(host)}/{name}", config.path, float(config.size_mb))


def remove(keeper: Path, host: str, *, volumes: Sequence[str]) -> tuple[str, ...]:
    """Remove these directories of a virtual host; returns the names of those that are gone.

    The host repeats its order for the others.
    """
    folder, trash = keeper / FOLDER / _folder_name(host), keeper / FOLDER / _REMOVED
    gone = []
    for name in volumes:
        try:
            _put_away(folder / name, trash)
        except OSError as error:
            _LOG.warning("the volume %s cannot be removed: %s", folder / name, error)
            continue
        gone.append(name)
    if gone:
        empty_trash(keeper)
    return tuple(gone)


def empty_trash(keeper: Path) -> None:
    """Delete what was put away, also by an earlier daemon, which was ended before it was done."""
    trash = keeper / FOLDER / _REMOVED
    if trash.is_dir():
        threading.Thread(target=_empty, args=(trash,), daemon=True).start()


def _empty(trash: Path) -> None:
    """But for the folder itself: something may be put into it meanwhile."""
    with contextlib.suppress(OSError):
        for place in [*trash.iterdir()]:
            shutil.rmtree(place, ignore_errors=True)


def _put_away(volume: Path, trash: Path) -> None:
    if not volume.exists():
        return
    trash.mkdir(mode=0o700, exist_ok=True)
    for number in itertools.count():
        place = trash / f"{volume.name}.{number}"
        if not place.exists():
            if not os.access(volume, os.W_OK):  # its run has closed it, and only root may move that
                volume.chmod(0o700)
            volume.rename(place)
            return


def _folder_name(host: str) -> str:
    """The folder of a host: its name may be one that no folder can have."""
    return quote(host, safe="")
