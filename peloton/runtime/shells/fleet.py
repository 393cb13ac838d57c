"""The shells that only a daemon of a fleet has: the claim shell and the peer shell.

Makes them from a membership and an exchange, and connects them with the region and the root. The
claim shell decides who owns a shard; the root starts and ends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import NamedTuple

from msgspec.structs import replace

from peloton.runtime.core.health import DISK, ZOOKEEPER
from peloton.runtime.core.links.packing import Packing
from peloton.runtime.core.owning.handoff import Handoff
from peloton.runtime.ports import (
    ClusterRecord,
    Exchange,
    MemberNode,
    Membership,
    SessionState,
    ShardId,
)
from peloton.runtime.shells.claim import ClaimShell, MembershipStatus
from peloton.runtime.shells.daemon_context import DaemonContext, DaemonLimits
from peloton.runtime.shells.features import level_notes
from peloton.runtime.shells.peer import PeerShell
from peloton.runtime.shells.peer_contacts import SESSION_S, PeerContacts
from peloton.runtime.shells.peer_messages import Peers
from peloton.runtime.shells.region import Region
from peloton.runtime.shells.shell import begin_shell
from peloton.runtime.shells.shell_messages import Disown, Drop, Own, ReadLevel, Ref, send
from peloton.runtime.shells.status import suspended


class FleetPorts(NamedTuple):
    """The ports of a daemon in a fleet. `process` is unique for each process ever started.

    `services` are the messages to ephemeral services: prefix → number → class.
    """

    process: str
    node: MemberNode
    membership: Membership
    exchange: Exchange
    services: Mapping[str, Mapping[int, type]] = {}
    session_s: float = SESSION_S
    """After so long without a sign of life the membership ends a session."""


class DaemonSetup(NamedTuple):
    """The settings of a daemon, beside its kinds and its journal."""

    limits: DaemonLimits = DaemonLimits()
    fleet: FleetPorts | None = None  # None: the daemon is alone, and owns every shard
    store: str = DISK  # the server of the journal, as texts for people name it
    record: ClusterRecord | None = None  # if the caller has bootstrapped the journal already


ALONE = DaemonSetup()


class RootController:
    """Sends the orders of the claim shell to the root, and publishes the membership status."""

    def __init__(self, region: Region, *, root: Ref, peers: Ref, features: Ref) -> None:
        self._region = region
        self._root = root
        self._peers = peers
        self._features = features
        self._joined = False
        self._member = ""  # as which we last joined
        self._why_aside = ""

    def own(self, shards: tuple[ShardId, ...]) -> None:
        send(self._root, Own(shards))

    def disown(self, shards: tuple[ShardId, ...]) -> None:
        send(self._root, Disown(shards, Future()))

    def drop(self, shards: tuple[ShardId, ...]) -> None:
        send(self._root, Drop(shards))

    def status_changed(self, membership_status: MembershipStatus) -> None:
        """Tell region, links and ephemeral services who we are and who the members are."""
        routes = self._region.routes
        moved = _moved(routes.membership_status, membership_status)
        routes.membership_status = membership_status
        for prefix, service in [*routes.services.items()]:  # copied: other threads register
            send(service, routes.named(prefix))
        send(
            self._peers,
            Peers(
                routes.view,
                membership_status.addresses(),
                membership_status.member,
                membership_status.said(),
            ),
        )
        self._status(membership_status)
        if moved:
            self._region.peer_reachable()

    def _status(self, membership_status: MembershipStatus) -> None:
        status = self._region.status
        connected = membership_status.session is SessionState.CONNECTED
        if connected:
            self._joined = True
            if membership_status.member != self._member:
                self._member = membership_status.member
                send(self._features, ReadLevel())  # it may have been raised without us
            status.answered(ZOOKEEPER)
        elif self._joined and not membership_status.left:
            status.away(ZOOKEEPER, suspended(membership_status.session))
        trouble = "" if connected or self._joined else "its session has not begun yet"
        self._region.report_problem(ZOOKEEPER, trouble)
        self._region.report_problem("membership", membership_status.trouble)
        if membership_status.why_aside != self._why_aside:
            self._why_aside = membership_status.why_aside
            status.report(self._why_aside or "this daemon may own shards again")
        status.damaged = dict(membership_status.damaged)
        status.moved()


def _moved(before: MembershipStatus | None, now: MembershipStatus) -> bool:
    """Return whether a shard has a new owner; mail sent to it in between was lost."""
    old = before.view.owners if before is not None and before.view is not None else {}
    new = now.view.owners if now.view is not None else {}
    return any(old.get(shard) != owner for shard, owner in new.items())


def join(
    context: DaemonContext, fleet: FleetPorts, *, sizes: Mapping[str, int], features: Ref
) -> Ref:
    """Start the shells of a daemon in a fleet; return the claim shell."""
    region = context.region
    region.status.notes.append(lambda: level_notes(context.codec))
    peer = PeerShell(
        "",
        context.driver,
        exchange=fleet.exchange,
        packing=Packing(context.kinds, fleet.services),
        router=region,
    )
    peer.contacts = PeerContacts(fleet.exchange, fleet.session_s)
    peer.contacts.on_down = region.status.peer_down
    peer.limits, peer.batch_bytes = context.limits.of_links(), context.limits.batch_bytes
    peers = begin_shell(peer)
    region.routes.sure_for_s = fleet.membership.sure_for_s
    region.post = lambda message: send(peers, message)
    node = replace(fleet.node, level=context.codec.known_level)
    claim = ClaimShell(
        context.driver,
        handoff=Handoff(fleet.process, node, sizes=sizes, judged=True),
        membership=fleet.membership,
        controller=RootController(region, root=context.root, peers=peers, features=features),
        root=context.root,
    )
    ref = begin_shell(claim)
    peer.contacts.on_report = lambda report: send(ref, report)
    return ref
