"""Which hosts match what slices of daemon jobs follow, and what each slice was told.

What a slice was told is not journaled: after a recovery each is told all of its hosts once. Hosts
that are down match as well: the instance of such a host waits for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import immutables

from peloton.actors.host.inventory import facts as f
from peloton.actors.host.inventory.messages import (
    FollowHosts,
    FollowTerms,
    HostsTold,
    UnfollowHosts,
)
from peloton.actors.host.state import Host
from peloton.placement.conditions import EXCLUSIVE, accepts, closed_to, opens_exclusive
from peloton.placement.messages import Constraint
from peloton.runtime.vocabulary import At, Decision, Key, Send

_NOTHING_RUNS: Mapping[Any, int] = {}


def follow(inventory: Any, message: FollowHosts, at: At) -> Decision:
    """Record that the sender follows hosts.

    A repeat changes nothing, as what the sender is told is sent until it is seen.
    """
    assert at.sender is not None
    known = inventory.followers.get(at.sender)
    if known is not None and known.asked >= message.asked:
        return Decision(because="it is told already")
    return Decision(facts=(f.FollowerNoted(at.sender, message.asked, message.terms),))


def unfollow(inventory: Any, message: UnfollowHosts, at: At) -> Decision:
    """Stop telling the sender, unless it has asked anew since."""
    assert at.sender is not None
    known = inventory.followers.get(at.sender)
    if known is None or known.asked > message.asked:
        return Decision()
    return Decision(facts=(f.FollowerGone(at.sender),))


class _Told(NamedTuple):
    """What a slice was told last."""

    asked: int
    version: int
    hosts: dict[Key, None]


class FollowedHosts:
    """What the slices that follow an inventory were told; a part of its index."""

    def __init__(self) -> None:
        self.changed: dict[Key, None] = {}  # hosts that may match otherwise than they did
        self._told: dict[Key, _Told] = {}
        self._followers: immutables.Map[Key, f.FollowerNoted] = immutables.Map()

    def take(
        self,
        followers: immutables.Map[Key, f.FollowerNoted],
        hosts: Mapping[Key, Host],
        *,
        version: int,
    ) -> tuple[Send, ...]:
        """Return what is to be told since the last call; if it raises, that call was not made."""
        if not self.changed and followers is self._followers:
            return ()  # asked whenever a run begins or ends
        if followers is not self._followers:
            # One that follows again, of a job made anew, knows nothing of what was told before.
            self._told = {key: told for key, told in self._told.items() if key in followers}
        sends: list[Send] = []
        told_now: dict[Key, _Told] = {}
        moved: list[tuple[_Told, tuple[Key, ...], tuple[Key, ...]]] = []
        all_of: dict[Constraint | None, list[Key]] = {}
        for follower in sorted(followers):
            asked, terms = followers[follower].asked, followers[follower].terms
            told = self._told.get(follower)
            if told is None or told.asked != asked:
                if terms.constraint not in all_of:
                    all_of[terms.constraint] = _matching(hosts, terms.constraint)
                found = [key for key in all_of[terms.constraint] if in_part(key, terms)]
                report = HostsTold(version, asked, 0, tuple(found))
                told_now[follower] = _Told(asked, version, dict.fromkeys(found))
            elif (news := _news(told, terms, changed=self.changed, hosts=hosts)) is not None:
                report = HostsTold(version, asked, told.version, *news)
                told_now[follower] = told._replace(version=version)
                moved.append((told, *news))
            else:
                continue
            sends.append(Send(follower, report))
        for told, joined, left in moved:
            told.hosts.update(dict.fromkeys(joined))
            for key in left:
                del told.hosts[key]
        self._told.update(told_now)
        self.changed, self._followers = {}, followers
        return tuple(sends)


def _matching(hosts: Mapping[Key, Host], constraint: Constraint | None) -> list[Key]:
    return sorted(key for key, host in hosts.items() if matches(key, host, constraint=constraint))


def _news(
    told: _Told, terms: FollowTerms, *, changed: Iterable[Key], hosts: Mapping[Key, Host]
) -> tuple[tuple[Key, ...], tuple[Key, ...]] | None:
    """Return the hosts that joined and left; None if there are none."""
    joined, left = [], []
    for key in changed:
        host = hosts.get(key)
        is_one = (
            host is not None
            and in_part(key, terms)
            and matches(key, host, constraint=terms.constraint)
        )
        if is_one and key not in told.hosts:
            joined.append(key)
        elif not is_one and key in told.hosts:
            left.append(key)
    return (tuple(joined), tuple(left)) if joined or left else None


def in_part(host: Key, terms: FollowTerms) -> bool:
    """Return whether a host belongs to the part of the names that is followed."""
    # By other bits of the checksum than those by which hosts are spread over the shards.
    return terms.parts == 1 or (zlib.crc32(host.encode()) >> 16) % terms.parts == terms.part


def matches(key: Key, host: Host, *, constraint: Constraint | None) -> bool:
    """Return whether such a task is to run on a host, be it up or not."""
    labels = host.all_labels
    if closed_to(constraint, labels):
        return False
    if any(label.key == EXCLUSIVE for label in labels) and not opens_exclusive(constraint):
        return False
    if constraint is None:
        return True
    return accepts(constraint, (), host=(key, labels), running=_NOTHING_RUNS, most=1) > 0
