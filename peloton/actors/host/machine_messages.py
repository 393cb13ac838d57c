"""What a host hears of its machine, and tells its backend of it; no message concerns a single run.

Its slack and the ports in use there; who adds or removes it where hosts are configured; its use;
the pool of hosts that it moves to; its persistent volumes.

A host is in use, drains, or is out of use, by the order of an operator. Whoever shares the machine
with us should know it as well; a backend that shares it with nobody answers at once. The message is
absolute, and repeated until it is answered.

A volume has the name of the instance that it belongs to, `<job>-<instance>`: so whoever asks twice
for one gets the same. Its directory is on one host.
"""

from __future__ import annotations

import enum

from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import SLICE_SIZE, crowd_key, parse_pod
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import Key, Message, Value


class SlackReported(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: the unused cpu of its runs that may be given to others, in millionths.

    The value is absolute, and reported when it has changed. None: it is not measured any more.
    """

    slack: int | None


class PortsInUse(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: these ports, ascending, are used by programs that are no runs, or by runs of
    other hosts of the machine.

    The list is absolute, and reported when it has changed. `runs` were ordered with one of the
    ports, and not started: they need another port, or another host.
    """

    ports: tuple[int, ...]
    runs: tuple[str, ...] = ()


PORTS_DEFAULT = (31000, 32000)
"""First, and one past the last, of the ports that a host picks from."""


class AddHost(Message, frozen=True, gc=False, array_like=True):
    """Operator to a backend with configured hosts: add this machine. Refused in a fleet."""

    host: Key
    capacity: Resources
    labels: tuple[Label, ...] = ()
    ports: tuple[int, int] = PORTS_DEFAULT


class RemoveHost(Message, frozen=True, gc=False, array_like=True):
    """Operator to a backend with configured hosts: remove this machine. Refused in a fleet."""

    host: Key
    text: str = ""


class HostUse(enum.IntEnum):
    """What a host is for, now."""

    IN_USE = 0
    DRAINING = 1  # nothing more should be placed there, by anybody
    OUT_OF_USE = 2  # nothing runs there; a person may do what they like to the machine


class UseAtBackend(Value, frozen=True, gc=False, array_like=True):
    """The use that the backend is to know, and what it has answered.

    `number`: of changes so far; `told`: up to which of them it has answered; `text`: why it could
    not apply the last.
    """

    wanted: HostUse = HostUse.IN_USE
    number: int = 0
    told: int = 0
    text: str = ""

    @property
    def open(self) -> bool:
        """Return whether the backend has still to answer."""
        return self.told < self.number


class SetUse(Message, frozen=True, gc=False, array_like=True):
    """Host to backend: this is my use now.

    Answered with `UseSet`, also if nobody is to be told; a backend that cannot find that out for
    now does not answer.
    """

    host: Key
    epoch: int
    use: HostUse
    number: int


class UseSet(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: the other users of the machine know of the use with this number.

    Otherwise `text` says why they will not.
    """

    number: int
    text: str = ""


IN_MAINTENANCE = "IN_MAINTENANCE"


class MoveToPool(Message, frozen=True, gc=False, array_like=True):
    """Gateway to host: leave this pool for that one, as soon as nothing runs here.

    Answered `MaintenanceSet`, as the start of a maintenance is.
    """

    source: str
    destination: str


class PoolMoveRefused(Message, frozen=True, gc=False, array_like=True):
    """First inventory to host: it cannot join this pool."""

    destination: str
    text: str


NO_VOLUME, VOLUME_HELD = "NO_VOLUME", "VOLUME_HELD"
"""Codes of refusals."""


class VolumeConfig(Value, frozen=True, gc=False, array_like=True):
    """A volume as a config names it: where its task sees it, and how much it holds."""

    path: str
    size_mb: int

    @property
    def room(self) -> Resources:
        """Return the resources that the volume takes of its host, whether a run has it or not."""
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
    """Host to backend: remove the directories of these volumes.

    Answered `VolumesRemoved`, also if there are none.
    """

    host: Key
    epoch: int
    volumes: tuple[str, ...]


class VolumesRemoved(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: these directories are gone."""

    volumes: tuple[str, ...]


MACHINE_MESSAGES: dict[int, type] = {
    23: MoveToPool,
    24: PoolMoveRefused,
    25: SlackReported,
    106: DeleteVolume,
    107: VolumesRemoved,
    131: UseSet,
    161: PortsInUse,
}
"""Those of the host, beyond `messages.MESSAGES`."""


def volume_name(crowd: Key, member: int) -> str:
    """Return the name of the volume of an instance."""
    _, job, number = crowd.split("/")
    return f"{job}-{int(number) * SLICE_SIZE + member}"


def instance_with(volume: str) -> tuple[str, int] | None:
    """Return job and instance of a volume, or None if the name is no volume's."""
    parsed = parse_pod(f"{volume}-0")
    if parsed is None:
        return None
    crowd, member, _ = parsed
    _, job, number = crowd.split("/")
    return job, int(number) * SLICE_SIZE + member


def crowd_of_owner(job: str, instance: int) -> tuple[Key, int]:
    """Return the crowd and the member of an instance."""
    number, member = divmod(instance, SLICE_SIZE)
    return crowd_key(job, number), member
