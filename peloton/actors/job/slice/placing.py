"""How a slice handles answers of placers, and refusals of hosts.

A proposal becomes launches of the members that still wait for a host; the rest is declined, and
members that no host could run give their tickets back.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from peloton.actors.job.slice.gang_answers import gang_refused, gang_unplaced, had_no_chance
from peloton.actors.job.slice.home_wishes import at_home, held_hosts, launched, told_why
from peloton.actors.job.slice.looks import (
    PLACE_RETRY_S,
    REFUSED_REST_S,
    looks_for_host,
)
from peloton.actors.job.slice.rollout_messages import RunNotStarted
from peloton.actors.job.slice.state import Slice, WishNotes
from peloton.actors.job.slice.volume_homes import launched_at, may_go_there, refused_at
from peloton.actors.task.messages import MarkUnschedulable, PlaceTasks, RunRefused
from peloton.actors.task.state import Task, ready_for_host
from peloton.placement.messages import Declined, HostSummary, Placed, Unplaced
from peloton.runtime.vocabulary import SENDER, At, Bits, Decision, Fact, Key, Send

REFUSED_KEPT_MAX = 16
"""Hosts whose last refusals are remembered."""
AVOIDED_S = 600.0
AVOIDED_MAX = 16
"""Hosts where a run did not start that are named in wishes."""


def take_hosts(slice_: Slice, message: Placed, at: At) -> Decision:
    """Launch the members that still wait for the proposed hosts; the first answer wins."""
    notes = notes_of(at)
    members = message.members & (notes.wished | notes.kept)
    if slice_.gang_open:
        members -= slice_.forming  # it may form anew since
    if slice_.homes is not None:
        members = members & at_home(slice_.homes, message)
    elif slice_.volumes is not None:
        members &= may_go_there(slice_.volumes, message, specs=slice_.specs, at=at)
    wanted = members & Bits(at.index.where(ready_for_host))
    unschedulable = members & Bits(at.index.where(_is_unschedulable))
    # They stay in `wished` until they launch, or are to be admitted again: else this very turn
    # would wish for them once more.
    after = msgspec.structs.replace(
        notes,
        wished=notes.wished | wanted | unschedulable,
        wished_at=notes.wished_at if notes.wished else at.now,
        kept=notes.kept - members,
    )
    if slice_.homes is not None or notes.held_at:
        after = launched(after, members)
    sends, facts = _clear_unschedulable(slice_, unschedulable), tuple[Fact, ...]()
    if wanted:
        hosts = tuple(_hosts_of(message, wanted))
        if slice_.volumes is not None:
            facts = launched_at(
                slice_.volumes, [*zip(wanted, hosts, strict=True)], specs=slice_.specs, at=at
            )
        sends = (*sends, Send(slice_.crowd, PlaceTasks(message.shares), wanted, hosts))
    unused = message.members - wanted
    if unused:
        # The placer counts them as taken until it learns of it.
        hosts = tuple(_hosts_of(message, unused))
        wants = Bits(at.index.where(looks_for_host)) - unschedulable
        sends = (*sends, Send(SENDER, Declined(at.key, wants, hosts, message.shape)))
    because = "" if wanted or unschedulable else "none of them waits for a host any more"
    return Decision(facts, sends, because=because, notes=None if after == notes else after)


def keep_wish(slice_: Slice, message: Unplaced, at: At) -> Decision:
    """Record why there is no host for these members, whose wish the placer keeps.

    A member that no host could run releases its ticket and goes on wishing without one: a job that
    fits no host must not keep others waiting.
    """
    notes = notes_of(at)
    if notes.gang is not None and notes.gang.number == message.number:
        return gang_unplaced(slice_, message, at)
    members = message.members & (notes.wished | notes.kept)
    sends: tuple[Send, ...] = ()
    if message.never:
        unschedulable = members & Bits(at.index.where(ready_for_host))
        if unschedulable:
            sends = (Send(slice_.crowd, MarkUnschedulable(True), unschedulable),)
    else:
        # One that is parked waits for a proposal: that a host could run it is known.
        sends = _clear_unschedulable(slice_, members & Bits(at.index.where(had_no_chance)))
    if message.kept and at.sender != notes.placer and notes.placer is not None:
        # Only one placer is to keep them. A gang is kept by whichever it was told.
        wanted = (notes.kept - members) | slice_.forming
        sends = (*sends, Send(notes.placer, Declined(at.key, wanted)))
    after = msgspec.structs.replace(notes, wished=notes.wished - members)
    if slice_.homes is not None:  # each has a host, and a reason, of its own
        after = told_why(after, message, members=members)
    else:
        after = msgspec.structs.replace(
            after,
            reasons=message.reasons,
            reasons_at=at.now,
            shortfall=message.text,
            never=message.never,
        )
    if not message.never:
        held, after = held_hosts(slice_, after, message=message, members=members, at=at)
        sends = (*sends, *held)
    if message.kept:
        after = msgspec.structs.replace(
            after,
            kept=notes.kept | members,
            kept_at=notes.kept_at if notes.kept else at.now,
            placer=at.sender,
        )
    else:
        resting, retry_at = notes.resting | members, at.now + PLACE_RETRY_S
        after = msgspec.structs.replace(after, resting=resting, retry_at=retry_at)
    because = why_unplaced(after) if slice_.homes is None else message.text
    return Decision(sends=sends, because=because, notes=after)


def host_refused(slice_: Slice, message: RunRefused, at: At) -> Decision:
    """Wish again at once for refused members, with the summary of what the host has free.

    They rest if that could repeat without end: the host refuses again without having more free than
    it had at its last refusal, or too many hosts have refused since the last launch.
    """
    notes = notes_of(at)
    members = at.members if at.members is not None else Bits()
    if slice_.gang_open and members & slice_.forming:
        return gang_refused(slice_, message, at)
    known = {summary.host: summary for summary in notes.refused}
    summary = message.summary
    rests = summary is None or len(known) >= REFUSED_KEPT_MAX
    refusals = notes.refusals
    if summary is not None:
        # Nothing has changed there since it refused, whatever was launched elsewhere meanwhile:
        # the placer does not know its reason, and would propose it again and again.
        said = (summary.host, summary.position)
        rests = rests or said in refusals
        refusals = (*(each for each in refusals if each[0] != summary.host), said)
        before = known.pop(summary.host, None)
        rests = rests or (before is not None and not _has_more(summary, before))
        known[summary.host] = summary
    after = msgspec.structs.replace(
        notes,
        refused=tuple(known.values())[-REFUSED_KEPT_MAX:],
        refusals=refusals[-REFUSED_KEPT_MAX:],
        refusal=message.reason,
        wished=notes.wished - members,
    )
    if rests:
        after = msgspec.structs.replace(
            after,
            resting=notes.resting | members,
            retry_at=max(notes.retry_at, at.now + REFUSED_REST_S),
        )
    facts: tuple[Fact, ...] = ()
    if slice_.volumes is not None:
        facts = refused_at(slice_.volumes, message, members=members)
    return Decision(facts, because=message.reason, notes=after)


def avoid_host(slice_: Slice, message: RunNotStarted, at: At) -> Decision:
    """Name the hosts of runs that did not start in time in the next wishes, which use them last."""
    notes, members = notes_of(at), at.members if at.members is not None else Bits()
    known = {host: until for host, until in notes.avoid if until > at.now}
    for member in members.lowest(AVOIDED_MAX):
        host = _last_host(member, at)
        if host:
            known.pop(host, None)
            known[host] = at.now + AVOIDED_S
    after = msgspec.structs.replace(notes, avoid=tuple(known.items())[-AVOIDED_MAX:])
    names = ", ".join(sorted(host.partition("/")[2] for host in known))
    return Decision(because=f"runs did not start on {names}" if names else "", notes=after)


def _last_host(member: int, at: At) -> Key | None:
    """Return where the last run of a member was; its task may have begun the next one."""
    read = at.index.columns.read
    runs = read("runs", member) or ()
    host = read("host", member) or (runs[-1].host if runs else None)
    return Key(host) if host else None


def _has_more(summary: HostSummary, before: HostSummary) -> bool:
    """Return whether a host could accept now what it has refused before."""
    pairs = zip(summary.free.amounts(), before.free.amounts(), strict=True)
    more = any(now > then for now, then in pairs) or summary.ports > before.ports
    said = (summary.up, summary.labels, summary.running)
    return more or said != (before.up, before.labels, before.running)


def _hosts_of(message: Placed, members: Bits) -> Iterator[Key]:
    pairs = zip(message.members, message.hosts, strict=True)
    return (host for member, host in pairs if member in members)


def why_unplaced(notes: WishNotes) -> str:
    """Return the placer's last answer as one line: its text or, without one, the counts."""
    if notes.shortfall:
        return notes.shortfall
    if not notes.reasons:
        return "no host: the placer knows no hosts yet"
    return "no host: " + ", ".join(f"{name} on {count}" for name, count in notes.reasons)


def _clear_unschedulable(slice_: Slice, unschedulable: Bits) -> tuple[Send, ...]:
    return (Send(slice_.crowd, MarkUnschedulable(False), unschedulable),) if unschedulable else ()


def _is_unschedulable(task: Task) -> bool:
    return task.unschedulable


def notes_of(at: At) -> WishNotes:
    return at.notes if at.notes is not None else WishNotes()


def decline_all(message: Placed, at: At) -> Decision:
    declined = Declined(at.key, Bits(), message.hosts, message.shape)
    return Decision(sends=(Send(SENDER, declined),), because="no such slice")
