"""Backups of a data folder: made while its cluster runs, restored into a folder that is new.

Turns a folder into files with a manifest of their digests, and back. Order is what makes a backup
consistent:

1. the journal, as of one moment: SQLite's backup, which blocks no commit
2. the values of secrets, as of a later moment: what the journal names is there, unless its job
   was deleted meanwhile. They are sealed; the keys are in a file elsewhere, which is never part
   of a backup
3. the keeper's records: they know every run that the journal has as started, or its end was
   acknowledged meanwhile and the run is lost
4. the manifest; without it a backup is not complete, and is not restored

The journal's witness is not part of it: it is newer than the copy, whose frames the manifest names.
A restored journal begins a new generation of the cluster, with a witness of its own. Restored runs
are nobody's processes: those that had not ended are LOST. The folder that is read is not changed,
and a restore that is killed leaves no data folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from peloton import __version__
from peloton.assembly.journal_reader import runs_on_hosts
from peloton.backends import keeper_folder
from peloton.backends.keeper.identity import CLUSTER_NAME, IDENTITY_NAME
from peloton.runtime.adapters import folder_origin, private_folder, sqlite_secrets
from peloton.runtime.adapters.claimed_folder import (
    DEFAULT_POOL,
    JOURNAL,
    KEEPER,
    MAKER,
    SECRETS_FILE,
)
from peloton.runtime.adapters.folder_origin import Origin
from peloton.runtime.adapters.sqlite_copy import begin_anew
from peloton.runtime.adapters.sqlite_reading import SqliteRows
from peloton.runtime.adapters.sqlite_witness import WitnessOptions
from peloton.runtime.ports import JOURNAL_FORMAT

FORMAT = 1
MANIFEST = "manifest.json"
KEEPER_JOURNAL = "journal"
RESTORED = "restored from a backup, which has no processes"
RESTORED_NOTE = (
    "A restored cluster goes on as of its backup: what was acknowledged later is gone, tasks that "
    "ran are LOST. Never run it beside the original."
)
SECRETS_NOTE = (
    "It has the secrets of jobs, encrypted, and no key: keep the file with the keys elsewhere "
    "(secrets.key_file); without it the secrets are lost."
)
_CHUNK_BYTES = 1024 * 1024


class BackupRefused(Exception):
    """No backup was made or restored; the text has the reason and the remedy."""


class BackedUpFile(NamedTuple):
    """A file of a backup, by its name in it."""

    name: str
    size_bytes: int
    sha256: str


class BackupManifest(NamedTuple):
    """The content and the origin of a backup; `positions` are the last frame of each shard."""

    format: int
    peloton: str
    journal_format: int
    cluster_id: str
    cluster: str
    positions: dict[str, int]
    taken_at: str
    origin: dict[str, Any] | None
    files: tuple[BackedUpFile, ...]
    note: str = RESTORED_NOTE

    @property
    def has_secrets(self) -> bool:
        """Whether sealed values of secrets are among the files."""
        return any(file.name == SECRETS_FILE for file in self.files)


# ---- making one ----


def make(data: Path, target: Path, *, keeper: Path | None = None) -> BackupManifest:
    """Back up a data folder, and the keeper's folder if it is another.

    Raises BackupRefused, JournalError, OSError. After an error the target is incomplete.
    """
    with closing(SqliteRows(data)) as rows:
        _make_empty(target)
        with open(target / JOURNAL, "xb", opener=private_folder.opener):
            pass
        rows.copy_to(target / JOURNAL)
    names = [JOURNAL, *_copy_secrets(data, target), *_copy_keeper(keeper or data / KEEPER, target)]
    names += _copied(data, target, names=[MAKER, DEFAULT_POOL])
    origin = folder_origin.read(data)
    with closing(SqliteRows(target)) as rows:
        cluster = rows.summary()
    manifest = BackupManifest(
        FORMAT,
        __version__,
        cluster.format,
        cluster.cluster_id.hex(),
        cluster.name,
        cluster.positions,
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        origin._asdict() if origin is not None else None,
        tuple(_measured(target, name) for name in names),
    )
    _write_manifest(target, manifest)
    return manifest


def _copy_secrets(data: Path, target: Path) -> list[str]:
    """Copy the sealed values, if there are any; return the names of the files."""
    if not (data / SECRETS_FILE).is_file():
        return []
    with open(target / SECRETS_FILE, "xb", opener=private_folder.opener):
        pass
    sqlite_secrets.copy(data / SECRETS_FILE, target / SECRETS_FILE)
    return [SECRETS_FILE]


def _make_empty(target: Path) -> None:
    _make(target, of=target)
    if os.listdir(target):
        left = "" if (target / MANIFEST).exists() else ", such as a backup that was interrupted"
        raise BackupRefused(
            f"{target} is not empty{left}: name a folder that is empty or does not exist"
        )
    private_folder.secure(target)


def _copy_keeper(keeper: Path, target: Path) -> list[str]:
    """Copy a running keeper's records up to the last whole line; return the file names."""
    if not (keeper / IDENTITY_NAME).is_file():
        return []
    private_folder.make(target / KEEPER)
    names = _copied(keeper, target / KEEPER, names=[IDENTITY_NAME, CLUSTER_NAME])
    if (keeper / KEEPER_JOURNAL).is_file():
        lines, newline, _ = (keeper / KEEPER_JOURNAL).read_bytes().rpartition(b"\n")
        private_folder.write(target / KEEPER / KEEPER_JOURNAL, lines + newline)
        names.append(KEEPER_JOURNAL)
    return [f"{KEEPER}/{name}" for name in names]


def _copied(source: Path, target: Path, *, names: list[str]) -> list[str]:
    """Copy the files that exist; return their names."""
    found = [name for name in names if (source / name).is_file()]
    for name in found:
        private_folder.write(target / name, (source / name).read_bytes())
    return found


def _measured(target: Path, name: str) -> BackedUpFile:
    """Return the file with its size and digest on disk: it is synced, and read again."""
    with (target / name).open("rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return BackedUpFile(name, file.tell(), digest)


def _write_manifest(target: Path, manifest: BackupManifest) -> None:
    for folder in {path.parent for path in target.rglob("*")}:
        private_folder.sync(folder)
    files = [each._asdict() for each in manifest.files]
    text = json.dumps({**manifest._asdict(), "files": files}, indent=1)
    private_folder.replace(target / MANIFEST, f"{text}\n")
    private_folder.sync(target)


# ---- restoring one ----


def read_manifest(backup: Path) -> BackupManifest:
    """Read the manifest. Raises BackupRefused if the backup is incomplete or unknown."""
    file = backup / MANIFEST
    try:
        raw = json.loads(file.read_bytes())
        made_by = f"{backup} was made by Peloton {raw['peloton']}"
        if raw["format"] > FORMAT or raw["journal_format"] > JOURNAL_FORMAT:
            raise BackupRefused(f"{made_by}, which is later than this one")
        if raw["journal_format"] < JOURNAL_FORMAT:
            text = f"{made_by}, whose journals this version does not read: restore it with that one"
            raise BackupRefused(text)
        files = tuple(BackedUpFile(**each) for each in raw["files"])
        return BackupManifest(**{**raw, "files": files})
    except FileNotFoundError:
        text = f"{backup} is no complete backup: it has no {MANIFEST}, which is written last"
        raise BackupRefused(text) from None
    except (ValueError, KeyError, TypeError) as error:
        raise BackupRefused(f"{file} is damaged: {error!r}") from error


def restore(
    backup: Path, data: Path, *, report: Callable[[str], None] = lambda text: None
) -> BackupManifest:
    """Restore a backup into a new data folder.

    Raises BackupRefused, KeeperUnavailable, JournalError, OSError.

    All is made in a folder beside it, which gets the name at the end: the rest of a restore that
    was killed is removed by the next one. `report` gets the shards that cannot be recovered.
    """
    manifest = read_manifest(backup)
    if data.is_symlink() or data.exists() and (not data.is_dir() or os.listdir(data)):
        raise BackupRefused(f"{data} is not empty: name a folder that is empty or does not exist")
    data = data.absolute()
    with _beside(data) as draft:
        for file in manifest.files:
            _restore_file(backup, draft, file=file)
        if (draft / KEEPER).is_dir():
            keeper_folder.disown(draft / KEEPER, RESTORED, runs=runs_on_hosts(draft, report=report))
        options = WitnessOptions(draft, anew="it was restored from a backup")
        begin_anew(draft / JOURNAL, options, other_cluster=False)
        if manifest.origin is not None:
            folder_origin.write(draft, Origin(**{**manifest.origin, "restored": True}))
        for folder in [draft, *(path for path in draft.iterdir() if path.is_dir())]:
            private_folder.sync(folder)
        try:
            draft.rename(data)
        except OSError as error:
            text = f"{data} cannot be made of {draft}: {error.strerror}; a mount point has to stay"
            raise BackupRefused(f"{text} empty, name a folder in it") from error
        private_folder.sync(data.parent)
    return manifest


def _make(folder: Path, *, of: Path) -> None:
    """Make a folder; if that fails, name `of` in the error, and not a draft of it."""
    try:
        private_folder.make(folder)
    except OSError as error:
        raise BackupRefused(f"{of} cannot be made: {error.strerror}") from error


@contextmanager
def _beside(data: Path) -> Iterator[Path]:
    """Yield an empty folder beside the one to be made, which one process has at a time."""
    draft = data.with_name(f".{data.name}.restoring")
    _make(draft, of=data)
    descriptor = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        private_folder.secure(draft)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in draft.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        yield draft
    except BlockingIOError:
        raise BackupRefused(f"{data} is being restored by another process") from None
    finally:
        os.close(descriptor)


def _restore_file(backup: Path, draft: Path, *, file: BackedUpFile) -> None:
    target = draft / file.name
    if ".." in Path(file.name).parts or Path(file.name).is_absolute():
        raise BackupRefused(f"{backup / MANIFEST} names {file.name!r}, which is not in a backup")
    private_folder.make(target.parent)
    digest = hashlib.sha256()
    try:
        with (
            (backup / file.name).open("rb") as source,
            open(target, "xb", opener=private_folder.opener) as copy,
        ):
            while chunk := source.read(_CHUNK_BYTES):
                digest.update(chunk)
                copy.write(chunk)
            copy.flush()
            os.fsync(copy.fileno())
    except FileNotFoundError:
        raise BackupRefused(f"{backup / file.name} is missing: the backup is damaged") from None
    if digest.hexdigest() != file.sha256:
        raise BackupRefused(f"{backup / file.name} is not what was backed up: its digest differs")
