"""How facts change the volumes of a host, and the resources that these take."""

from __future__ import annotations

import immutables
from msgspec.structs import replace

from peloton.actors.host import facts as f
from peloton.actors.host.machine_messages import HostVolume, volume_name
from peloton.actors.resources import Resources

HostVolumes = immutables.Map[str, HostVolume]
"""By name."""


def fold_volumes(
    volumes: HostVolumes,
    fact: f.VolumesGiven | f.VolumeDeleting | f.VolumesGone,
    *,
    used: Resources,
) -> tuple[HostVolumes, Resources]:
    """Return the volumes after the fact, and what is used of the host."""
    if isinstance(fact, f.VolumeDeleting):
        leaving = replace(volumes[fact.volume], deleting=True)
        return volumes.set(fact.volume, leaving), used
    if isinstance(fact, f.VolumesGone):
        for name in fact.volumes:
            used = used - volumes[name].config.room
            volumes = volumes.delete(name)
        return volumes, used
    for member in fact.members:
        name = volume_name(fact.crowd, member)
        known = volumes.get(name)
        if known is None:
            volumes = volumes.set(name, HostVolume(fact.crowd, member, fact.config, fact.at))
            used = used + fact.config.room
        else:
            config = replace(fact.config, size_mb=known.config.size_mb)
            volumes = volumes.set(name, replace(known, config=config))
    return volumes, used
