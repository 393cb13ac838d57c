"""The health of a daemon, as values: for health answers, the log and error texts.

Turns a view of the cluster into the reason why a shard has no owner, and reasons into lines.
Nothing is remembered: the caller has the facts of the moment.

Two questions are told apart, as supervisors and load balancers do:

- *live*: this process can go on; one that is not live should be restarted.
- *ready*: every shard of the cluster has an owner, those that are ours take mail, the servers that
  we depend on answer. A process that is live and not ready should be left alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from peloton.runtime.core.disk_room import DiskRoom
from peloton.runtime.ports import MemberNode, MembershipView, ShardId

DISK, CASSANDRA, ZOOKEEPER = "the disk", "Cassandra", "ZooKeeper"
"""Servers by the name that people know them by. The disk counts as one."""
MOVING = "it is being claimed"
JOURNAL, SANDBOXES = "the journal", "the sandboxes"
"""What lies on a disk."""


class NotReadyReason(NamedTuple):
    """A thing that is wrong. `shards` are those that it affects, where that is known."""

    component: str
    text: str
    shards: tuple[ShardId, ...] = ()
    damaged: bool = False
    """A person has to act: asking again does not help."""

    def __str__(self) -> str:
        named = self.shards and self.component != str(self.shards[0])
        affected = f" ({ranges(self.shards)})" if named else ""
        return f"{self.component}: {self.text}{affected}"


class DaemonHealth(NamedTuple):
    """The answers to both questions, and what is wrong.

    `remarks` are for people to act on, and no reason against being ready. `rooms` are the disks.
    """

    live: bool
    ready: bool
    reasons: tuple[NotReadyReason, ...] = ()
    remarks: tuple[NotReadyReason, ...] = ()
    rooms: tuple[DiskRoom, ...] = ()

    @property
    def damaged(self) -> tuple[NotReadyReason, ...]:
        """The reasons that waiting does not mend."""
        return tuple(reason for reason in self.reasons if reason.damaged)


class Unowned(NamedTuple):
    """The reason why a shard has no owner."""

    text: str
    damaged: bool = False


def ranges(shards: Iterable[ShardId]) -> str:
    """Return shards as text, such as `jobmgr/0-2,7 resmgr/0`."""
    found = []
    for group, some in itertools.groupby(sorted(shards), key=lambda shard: shard.group):
        numbers = [shard.number for shard in some]
        # In a run of consecutive numbers, number minus index stays the same.
        runs = itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
        spans = [[number for _, number in run] for _, run in runs]
        texts = (f"{span[0]}-{span[-1]}" if len(span) > 1 else f"{span[0]}" for span in spans)
        found.append(f"{group}/{','.join(texts)}")
    return " ".join(found)


def silent(server: str, since_s: float, now: float) -> str:
    """Return text such as `unreachable since 12 s`."""
    what = "not writable" if server == DISK else "unreachable"
    return f"{what} since {max(now - since_s, 0.0):.0f} s"


def why_unowned(shard: ShardId, view: MembershipView) -> Unowned:
    """Return why nobody owns the shard, as far as the members say so themselves.

    The shard is damaged for good only when every member that could own it has tried: a later
    version may be able to read what an earlier one cannot.
    """
    group = shard.group
    able = {
        name: node
        for name, node in view.members.items()
        if group in node.roles and not node.leaving
    }
    if not able:
        return Unowned(f"no daemon with role {group} is there")
    tried = _addresses(node for node in able.values() if shard in node.damaged)
    if all(shard in node.damaged for node in able.values()):
        return Unowned(f"it is damaged; the logs and /health of {tried} name the cause", True)
    if tried:
        return Unowned(f"{tried} could not recover it; another daemon has yet to try")
    unfit = [node for node in able.values() if group in node.unfit]
    if len(unfit) == len(able):
        return Unowned(f"{_addresses(unfit)} could not reach the store")
    return Unowned(MOVING)


def _addresses(nodes: Iterable[MemberNode]) -> str:
    return ", ".join(sorted(node.address for node in nodes))
