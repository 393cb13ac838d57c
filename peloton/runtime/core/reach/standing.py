"""Standing aside: a daemon owns nothing because it and others do not reach each other.

Turns what all members publish about unreached peers into the set of those that should own nothing,
so that the others all reach each other; every daemon computes the same from the same view, and acts
on itself only. A daemon that stands aside calls itself unfit, and the ranking does the rest.

Two that do not reach each other block what needs both: a job of one waits for ever for its pool
at the other, though each of them works. So one of each such pair has to go. Once there is no such
pair nobody has to, so at least one daemon stays, whatever is cut.

- Who does not reach most others goes first: one that nobody reaches, or the smaller part.
- Of equals: who does not reach its own address (a certificate that has expired, a wrong address);
  then who stands aside already, so that nothing moves without need; then the higher id.
- A daemon that has just joined stands aside until it has met the others: it never owns what it
  would have to give up again. Once it knows whom it does not reach, it owns what no other can.
- Who stood aside comes back when the rule has let it in for a while, which doubles each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from msgspec.structs import replace

from peloton.pauses import Pauses
from peloton.runtime.core.reach.contacts import NOT_DIALLED, ContactReport, named
from peloton.runtime.ports import MemberNode

SURE_S = 1.0
"""So long the rule must say it before a daemon stands aside: within that time the others publish
what they see, and who should go may depend on it."""
BACK = Pauses(5.0, 160.0)
"""How long it must say the opposite before one comes back; doubled with each time in the last
`REMEMBERED_S`. A link has then been up for as long as a dead one was waited for already."""
REMEMBERED_S = 600.0
NOT_MET = "it has not met the other daemons yet"


def set_aside(members: Mapping[str, MemberNode]) -> set[str]:
    """Return the members that should own nothing. O(members²)."""
    apart: dict[str, set[str]] = {member: set() for member in members}
    for member, node in members.items():
        for peer in node.unreached:
            if peer in members and peer != member:
                apart[member].add(peer)
                apart[peer].add(member)

    def turn(member: str) -> tuple[int, bool, bool, str]:
        node = members[member]
        return len(apart[member]), member in node.unreached, node.aside, member

    gone: set[str] = set()
    while True:
        first = max(apart, key=turn, default="")
        if not first or not apart[first]:
            return gone
        gone.add(first)
        for peer in apart.pop(first):
            apart[peer].discard(first)


def why_aside(me: str, members: Mapping[str, MemberNode]) -> str:
    """Return who does not reach whom, with addresses and reasons, for people."""
    ours, texts = members[me].unreached, []
    if ours.get(me):
        texts.append(f"its own address {members[me].address} does not lead to it: {ours[me]}")
    for peer, node in sorted(members.items()):
        found = [text for text in (ours.get(peer), node.unreached.get(me)) if text]
        if found and peer != me:
            why = next((text for text in found if text != NOT_DIALLED), NOT_DIALLED)
            texts.append(f"no contact with {named(peer, node.address)}: {why}")
    return "; ".join(texts) or NOT_MET


class Standing:
    """The standing of one daemon. `judged`: somebody reports its contacts."""

    def __init__(self, *, judged: bool) -> None:
        self.judged = judged
        self.report = ContactReport()
        self.aside = judged
        self.arriving = judged
        """It does not know yet, in this session, which of the others it reaches."""
        self._out_s: float | None = None  # since when the rule wants it aside
        self._in_s: float | None = None  # since when not
        self._times: deque[float] = deque(maxlen=16)  # when it stood aside lately

    def joined(self) -> None:
        """Start over in a new session, whose links are new: the others have to be met again."""
        self.report = ContactReport()
        self._out_s = self._in_s = None
        if self.judged and not self.aside:
            self.aside = self.arriving = True

    def judge(self, me: str, members: Mapping[str, MemberNode], now: float) -> bool:
        """Judge the newest view; return whether `aside` has changed."""
        if not self.judged:
            return False
        known = {name: node for name, node in members.items() if not node.leaving}
        unmet = known.keys() - {me} - self.report.met
        # Who stands aside has to meet each one, or to know that it does not reach it.
        unreached = {**(dict.fromkeys(unmet, "") if self.aside else {}), **self.report.unreached}
        ours = replace(members[me], unreached=unreached, aside=self.aside)
        out = me in set_aside({**known, me: ours})
        self._out_s = (now if self._out_s is None else self._out_s) if out else None
        self._in_s = (now if self._in_s is None else self._in_s) if not out else None
        if self.aside:
            change = self._in_s is not None and now >= self._in_s + self._back_s(now)
        else:
            change = self._out_s is not None and now >= self._out_s + SURE_S
        if change:
            self._change(now)
        elif unmet <= self.report.unreached.keys():
            self.arriving = False  # a cut may last, and nobody else may have its roles
        return change

    def wake_s(self, now: float) -> float | None:
        """Return when `judge` may find otherwise though nothing happens."""
        if self.aside:
            return self._in_s + self._back_s(now) if self._in_s is not None else None
        return self._out_s + SURE_S if self._out_s is not None else None

    def _change(self, now: float) -> None:
        self.aside = not self.aside
        self.arriving = False
        if self.aside:
            self._times.append(now)

    def _back_s(self, now: float) -> float:
        if self.arriving:
            return 0.0
        lately = sum(1 for at_s in self._times if at_s >= now - REMEMBERED_S)
        return BACK.after(max(lately, 1))
