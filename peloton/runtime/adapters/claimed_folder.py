"""Claims and empties the data folder; a file that is not Peloton's is never deleted.

Turns a path that a person typed into a folder that may be used. A folder that holds files and no
journal is used for something else: it is refused before anything is written. `--fresh` removes
only the names that Peloton makes, one by one.

The backend of the runs in a folder is recorded beside the journal. The journal has runs as
running; another backend does not know them, would declare them ended, and the real ones would go
on unnoticed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from peloton.runtime.adapters import private_folder
from peloton.runtime.adapters.folder_origin import ORIGIN

LOCK, KEEPER, MAKER, WITNESS = "lock", "keeper", "backend", "witness"
TOKEN, SOCKET = "token", "api.sock"
"""What callers show, and where those call who can open this folder."""
DEFAULT_POOL = "default-pool"
"""Made with the default pool: the pool is not made again, also where it was deleted."""
NEW_LOCK = f"{LOCK}.new"
JOURNAL = "journal.sqlite"
SECRETS_FILE = "secrets.sqlite"
OWN = (
    JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm", f"{JOURNAL}-journal",
    KEEPER, MAKER, f"{MAKER}.new", WITNESS, NEW_LOCK, ORIGIN, f"{ORIGIN}.new", TOKEN, SOCKET,
    DEFAULT_POOL, SECRETS_FILE, f"{SECRETS_FILE}-journal",
)  # fmt: skip
"""All that is ever made at the top of a data folder, but for what stays: the lock, and the log of
who changed what."""
AUDIT = "audit.log"
IGNORED = ("lost+found",)
"""Made by a file system itself."""
FOREIGN_SHOWN_MAX = 3


class ForeignFolder(Exception):
    """A folder that cannot be used; the text has the reason and the remedy."""


class OtherBackend(Exception):
    """A folder that was created with the backend `known`, which alone knows its runs."""

    def __init__(self, path: Path, *, known: str, wanted: str) -> None:
        super().__init__(
            f"data folder {path} belongs to a cluster with the {known} backend, which knows its "
            f"runs; the {wanted} backend does not"
        )
        self.known = known


def check_ours(path: Path) -> None:
    """Refuse a folder that holds other files and no journal of Peloton.

    Raises ForeignFolder, OSError.
    """
    if not path.is_dir() or (path / JOURNAL).is_file():
        return
    known = (*OWN, LOCK, *IGNORED)
    names = (name for name in os.listdir(path) if not f"{name}.".startswith(f"{AUDIT}."))
    foreign = sorted(name for name in names if name not in known)
    if foreign:
        shown = ", ".join(foreign[:FOREIGN_SHOWN_MAX])
        rest = len(foreign) - FOREIGN_SHOWN_MAX
        shown += f" and {rest} more" if rest > 0 else ""
        raise ForeignFolder(
            f"data folder {path} holds files that Peloton did not make ({shown}) and no journal: "
            "name a folder that is empty or does not exist"
        )


def own_names(path: Path) -> list[str]:
    """Return the names in the folder that Peloton makes."""
    return [child.name for child in _own(path)]


def empty_folder(path: Path) -> None:
    """Remove the names that Peloton makes, and nothing else. The caller holds the folder's lock."""
    for child in _own(path):
        # A link is removed, never followed: its target may not be ours.
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink()


def claim_folder(path: Path, maker: str) -> None:
    """Record the backend of this folder at its first use. Raises OtherBackend for another one.

    The caller holds the folder's lock.
    """
    known = maker_of(path)
    if known and known != maker:
        raise OtherBackend(path, known=known, wanted=maker)
    if not (path / MAKER).is_file():
        private_folder.replace(path / MAKER, f"{maker}\n")


def maker_of(path: Path) -> str:
    """Return the backend that the folder was created with; empty if that is unknown.

    Raises OSError, and UnicodeDecodeError for a mark that is not text.
    """
    mark = path / MAKER
    if mark.is_file():
        return mark.read_text(encoding="utf-8").strip()
    # A folder from before this was recorded: only real runs leave a keeper behind.
    return "process" if (path / KEEPER).is_dir() else ""


def _own(path: Path) -> Iterator[Path]:
    for name in OWN:
        child = path / name
        if child.exists() or child.is_symlink():
            yield child
