"""What lies in a data folder: ours, or somebody else's; it must never delete what is not ours.

Turns a path that a person typed into a folder that may be used. One that holds files and no journal
was meant for something else: a lock and a journal among somebody's photographs are a nuisance, and
to begin anew there would be a disaster. So strangers' files are refused before anything is
written, and beginning anew removes our own names, one by one.

What the runs in a folder are made by is written down beside the journal. The journal remembers
runs as running; another maker knows nothing of them, would declare them ended, and the real ones
would live on unseen.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

LOCK, KEEPER, MAKER = "lock", "keeper", "backend"
JOURNAL = "journal.sqlite"
OWN = (
    JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm", f"{JOURNAL}-journal",
    KEEPER, MAKER, f"{MAKER}.new",
)  # fmt: skip
"""All that is ever made at the top of a data folder, but for the lock, which stays."""
NOBODYS = ("lost+found",)
"""What a file system puts there by itself."""
STRANGERS_TOLD_MAX = 3


class NotOurs(Exception):
    """The folder cannot be used as it is; the text says why, and what to do."""


def check_ours(path: Path) -> None:
    """Refuse a folder that holds other files and no journal of ours. Raises NotOurs, OSError."""
    if not path.is_dir() or (path / JOURNAL).is_file():
        return
    known = (*OWN, LOCK, *NOBODYS)
    strangers = sorted(name for name in os.listdir(path) if name not in known)
    if strangers:
        told = ", ".join(strangers[:STRANGERS_TOLD_MAX])
        rest = len(strangers) - STRANGERS_TOLD_MAX
        told += f" and {rest} more" if rest > 0 else ""
        raise NotOurs(
            f"data folder {path} holds files of somebody else ({told}) and no journal: "
            "name a folder that is empty or does not exist"
        )


def empty_folder(path: Path) -> None:
    """Remove our own names, and nothing else. The folder must be held."""
    for child in _own(path):
        # A link is removed, never followed: what it points to may be anybody's.
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink()


def claim_folder(path: Path, maker: str) -> None:
    """Write down what makes the runs of this folder, at its first use. Raises NotOurs for another.

    The folder must be held.
    """
    mark = path / MAKER
    if mark.is_file():
        known = mark.read_text(encoding="utf-8").strip()
    else:
        # A folder from before this was written down: only real runs leave a keeper behind.
        known = "process" if (path / KEEPER).is_dir() else ""
    if known and known != maker:
        raise NotOurs(
            f"data folder {path} belongs to a cluster with the {known} backend, which knows its "
            f"runs; the {maker} backend does not. Start it with --backend {known}, or name "
            "another --data-dir; --fresh begins anew, and ends all tasks of the old cluster"
        )
    if not mark.is_file():
        _write(mark, maker)


def _own(path: Path) -> Iterator[Path]:
    for name in OWN:
        child = path / name
        if child.exists() or child.is_symlink():
            yield child


def _write(mark: Path, text: str) -> None:
    """Whole or not at all, also through a crash: half a word would refuse every start."""
    draft = mark.with_name(f"{mark.name}.new")
    with draft.open("w", encoding="utf-8") as file:
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(mark)
