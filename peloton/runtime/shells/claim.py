"""The claim shell: stands between the membership service, the rules of hand-over, and the root.

Turns letters of both sides into calls of `core/handoff.py`, and its orders into calls of the port
and of the steward (the root's): all on one thread, none of which waits. It must not decide, and
never lets two voices speak to the steward: as long as it is there, nobody else owns or disowns.

The steward promises: `own` is followed by `Opened` at most once; a shard that ends by itself is
reported `Lost`, is forgotten, and is not begun again before the next `own`; each `disown` and each
`drop` is answered by exactly one `Closed` per shard, also for a shard that is no more there.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from peloton.runtime.core.handoff import Handoff
from peloton.runtime.core.ownership import Order, Verb
from peloton.runtime.ports import Membership, NodeAnswer, Session, SessionState, ShardId, View
from peloton.runtime.shells.letters import (
    Broke,
    Closed,
    DrainAll,
    Lost,
    Opened,
    Ref,
    Wake,
    resolve,
    tell,
)
from peloton.runtime.shells.shell import Driver, Shell


class Standing(NamedTuple):
    """How this daemon stands among the others; a value, to be read from any thread."""

    member: str
    """Our name in this session: what peers know us by."""
    current: bool
    """Whether answers may be called current, and new work may be launched."""
    view: View | None
    trouble: str
    """For health: what else keeps us from serving; empty when nothing does."""
    session: SessionState = SessionState.CONNECTED
    left: bool = False
    damaged: Mapping[ShardId, str] = {}
    """Shards that we could not recover, and why."""

    def owner_of(self, shard: ShardId) -> str | None:
        """The member whose node it is, as far as we know; None: it has no owner now."""
        return self.view.owners.get(shard) if self.view is not None else None

    def addresses(self) -> dict[str, str]:
        """Of all members, us included: where they are reached."""
        members = self.view.members if self.view is not None else {}
        return {member: node.address for member, node in members.items()}


class Steward(Protocol):
    """What obeys: the root. It tells the claim shell `Opened`, `Lost` and `Closed`."""

    def own(self, shards: tuple[ShardId, ...]) -> object:
        """Claim and recover these shards."""

    def disown(self, shards: tuple[ShardId, ...]) -> object:
        """Finish what is in flight and give them back."""

    def drop(self, shards: tuple[ShardId, ...]) -> object:
        """End them at once: others may own them already."""

    def stands(self, standing: Standing) -> object:
        """Our standing changed: for the region, the peers and health."""


class ClaimShell(Shell):
    """One per daemon; begins by itself."""

    def __init__(
        self,
        driver: Driver,
        *,
        handoff: Handoff,
        membership: Membership,
        steward: Steward,
        root: Ref,
    ) -> None:
        super().__init__("claim", driver)
        self.handoff = handoff
        self._membership = membership
        self._steward = steward
        self._root = root
        self._begun = False
        self._standing: Standing | None = None
        self._leaving: list[Future[Any]] = []
        membership.listen(lambda news: tell(self.ref, news))
        self.again()

    def handle(self, letter: Any) -> None:
        """One letter; then our standing, and only then what follows from it."""
        orders = self._heard(letter)
        self._stand()
        for order in orders:
            self._obey(order)
        at_s = self.handoff.wake_at_s(self.now)
        if at_s is not None:
            self.wake(at_s)
        if self.handoff.left:
            leaving, self._leaving = self._leaving, []
            for future in leaving:
                resolve(future, None)

    def failed(self, error: BaseException) -> None:
        """What it believed is wrong. A new process begins with nothing; this one has to end."""
        text = f"{type(error).__name__}: {error}"
        tell(self._root, Broke(self.name, text, fatal=True))

    def _heard(self, letter: Any) -> list[Order]:
        now, handoff = self.now, self.handoff
        if isinstance(letter, View | Session | NodeAnswer):
            return handoff.heard(letter, now)
        if isinstance(letter, Opened):
            return handoff.opened(letter.shard, now)
        if isinstance(letter, Closed):
            return handoff.closed(letter.shard, now)
        if isinstance(letter, Lost):
            damaged = letter.text if letter.damaged else ""
            return handoff.lost(letter.shard, now, gave_up=letter.gave_up, damaged=damaged)
        if isinstance(letter, DrainAll):
            self._leaving.append(letter.answer)
            return handoff.drain_all(now)
        if isinstance(letter, Wake) and not self._begun:
            self._begun = True
            return handoff.begin(now)
        return handoff.tick(now)

    def _obey(self, order: Order) -> None:
        port, steward = self._membership, self._steward
        match order:
            case Order(Verb.CREATE, ShardId() as shard):
                port.create_owner(shard)
            case Order(Verb.REMOVE, ShardId() as shard):
                port.remove_owner(shard)
            case Order(Verb.OWN, ShardId() as shard):
                steward.own((shard,))
            case Order(Verb.DRAIN, ShardId() as shard):
                steward.disown((shard,))
            case Order(Verb.DROP, ShardId() as shard):
                steward.drop((shard,))
            case Order(Verb.JOIN):
                port.join(self.handoff.member, self.handoff.node)
            case Order(Verb.ANNOUNCE):
                port.announce(self.handoff.node)
            case Order(Verb.LOOK):
                port.look()
            case Order(Verb.LEAVE):
                port.leave()

    def _stand(self) -> None:
        handoff = self.handoff
        standing = Standing(
            handoff.member,
            handoff.current,
            handoff.view,
            "; ".join(f"unfit for {group}" for group in handoff.node.unfit),
            handoff.session,
            handoff.left,
            dict(handoff.damaged),
        )
        if standing != self._standing:
            self._standing = standing
            self._steward.stands(standing)
