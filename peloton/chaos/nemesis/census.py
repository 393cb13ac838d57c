"""The members of the cluster, the owners of shards and their epochs, as the servers have them.

Turns the nodes of ZooKeeper and the registers of the journals into one value, and two of those into
the shards that moved. Neither a daemon nor a node alone is believed: a shard has moved when its
node names another member *and* its register has a later epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from peloton.chaos.nemesis.fleet import CLUSTER, DaemonProcess, NemesisServers
from peloton.chaos.nemesis.journal import SHARD_IDS
from peloton.chaos.nemesis.takeovers import takeover_mark
from peloton.runtime.adapters.zookeeper_nodes import Paths, member_of, owner_of, shard_of
from peloton.runtime.core.owning.ownership import ranked
from peloton.runtime.ports import JournalError, MemberNode, ShardId


class Census(NamedTuple):
    """The cluster at one moment, nearly."""

    members: Mapping[str, MemberNode]
    owners: Mapping[ShardId, str]
    epochs: Mapping[ShardId, int]

    def missing(self, wanted: Iterable[DaemonProcess]) -> str:
        """Return what is not yet as wanted.

        Wanted are exactly these members, which have met, and each shard at its first rank.
        """
        marks = {takeover_mark(daemon): daemon.name for daemon in wanted}
        there = {name for member in self.members for mark, name in marks.items() if mark in member}
        if there != {*marks.values()} or len(self.members) != len(marks):
            return f"members {[*self.members]}, wanted {sorted(marks.values())}"
        aside = [member for member, node in self.members.items() if node.aside]
        if aside:
            return f"{aside} stand aside"
        for shard in SHARD_IDS:
            owner, fit = self.owners.get(shard, ""), ranked(shard, self.members)
            if not fit:
                return f"no member may own {shard.group}-{shard.number}: {[*self.members.values()]}"
            if owner != fit[0]:
                return f"{shard.group}-{shard.number} is {owner or 'nobody'}'s, not {fit[0]}'s"
        return ""

    def of(self, daemon: DaemonProcess) -> list[ShardId]:
        """Return the shards that a daemon owns."""
        mark = takeover_mark(daemon)
        return [shard for shard in SHARD_IDS if mark in self.owners.get(shard, "")]

    def unfit(self, daemon: DaemonProcess) -> tuple[str, ...]:
        """Return the groups that a daemon announces it cannot serve."""
        mark = takeover_mark(daemon)
        return tuple(
            group for member, node in self.members.items() if mark in member for group in node.unfit
        )

    def moved(self, before: Census) -> tuple[list[ShardId], list[str]]:
        """Return the shards that have another owner than before, and what is wrong with that."""
        moved, wrong = [], []
        for shard in SHARD_IDS:
            old, new = before.epochs.get(shard, 0), self.epochs.get(shard, 0)
            if self.owners.get(shard) != before.owners.get(shard):
                moved.append(shard)
                if new <= old:
                    wrong.append(f"R3 {shard} has another owner under the same epoch {new}")
            elif new < old:
                wrong.append(f"R3 {shard} went back from epoch {old} to {new}")
        return moved, wrong


def take(outside: NemesisServers, epochs: Callable[[], Mapping[ShardId, int]]) -> Census | None:
    """Take a census; return None while a server does not answer."""
    paths = Paths(CLUSTER)
    try:
        members = outside.owners(paths.members)
        owners = outside.owners(paths.owners)
        counted = epochs()
    except (OSError, JournalError):
        return None
    nodes = {name: member_of(data) for name, data in members.items()}
    return Census(
        {name: node for name, node in nodes.items() if node is not None},
        {shard: owner_of(data) for name, data in owners.items() if (shard := shard_of(name))},
        counted,
    )
