"""The volumes of a host: which runs get one, and when one is removed.

A host makes a volume with the first grant of a run that is to have it, and it then takes room of
the host whether a run has it or not. It is removed only by an order, and only while no run has it;
until the backend has confirmed that, its room is not free and no run gets it. The slice of an
instance chooses where it runs: a host that has not its volume makes an empty one.
"""

from __future__ import annotations

from msgspec.structs import replace

from peloton.actors.host import facts as f
from peloton.actors.host import machine_messages as vm
from peloton.actors.host import messages as m
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.host.stages import OCCUPYING, HostStates
from peloton.actors.host.state import Host
from peloton.actors.resources import Resources
from peloton.runtime.vocabulary import At, Bits, Decision, Fact, Key, Refused, Send

BEING_DELETED = "its volume is being deleted on the host"


def with_volumes(
    host: Host, spec: RunSpec, *, members: Bits, crowd: Key, room: Resources
) -> tuple[int, str]:
    """Return for how many of the members, the lowest, there is room, and why not for more.

    A member whose volume is here needs room for its run alone.
    """
    assert spec.volume is not None
    for count, member in enumerate(members):
        known = host.volumes.get(vm.volume_name(crowd, member))
        need = spec.resources if known is not None else spec.resources + spec.volume.room
        if known is not None and known.deleting:
            return count, BEING_DELETED
        if not need.within(room):
            return count, "insufficient resources on the host: " + ", ".join(need.short_of(room))
        room = room - need
    return len(members), ""


def as_made(host: Host, spec: RunSpec, *, run: str) -> RunSpec:
    """Return the spec for the backend.

    A volume has the size that it was made with, for which there is room, whatever a later config
    says.
    """
    known = host.volumes.get(run.rpartition("-")[0]) if spec.volume is not None else None
    if spec.volume is None or known is None or known.config.size_mb == spec.volume.size_mb:
        return spec
    return replace(spec, volume=replace(spec.volume, size_mb=known.config.size_mb))


def volumes_given(
    host: Host, spec: RunSpec, *, members: Bits, crowd: Key, at: At
) -> tuple[Fact, ...]:
    """Return the facts about the volumes of members that are accepted now."""
    if spec.volume is None or not members:
        return ()
    known = (host.volumes.get(vm.volume_name(crowd, member)) for member in members)
    if all(one is not None and one.config.path == spec.volume.path for one in known):
        return ()
    return (f.VolumesGiven(crowd, members, spec.volume, at.now),)


def volumes_there(host: Host, members: Bits, *, crowd: Key) -> Bits:
    """Return the members that have a volume here, including one that is being deleted."""
    if not host.volumes:
        return Bits()
    return Bits.of(*(one for one in members if vm.volume_name(crowd, one) in host.volumes))


def delete(host: Host, message: vm.DeleteVolume, at: At) -> Decision:
    """Remove a volume, unless a run has it; a repeat is answered in the same way."""
    known = host.volumes.get(message.volume)
    if known is None:
        return no_volume(message, at)
    if _is_used(host, known):
        text = f"a run on {at.key.partition('/')[2]} has the volume {message.volume}"
        return Decision(reply=Refused(vm.VOLUME_HELD, text, "id", again=True), because=text)
    facts = () if known.deleting else (f.VolumeDeleting(message.volume),)
    reply = vm.VolumeDeleted(message.volume)
    sends = _ordered(host, message.volume, at)
    return Decision(facts, sends, reply, because="the volume is deleted")


def _ordered(host: Host, volume: str, at: At) -> tuple[Send, ...]:
    """Return the order to remove a volume.

    A machine that was lost may still run what its ledger has ended: it is compared first; a removed
    machine is compared only if it answers.
    """
    if host.state == HostStates.UP:
        return (Send(host.backend, vm.RemoveVolumes(at.key, at.epoch, (volume,))),)
    return (Send(host.backend, m.PingBackend(at.key)),) if host.removed else ()


def _is_used(host: Host, volume: vm.HostVolume) -> bool:
    return any(
        some.phase in OCCUPYING and volume.member in some.members
        for some in host.runs.grouped.get(volume.crowd, ())
    )


def no_volume(message: vm.DeleteVolume, at: At) -> Decision:
    """Answer that there is nothing to remove."""
    text = f"no such volume: {message.volume}"
    return Decision(reply=Refused(vm.NO_VOLUME, text, "id", again=True), because=text)


def removed(host: Host, message: vm.VolumesRemoved, at: At) -> Decision:
    """Record that the backend has removed directories, except those of volumes that are not
    being deleted."""
    gone = tuple(
        name for name in message.volumes if name in host.volumes and host.volumes[name].deleting
    )
    return Decision(facts=(f.VolumesGone(gone),) if gone else ())


def is_removing(host: Host) -> bool:
    """Return whether the backend has still to confirm that a volume is gone."""
    return bool(host.volumes) and any(one.deleting for one in host.volumes.values())


def removals(host: Host, at: At) -> tuple[Send, ...]:
    """Return the orders to remove volumes that the backend may not have received."""
    names = tuple(sorted(name for name, one in host.volumes.items() if one.deleting))
    return (Send(host.backend, vm.RemoveVolumes(at.key, at.epoch, names)),) if names else ()
