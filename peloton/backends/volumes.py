"""The volumes of virtual hosts: their names at the keeper, and the deletion of removed ones.

The keeper makes a directory with the first run that has it, and puts it away when the host has
journaled that nobody may have it any more (`keeper/volumes.py`). Deleting what was put away may
take long, and is done here on a thread of its own.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from peloton.actors.host.messages import StartRun
from peloton.backends.keeper.volumes import FOLDER, REMOVED
from peloton.backends.keeper_messages import RunVolume


def volume_of(host: str, run: StartRun) -> RunVolume | None:
    """Return the volume of a run of this virtual host; None if it has none."""
    config = run.spec.volume
    if config is None:
        return None
    name = run.run.rpartition("-")[0]
    (at_keeper,) = names_at_keeper(host, [name])
    return RunVolume(at_keeper, config.path, float(config.size_mb))


def names_at_keeper(host: str, names: Iterable[str]) -> list[str]:
    """Return the keeper's names of these volumes of a virtual host."""
    return [f"{_folder_name(host)}/{name}" for name in names]


def names_of_host(names: Iterable[str]) -> tuple[str, ...]:
    """Return the host's names of volumes, from those at the keeper."""
    return tuple(name.rpartition("/")[2] for name in names)


def empty_trash(keeper: Path) -> None:
    """Delete the volumes that were put away, also by an earlier daemon."""
    trash = keeper / FOLDER / REMOVED
    if trash.is_dir():
        threading.Thread(target=_empty, args=(trash,), daemon=True).start()


def _empty(trash: Path) -> None:
    """Delete the content of the folder, not the folder: it may be used meanwhile."""
    with contextlib.suppress(OSError):
        for place in [*trash.iterdir()]:
            shutil.rmtree(place, ignore_errors=True)


def _folder_name(host: str) -> str:
    """Return a folder name for a host, whose own name may be no valid or unique one.

    The first character is a letter, a digit or `%`.
    """
    quoted = quote(host, safe="").replace("~", "%7E")
    return f"%{ord(quoted[0]):02X}{quoted[1:]}" if quoted[:1] in {"_", "-", "."} else quoted
