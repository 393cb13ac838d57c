"""Checks whether the journal, the keeper folder and the ZooKeeper root are of one cluster.

Finds what a start would refuse because of existing data: a journal of another cluster or of a later
version, a keeper folder or a root that another journal has claimed. Nothing is written or claimed.
`preflight` connects to the servers, once each, and hands on what it has read there; nothing is
compared with a journal that cannot be read.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import NamedTuple

from peloton.assembly.kinds import kinds
from peloton.backends.keeper.identity import CLUSTER_NAME
from peloton.backends.keeper_folder import KeeperOwner, OwnedByAnother
from peloton.runtime.adapters.claimed_folder import JOURNAL
from peloton.runtime.adapters.fenced_rows import read_record
from peloton.runtime.adapters.sqlite_reading import SqliteRows
from peloton.runtime.core.entities.codec import known_level
from peloton.runtime.core.journal.register import same_cluster
from peloton.runtime.ports import ClusterRecord, JournalError, JournalRefused
from peloton.runtime.shells.features import check_level
from peloton.settings.daemon import DaemonSettings
from peloton.settings.start_options import StartOptions


class JournalFound(NamedTuple):
    """Whether the journal could be read, and its record; None if no daemon has used it yet."""

    read: bool
    record: ClusterRecord | None = None


UNREAD = JournalFound(False)


class ServersRead(NamedTuple):
    """The state of the servers: the record in Cassandra, and the mark of the ZooKeeper root.

    The mark is None if nobody has claimed the root, or ZooKeeper does not answer.
    """

    journal: JournalFound = UNREAD
    mark: bytes | None = None


def problems(
    settings: DaemonSettings, options: StartOptions, *, servers: ServersRead
) -> Iterator[str]:
    """Yield data of another cluster, or of a later version, that these options do not give up."""
    if options.fresh:
        return
    if settings.journal.cassandra is not None:
        found = servers.journal
    else:
        found = yield from _sqlite(settings, options)
    if not found.read:
        return
    if found.record is not None:
        yield from _record(settings, options, record=found.record)
    if not options.adopt_keeper:
        yield from _keeper(settings, options, record=found.record)
    if servers.mark is not None:
        yield from _root(settings, found.record, mark=servers.mark)


def _sqlite(settings: DaemonSettings, options: StartOptions) -> Generator[str, None, JournalFound]:
    sqlite = settings.journal.sqlite
    assert sqlite is not None
    try:
        if not (sqlite.folder / JOURNAL).is_file():
            return JournalFound(True)
        with closing(SqliteRows(sqlite.folder)) as rows:
            return JournalFound(True, read_record(rows))
    except JournalError as error:
        yield f"{options.names.data_folder}: {error}"
    except OSError:
        pass  # `preflight` reports a folder that cannot be used
    return UNREAD


def _record(
    settings: DaemonSettings, options: StartOptions, *, record: ClusterRecord
) -> Iterator[str]:
    name = "journal.cassandra" if settings.journal.cassandra else options.names.data_folder
    try:
        same_cluster(record, settings.sizes, name=settings.cluster)
    except JournalRefused as error:
        yield f"{name}: {error}"
    try:
        check_level(record.level, known=known_level(kinds(settings.sizes)))
    except JournalRefused as error:
        yield f"{name}: {error}"


def _keeper(
    settings: DaemonSettings, options: StartOptions, *, record: ClusterRecord | None
) -> Iterator[str]:
    setting, name = settings.backend.process, options.names.keeper_folder
    if setting is None or "hostmgr" not in settings.roles:
        return
    mark = setting.folder / CLUSTER_NAME
    try:
        known = KeeperOwner.read(mark.read_text(encoding="utf-8").strip())
    except (FileNotFoundError, NotADirectoryError):
        return  # nobody has claimed it
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no text in UTF-8"
        yield f"{name}: {mark}: {why}"
        return
    if record is None:
        yield (
            f"{name}: keeper folder {setting.folder} serves {known.text}, and "
            f"the journal of cluster {settings.cluster} is new"
        )
    elif known.cluster_id != record.cluster_id.hex():
        ours = KeeperOwner(record.cluster_id.hex(), record.name or settings.cluster)
        other = OwnedByAnother(setting.folder, known=known, wanted=ours)
        yield f"{name}: {other}"


def _root(settings: DaemonSettings, record: ClusterRecord | None, *, mark: bytes) -> Iterator[str]:
    # An import of kazoo, which is in an extra.
    from peloton.runtime.adapters.zookeeper_nodes import ClusterMark, Paths, other_cluster

    assert settings.zookeeper is not None
    paths = Paths(settings.cluster, root=settings.zookeeper.root)
    ours = ClusterMark("new" if record is None else record.cluster_id.hex(), settings.cluster)
    why = other_cluster(mark, paths=paths, ours=ours)
    if why:
        yield why
