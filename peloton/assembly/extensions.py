"""The kinds of actors that other distributions bring.

    [project.entry-points."peloton.kinds"]
    lock = "lease_lock.kind:LOCK"

Each has a group of shards of its own, which daemons with the role jobmgr own. A group is added to
the cluster record when a daemon that has the kind starts; daemons without it leave its shards to
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint
from typing import NamedTuple

from peloton.assembly.installed import BadInstalled, load
from peloton.assembly.kinds import SERVICE_MESSAGES, kinds, kinds_of
from peloton.assembly.turn_watch import time_limited
from peloton.failures import CannotStart
from peloton.runtime.core.entities.codec import known_level
from peloton.runtime.core.health import NotReadyReason
from peloton.runtime.core.reading.inspection import SHARD_KIND
from peloton.runtime.kinds import Kind
from peloton.runtime.ports import ClusterRecord, Journal
from peloton.runtime.shells.region import Region
from peloton.sdk.kit import ActorKind, BadKind, build
from peloton.settings.daemon import ALONE_SHARDS, ROLES, DaemonSettings

KIND_GROUP = "peloton.kinds"
OWNING_ROLE = "jobmgr"
SERVICES = (*SERVICE_MESSAGES, SHARD_KIND, "backend")
"""First parts of keys that are no actors' of a kind."""


class Extensions(NamedTuple):
    """The kinds of others by name, and how many shards a new cluster has of each."""

    kinds: Mapping[str, Kind]
    shards: Mapping[str, int]

    def bootstrap(
        self, journal: Journal, settings: DaemonSettings
    ) -> tuple[ClusterRecord, dict[str, int]]:
        """Return the cluster record, with the groups of these kinds, and how many shards this
        daemon knows of each group. Raises JournalError.

        What a later version of an extension declares changes nothing: shard counts never change.
        """
        level = known_level(kinds_of(settings))
        record = journal.bootstrap(settings.sizes, name=settings.cluster, level=level)
        own = {name: record.shards.get(name, count) for name, count in self.shards.items()}
        sizes = {**settings.sizes, **own}
        return journal.bootstrap(sizes) if own.keys() - record.shards.keys() else record, sizes

    def roles(self, settings: DaemonSettings) -> tuple[str, ...]:
        """Return the groups that a daemon of these settings serves."""
        return tuple(sorted(self.kinds)) if OWNING_ROLE in settings.roles else ()


def installed_kinds(found: Iterable[EntryPoint] | None = None) -> Extensions:
    """Return the kinds that are registered. Raises BadInstalled with all mistakes of one."""
    table: dict[str, Kind] = {}
    shards: dict[str, int] = {}
    owners = dict.fromkeys((*kinds(ALONE_SHARDS), *ROLES, *SERVICES), "Peloton itself")
    installed = load(KIND_GROUP, "kind", wanted=ActorKind, found=found)
    names = {each.name for each in installed}
    for each in installed:
        declared = each.found
        if declared.name != each.name:
            raise BadInstalled(f"{each.source} calls itself {declared.name!r}: both are one name")
        if each.name in owners:
            raise BadInstalled(f"{each.source}: {owners[each.name]} has a kind of that name")
        try:
            table[each.name] = time_limited(build(declared), declared.limits.turn_s)
        except BadKind as error:
            raise BadInstalled(f"{each.source} cannot work:\n{error}") from error
        absent = [name for name in declared.sends_to if name not in names]
        if absent:
            text = f"sends to {', '.join(absent)}, and no such kind is installed"
            raise BadInstalled(f"{each.source} {text}")
        shards[each.name], owners[each.name] = declared.shards, each.owner
    return Extensions(table, shards)


@cache
def extensions() -> Extensions:
    """Return the kinds that are installed beside this process. Raises BadInstalled."""
    return installed_kinds()


def extension_problems() -> list[str]:
    """Return why the installed kinds would prevent a start."""
    try:
        extensions()
    except CannotStart as error:
        return str(error).split("\n")
    return []


def missing_kinds(
    recorded: Mapping[str, int], known: Mapping[str, int], *, served: Callable[[], Iterable[str]]
) -> Callable[[], tuple[NotReadyReason, ...]]:
    """Return the note of health on kinds that the cluster has and this daemon has not.

    They are in the cluster record as of its start, or among the roles that members have now.
    """

    def notes() -> tuple[NotReadyReason, ...]:
        others = {*recorded, *served()} - {*known, *ROLES}
        text = (
            "only daemons that have these kinds of extensions serve their actors, this one does not"
        )
        return (
            (NotReadyReason("extensions", f"{text}: {', '.join(sorted(others))}"),)
            if others
            else ()
        )

    return notes


def tell_health(region: Region, recorded: Mapping[str, int], *, known: Mapping[str, int]) -> None:
    """Have health name the kinds that the cluster has and this daemon has not.

    A shard of a kind of others that cannot be recovered is named there too, and does not keep the
    daemon from being ready.
    """
    served = region.routes.roles_of_members
    region.status.notes.append(missing_kinds(recorded, known, served=served))
    region.status.optional = known.keys() - {*ROLES}
