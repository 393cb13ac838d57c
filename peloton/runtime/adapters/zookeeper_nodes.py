"""Where a cluster's nodes are in ZooKeeper, and what stands in them.

Turns members, shards and owners into paths and bytes, and back. It must not trust what it reads:
an operator can write anything there, and a node that says nothing sensible is no member and no
owner, rather than the end of every daemon that looks at it.

    /peloton/<cluster>/members/<member>          JSON of the member; ephemeral
    /peloton/<cluster>/owners/<group>-<number>   the owner's member id; ephemeral
    /peloton/<role>/leader                       JSON for clients that look for a leader; ephemeral
    /peloton/.cluster                            JSON of the one cluster whose leaders these are
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from peloton.runtime.ports import MemberNode, ShardId

DEFAULT_ROOT = "/peloton"


class Leader(Struct, frozen=True, rename={"http_port": "http", "grpc_port": "grpc"}):
    """What clients that look for a leader find: they dial `ip` and `grpc_port`."""

    hostname: str
    ip: str
    http_port: int
    grpc_port: int
    version: str = ""


class Paths:
    """Of one cluster."""

    def __init__(self, cluster: str, *, root: str = DEFAULT_ROOT) -> None:
        self.root = root
        self.mark = f"{root}/.cluster"
        """No cluster is called so: a dot is not allowed in a name."""
        self.members = f"{root}/{cluster}/members"
        self.owners = f"{root}/{cluster}/owners"
        self.nowhere = f"{root}/{cluster}/nowhere"
        """Never made: to delete it is a write that changes nothing."""

    def member(self, member: str) -> str:
        return f"{self.members}/{member}"

    def owner(self, shard: ShardId) -> str:
        return f"{self.owners}/{shard.group}-{shard.number}"

    def leader(self, role: str) -> str:
        return f"{self.root}/{role}/leader"


class Mark(Struct, frozen=True):
    """Which cluster a root belongs to: the id of its journal, and its name."""

    id: str
    name: str


def mark_bytes(mark: Mark) -> bytes:
    return msgspec.json.encode(mark)


def mark_of(data: bytes) -> Mark | None:
    """The cluster; None where what stands there names none."""
    try:
        return msgspec.json.decode(data, type=Mark)
    except msgspec.DecodeError:
        return None


def shard_of(name: str) -> ShardId | None:
    """The shard whose owner node is called so."""
    group, dash, number = name.rpartition("-")
    if not dash or not group or not (number.isascii() and number.isdecimal()):
        return None
    return ShardId(group, int(number))


def member_bytes(node: MemberNode) -> bytes:
    """JSON, so that an operator can read it."""
    return msgspec.json.encode(node)


def member_of(data: bytes) -> MemberNode | None:
    """What a member says of itself; fields of a later version are left out."""
    try:
        return msgspec.json.decode(data, type=MemberNode)
    except msgspec.DecodeError:  # what is no JSON, no UTF-8, or lacks a field
        return None


def owner_bytes(member: str) -> bytes:
    return member.encode()


def owner_of(data: bytes) -> str:
    """The owner's member id; of rubbish it is nobody's."""
    return data.decode(errors="replace")


def leader_bytes(leader: Leader) -> bytes:
    return msgspec.json.encode(leader)
