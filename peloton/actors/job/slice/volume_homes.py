"""Where the volumes of a slice's members are, and on which hosts these members may run.

A member that is launched to have a volume has its home there from then on, and is placed nowhere
else: it waits for that host. It may have another home only if that host refuses it and says that it
has no volume of it, or once its volume is deleted. The host knows which volumes it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import immutables

from peloton.actors.job.slice import facts as f
from peloton.actors.job.slice.configs import SpecRow
from peloton.actors.job.slice.messages import (
    LeaveVolume,
    ListVolumeHomes,
    VolumeHomesListed,
    VolumeLeft,
)
from peloton.actors.task.messages import WANTED, RunRefused
from peloton.actors.task.state import ENDED, Task
from peloton.placement.messages import Placed, Shape
from peloton.runtime.vocabulary import At, Bits, Decision, Fact, Key, Refused, Value

VOLUME_HELD = "VOLUME_HELD"
"""The code of its refusal: the same as that of a host."""
STOP_FIRST = "the instance is to run: stop it first, then delete its volume"


class VolumeHomes(Value, frozen=True, gc=False, array_like=True):
    """The hosts of members that have volumes there, or may have."""

    hosts: immutables.Map[int, Key] = immutables.Map()


def _given(homes: VolumeHomes, fact: f.VolumeHomesGiven) -> VolumeHomes:
    pairs = dict(zip(fact.members, fact.hosts, strict=True))
    return VolumeHomes(homes.hosts.update(pairs))


def _left(homes: VolumeHomes, fact: f.VolumeHomesLeft) -> VolumeHomes:
    hosts = homes.hosts
    for member in fact.members:
        hosts = hosts.delete(member)
    return VolumeHomes(hosts)


VOLUME_EVOLVE: Mapping[type, Callable[[Any, Any], VolumeHomes]] = {
    f.VolumeHomesGiven: _given,
    f.VolumeHomesLeft: _left,
}
"""Of a slice's facts, those of its volumes."""


def may_go_there(
    homes: VolumeHomes, message: Placed, *, specs: tuple[SpecRow, ...], at: At
) -> Bits:
    """Return the members for which no other host than their home is proposed.

    A member whose config has no volume any more may go anywhere.
    """
    pairs = zip(message.members, message.hosts, strict=True)
    away = [member for member, host in pairs if homes.hosts.get(member, host) != host]
    return message.members - Bits.of(*(one for one in away if _has_volume(one, specs, at)))


def _has_volume(member: int, specs: tuple[SpecRow, ...], at: At) -> bool:
    return specs[at.index.columns.read("spec", member) or 0].config.volume is not None


def launched_at(
    homes: VolumeHomes, placed: Sequence[tuple[int, Key]], *, specs: tuple[SpecRow, ...], at: At
) -> tuple[Fact, ...]:
    """Return the facts to journal when these members are launched, each on this host."""
    some = {
        member: host
        for member, host in placed
        if member not in homes.hosts and _has_volume(member, specs, at)
    }
    if not some:
        return ()
    return (f.VolumeHomesGiven(Bits.of(*some), tuple(some.values())),)


def refused_at(homes: VolumeHomes, message: RunRefused, *, members: Bits) -> tuple[Fact, ...]:
    """Return the facts to journal when the home of these members has refused them.

    Only a host that is their home, and says that they have no volume there, changes anything.
    """
    if message.volumes is None:
        return ()
    free = members - message.volumes
    left = Bits.of(*(one for one in free if homes.hosts.get(one) == message.host))
    return (f.VolumeHomesLeft(left),) if left else ()


def wishes_by_home(
    homes: VolumeHomes, fresh: Bits, *, specs: tuple[SpecRow, ...], at: At
) -> Iterator[tuple[SpecRow, Shape, Bits, tuple[Key, ...]]]:
    """Yield members that wish for hosts, by row.

    Members with homes name them; the others need room for their volumes besides.
    """
    for spec, raw in at.index.columns.groups("spec", fresh.raw):
        row, members = specs[spec or 0], Bits(raw)
        if row.config.volume is None:
            yield row, row.shape, members, ()
            continue
        home = Bits.of(*(member for member in members if member in homes.hosts))
        if home:
            yield row, row.shape, home, tuple(homes.hosts[member] for member in home)
        if members - home:
            yield row, row.first_shape, members - home, ()


def leave(slice_: Any, message: LeaveVolume, at: At) -> Decision:
    """Forget where the volume of a member is, unless it is to run; a repeat finds nothing left."""
    homes: VolumeHomes | None = slice_.volumes
    host = homes.hosts.get(message.member) if homes is not None else None
    if host is None:
        return Decision(reply=VolumeLeft(Key("")), because="no volume is known")
    member = Bits.of(message.member)
    runs = at.index.where(_is_to_run) if at.index is not None else 0
    if member & (Bits(runs) | slice_.awaiting_restart):
        return Decision(reply=Refused(VOLUME_HELD, STOP_FIRST, "id", again=True))
    return Decision(facts=(f.VolumeHomesLeft(member),), reply=VolumeLeft(host))


def left_already(message: LeaveVolume, at: At) -> Decision:
    """Answer that the slice is deleted; the host keeps the volume until it is deleted there."""
    return Decision(reply=VolumeLeft(Key("")), because="no such slice")


def list_homes(slice_: Any, query: ListVolumeHomes, at: At) -> VolumeHomesListed:
    """Return the hosts with volumes of the members."""
    homes: VolumeHomes | None = slice_.volumes
    known = sorted(homes.hosts.items()) if homes is not None else []
    return VolumeHomesListed(tuple(sorted({host: None for _, host in known})), tuple(known))


def _is_to_run(task: Task) -> bool:
    return task.goal in WANTED or task.again or task.state not in ENDED
