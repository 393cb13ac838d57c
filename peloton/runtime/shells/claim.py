"""The claim shell: connects the membership service, the rules of ownership and the root.

Passes the messages of both sides to `core/owning/handoff.py`, and carries out the actions that this
returns: calls of the membership port and of the controller (the root), all on one thread, none of
which waits. In a fleet nothing else may own or disown shards: two orders could contradict each
other.

The controller promises: `own` is followed by `Opened` at most once; a shard that ends by itself is
reported `ShardLost`, is removed, and is not started again before the next `own`; each `disown` and
each `drop` is answered by exactly one `Closed` per shard, even for a shard that is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from peloton.runtime.core.owning.handoff import Handoff
from peloton.runtime.core.owning.ownership import ActionKind, ShardAction
from peloton.runtime.core.reach.contacts import ContactReport
from peloton.runtime.core.reach.standing import NOT_MET, why_aside
from peloton.runtime.ports import (
    Membership,
    MembershipView,
    NodeAnswer,
    Session,
    SessionState,
    ShardId,
)
from peloton.runtime.shells.shell import Driver, LastingShell
from peloton.runtime.shells.shell_messages import (
    Closed,
    DrainAll,
    Opened,
    Ref,
    ShardLost,
    Wake,
    resolve,
    send,
)

ASIDE = "this daemon stands aside and owns no shard"


class MembershipStatus(NamedTuple):
    """The membership of this daemon in the cluster; a value, to be read from any thread."""

    member: str
    """Our member id in this session, by which peers address us."""
    current: bool
    """Whether answers from here are current and new work may be begun."""
    view: MembershipView | None
    trouble: str
    """For health: what else keeps us from serving; empty if nothing does."""
    session: SessionState = SessionState.CONNECTED
    left: bool = False
    damaged: Mapping[ShardId, str] = {}
    """Shards that we could not recover, with the reason."""
    why_aside: str = ""
    """Why this daemon stands aside, for its log; empty also while it only begins."""
    unfit: tuple[str, ...] = ()
    """Groups whose shards it leaves to others for a while, as it could not serve them lately."""

    def owner_of(self, shard: ShardId) -> str | None:
        """Return the member that owns the shard in our view; None if it has no owner."""
        return self.view.owners.get(shard) if self.view is not None else None

    def addresses(self) -> dict[str, str]:
        """Return the addresses of all members, including ours."""
        members = self.view.members if self.view is not None else {}
        return {member: node.address for member, node in members.items()}

    def said(self) -> dict[str, str]:
        """Return the reason why there is no contact with a member, by it or about us."""
        found = {}
        for member, node in (self.view.members if self.view is not None else {}).items():
            why = node.unreached.get(member) or node.unreached.get(self.member)
            if why and member != self.member:
                found[member] = why
        return found


class Controller(Protocol):
    """Carries out ownership actions: the root, which reports `Opened`, `ShardLost` and `Closed`."""

    def own(self, shards: tuple[ShardId, ...]) -> object:
        """Claim and recover these shards."""

    def disown(self, shards: tuple[ShardId, ...]) -> object:
        """Finish what is in flight and release these shards."""

    def drop(self, shards: tuple[ShardId, ...]) -> object:
        """End these shards at once: others may own them already."""

    def status_changed(self, membership_status: MembershipStatus) -> object:
        """Tell region, links and health that our membership changed."""


class ClaimShell(LastingShell):
    """The claim shell, one per daemon; starts by itself."""

    def __init__(
        self,
        driver: Driver,
        *,
        handoff: Handoff,
        membership: Membership,
        controller: Controller,
        root: Ref,
    ) -> None:
        super().__init__("claim", driver, root=root)
        self.handoff = handoff
        self._membership = membership
        self._controller = controller
        self._begun = False
        self._membership_status: MembershipStatus | None = None
        self._leaving: list[Future[Any]] = []
        membership.listen(lambda message: send(self.ref, message))
        self.wake_soon()

    def handle(self, message: Any) -> None:
        """Process one message: publish our status first, then carry out the actions."""
        actions = self._actions(message)
        self._publish_status()
        for action in actions:
            self._obey(action)
        at_s = self.handoff.wake_at_s(self.now)
        if at_s is not None:
            self.wake(at_s)
        if self.handoff.left:
            leaving, self._leaving = self._leaving, []
            for future in leaving:
                resolve(future, None)

    def _actions(self, message: Any) -> list[ShardAction]:
        now, handoff = self.now, self.handoff
        if isinstance(message, MembershipView | Session | NodeAnswer):
            return handoff.receive(message, now)
        if isinstance(message, Opened):
            return handoff.opened(message.shard, now)
        if isinstance(message, Closed):
            return handoff.closed(message.shard, now)
        if isinstance(message, ShardLost):
            damaged = message.text if message.damaged else ""
            return handoff.lost(
                message.shard,
                now,
                gave_up=message.gave_up,
                by_another=message.by_another,
                damaged=damaged,
            )
        if isinstance(message, ContactReport):
            return handoff.contacts(message, now)
        if isinstance(message, DrainAll):
            self._leaving.append(message.answer)
            return handoff.drain_all(now)
        if isinstance(message, Wake) and not self._begun:
            self._begun = True
            return handoff.begin(now)
        return handoff.tick(now)

    def _obey(self, action: ShardAction) -> None:
        port, controller = self._membership, self._controller
        match action:
            case ShardAction(ActionKind.CREATE, ShardId() as shard):
                port.create_owner(shard)
            case ShardAction(ActionKind.REMOVE, ShardId() as shard):
                port.remove_owner(shard)
            case ShardAction(ActionKind.OWN, ShardId() as shard):
                controller.own((shard,))
            case ShardAction(ActionKind.DRAIN, ShardId() as shard):
                controller.disown((shard,))
            case ShardAction(ActionKind.DROP, ShardId() as shard):
                controller.drop((shard,))
            case ShardAction(ActionKind.JOIN):
                port.join(self.handoff.member, self.handoff.node)
            case ShardAction(ActionKind.ANNOUNCE):
                port.announce(self.handoff.node)
            case ShardAction(ActionKind.READ_VIEW):
                port.request_view()
            case ShardAction(ActionKind.LEAVE):
                port.leave()

    def _why_aside(self) -> str:
        handoff = self.handoff
        if not handoff.node.aside or handoff.view is None:
            return ""
        members = {**handoff.view.members, handoff.member: handoff.node}
        return f"{ASIDE}: {why_aside(handoff.member, members)}"

    def _publish_status(self) -> None:
        handoff, why = self.handoff, self._why_aside()
        membership_status = MembershipStatus(
            handoff.member,
            handoff.current,
            handoff.view,
            why,
            handoff.session,
            handoff.left,
            dict(handoff.damaged),
            "" if handoff.standing.arriving and why.endswith(NOT_MET) else why,
            () if why else handoff.node.unfit,
        )
        if membership_status != self._membership_status:
            self._membership_status = membership_status
            self._controller.status_changed(membership_status)
