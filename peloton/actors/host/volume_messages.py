"""Persistent volumes: what is said of one, and the messages about them.

A volume has the name of the instance that it belongs to, `<job>-<instance>`: so whoever asks twice
for one gets the same. Its directory is on one host. It must not concern a single run.
"""

from __future__ import annotations

from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import SLICE_SIZE, crowd_key, parse_pod
from peloton.runtime.vocabulary import Key, Message, Value

NO_VOLUME, VOLUME_HELD = "NO_VOLUME", "VOLUME_HELD"
"""Codes of refusals."""


class VolumeConfig(Value, frozen=True, gc=False, array_like=True):
    """A volume as a config names it: where its task sees it, and how much it holds."""

    path: str
    size_mb: int

    @property
    def room(self) -> Resources:
        """What it takes of its host, whether a run has it or not."""
        return Resources(disk=self.size_mb * UNIT)


class HostVolume(Value, frozen=True, gc=False, array_like=True):
    """A volume that a host has. `deleting`: its directory is being removed."""

    crowd: Key
    member: int
    config: VolumeConfig
    made_at: float
    deleting: bool = False


class DeleteVolume(Message, frozen=True, gc=False, array_like=True):
    """Gateway to host: remove this volume. Refused while a run has it; answered once it is
    journaled that it is to be removed."""

    volume: str


class VolumeDeleted(Value, frozen=True, gc=False, array_like=True):
    """Answer to `DeleteVolume`."""

    volume: str


class RemoveVolumes(Message, frozen=True, gc=False, array_like=True):
    """Host to backend: remove the directories of these volumes. Answered `VolumesRemoved`, also
    where there are none."""

    host: Key
    epoch: int
    volumes: tuple[str, ...]


class VolumesRemoved(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: these directories are gone."""

    volumes: tuple[str, ...]


VOLUME_MESSAGES: dict[int, type] = {106: DeleteVolume, 107: VolumesRemoved}
"""Those of the host, beyond `messages.MESSAGES`."""


def volume_name(crowd: Key, member: int) -> str:
    """The name of the volume of an instance."""
    _, job, number = crowd.split("/")
    return f"{job}-{int(number) * SLICE_SIZE + member}"


def instance_with(volume: str) -> tuple[str, int] | None:
    """Job and instance of a volume; None if this is the name of none."""
    parsed = parse_pod(f"{volume}-0")
    if parsed is None:
        return None
    crowd, member, _ = parsed
    _, job, number = crowd.split("/")
    return job, int(number) * SLICE_SIZE + member


def crowd_of_owner(job: str, instance: int) -> tuple[Key, int]:
    """The crowd of an instance, and which member it is."""
    number, member = divmod(instance, SLICE_SIZE)
    return crowd_key(job, number), member
