"""How a slice reacts if a host has no room for a member yet.

The answer is noted by member for a daemon job, as each has another host. Hosts are ordered to hold
room: if a daemon job is to have room before other work, and if a placer says so of a member that
has waited for long. The host then grants nothing to others until its instance has come. Such a hold
lasts for two minutes, and is renewed by the repeats of the wish.
"""

from __future__ import annotations

from typing import Any

import msgspec

from peloton.actors.host.holds.hold_messages import PLACER, HoldForTask
from peloton.actors.job.slice.homes import Homes
from peloton.actors.job.slice.state import Slice, WishNotes
from peloton.actors.task.messages import SLICE_SIZE
from peloton.placement.messages import NOT_UP, Placed, Unplaced
from peloton.runtime.vocabulary import At, Bits, Send

HOLD_S = 120.0
HOLD_RENEWED_S = 60.0
DAEMON_JOB = "daemon job"
"""The holder of those for daemon jobs."""


def at_home(homes: Homes, message: Placed) -> Bits:
    """Return the members that still have the host which is proposed."""
    pairs = zip(message.members, message.hosts, strict=True)
    return Bits.of(*(member for member, host in pairs if homes.hosts.get(member) == host))


def told_why(notes: WishNotes, message: Unplaced, *, members: Bits) -> WishNotes:
    """Return the notes with the reason why these members have no room."""
    return msgspec.structs.replace(
        notes, at_home=notes.at_home.update(dict.fromkeys(members, message.text))
    )


def launched(notes: WishNotes, members: Bits) -> WishNotes:
    """Return the notes without the reasons of these members, which have hosts now."""
    return msgspec.structs.replace(
        notes, at_home=_without(notes.at_home, members), held_at=_without(notes.held_at, members)
    )


def _without(known: Any, members: Bits) -> Any:
    for member in members:
        if member in known:
            known = known.delete(member)
    return known


def held_hosts(
    slice_: Slice, notes: WishNotes, *, message: Unplaced, members: Bits, at: At
) -> tuple[tuple[Send, ...], WishNotes]:
    """Return orders to hosts to keep room for some of these members, unless they have one that
    lasts."""
    homes, hosts, holder = slice_.homes, dict(message.reserve), PLACER
    if homes is not None:
        hosts, holder = dict(homes.hosts) if homes.of.first else {}, DAEMON_JOB
    some = [
        one
        for one in members
        if one in hosts and notes.held_at.get(one, 0.0) + HOLD_RENEWED_S <= at.now
    ]
    if not some:
        return (), notes
    job = slice_.job.partition("/")[2]
    crowd = slice_.crowd
    read = at.index.columns.read
    sends = tuple(
        Send(
            hosts[one],
            HoldForTask(
                f"{job}-{slice_.number * SLICE_SIZE + one}",
                crowd,
                one,
                holder,
                HOLD_S,
                slice_.specs[read("spec", one) or 0].run.resources,
                reserve=homes is None,
                until=at.now + HOLD_S,
            ),
        )
        for one in some
    )
    held_at = notes.held_at.update(dict.fromkeys(some, at.now))
    return sends, msgspec.structs.replace(notes, held_at=held_at)


def host_is_down(members: Bits, at: At) -> Bits:
    """Return the members that wait for their only host because it is down, as a placer has said."""
    if at.notes is None or not at.notes.at_home:
        return Bits()
    waiting = members & Bits(at.index.where(lambda task: task.unschedulable))
    texts = at.notes.at_home
    return Bits.of(*[one for one in waiting if texts.get(one, "").endswith(NOT_UP)])
