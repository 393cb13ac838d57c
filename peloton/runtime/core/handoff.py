"""Who owns a shard: one daemon's part in claiming, handing over and giving up.

Turns news of the membership, and what became of its own shards, into orders: make an owner node,
own, drain, drop, remove the node, tell all others that this daemon is unfit or leaving. Nobody
coordinates: all rank the members alike (`ranked`), and each daemon acts for itself alone. It must
never take a node for a right to write: two daemons may believe that they own a shard, and only the
journal tells which one does. What goes wrong otherwise, in five steps:

1. A owns a shard and is cut off from the membership service, not from the store.
2. The service ends A's session; B sees A's node vanish, makes its own, and claims: a new epoch.
3. A cannot know: nobody can tell it. It goes on writing, and its next frame is fenced.
4. If A now claimed again because "its node stands", B would be fenced, and so on for ever.
5. So a shard that was lost is owned again only after the service said anew that the node is ours.

What moves a shard from state to state is one table, total: `core/ownership.py`. A *wish* is what
the newest view asks for: take the shard, yield it, or hold still.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from peloton.runtime.core.ownership import (
    TABLE,
    ActionKind,
    Assignment,
    NoTransition,
    OwnershipEvent,
    OwnershipState,
    ShardAction,
    ranked,
)
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
"""Shards a daemon claims at once; more would make each wait longer for the store."""
DRAINS_IN_FLIGHT_MAX = 8
"""Shards it hands over at once: those that wait for a busy claimer had better go on working."""
UNFIT_S = 60.0
DAMAGED_S = 600.0
"""After so long a shard that could not be recovered is tried again: what a read of a store that was
mended meanwhile did not find, or another version put there, may be whole by now."""
FAILS_MAX = 3
"""Claims of one shard that fail in a row before the daemon calls itself unfit."""
FAIL_FIRST_S = 0.5
FAIL_S_MAX = 15.0
FAILS_FORGOTTEN_S = 60.0
"""A shard that was open for so long did not fail in a row with what was before."""
NODE_AGAIN_S = 1.0
"""Pause after an operation on a node of which nobody knows whether it happened."""


_OF_OUTCOME = {
    NodeOutcome.HELD: OwnershipEvent.MADE,
    NodeOutcome.TAKEN: OwnershipEvent.TAKEN,
    NodeOutcome.GONE: OwnershipEvent.GONE,
    NodeOutcome.UNSURE: OwnershipEvent.UNSURE,
}
_CLAIMING = (OwnershipState.ASKING, OwnershipState.HELD, OwnershipState.OPENING)
_HERE = (OwnershipState.OPENING, OwnershipState.OPEN)
_MOVING = (OwnershipState.DRAINING, OwnershipState.REMOVING)


class UnexpectedAnswer(Exception):
    """An answer to nothing: what we believe of the membership service is wrong."""


class ShardStatus:
    """What a daemon knows of one shard."""

    def __init__(self) -> None:
        self.state = OwnershipState.OUT
        self.owner = ""  # whose node, as far as we know; ours also when it may be
        self.sure = 0  # older views know less of it than we do
        self.first = ""  # in rank
        self.fails = 0
        self.claim_at_s = 0.0
        self.node_at_s = 0.0
        self.opened_at_s = 0.0


class Handoff:
    """One daemon's part, for all shards of all groups. Every call returns what is to be done."""

    def __init__(self, process: str, node: MemberNode, *, sizes: Mapping[str, int]) -> None:
        self.node = node
        self.member = ""
        self.session = SessionState.SUSPENDED
        self.view: MembershipView | None = None
        self.leaving = False
        self.left = False
        self.damaged: dict[ShardId, str] = {}
        self.places = {
            ShardId(g, at): ShardStatus() for g in sorted(sizes) for at in range(sizes[g])
        }
        self._process = process
        self._lives = 0
        self._joined = 0
        self._unfit: dict[str, float] = {}
        self._damaged_until: dict[ShardId, float] = {}
        self._orders: list[ShardAction] = []
        self._counts = dict.fromkeys(OwnershipState, 0) | {OwnershipState.OUT: len(self.places)}

    # ---- what happens ----

    def begin(self, now: float) -> list[ShardAction]:
        """The daemon starts."""
        self._join()
        return self._settle(now)

    def heard(self, news: MembershipNews, now: float) -> list[ShardAction]:
        """The membership service said something; of an older session it is no news."""
        if news.member == self.member:
            _HEARD[type(news)](self, news, now)
        return self._settle(now)

    def opened(self, shard: ShardId, now: float) -> list[ShardAction]:
        """The shard takes mail."""
        self.places[shard].opened_at_s = now
        self._happened(shard, OwnershipEvent.OPENED)
        return self._settle(now)

    def closed(self, shard: ShardId, now: float) -> list[ShardAction]:
        """The shard was given back, or dropped, by order."""
        self._happened(shard, OwnershipEvent.CLOSED)
        return self._settle(now)

    def lost(
        self, shard: ShardId, now: float, *, gave_up: bool = False, damaged: str = ""
    ) -> list[ShardAction]:
        """The shard ended by itself: fenced, not taken, or its shell raised.

        `gave_up`: the store was out of reach too long. `damaged` says what a person has to mend.
        """
        place = self.places[shard]
        if place.state in _HERE:  # else it was on its way out, and that is no failure
            self._failed(place, now)
            self._orders.append(ShardAction(ActionKind.LOOK))
            if gave_up or place.fails >= FAILS_MAX:
                self._unfit[shard.group] = now + UNFIT_S
                self._say()
        if damaged:
            self.damaged[shard], self._damaged_until[shard] = damaged, now + DAMAGED_S
            self._say()
        self._happened(shard, OwnershipEvent.LOST)
        return self._settle(now)

    def drain_all(self, now: float) -> list[ShardAction]:
        """The daemon goes: all others are told first, so that each shard moves once, and now."""
        self.leaving = True
        self._say()
        return self._settle(now)

    def tick(self, now: float) -> list[ShardAction]:
        """A moment that was waited for has come."""
        return self._settle(now)

    # ---- what is asked ----

    @property
    def current(self) -> bool:
        """Whether what is answered here may be called current, and new work may be begun.

        A suspended session may be over without our knowing; then another owner may be ahead.
        """
        return self.session is SessionState.CONNECTED and not self.left

    def wake_at_s(self, now: float) -> float | None:
        """When `tick` is due; None when only news can change anything."""
        moments = [*self._unfit.values(), *self._damaged_until.values()]
        for place in self.places.values():
            if place.state in (OwnershipState.OUT, OwnershipState.LEFT) and self._wants(place):
                moments += [place.claim_at_s, place.node_at_s]
        return min((at_s for at_s in moments if at_s > now), default=None)

    def _failed(self, place: ShardStatus, now: float) -> None:
        if place.state is OwnershipState.OPEN and now - place.opened_at_s >= FAILS_FORGOTTEN_S:
            place.fails = 0
        place.fails += 1
        place.claim_at_s = now + min(FAIL_FIRST_S * 2 ** min(place.fails - 1, 9), FAIL_S_MAX)

    # ---- news of the membership ----

    def _session(self, news: Session, now: float) -> None:
        self.session = news.state
        if news.state is SessionState.CONNECTED:
            self._joined = news.version
        elif news.state is SessionState.LOST:
            self._lose()

    def _look(self, view: MembershipView, now: float) -> None:
        if self.view is not None and view.version < self.view.version:
            return
        if self.member not in view.members and view.version >= self._joined:
            self._lose()  # somebody emptied the service: the others rank without us
            return
        same = self.view is not None and self.view.members == view.members
        self.view = view
        for shard, place in self.places.items():
            if view.version >= place.sure:
                place.owner = view.owners.get(shard, "")
        if not same:  # ranking costs milliseconds, and most views differ in owners alone
            self._rank()

    def _answer(self, answer: NodeAnswer, now: float) -> None:
        place = self.places[answer.shard]
        if answer.outcome is NodeOutcome.UNSURE:
            place.owner = self.member  # perhaps; a view will tell
            place.node_at_s = now + NODE_AGAIN_S
        else:
            place.sure = answer.version
            held = answer.outcome is NodeOutcome.HELD
            place.owner = self.member if held else answer.owner
            if self.view is not None and self.view.version > answer.version:
                place.owner = self.view.owners.get(answer.shard, "")
        self._happened(answer.shard, _OF_OUTCOME[answer.outcome])

    def _lose(self) -> None:
        """All nodes are gone or soon will be, so all others may claim: nothing of ours stays."""
        self.session, self.view = SessionState.LOST, None
        for shard, place in self.places.items():
            self._happened(shard, OwnershipEvent.SESSION_LOST)
            place.owner, place.sure, place.first, place.node_at_s = "", 0, "", 0.0
        if not self.leaving:
            self._join()

    def _join(self) -> None:
        """Under a new id: the old one's nodes may stand for a while, and are another's to us."""
        self._lives += 1
        self.member = f"{self._process}.{self._lives}"
        self.session = SessionState.SUSPENDED
        self._orders.append(ShardAction(ActionKind.JOIN))

    def _say(self) -> None:
        """Our node changes; to ourselves it counts at once, to others when they see it."""
        node = replace(
            self.node,
            unfit=tuple(sorted(self._unfit)),
            leaving=self.leaving,
            damaged=tuple(sorted(self.damaged)),
        )
        if node != self.node:
            self.node = node
            self._orders.append(ShardAction(ActionKind.ANNOUNCE))
            self._rank()

    def _rank(self) -> None:
        if self.view is not None:
            members = {**self.view.members, self.member: self.node}
            for shard, place in self.places.items():
                place.first = next(iter(ranked(shard, members)), "")

    # ---- the table ----

    def _settle(self, now: float) -> list[ShardAction]:
        """Go on with every shard as far as it goes by itself."""
        self._look_again(now)
        for shard, place in self.places.items():
            self._happened(
                shard,
                OwnershipEvent.OURS if place.owner == self.member else OwnershipEvent.NOT_OURS,
            )
            while self._may(shard, now) and self._happened(shard, self._wish(shard)):
                pass
        if self.leaving and not self.left and self._counts[OwnershipState.OUT] == len(self.places):
            self.left = True
            self._orders.append(ShardAction(ActionKind.LEAVE))
        orders, self._orders = self._orders, []
        return orders

    def _look_again(self, now: float) -> None:
        """What was said of us long ago need not be so any more."""
        mended = [shard for shard, until_s in self._damaged_until.items() if until_s <= now]
        for shard in mended:
            del self.damaged[shard], self._damaged_until[shard]
        fit = [group for group, until_s in self._unfit.items() if until_s <= now]
        for group in fit:
            del self._unfit[group]
        if mended or fit:
            self._say()

    def _wish(self, shard: ShardId) -> Assignment:
        place = self.places[shard]
        if self.leaving:
            return Assignment.YIELD
        if self.session is not SessionState.CONNECTED or self.view is None:
            return Assignment.HOLD
        if place.first != self.member or shard in self.damaged:
            return Assignment.YIELD
        return Assignment.TAKE if place.owner in ("", self.member) else Assignment.HOLD

    def _wants(self, place: ShardStatus) -> bool:
        return place.first == self.member or place.owner == self.member

    def _may(self, shard: ShardId, now: float) -> bool:
        """Whether it is time, and there is room, for what the wish would begin."""
        place = self.places[shard]
        step = TABLE[place.state][self._wish(shard)]
        if isinstance(step, NoTransition):
            return False
        verb = step.action
        if verb is ActionKind.CREATE:
            busy = sum(self._counts[state] for state in _CLAIMING)
            early = now < max(place.claim_at_s, place.node_at_s)
            return not early and busy < CLAIMS_IN_FLIGHT_MAX
        if verb is ActionKind.REMOVE:
            return now >= place.node_at_s
        if verb is ActionKind.DRAIN and not self.leaving and shard.group not in self._unfit:
            return sum(self._counts[state] for state in _MOVING) < DRAINS_IN_FLIGHT_MAX
        return True

    def _happened(self, shard: ShardId, what: OwnershipEvent | Assignment) -> bool:
        """Move by the table; False where nothing follows."""
        place = self.places[shard]
        step = TABLE[place.state][what]
        if step is NoTransition.STAY:
            return False
        if step is NoTransition.NEVER:
            raise UnexpectedAnswer(f"{shard}, {place.state.value}: {what.value}")
        self._counts[place.state] -= 1
        self._counts[step.state] += 1
        place.state = step.state
        if step.action is not None:
            self._orders.append(ShardAction(step.action, shard))
        return True


_HEARD: Mapping[type, Callable[[Handoff, Any, float], None]] = {
    Session: Handoff._session,
    MembershipView: Handoff._look,
    NodeAnswer: Handoff._answer,
}
