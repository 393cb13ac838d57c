"""The folders of a daemon: its data folder and its keeper's, each taken for one cluster.

Turns a path that a person chose into a folder that is held or claimed, or into `CannotStart` with
the reason and the remedy. A folder of another cluster is taken only by an option of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from peloton.assembly.kinds import kinds
from peloton.backends import keeper_folder
from peloton.backends.keeper_calling import KeeperUnavailable
from peloton.backends.keeper_folder import KeeperOwner
from peloton.failures import CannotStart
from peloton.runtime.adapters import claimed_folder, folder_origin, private_folder
from peloton.runtime.adapters.data_folder import DataFolder, FolderTaken
from peloton.runtime.adapters.disk_measure import DiskMeasure
from peloton.runtime.adapters.folder_origin import (
    FolderKind,
    FolderLease,
    LeaseTaken,
    OriginFinding,
)
from peloton.runtime.adapters.sqlite_copy import begin_anew
from peloton.runtime.adapters.sqlite_reading import check_format
from peloton.runtime.adapters.sqlite_witness import WitnessOptions
from peloton.runtime.core.health import JOURNAL, SANDBOXES
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.ports import ClusterRecord, JournalError, JournalRefused, RolledBack, ShardId
from peloton.runtime.vocabulary import key
from peloton.settings.daemon import DaemonSettings
from peloton.settings.start_options import SettingNames, StartOptions

COPIED = "the data folder was copied, the run is with the original"
"""Why the runs of a copy are lost."""


def take_data_folder(
    path: Path, *, backend: str, options: StartOptions, report: Callable[[str], None]
) -> DataFolder:
    """Hold the folder, and bind it to the backend whose runs its journal will name.

    With `fresh` all that Peloton made in it is deleted first. `report` gets what other users could
    open until now.
    """
    folder = _hold(path, options.names)
    for text in folder.tightened:
        report(f"warning: {text}")
    try:
        if options.fresh:
            # The keeper of the old cluster kills its runs and exits once its folder is deleted.
            claimed_folder.empty_folder(path)
        check_format(folder.journal_path)
        claimed_folder.claim_folder(path, backend)
        _identify(folder, options=options, report=report)
    except BaseException as error:
        folder.close()
        if isinstance(error, claimed_folder.OtherBackend):
            remedy = options.names.other_backend.format(known=error.known)
            raise CannotStart(f"{error}. {remedy}") from error
        if isinstance(error, UnicodeDecodeError):
            mark = path / claimed_folder.MAKER
            raise CannotStart(f"{mark} does not name a backend: {error.reason}") from error
        if isinstance(error, OSError):
            raise CannotStart(f"data folder {path}: {error.strerror}") from error
        if isinstance(error, JournalRefused):
            raise CannotStart(f"data folder {path}: {error}") from error
        raise
    return folder


def _identify(folder: DataFolder, *, options: StartOptions, report: Callable[[str], None]) -> None:
    """Refuse a copy, unless it is to be adopted; record where the folder is."""
    found = _examined(folder)
    if found.kind is FolderKind.COPY:
        if not options.adopt_copy:
            raise CannotStart(f"data folder {found.text}. {options.names.copied}")
        folder.copied = found.text
        return
    if found.text:
        report(f"data folder {found.text}")
    folder_id = folder_origin.record(folder.path, found.folder_id)
    if folder.lease is None:
        folder.lease = FolderLease(folder_id)


def _examined(folder: DataFolder) -> OriginFinding:
    """Examine the folder, and take its id; a process that has the id has the original."""
    found = folder_origin.examine(folder.path)
    if found.kind not in (FolderKind.SAME, FolderKind.MOVED):
        return found
    try:
        folder.lease = FolderLease(found.folder_id)
    except LeaseTaken as taken:
        return OriginFinding(
            FolderKind.COPY, f"{folder.path} is a copy of one that is in use: {taken}"
        )
    return found


def adopt_copy(folder: DataFolder, *, witness: WitnessOptions) -> None:
    """Make the journal of a copied folder another cluster's; nothing is done for other folders.

    `witness`: as the journal is opened with. Its keeper's folder is taken by `claim_keeper`. The
    origin is written last: after a crash before it the folder is still a copy, and this is done
    again. Raises JournalError, OSError.
    """
    if not folder.copied:
        return
    # Who may call the original may not therefore call this one.
    (folder.path / claimed_folder.TOKEN).unlink(missing_ok=True)
    begin_anew(folder.journal_path, witness._replace(anew=folder.copied), other_cluster=True)
    folder.lease = FolderLease(folder_origin.record(folder.path))
    text = f"data folder {folder.copied}; it is another cluster now, and its running tasks LOST"
    witness.report(text)


def _hold(path: Path, names: SettingNames) -> DataFolder:
    try:
        claimed_folder.check_ours(path)
        return DataFolder(path)
    except claimed_folder.ForeignFolder as error:
        raise CannotStart(str(error)) from error
    except FolderTaken as error:
        by = f"the {names.process} with pid {error.pid}" if error.pid else "another process"
        raise CannotStart(f"data folder {path} is in use by {by}") from error
    except OSError as error:
        raise CannotStart(f"data folder {path}: {error.strerror}") from error


def witness_options(
    settings: DaemonSettings, options: StartOptions, *, report: Callable[[str], object]
) -> WitnessOptions:
    """Return what a SQLite journal is compared with before it is opened.

    That is its witness, and the epochs that our keeper has obeyed: it outlives the journal.
    """
    assert settings.journal.sqlite is not None
    found = WitnessOptions(
        settings.journal.sqlite.folder, accept=options.accept_rollback, report=report
    )
    setting = settings.backend.process
    if setting is None or options.fresh:
        return found
    try:
        seen = keeper_folder.seen(setting.folder)
    except OSError as error:
        raise CannotStart(f"keeper folder {setting.folder}: {error.strerror}") from error
    sharding, epochs = Sharding(kinds(settings.sizes), settings.sizes), dict[ShardId, int]()
    for host, epoch in seen.epochs.items():
        if host:  # an epoch of no host is that of a ping
            shard = sharding.shard_of(key("host", host))
            epochs[shard] = max(epoch, epochs.get(shard, 0))
    return found._replace(keeper_of=seen.owner.cluster_id, epochs=epochs)


def measured_disks(settings: DaemonSettings) -> DiskMeasure:
    """Return the measure of the disks that a daemon writes to, by what lies there."""
    sqlite, process = settings.journal.sqlite, settings.backend.process
    folders = {JOURNAL: sqlite.folder} if sqlite is not None else {}
    if process is not None and "hostmgr" in settings.roles:
        folders[SANDBOXES] = process.folder
    return DiskMeasure(folders)


def behind_text(error: RolledBack, names: SettingNames) -> str:
    """Return why a journal is refused, and the remedies."""
    return f"{error}. {names.rollback if error.acceptable else names.no_journal}"


def keeper_owner(record: ClusterRecord) -> KeeperOwner:
    """Return the cluster of this record, in the form of a keeper's folder."""
    return KeeperOwner(record.cluster_id.hex(), record.name)


def claim_keeper(
    folder: Path,
    record: ClusterRecord,
    *,
    options: StartOptions,
    report: Callable[[str], None],
    runs: Callable[[], Iterable[tuple[str, str]]],
) -> None:
    """Take the keeper's folder for this cluster; the error has its owner and a remedy.

    With `adopt_keeper`, kill what runs there for another cluster, and start with an empty folder.
    With `adopt_copy` the runs of a copied folder are lost, also those that only the journal has,
    which `runs` lists; those of the original go on. `report` gets what other users could open until
    now.
    """
    owner, generation = keeper_owner(record), record.generation
    try:
        private_folder.make(folder)
        for text in private_folder.secure(folder):
            report(f"warning: {text}")
        found = folder_origin.examine(folder)
        if found.kind is FolderKind.COPY:
            if not options.adopt_copy:
                raise CannotStart(f"keeper folder {found.text}. {options.names.copied}")
            keeper_folder.disown(folder, COPIED, runs=runs())
            found = OriginFinding(FolderKind.NEW)
        folder_origin.record(folder, found.folder_id)
        try:
            keeper_folder.claim(folder, owner)
        except keeper_folder.OwnedByAnother:
            if not options.adopt_keeper:
                raise
            keeper_folder.adopt(folder, owner)
        keeper_folder.begin_generation(folder, generation)
    except keeper_folder.OwnedByAnother as error:
        raise CannotStart(f"{error}. {options.names.other_keeper}") from error
    except (KeeperUnavailable, JournalError) as error:
        raise CannotStart(f"keeper folder {folder}: {error}") from error
    except OSError as error:
        raise CannotStart(f"keeper folder {folder}: {error.strerror}") from error
