"""`peloton backup` and `peloton restore`: a data folder and its keeper's records, kept elsewhere.

Turns options into one run of `backups`, and its outcome into lines and an exit code: 0, or 1 if
nothing was made (the reason is printed), 64 for a wrong option, 66 if there is no journal that this
version reads, 69 for one that cannot be read now.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from peloton.commands.journal import failing
from peloton.commands.schema import WRONG, fail
from peloton.settings.config import BadSetting, default_data_dir
from peloton.settings.daemon import read_settings

if TYPE_CHECKING:
    from peloton.commands.backups import BackupManifest

FOLDER = click.Path(file_okay=False, path_type=Path)
OF_CASSANDRA = """\
the journal is in Cassandra, whose own tools back it up (docs/fleet.md, Backups):
  1. stop the daemons; tasks run on. Snapshots of single nodes are not of one moment otherwise, and
     `journal check` would name shards of which a restored frame is missing.
  2. nodetool snapshot -t NAME KEYSPACE on every node, and copy the files of the snapshot
  3. copy identity, cluster and journal of the keeper's folder of each machine
  4. to restore: stop the daemons, TRUNCATE each table, nodetool import --copy-data KEYSPACE TABLE
     FOLDER on every node, nodetool repair -full KEYSPACE, peloton journal check --config FILE. The
     keeper's files are copied back only where its folder is lost.
Restore all replicas or repair before a daemon starts: the register is read and written with
SERIAL consistency, rows with QUORUM, so a majority of older replicas would undo commits."""


def command() -> click.Command:
    return backup


def restore_command() -> click.Command:
    return restore


@click.command()
@click.argument("target", metavar="DIR", type=FOLDER)
@click.option("--data-dir", type=FOLDER, help="A data folder.  [default: that of the minicluster]")
@click.option(
    "--config", "config_", type=click.Path(dir_okay=False, path_type=Path),
    help="A daemon's YAML file: the journal and the keeper's folder that it names.",
)  # fmt: skip
def backup(target: Path, data_dir: Path | None, config_: Path | None) -> None:
    """Back up the journal and the keeper's records, of a cluster that runs or is stopped.

    \b
    peloton backup /backups/monday
    peloton backup /backups/monday --config /etc/peloton.yaml

    Sandboxes are not part of it. Secrets of jobs are, as they are stored: encrypted, without the
    file with the keys. DIR must be empty or not exist.
    """
    from peloton.commands import backups

    with _failing("backup"):
        data, keeper = _folders(data_dir, config_)
        manifest = backups.make(data, target, keeper=keeper)
    size_bytes = sum(file.size_bytes for file in manifest.files)
    click.echo(f"backup of {data} in {target}: {len(manifest.files)} files, {size_bytes} bytes")
    click.echo(_cluster_text(manifest))
    if manifest.has_secrets:
        click.echo(backups.SECRETS_NOTE, err=True)


@click.command()
@click.argument("source", metavar="DIR", type=FOLDER)
@click.argument("data_dir", metavar="DATA_DIR", type=FOLDER)
def restore(source: Path, data_dir: Path) -> None:
    """Restore a backup into a new data folder. DATA_DIR must be empty or not exist.

    \b
    peloton restore /backups/monday /var/lib/peloton
    """
    from peloton.commands import backups

    with _failing("restore"):
        manifest = backups.restore(source, data_dir, report=lambda text: click.echo(text, err=True))
    click.echo(f"restored in {data_dir}, as of {manifest.taken_at}")
    click.echo(_cluster_text(manifest))
    click.echo(manifest.note, err=True)
    if manifest.has_secrets:
        click.echo(backups.SECRETS_NOTE, err=True)


def _cluster_text(manifest: BackupManifest) -> str:
    positions = ", ".join(f"{shard} at {last}" for shard, last in manifest.positions.items())
    return f"cluster {manifest.cluster or '(no name)'} (id {manifest.cluster_id}): {positions}"


def _folders(data: Path | None, config: Path | None) -> tuple[Path, Path | None]:
    """Return the data folder, and the keeper's if a config names one."""
    if data is not None and config is not None:
        raise BadSetting("give one of --data-dir and --config")
    if config is None:
        return data or default_data_dir(), None
    settings = read_settings(config)
    if settings.journal.sqlite is None:
        fail("backup", OF_CASSANDRA, code=WRONG)
    process = settings.backend.process
    return settings.journal.sqlite.folder, process.folder if process is not None else None


@contextmanager
def _failing(name: str) -> Iterator[None]:
    """End the command with a line for each failure that is expected."""
    from peloton.backends.keeper_calling import KeeperUnavailable
    from peloton.commands.backups import BackupRefused

    try:
        with failing(name):
            yield
    except (BackupRefused, KeeperUnavailable) as error:
        fail(name, error, code=WRONG)
