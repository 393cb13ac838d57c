"""Messages of a slice: goals of its job, answers of placers, refusals, and reports to its job.

What holds for many instances is sent for a range or a set, so that the size of a message does not
grow with their number.
"""

from __future__ import annotations

from typing import ClassVar

from peloton.actors.host.inventory.messages import HostsOf, HostsTold
from peloton.actors.job.slice.rollout_messages import (
    AskToEnd,
    DownBudget,
    DownTally,
    RestartIfSpared,
    RolloutOrder,
    RolloutTally,
    RunNotStarted,
    WantDisruption,
)
from peloton.actors.job.slice.task_config import Override, TaskConfig
from peloton.actors.resources import Resources
from peloton.actors.task.messages import SLICE_SIZE, PastRun, RunOutcome, RunRefused, TaskGoals
from peloton.actors.task.run_messages import ContainerEnd, TaskHealth
from peloton.placement.messages import (
    GangPlaced,
    Placed,
    RoomFound,
    Unplaced,
)
from peloton.runtime.vocabulary import Bits, Delivery, Goal, Key, Latest, Message, Query, Value, key


class SliceOpening(Value, frozen=True, gc=False, array_like=True):
    """What the slice's instances are; sent until the slice has opened."""

    job: str
    name: str
    pool: Key
    count: int  # members: instances of this slice
    default: TaskConfig
    overrides: tuple[Override, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    priority: int = 0
    preemptible: bool = True
    revocable: bool = False
    spread: bool = False  # the job's instances are kept apart
    max_running_s: float | None = None  # of one run of any instance
    config_version: int = 1  # of the job: that of the members which begin to exist by this
    gang: int = 0  # so many of the first members are admitted and placed together
    gang_together: bool = False  # and restarted together
    strategy: str = ""  # which ranks hosts; empty: as `spread` says
    service: bool = False  # its instances are to run for ever
    hosts_of: HostsOf | None = None  # of a daemon job: `count` numbers for these hosts
    healthy_after_s: float | None = None  # None: as for all tasks


class SetSliceGoal(Goal, frozen=True, gc=False, array_like=True):
    """Job to slice, absolute: the goal of all members; that of `stopped` ones is to end.

    `grant`: how many members may be active at once; None for no limit. A higher count in `opening`
    adds members; the others keep their configs. `restarts`: members that are to begin a new run,
    disjoint, with the version of the goal that ordered it; orders that the slice has confirmed are
    left out. `tallied`: the confirmation is to hold a tally. `begins`: how many members may have
    begun in all, by the job's throttle; None for no throttle. `rollout`: the newest one. `budget`:
    how many members may be down; None for any number.
    """

    delivery: ClassVar[Delivery] = Delivery.OWED

    job: Key
    number: int
    goal: TaskGoals
    stopped: Bits = Bits()
    opening: SliceOpening | None = None
    grant: int | None = None
    restarts: tuple[tuple[int, Bits], ...] = ()
    tallied: bool = False
    begins: int | None = None
    rollout: RolloutOrder | None = None
    budget: DownBudget | None = None


class Evict(Message, frozen=True, gc=False, array_like=True):
    """Lot to slice: so many members of the lot are to give up what they hold; answered `Yielded`.

    `number` identifies the order: a repeat is answered with the same choice. `need` is what the
    host of a victim must have room for then; none if that does not matter.
    """

    delivery: ClassVar[Delivery] = Delivery.OWED

    number: int
    count: int
    need: Resources
    reason: str
    min_run_s: float = 0.0  # runs that have not lasted for so long are left alone
    hosts: tuple[Key, ...] | None = None  # one for each run that is to end; others wait for one


class AskLeavers(Message, frozen=True, gc=False, array_like=True):
    """Root pool to slice: which of up to `count` members of a lot could give back? None does yet.

    Answered `LeaversFound`.
    """

    lot: Key
    number: int
    count: int
    min_run_s: float = 0.0


class ProveGang(Message, frozen=True, gc=False, array_like=True):
    """Root pool to the slice of a gang: would all of it have hosts, if these had so much more room?

    The slice asks a placer, which answers `GangRoomFound` to the root.
    """

    number: int
    hosts: tuple[Key, ...]
    rooms: tuple[Resources, ...]


class StartsUsed(Value, frozen=True, gc=False, array_like=True):
    """How a slice uses what the throttle of its job allows.

    `begun`: how many members have begun; `waiting`: how many are to begin; `begun_at`: when the
    last one began.
    """

    begun: int
    waiting: int
    begun_at: float = 0.0


BETWEEN_ATTEMPTS = "THROTTLED"
"""The name in tallies of instances that wait for their next attempt: clients see them as FAILED,
but for their job they have not ended."""


class Tally(Value, frozen=True, gc=False, array_like=True):
    """Instances by the name of the state that clients see, or `BETWEEN_ATTEMPTS`.

    `active`: how many count against a grant, -1 without one. `versions`: instances by the version
    of their config, if that is not 1 for all.
    """

    counts: tuple[tuple[str, int], ...]
    controller: str = ""  # the state of instance 0, if it is the controller
    times: tuple[float, ...] = ()  # first start, last end, and usage by `USAGE_KINDS`, as known
    active: int = -1
    versions: tuple[tuple[int, int], ...] = ()
    starts: StartsUsed | None = None  # only where there is a throttle
    rollout: RolloutTally | None = None
    down: DownTally | None = None  # only where several slices share a budget


class SliceOpen(Message, frozen=True, gc=False, array_like=True):
    """Slice to job: the goal of this version applies; with a tally if the job asked for it."""

    number: int
    version: int
    tally: Tally | None = None


class SliceTally(Latest, frozen=True, gc=False, array_like=True):
    """Slice to job: its instances by state. `goal`: the version of the goal that it holds."""

    number: int
    tally: Tally
    goal: int = 0


class SliceGone(Message, frozen=True, gc=False, array_like=True):
    """Slice to job: the slice and its tasks are deleted."""

    number: int


class ListInstances(Query, frozen=True, gc=False, array_like=True):
    """Asks for the instances start … stop - 1 that the slice has; answered with a tuple of
    `InstanceView`.

    `unadded`: with those that a workflow has still to add, or had, and which do not exist.
    """

    start: int
    stop: int
    unadded: bool = False


class InstanceSort(Value, frozen=True, gc=False, array_like=True):
    """Orders instances by this field; for "state", `states` are the states in order."""

    field: str
    down: bool = False
    states: tuple[str, ...] = ()


class FindInstances(Query, frozen=True, gc=False, array_like=True):
    """Asks for the instances start … stop - 1 that match: their number, and the first in order.

    Each of `states`, `names` and `hosts` (keys) matches any of its values, or everything if it is
    empty.
    """

    start: int
    stop: int
    states: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    order: tuple[InstanceSort, ...] = ()
    limit: int = 0


class InstanceView(Value, frozen=True, gc=False, array_like=True):
    """An instance as clients see it. Times are seconds since the epoch, None if not reached.

    `because` is why it has not reached its goal, `code` the same as one word. It waits for its pool
    ("POOL"), a host ("HOST"), also where none could run it ("NEVER"), its next attempt ("RETRY"),
    its host's answer ("LAUNCH"), others of its job ("LIMIT"), the throttle ("THROTTLE"), its gang
    ("GANG") or checks ("HEALTH", "READY"), or to be spared ("SPARE"). "NEW" is before it requests
    admission, "" while it runs and is well, and once it has ended.
    """

    instance: int
    state: str
    goal: TaskGoals
    run: int
    failures: int
    host: str
    created_at: float | None
    launched_at: float | None
    started_at: float | None
    ended_at: float | None
    outcome: RunOutcome | None
    runs: tuple[PastRun, ...]
    config: TaskConfig
    code: str = ""
    because: str = ""
    lot: Key = Key("")
    retry_at: float | None = None
    counts: tuple[tuple[str, int], ...] = ()  # of hosts, by the reason why they do not fit
    counted_at: float | None = None
    ran_s: float = 0.0  # seconds of all its ended runs
    begun_at: float | None = None  # when the present run began, where it is not the first
    config_version: int = 1
    dropped: tuple[int, float] | None = None  # the run up to which events are gone, and until when
    dropped_runs: tuple[tuple[int, float], ...] = ()  # single runs whose events are, and until when
    health: TaskHealth = TaskHealth.DISABLED
    checked: tuple[str, float] | None = None  # what the check found at the last change, and when
    ready: TaskHealth = TaskHealth.DISABLED
    ran_by: int = 0  # the config version of the present run, where that is another one
    coming: int = 0  # that of the next run, where that is another one
    containers: tuple[ContainerEnd, ...] = ()  # of several, how far they are while the run goes on


class DropInstanceEvents(Message, frozen=True, gc=False, array_like=True):
    """Gateway to slice: nobody is to be shown the events of these runs of an instance, 1 … run, or
    of `run` alone.

    Answered `InstanceEventsDropped`; later events of the last run are shown.
    """

    member: int
    run: int
    alone: bool = False


class InstanceEventsDropped(Value, frozen=True, gc=False, array_like=True):
    """Answer to this; an instance that has not begun had no events."""

    known: bool


class InstancesFound(Value, frozen=True, gc=False, array_like=True):
    """Answer to `FindInstances`: how many of this slice match, and at most `limit` of them."""

    matched: int
    views: tuple[InstanceView, ...] = ()


# ---- of volumes: which one it is, is for hosts ----


class LeaveVolume(Message, frozen=True, gc=False, array_like=True):
    """Gateway to slice: this member is to have a volume on no host any more.

    Refused unless it has ended and is not to run again: it would wait for its volume.
    """

    member: int


class VolumeLeft(Value, frozen=True, gc=False, array_like=True):
    """Answer to `LeaveVolume`: the host of the volume; empty if the slice knows none."""

    host: Key


class ListVolumeHomes(Query, frozen=True, gc=False, array_like=True):
    """Asks for the hosts with volumes of a slice's members; answered `VolumeHomesListed`."""


class VolumeHomesListed(Value, frozen=True, gc=False, array_like=True):
    """Answer to `ListVolumeHomes`: each host once, and the members that have a home, with it."""

    hosts: tuple[Key, ...]
    members: tuple[tuple[int, Key], ...] = ()


MESSAGES: dict[int, type] = {
    1: SetSliceGoal,
    2: RunRefused,
    3: Placed,
    4: Unplaced,
    5: DropInstanceEvents,
    6: Evict,
    7: RoomFound,
    8: GangPlaced,
    9: RunNotStarted,
    10: AskToEnd,
    11: RestartIfSpared,
    12: WantDisruption,
    70: HostsTold,
    80: AskLeavers,
    81: ProveGang,
    92: LeaveVolume,
}


def slice_key(job_id: str, number: int) -> Key:
    """Return the key of one slice of a job."""
    return key("slice", job_id, number)


def slices_of(instances: int) -> int:
    """Return how many slices hold so many instances."""
    return -(-instances // SLICE_SIZE)


def members_in(number: int, ranges: tuple[tuple[int, int], ...], *, count: int) -> Bits:
    """Return the members of slice `number`, of `count` members, that are in the ranges of
    instances."""
    first = number * SLICE_SIZE
    found = Bits()
    for start, stop in ranges:
        found = found | Bits.span(max(start - first, 0), min(stop - first, count))
    return found
