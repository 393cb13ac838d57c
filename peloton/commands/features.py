"""`peloton features`: the feature level of a cluster, raised by an operator after an upgrade.

Writes a higher level to the cluster record at an operator's order, if every member of the fleet
reports that it knows it. The level must not rise above what a member that is up knows, which would
stop that member, nor in one cluster because of the members of another: config, journal and
ZooKeeper have to name the same one. Daemons that are down cannot be checked: they may be of an
older version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from peloton.cli.shared.dry_run import dry_run_option
from peloton.commands.schema import CANNOT_REACH, USAGE, WRONG, fail
from peloton.settings.config import BadSetting

if TYPE_CHECKING:
    from peloton.runtime.adapters.zookeeper_nodes import ClusterNodes
    from peloton.runtime.core.journal.statements import Rows
    from peloton.runtime.ports import ClusterRecord, Journal, MemberNode
    from peloton.settings.daemon import DaemonSettings

CONFIG = click.option(
    "--config", "config_", required=True, type=click.Path(dir_okay=False, path_type=Path),
    help="The YAML file of any daemon of the fleet.",
)  # fmt: skip
TIMEOUT_S = 10.0


def command() -> click.Group:
    return features


@click.group()
def features() -> None:
    """Manage the feature level: the messages and facts that all daemons of a fleet know."""


@features.command()
@CONFIG
def show(config_: Path) -> None:
    """Print the level of the cluster, and the one that each member knows."""
    _run("features show", config_, then=lambda found: found.level)


@features.command("raise")
@CONFIG
@dry_run_option
def raise_(config_: Path, dry_run: bool) -> None:
    """Raise the feature level to that of this version.

    \b
    peloton features raise --config /etc/peloton.yaml

    Upgrade every daemon first. From then on an older version cannot read what is written, and does
    not start: there is no way back. Running daemons follow within seconds.
    """
    _run("features raise", config_, then=would_raise if dry_run else raise_fleet)


class FleetLevels(NamedTuple):
    """The level of the cluster, the highest that each member knows, and that of this version."""

    journal: Journal
    level: int
    members: Mapping[str, MemberNode | None]
    known: int


def raise_fleet(found: FleetLevels) -> int:
    """Raise the level; return the level that the cluster has then. Raises JournalRefused."""
    from peloton.runtime.shells.features import raise_level

    return raise_level(found.journal, found.members, known=found.known)


def would_raise(found: FleetLevels) -> int:
    """Print what would be done. Raises JournalRefused if that would be refused."""
    from peloton.runtime.shells.features import check_members

    check_members(found.members, known=found.known)
    if found.level < found.known:
        click.echo(f"would raise the level from {found.level} to {found.known}: no way back")
    else:
        click.echo(f"would change nothing: the level is {found.level} already")
    return found.level


def _run(name: str, config: Path, *, then: Callable[[FleetLevels], int]) -> None:
    # Heavy imports wait until there is something to do.
    from peloton.assembly.kinds import kinds
    from peloton.assembly.servers import open_cassandra
    from peloton.failures import CannotStart
    from peloton.runtime.core.entities.codec import known_level
    from peloton.runtime.ports import JournalError, Unreachable
    from peloton.settings.daemon import read_settings

    try:
        settings = read_settings(config)
        if settings.zookeeper is None:
            raise BadSetting("a daemon that is alone raises the level itself when it starts")
        assert settings.journal.cassandra is not None  # a fleet has no other journal
        journal = open_cassandra(settings.journal.cassandra)
        try:
            record, members = read_cluster(settings, journal.rows)
            known = known_level(kinds(settings.sizes))
            for member, node in members.items():
                click.echo(f"member  {member} knows level {_level(node)}")
            level = then(FleetLevels(journal, record.level, members, known))
            click.echo(f"level   {level}, this version knows {known}")
        finally:
            journal.close()
    except BadSetting as error:
        fail(name, error, code=USAGE)
    except (Unreachable, CannotStart) as error:
        fail(name, error, code=CANNOT_REACH)
    except JournalError as error:
        fail(name, error, code=WRONG)


def check_cluster(
    settings: DaemonSettings, record: ClusterRecord | None, *, nodes: ClusterNodes
) -> ClusterRecord:
    """Return the record of config, journal and ZooKeeper alike. Raises JournalRefused."""
    from peloton.runtime.adapters.fenced_rows import NO_RECORD
    from peloton.runtime.adapters.zookeeper_nodes import ClusterMark, Paths, other_cluster
    from peloton.runtime.core.journal.register import same_cluster
    from peloton.runtime.ports import JournalRefused

    assert settings.zookeeper is not None
    if record is None:
        raise JournalRefused(NO_RECORD)
    same_cluster(record, settings.sizes, name=settings.cluster)
    if nodes.mark is not None:  # else no daemon has ever joined
        paths = Paths(settings.cluster, root=settings.zookeeper.root)
        ours = ClusterMark(record.cluster_id.hex(), settings.cluster)
        why = other_cluster(nodes.mark, paths=paths, ours=ours)
        if why:
            raise JournalRefused(why)
    return record


def read_cluster(
    settings: DaemonSettings, rows: Rows
) -> tuple[ClusterRecord, dict[str, MemberNode | None]]:
    """Return record and members of the cluster. Raises JournalRefused as above, Unreachable."""
    from peloton.runtime.adapters.fenced_rows import read_record
    from peloton.runtime.adapters.zookeeper_nodes import Paths, read_cluster_nodes

    zookeeper = settings.zookeeper
    assert zookeeper is not None
    paths = Paths(settings.cluster, root=zookeeper.root)
    nodes = read_cluster_nodes(",".join(zookeeper.hosts), paths, timeout_s=TIMEOUT_S)
    return check_cluster(settings, read_record(rows), nodes=nodes), nodes.members


def _level(node: MemberNode | None) -> str:
    return "unknown" if node is None else str(node.level)
