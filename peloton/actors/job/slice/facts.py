"""The facts of a slice. Numbers and meanings are permanent, because journals hold them."""

from __future__ import annotations

from peloton.actors.job.slice.messages import SliceOpening
from peloton.actors.job.slice.rollout_messages import DownBudget, RolloutOrder, SparedFor
from peloton.actors.job.slice.rollouts import NewRow
from peloton.actors.task.messages import TaskGoals
from peloton.runtime.vocabulary import Bits, Fact, Key


class SliceOpened(Fact, frozen=True, gc=False, array_like=True):
    """The slice and its instances exist; those of a `limited` one exist only once they begin."""

    job: Key
    number: int
    opening: SliceOpening
    limited: bool = False


class SliceGoalSet(Fact, frozen=True, gc=False, array_like=True):
    """The goal of this version applies."""

    version: int
    goal: TaskGoals
    stopped: Bits
    grant: int | None = None
    begins: int | None = None  # how many may have begun in all
    budget: DownBudget | None = None  # how many may be down


class MembersBegun(Fact, frozen=True, gc=False, array_like=True):
    """These instances of a limited slice begin to exist, or are restarted.

    `at`: when, if they count against the throttle of their job.
    """

    members: Bits
    at: float | None = None


class SliceGrown(Fact, frozen=True, gc=False, array_like=True):
    """The slice has more members; they exist once they begin. `opening` counts all of them."""

    opening: SliceOpening
    limited: bool = False


class RestartsOrdered(Fact, frozen=True, gc=False, array_like=True):
    """Members that wait for the grant to be restarted, and those that are restarted now."""

    awaiting_restart: Bits
    reviving: Bits


class RunsLimited(Fact, frozen=True, gc=False, array_like=True):
    """One run of any instance may take so long from now on, unless its config says less."""

    max_running_s: float | None


class MembersEvicted(Fact, frozen=True, gc=False, array_like=True):
    """These members give up what they hold by an order of a lot, with these tickets.

    `because` says why they are fewer than ordered, if they are.
    """

    lot: Key
    number: int
    going: tuple[tuple[int, Bits], ...]
    because: str = ""


class GangComplete(Fact, frozen=True, gc=False, array_like=True):
    """All of the gang are prepared: they start, and are single instances from now on."""


class GangFormed(Fact, frozen=True, gc=False, array_like=True):
    """These members are to be admitted and placed together once more."""

    members: Bits


class SliceForgotten(Fact, frozen=True, gc=False, array_like=True):
    """The slice is deleted."""


class RolloutBegun(Fact, frozen=True, gc=False, array_like=True):
    """A rollout has begun: which members get which config, or a new run, once there is leave.

    `added` begin to exist with their leave, `asleep` were stopped and are started with it,
    `current` are under way already. `before`: the rows of all members before it. `removing` are to
    be removed with their leave, `leaving` end for that already, `dropped` never began to exist.
    `kept` an aborted update was to add; they wait for the next one.
    """

    order: RolloutOrder
    opening: SliceOpening
    rows: tuple[NewRow, ...]
    added: Bits = Bits()
    asleep: Bits = Bits()
    current: Bits = Bits()
    before: tuple[tuple[int, Bits], ...] = ()
    removing: Bits = Bits()
    leaving: Bits = Bits()
    dropped: Bits = Bits()
    kept: Bits = Bits()


class LeaveChanged(Fact, frozen=True, gc=False, array_like=True):
    """How many members may be under way at once; or the rollout is over."""

    leave: int
    over: bool = False


class MembersTaken(Fact, frozen=True, gc=False, array_like=True):
    """The rollout goes on with these members."""

    members: Bits
    at: float = 0.0


class MembersSettled(Fact, frozen=True, gc=False, array_like=True):
    """These members have finished with the rollout.

    `fallen` were done, and do their work no more. `steady`: all that are done have done their work
    for as long as they have to.
    """

    done: Bits
    failed: Bits = Bits()
    at: float = 0.0
    fallen: Bits = Bits()
    steady: bool = False


class MembersRemoved(Fact, frozen=True, gc=False, array_like=True):
    """These members do not exist any more.

    `past`: no run or ticket of theirs had a higher number.
    """

    members: Bits
    past: int
    at: float = 0.0


class MembersSpared(Fact, frozen=True, gc=False, array_like=True):
    """These members, by their run, were available and are taken down, within the allowance.

    `still`: members of earlier such facts that have not learned of it yet.
    """

    runs: tuple[tuple[int, Bits], ...]
    by: SparedFor
    still: tuple[tuple[int, Bits], ...] = ()


class EndsAsked(Fact, frozen=True, gc=False, array_like=True):
    """This host asks that these runs end, which cannot be spared yet; with none it asks nothing."""

    host: Key
    runs: tuple[tuple[int, Bits], ...]


class DisruptionWanted(Fact, frozen=True, gc=False, array_like=True):
    """So many members more than the allowance are to be taken down at once; 0: none any more."""

    count: int


class RestartGiven(Fact, frozen=True, gc=False, array_like=True):
    """This member was told to begin a new run; a repeat of the request finds its answer."""

    member: int


class HostsSeen(Fact, frozen=True, gc=False, array_like=True):
    """Hosts that match anew, and hosts that match no more, as of this version."""

    version: int
    joined: tuple[Key, ...]
    left: tuple[Key, ...]


class HostsMissed(Fact, frozen=True, gc=False, array_like=True):
    """Which hosts match is not known: all of them are to be told anew."""


class HomesGiven(Fact, frozen=True, gc=False, array_like=True):
    """These members are the instances on these hosts, one for each, ascending."""

    members: Bits
    hosts: tuple[Key, ...]


class HomesLeft(Fact, frozen=True, gc=False, array_like=True):
    """These members have ended, as their hosts match no more: their numbers are free."""

    members: Bits


class VolumeHomesGiven(Fact, frozen=True, gc=False, array_like=True):
    """These members are launched where they have volumes, or are to have them from now on."""

    members: Bits
    hosts: tuple[Key, ...]


class VolumeHomesLeft(Fact, frozen=True, gc=False, array_like=True):
    """The volumes of these members were never made, or are to be deleted."""

    members: Bits


FACTS: dict[int, type] = {
    1: SliceOpened,
    2: SliceGoalSet,
    3: SliceForgotten,
    4: MembersBegun,
    5: SliceGrown,
    6: RestartsOrdered,
    7: RunsLimited,
    8: MembersEvicted,
    9: GangComplete,
    10: GangFormed,
    11: RolloutBegun,
    12: LeaveChanged,
    13: MembersTaken,
    14: MembersSettled,
    15: MembersSpared,
    16: EndsAsked,
    17: DisruptionWanted,
    18: RestartGiven,
    25: MembersRemoved,
    75: HostsSeen,
    76: HostsMissed,
    77: HomesGiven,
    78: HomesLeft,
    99: VolumeHomesGiven,
    100: VolumeHomesLeft,
}
