"""The facts of a host. Numbers and meanings are permanent, because journals hold them.

A fact about single runs names each of them; a fact about many members of a crowd names the set. A
set of one is up to 130 bytes longer than a name. Each fact has only what its fold needs.
"""

from __future__ import annotations

from peloton.actors.host.holds.hold_messages import HostHold, TaskHold
from peloton.actors.host.machine_messages import HostUse, VolumeConfig
from peloton.actors.host.messages import RunEnd
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.resources import Resources
from peloton.actors.task.messages import RunOutcome
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import Bits, Fact, Key, Value


class HostConfigured(Fact, frozen=True, gc=False, array_like=True):
    """The capacity, labels, backend and ports of the machine."""

    capacity: Resources
    labels: tuple[Label, ...]
    backend: Key
    ports: tuple[int, int]
    unreachable_timeout_s: float


class RunsAccepted(Fact, frozen=True, gc=False, array_like=True):
    """Resources are granted to this run of these members. `ports`: one tuple per member. `shares`:
    as in the launch; the fold does not need it, whoever checks a journal does. `prepared`: the run
    is started once its tasks say so."""

    crowd: Key
    members: Bits
    run: int
    spec: RunSpec
    at: float
    ports: tuple[tuple[int, ...], ...] = ()
    shares: int = 0
    prepared: bool = False


class PreparedStarted(Fact, frozen=True, gc=False, array_like=True):
    """The tasks of these prepared runs have confirmed them: they are accepted, as of this time."""

    crowd: Key
    members: Bits
    run: int
    at: float


class PreparedReleased(Fact, frozen=True, gc=False, array_like=True):
    """These granted runs occupy nothing any more, and were not started: their tasks do not want the
    room, or for a `reason` they will never start here, which their tasks have to see."""

    crowd: Key
    members: Bits
    run: int
    reason: str = ""


class RunsRefused(Fact, frozen=True, gc=False, array_like=True):
    """This run of these members will never start here."""

    crowd: Key
    members: Bits
    run: int
    reason: str


class ProcessesStarted(Fact, frozen=True, gc=False, array_like=True):
    """The backend has started these runs. `noted_at` is the time of this fact."""

    runs: tuple[str, ...]
    noted_at: float = 0.0


class KillOrdered(Fact, frozen=True, gc=False, array_like=True):
    """These runs are to end."""

    runs: tuple[str, ...]


class ProcessesEnded(Fact, frozen=True, gc=False, array_like=True):
    """These runs ended and occupy no resources. The ends are owed to their tasks."""

    ends: tuple[RunEnd, ...]


class RunsForgotten(Fact, frozen=True, gc=False, array_like=True):
    """The tasks have seen the end or refusal of these runs."""

    runs: tuple[str, ...]


class HostUnreachable(Fact, frozen=True, gc=False, array_like=True):
    """The backend is unavailable; the runs may continue."""

    text: str


class HostReachable(Fact, frozen=True, gc=False, array_like=True):
    """The backend answers; the host is reconciling until the ledger has been compared.

    `text` says why it cannot be compared with this backend, if that is known; `at`: since when it
    answers, if it was out of reach until then.
    """

    text: str = ""
    at: float = 0.0


class HostReconciled(Fact, frozen=True, gc=False, array_like=True):
    """Ledger and backend agree. `keeper` is the identity of the keeper that was compared, and
    `incarnation` that of the machine, if it has one and all runs were judged."""

    keeper: str = ""
    keeper_at: str = ""
    at: float = 0.0
    incarnation: str = ""


class HostLost(Fact, frozen=True, gc=False, array_like=True):
    """The machine is considered lost, and every run on it."""

    reason: str


class HostRemoved(Fact, frozen=True, gc=False, array_like=True):
    """The machine no longer belongs to the cluster, and every run on it is lost."""

    reason: str


class SetStarted(Fact, frozen=True, gc=False, array_like=True):
    """As `ProcessesStarted`, for many members; `at` is when, if that is long before this."""

    crowd: Key
    members: Bits
    run: int
    at: float | None = None
    noted_at: float = 0.0


class SetEnded(Fact, frozen=True, gc=False, array_like=True):
    """As `ProcessesEnded`, for many members with the same outcome."""

    crowd: Key
    members: Bits
    run: int
    outcome: RunOutcome
    at: float | None = None
    started_at: float | None = None


class SetForgotten(Fact, frozen=True, gc=False, array_like=True):
    """As `RunsForgotten`, for many members."""

    crowd: Key
    members: Bits
    run: int


class MaintenanceStarted(Fact, frozen=True, gc=False, array_like=True):
    """The host grants nothing any more, and its runs are to end, for this `reason`.

    `daemons_last`: runs of daemon jobs end only once all others have.
    """

    reason: str
    daemons_last: bool = False


class HostDrained(Fact, frozen=True, gc=False, array_like=True):
    """The host is in maintenance and no run occupies its resources."""


class HostTakenDown(Fact, frozen=True, gc=False, array_like=True):
    """The host is in maintenance, and no task has still to learn that its run there ended."""


class MaintenanceCompleted(Fact, frozen=True, gc=False, array_like=True):
    """The host may be used again."""


class HostPoolSet(Fact, frozen=True, gc=False, array_like=True):
    """The host belongs to this host pool, by the order of this version."""

    pool: str
    version: int


class TroubleSign(Value, frozen=True, gc=False, array_like=True):
    """A run of this job ended in a way that may be the host's fault; two points if it surely is."""

    at: float
    job: str
    points: int


class TroubleNoted(Fact, frozen=True, gc=False, array_like=True):
    """More signs of trouble; those from `since` on count."""

    signs: tuple[TroubleSign, ...]
    since: float


class TroubleOver(Fact, frozen=True, gc=False, array_like=True):
    """A run has succeeded: earlier signs do not count any more."""


class HostQuarantined(Fact, frozen=True, gc=False, array_like=True):
    """Placers leave the host out for `seconds`; `text` says why."""

    at: float
    seconds: float
    text: str


class QuarantineEnded(Fact, frozen=True, gc=False, array_like=True):
    """Placers use the host as any other."""


class HoldTaken(Fact, frozen=True, gc=False, array_like=True):
    """All resources that runs leave free are held for a client."""

    hold: HostHold


class HoldEnded(Fact, frozen=True, gc=False, array_like=True):
    """The hold of this name is over: used, given back, or ended by time or maintenance."""

    name: str
    reason: str


class TaskHeld(Fact, frozen=True, gc=False, array_like=True):
    """The host grants only to this task, and to others that it is held for."""

    hold: TaskHold


class TaskHoldsEnded(Fact, frozen=True, gc=False, array_like=True):
    """The host is not held for these tasks any more."""

    tasks: tuple[str, ...]
    reason: str


class HostMoving(Fact, frozen=True, gc=False, array_like=True):
    """Once it is down the host is to join this pool and come back; with "" it stays down."""

    pool: str


class DevicesGiven(Fact, frozen=True, gc=False, array_like=True):
    """Gpus, by index, to members that were accepted in the same turn: one tuple for each."""

    crowd: Key
    members: Bits
    run: int
    devices: tuple[tuple[int, ...], ...]


class SlackMeasured(Fact, frozen=True, gc=False, array_like=True):
    """The cpu of the host's runs that may be given to others; None: what its configuration says."""

    slack: int | None


class SlackTaken(Fact, frozen=True, gc=False, array_like=True):
    """These runs on slack are to end, because the host has less of it."""

    crowd: Key
    members: Bits
    run: int


class DaemonsEnding(Fact, frozen=True, gc=False, array_like=True):
    """The runs of daemon jobs are to end as well, for this `reason`: all others have ended."""

    reason: str


class VolumesGiven(Fact, frozen=True, gc=False, array_like=True):
    """Members that were accepted in the same turn have their volumes here, by this config.

    One that has none yet has it from now on; one that has keeps its size.
    """

    crowd: Key
    members: Bits
    config: VolumeConfig
    at: float


class VolumeDeleting(Fact, frozen=True, gc=False, array_like=True):
    """The directory of this volume is to be removed, and no run has it any more."""

    volume: str


class VolumesGone(Fact, frozen=True, gc=False, array_like=True):
    """The directories of these volumes are removed: what they took of the host is free."""

    volumes: tuple[str, ...]


class UseWanted(Fact, frozen=True, gc=False, array_like=True):
    """The backend is to know that the host is in use, drains, or is out of use: a new change."""

    use: HostUse


class UseTold(Fact, frozen=True, gc=False, array_like=True):
    """The backend has answered the change with this number; `text`: why it could not apply it."""

    number: int
    text: str = ""


class PortsNoted(Fact, frozen=True, gc=False, array_like=True):
    """Exactly these ports are used by other programs on the machine: they are not given."""

    ports: tuple[int, ...]


class PortsGiven(Fact, frozen=True, gc=False, array_like=True):
    """These members, which have not started, have these ports instead of those granted."""

    crowd: Key
    members: Bits
    run: int
    ports: tuple[int, ...]


FACTS: dict[int, type] = {
    1: HostConfigured,
    2: RunsAccepted,
    3: RunsRefused,
    4: ProcessesStarted,
    5: KillOrdered,
    6: ProcessesEnded,
    7: RunsForgotten,
    8: HostUnreachable,
    9: HostReachable,
    10: HostReconciled,
    11: HostLost,
    12: HostRemoved,
    13: SetStarted,
    14: SetEnded,
    15: SetForgotten,
    16: MaintenanceStarted,
    17: HostDrained,
    18: HostTakenDown,
    19: MaintenanceCompleted,
    20: HostPoolSet,
    21: TroubleNoted,
    22: TroubleOver,
    23: HostQuarantined,
    24: QuarantineEnded,
    25: HoldTaken,
    26: HoldEnded,
    27: TaskHeld,
    28: TaskHoldsEnded,
    29: HostMoving,
    30: DevicesGiven,
    32: PreparedStarted,
    33: PreparedReleased,
    35: SlackMeasured,
    36: SlackTaken,
    97: DaemonsEnding,
    117: VolumesGiven,
    118: VolumeDeleting,
    119: VolumesGone,
    131: UseWanted,
    132: UseTold,
    161: PortsNoted,
    162: PortsGiven,
}
