"""The volumes of virtual hosts: their names at the keeper, and the deletion of what it put away.

The keeper makes a directory with the first run that has it, and puts it away when the host has
journaled that nobody may have it any more (`keeper/volumes.py`). Deleting what was put away may
take long, and is done here on a thread of its own. It must not touch any other directory.
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
    """The volume of a run of this virtual host; None if it has none."""
    config = run.spec.volume
    if config is None:
        return None
    name = run.run.rpartition("-")[0]
    (at_keeper,) = names_at_keeper(host, [name])
    return RunVolume(at_keeper, config.path, float(config.size_mb))


def names_at_keeper(host: str, names: Iterable[str]) -> list[str]:
    """What the keeper calls these volumes of a virtual host."""
    return [f"{_folder_name(host)}/{name}" for name in names]


def names_of_host(names: Iterable[str]) -> tuple[str, ...]:
    """The reverse."""
    return tuple(name.rpartition("/")[2] for name in names)


def empty_trash(keeper: Path) -> None:
    """Delete what was put away, also by an earlier daemon, which was ended before it was done."""
    trash = keeper / FOLDER / REMOVED
    if trash.is_dir():
        threading.Thread(target=_empty, args=(trash,), daemon=True).start()


def _empty(trash: Path) -> None:
    """But for the folder itself: something may be put into it meanwhile."""
    with contextlib.suppress(OSError):
        for place in [*trash.iterdir()]:
            shutil.rmtree(place, ignore_errors=True)


def _folder_name(host: str) -> str:
    """The folder of a host: its name may be one that no folder can have, or that is another's. The
    first character is a letter, a digit or `%`."""
    quoted = quote(host, safe="").replace("~", "%7E")
    return f"%{ord(quoted[0]):02X}{quoted[1:]}" if quoted[:1] in {"_", "-", "."} else quoted
