"""The hosts of a slice of a daemon job, and which member is the instance on each.

A host keeps its member for as long as it matches. The member of a host that does so no more is to
end; once it has, its number is free for another host. A host that matches again before that has the
same member again, so no host ever has two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import immutables
import msgspec

from peloton.actors.host.inventory.messages import FollowHosts, FollowTerms, HostsOf
from peloton.actors.job.slice import facts as f
from peloton.runtime.vocabulary import Bits, Key, Send, Value

replace = msgspec.structs.replace


class Homes(Value, frozen=True, gc=False, array_like=True):
    """The hosts that match, as last told by their inventory, and their members.

    `asked` numbers the questions to the inventory; `seen` is the version of its last answer, 0
    while that is awaited.
    """

    of: HostsOf
    asked: int = 1
    seen: int = 0
    members: immutables.Map[Key, int] = immutables.Map()  # by host
    hosts: immutables.Map[int, Key] = immutables.Map()  # by member: the same, the other way round
    placed: Bits = Bits()  # the same as a set: every member that has a host
    leaving: Bits = Bits()  # of these, those whose hosts match no more
    waiting: tuple[Key, ...] = ()  # hosts that have no member yet

    @property
    def staying(self) -> Bits:
        """Return every member whose host matches."""
        return self.placed - self.leaving

    def knows(self, host: Key) -> bool:
        """Return whether a host matches, as far as is known."""
        member = self.members.get(host)
        return host in self.waiting if member is None else member not in self.leaving

    @property
    def ask(self) -> Send:
        """Return the question to the inventory, repeated until it is answered."""
        return Send(self.of.inventory, FollowHosts(self.asked, self.of.terms))


def asked_anew(homes: Homes, terms: FollowTerms | None = None) -> Homes:
    """Return the same homes, with all hosts to be told once more."""
    of = homes.of if terms is None else replace(homes.of, terms=terms)
    return replace(homes, of=of, asked=homes.asked + 1, seen=0)


def _seen(homes: Homes, fact: f.HostsSeen) -> Homes:
    known, left = homes.members, frozenset(fact.left)
    gone = [known[host] for host in fact.left if host in known]
    back = [known[host] for host in fact.joined if host in known]
    new = tuple(host for host in fact.joined if host not in known)
    waiting = homes.waiting
    if left:
        waiting = tuple(host for host in waiting if host not in left)
    return replace(
        homes,
        seen=fact.version,
        leaving=(homes.leaving | Bits.of(*gone)) - Bits.of(*back),
        waiting=(*waiting, *new),
    )


def _given(homes: Homes, fact: f.HomesGiven) -> Homes:
    given = frozenset(fact.hosts)
    pairs = tuple(zip(fact.members, fact.hosts, strict=True))
    return replace(
        homes,
        members=homes.members.update({host: member for member, host in pairs}),
        hosts=homes.hosts.update(dict(pairs)),
        placed=homes.placed | fact.members,
        waiting=tuple(host for host in homes.waiting if host not in given),
    )


def _left(homes: Homes, fact: f.HomesLeft) -> Homes:
    members, hosts = homes.members, homes.hosts
    for member in fact.members:
        members, hosts = members.delete(hosts[member]), hosts.delete(member)
    return replace(
        homes,
        members=members,
        hosts=hosts,
        placed=homes.placed - fact.members,
        leaving=homes.leaving - fact.members,
    )


HOMES_EVOLVE: Mapping[type, Callable[[Any, Any], Homes]] = {
    f.HostsSeen: _seen,
    f.HostsMissed: lambda homes, fact: asked_anew(homes),
    f.HomesGiven: _given,
    f.HomesLeft: _left,
}
"""Of a slice's facts, those of its hosts."""
