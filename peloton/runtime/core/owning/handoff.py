"""Hand-over of shards: one daemon's part in claiming, draining and giving up.

Turns news of the membership, and events of the daemon's own shards, into actions: create an owner
node, own, drain, drop, remove the node, announce that this daemon is unfit or leaving. There is no
coordinator: all daemons rank the members alike (`ranked`), and each acts for itself. An owner node
is no right to write: two daemons may believe that they own a shard, and only the journal decides
which one does. Otherwise:

1. A owns a shard and is partitioned from the membership service, but not from the store.
2. The service ends A's session; B sees A's node vanish, creates its own, and claims: a new epoch.
3. A cannot know. It goes on writing, and its next frame is fenced.
4. If A now claimed again because it believes that its node exists, B would be fenced, and so on.
5. So a lost shard is claimed again only after the service confirmed anew that the node is ours.

The state machine of a shard is one total table: `core/owning/ownership.py`. An *assignment* is what
the newest view asks of this daemon for a shard: take, yield or hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from peloton.pauses import Pauses
from peloton.runtime.core.owning.ownership import (
    TABLE,
    ActionKind,
    Assignment,
    NoTransition,
    OwnershipEvent,
    OwnershipState,
    ShardAction,
    ranked,
)
from peloton.runtime.core.reach.contacts import ContactReport
from peloton.runtime.core.reach.standing import Standing
from peloton.runtime.ports import (
    MemberNode,
    MembershipNews,
    MembershipView,
    NodeAnswer,
    NodeOutcome,
    Session,
    SessionState,
    ShardId,
)

CLAIMS_IN_FLIGHT_MAX = 8
"""Shards a daemon claims at once; with more each would wait longer for the store."""
DRAINS_IN_FLIGHT_MAX = 8
"""Shards it hands over at once: others had better go on working while their claimer is busy."""
UNFIT_S = 60.0
DAMAGED_S = 600.0
"""After so long a shard that could not be recovered is tried again: the store may have been
repaired meanwhile, or another version may have rewritten the data."""
FAILS_MAX = 3
"""Claims of one shard that fail in a row before the daemon calls itself unfit."""
FAIL = Pauses(0.5, 15.0)
FAILS_FORGOTTEN_S = 60.0
"""After a shard was open for so long, earlier failures do not count."""
NODE_AGAIN_S = 1.0
"""Pause after an operation on a node whose outcome is unknown."""


_OF_OUTCOME = {
    NodeOutcome.OURS: OwnershipEvent.MADE,
    NodeOutcome.TAKEN: OwnershipEvent.TAKEN,
    NodeOutcome.GONE: OwnershipEvent.GONE,
    NodeOutcome.UNKNOWN: OwnershipEvent.UNKNOWN,
}
_CLAIMING = (OwnershipState.ASKING, OwnershipState.ACQUIRED, OwnershipState.OPENING)
_HERE = (OwnershipState.OPENING, OwnershipState.OPEN)
_MOVING = (OwnershipState.DRAINING, OwnershipState.REMOVING)


class UnexpectedAnswer(Exception):
    """An answer of the membership service that breaks its contract: nothing was asked."""


class ShardStatus:
    """A daemon's knowledge of one shard and its owner node."""

    def __init__(self) -> None:
        self.state = OwnershipState.OUT
        self.owner = ""  # member of the node, to our best knowledge; ours also if it may be ours
        self.version = 0  # of that knowledge; older views do not change it
        self.first = ""  # member that ranks first
        self.fails = 0
        self.claim_at_s = 0.0
        self.node_at_s = 0.0
        self.opened_at_s = 0.0


class Handoff:
    """One daemon's part of the hand-over of all shards. Every call returns actions."""

    def __init__(
        self, process: str, node: MemberNode, *, sizes: Mapping[str, int], judged: bool = False
    ) -> None:
        """Set up; `judged`: the daemon owns nothing before `contacts` is called."""
        self.standing = Standing(judged=judged)
        self.node = _as_it_stands(node, self.standing, unfit=())
        self.member = ""
        self.session = SessionState.SUSPENDED
        self.view: MembershipView | None = None
        self.leaving = False
        self.left = False
        self.damaged: dict[ShardId, str] = {}
        self.shards = {
            ShardId(g, at): ShardStatus() for g in sorted(sizes) for at in range(sizes[g])
        }
        self._process = process
        self._lives = 0
        self._joined = 0
        self._unfit: dict[str, float] = {}
        self._damaged_until: dict[ShardId, float] = {}
        self._orders: list[ShardAction] = []
        self._counts = dict.fromkeys(OwnershipState, 0) | {OwnershipState.OUT: len(self.shards)}

    # ---- what happens ----

    def begin(self, now: float) -> list[ShardAction]:
        """Start the daemon's part."""
        self._join()
        return self._settle(now)

    def receive(self, news: MembershipNews, now: float) -> list[ShardAction]:
        """Take news of the membership service; those of an older session are ignored."""
        if news.member == self.member:
            _ON_NEWS[type(news)](self, news, now)
        return self._settle(now)

    def opened(self, shard: ShardId, now: float) -> list[ShardAction]:
        """Record that the shard was recovered and takes mail."""
        self.shards[shard].opened_at_s = now
        self._happened(shard, OwnershipEvent.OPENED)
        return self._settle(now)

    def closed(self, shard: ShardId, now: float) -> list[ShardAction]:
        """Record that the shard was drained or dropped, as ordered."""
        self._happened(shard, OwnershipEvent.CLOSED)
        return self._settle(now)

    def lost(
        self,
        shard: ShardId,
        now: float,
        *,
        gave_up: bool = False,
        by_another: bool = False,
        damaged: str = "",
    ) -> list[ShardAction]:
        """Record that the shard ended by itself: fenced, claim lost, or its shell raised.

        `gave_up`: the store was unreachable too long. `by_another`: the shard was well, and lost
        with another one. `damaged` is what an operator has to repair.
        """
        status = self.shards[shard]
        if status.state in _HERE:  # else it was being closed, which is no failure
            self._orders.append(ShardAction(ActionKind.READ_VIEW))
            # Damage has a pause of its own. It says nothing about this daemon, so the healthy
            # shards of the group must not be handed over for it.
            if not damaged and not by_another:
                self._failed(status, now)
                if gave_up or status.fails >= FAILS_MAX:
                    self._unfit[shard.group] = now + UNFIT_S
                    self._announce()
        if damaged:
            self.damaged[shard], self._damaged_until[shard] = damaged, now + DAMAGED_S
            self._announce()
        self._happened(shard, OwnershipEvent.LOST)
        return self._settle(now)

    def contacts(self, report: ContactReport, now: float) -> list[ShardAction]:
        """Take a changed report of the peers with which this daemon is in touch."""
        self.standing.report = report
        self._announce()
        return self._settle(now)

    def drain_all(self, now: float) -> list[ShardAction]:
        """Drain all shards. The daemon announces that first, so that each shard moves once."""
        self.leaving = True
        self._announce()
        return self._settle(now)

    def tick(self, now: float) -> list[ShardAction]:
        """Continue at the time of `wake_at_s`."""
        return self._settle(now)

    # ---- state, for the shell ----

    @property
    def current(self) -> bool:
        """Whether answers from here count as current, and new work may be begun.

        A suspended session may have ended without our knowing; then there may be a newer owner.
        """
        return self.session is SessionState.CONNECTED and not self.left

    def wake_at_s(self, now: float) -> float | None:
        """Return when `tick` is due; None when only news can change anything."""
        moments = [*self._unfit.values(), *self._damaged_until.values()]
        stands_s = self.standing.wake_s(now)
        moments += [stands_s] if stands_s is not None else []
        for status in self.shards.values():
            if status.state in (OwnershipState.OUT, OwnershipState.LEFT) and self._wants(status):
                moments += [status.claim_at_s, status.node_at_s]
        return min((at_s for at_s in moments if at_s > now), default=None)

    def _failed(self, status: ShardStatus, now: float) -> None:
        if status.state is OwnershipState.OPEN and now - status.opened_at_s >= FAILS_FORGOTTEN_S:
            status.fails = 0
        status.fails += 1
        status.claim_at_s = now + FAIL.after(status.fails)

    # ---- news of the membership ----

    def _on_session(self, news: Session, now: float) -> None:
        self.session = news.state
        if news.state is SessionState.CONNECTED:
            self._joined = news.version
        elif news.state is SessionState.LOST:
            self._lose()

    def _on_view(self, view: MembershipView, now: float) -> None:
        if self.view is not None and view.version < self.view.version:
            return
        if self.member not in view.members and view.version >= self._joined:
            self._lose()  # the service's data was deleted: the others rank without us
            return
        same = self.view is not None and self.view.members == view.members
        self.view = view
        for shard, status in self.shards.items():
            if view.version >= status.version:
                status.owner = view.owners.get(shard, "")
        if not same:  # ranking takes milliseconds, and most views differ only in owners
            self._rank()

    def _on_answer(self, answer: NodeAnswer, now: float) -> None:
        status = self.shards[answer.shard]
        if answer.outcome is NodeOutcome.UNKNOWN:
            status.owner = self.member  # perhaps; a later view decides
            status.node_at_s = now + NODE_AGAIN_S
        else:
            status.version = answer.version
            ours = answer.outcome is NodeOutcome.OURS
            status.owner = self.member if ours else answer.owner
            if self.view is not None and self.view.version > answer.version:
                status.owner = self.view.owners.get(answer.shard, "")
        self._happened(answer.shard, _OF_OUTCOME[answer.outcome])

    def _lose(self) -> None:
        """Handle the loss of the session and of all owner nodes: others may claim our shards."""
        self.session, self.view = SessionState.LOST, None
        for shard, status in self.shards.items():
            self._happened(shard, OwnershipEvent.SESSION_LOST)
            status.owner, status.version, status.first, status.node_at_s = "", 0, "", 0.0
        if not self.leaving:
            self._join()

    def _join(self) -> None:
        """Join under a new id: nodes of the old one may exist for a while, and are not ours."""
        self._lives += 1
        self.member = f"{self._process}.{self._lives}"
        self.session = SessionState.SUSPENDED
        self.standing.joined()
        self._announce(joining=True)
        self._orders.append(ShardAction(ActionKind.JOIN))

    def _announce(self, *, joining: bool = False) -> None:
        """Update our member node; our own ranking uses it at once, others when they see it."""
        node = replace(self.node, leaving=self.leaving, damaged=tuple(sorted(self.damaged)))
        node = _as_it_stands(node, self.standing, unfit=self._unfit)
        if joining:
            self.node = node
        elif node != self.node:
            self.node = node
            self._orders.append(ShardAction(ActionKind.ANNOUNCE))
            self._rank()

    def _rank(self) -> None:
        if self.view is not None:
            members = {**self.view.members, self.member: self.node}
            for shard, status in self.shards.items():
                status.first = next(iter(ranked(shard, members)), "")

    # ---- the table ----

    def _settle(self, now: float) -> list[ShardAction]:
        """Move every shard by the table until nothing follows; returns the actions."""
        self._expire(now)
        self._judge(now)
        for shard, status in self.shards.items():
            self._happened(
                shard,
                OwnershipEvent.OURS if status.owner == self.member else OwnershipEvent.NOT_OURS,
            )
            while self._may(shard, now) and self._happened(shard, self._assignment(shard)):
                pass
        if self.leaving and not self.left and self._counts[OwnershipState.OUT] == len(self.shards):
            self.left = True
            self._orders.append(ShardAction(ActionKind.LEAVE))
        orders, self._orders = self._orders, []
        return orders

    def _judge(self, now: float) -> None:
        """Stand aside, or come back, by the members' reports; not without a view or a session."""
        if self.view is not None and self.session is SessionState.CONNECTED:
            members = {**self.view.members, self.member: self.node}
            if self.standing.judge(self.member, members, now):
                self._announce()

    def _expire(self, now: float) -> None:
        """Withdraw announcements (damaged, unfit) whose time is over."""
        retry = [shard for shard, until_s in self._damaged_until.items() if until_s <= now]
        for shard in retry:
            del self.damaged[shard], self._damaged_until[shard]
        fit = [group for group, until_s in self._unfit.items() if until_s <= now]
        for group in fit:
            del self._unfit[group]
        if retry or fit:
            self._announce()

    def _assignment(self, shard: ShardId) -> Assignment:
        status = self.shards[shard]
        if self.leaving:
            return Assignment.YIELD
        if self.session is not SessionState.CONNECTED or self.view is None:
            return Assignment.KEEP
        if status.first != self.member or shard in self.damaged:
            return Assignment.YIELD
        if self.standing.arriving:  # nobody else seems fit; that is seen differently in a moment
            return Assignment.KEEP
        return Assignment.TAKE if status.owner in ("", self.member) else Assignment.KEEP

    def _wants(self, status: ShardStatus) -> bool:
        return status.first == self.member or status.owner == self.member

    def _may(self, shard: ShardId, now: float) -> bool:
        """Return whether backoff and the limits allow now what the assignment would begin."""
        status = self.shards[shard]
        step = TABLE[status.state][self._assignment(shard)]
        if isinstance(step, NoTransition):
            return False
        action = step.action
        if action is ActionKind.CREATE:
            busy = sum(self._counts[state] for state in _CLAIMING)
            early = now < max(status.claim_at_s, status.node_at_s)
            return not early and busy < CLAIMS_IN_FLIGHT_MAX
        if action is ActionKind.REMOVE:
            return now >= status.node_at_s
        if action is ActionKind.DRAIN and not self.leaving and shard.group not in self._unfit:
            return sum(self._counts[state] for state in _MOVING) < DRAINS_IN_FLIGHT_MAX
        return True

    def _happened(self, shard: ShardId, what: OwnershipEvent | Assignment) -> bool:
        """Move by the table; return False if nothing follows."""
        status = self.shards[shard]
        step = TABLE[status.state][what]
        if step is NoTransition.STAY:
            return False
        if step is NoTransition.NEVER:
            raise UnexpectedAnswer(f"{shard}, {status.state.value}: {what.value}")
        self._counts[status.state] -= 1
        self._counts[step.state] += 1
        status.state = step.state
        if step.action is not None:
            self._orders.append(ShardAction(step.action, shard))
        return True


def _as_it_stands(node: MemberNode, standing: Standing, *, unfit: Iterable[str]) -> MemberNode:
    """Return the member node; a daemon that stands aside is unfit for all its roles."""
    groups = {*unfit, *(node.roles if standing.aside else ())}
    return replace(
        node,
        unfit=tuple(sorted(groups)),
        unreached=dict(standing.report.unreached),
        aside=standing.aside,
    )


_ON_NEWS: Mapping[type, Callable[[Handoff, Any, float], None]] = {
    Session: Handoff._on_session,
    MembershipView: Handoff._on_view,
    NodeAnswer: Handoff._on_answer,
}
