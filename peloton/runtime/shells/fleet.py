"""One daemon among many: the shells that a daemon has beside those of one that is alone.

Turns a membership and an exchange into a claim shell that orders the root about, and a peer shell
that the region posts to. It must not decide anything: who owns what is the claim shell's, what
becomes of a shard the root's.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import NamedTuple

from msgspec.structs import replace

from peloton.runtime.core.condition import DISK, ZOOKEEPER
from peloton.runtime.core.handoff import Handoff
from peloton.runtime.core.packing import Packing
from peloton.runtime.ports import (
    Cluster,
    Exchange,
    MemberNode,
    Membership,
    SessionState,
    ShardId,
)
from peloton.runtime.shells.claim import ClaimShell, Standing
from peloton.runtime.shells.house import House, Limits
from peloton.runtime.shells.letters import Disown, Drop, Own, Ref, tell
from peloton.runtime.shells.peer import PeerShell
from peloton.runtime.shells.post import Peers
from peloton.runtime.shells.region import Region
from peloton.runtime.shells.shell import begin
from peloton.runtime.shells.status import suspended


class Fleet(NamedTuple):
    """What a daemon needs to be one of many. `process` is unique for each process ever started.

    `softs` are the messages that travel to soft machines: prefix → number → class.
    """

    process: str
    node: MemberNode
    membership: Membership
    exchange: Exchange
    softs: Mapping[str, Mapping[int, type]] = {}


class Setup(NamedTuple):
    """How a daemon is set up, beside its kinds and its journal."""

    limits: Limits = Limits()
    fleet: Fleet | None = None  # None: it is alone, and owns every shard
    store: str = DISK  # the server under the journal, by the name that people know
    record: Cluster | None = None  # where the caller has bootstrapped the journal already


ALONE = Setup()


class RootSteward:
    """What the claim shell orders, as letters to the root; and where its standing is told."""

    def __init__(self, region: Region, *, root: Ref, peers: Ref) -> None:
        self._region = region
        self._root = root
        self._peers = peers
        self._joined = False

    def own(self, shards: tuple[ShardId, ...]) -> None:
        """As the port of the claim shell says."""
        tell(self._root, Own(shards))

    def disown(self, shards: tuple[ShardId, ...]) -> None:
        """Likewise."""
        tell(self._root, Disown(shards, Future()))

    def drop(self, shards: tuple[ShardId, ...]) -> None:
        """Likewise."""
        tell(self._root, Drop(shards))

    def stands(self, standing: Standing) -> None:
        """The region, the links and the soft machines learn who we are and who else there is."""
        places = self._region.places
        moved = _moved(places.standing, standing)
        places.standing = standing
        for prefix, soft in [*places.softs.items()]:  # registered on other threads
            tell(soft, places.named(prefix))
        tell(self._peers, Peers(places.view, standing.addresses(), standing.member))
        self._status(standing)
        if moved:
            self._region.reached()

    def _status(self, standing: Standing) -> None:
        status = self._region.status
        connected = standing.session is SessionState.CONNECTED
        if connected:
            self._joined = True
            status.answered(ZOOKEEPER)
        elif self._joined and not standing.left:
            status.away(ZOOKEEPER, suspended(standing.session))
        beginning = "" if connected or self._joined else "its session has not begun yet"
        self._region.trouble(ZOOKEEPER, beginning)
        self._region.trouble("membership", standing.trouble)
        status.damaged = dict(standing.damaged)
        status.moved()


def _moved(before: Standing | None, now: Standing) -> bool:
    """Whether a shard has got an owner: what was said to it meanwhile found nobody."""
    old = before.view.owners if before is not None and before.view is not None else {}
    new = now.view.owners if now.view is not None else {}
    return any(old.get(shard) != owner for shard, owner in new.items())


def join(house: House, fleet: Fleet, *, sizes: Mapping[str, int]) -> Ref:
    """The shells that only a daemon among others has; the claim shell, which begins by itself."""
    region = house.region
    peer = PeerShell(
        "",
        house.driver,
        exchange=fleet.exchange,
        packing=Packing(house.kinds, fleet.softs),
        hall=region,
    )
    peer.limits, peer.letter_bytes = house.limits.of_links(), house.limits.letter_bytes
    peers = begin(peer)
    region.places.sure_for_s = fleet.membership.sure_for_s
    region.post = lambda letter: tell(peers, letter)
    node = replace(fleet.node, level=house.codec.known_level)
    claim = ClaimShell(
        house.driver,
        handoff=Handoff(fleet.process, node, sizes=sizes),
        membership=fleet.membership,
        steward=RootSteward(region, root=house.root, peers=peers),
        root=house.root,
    )
    return begin(claim)
