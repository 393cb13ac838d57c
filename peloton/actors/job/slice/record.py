"""What a slice is at a moment: the record that facts change, and what follows from it.

What differs from member to member must not be stored here: columns hold it.
"""

from __future__ import annotations

from peloton.actors.job.slice import rollouts as r
from peloton.actors.job.slice.budget_messages import DownBudget
from peloton.actors.job.slice.configs import SpecRow
from peloton.actors.job.slice.homes import Homes
from peloton.actors.job.slice.messages import StartsUsed
from peloton.actors.job.slice.rollout_messages import RolloutStep
from peloton.actors.job.slice.volume_homes import VolumeHomes
from peloton.actors.respool.lot.messages import GangTerms
from peloton.actors.task.messages import TaskGoals
from peloton.runtime.vocabulary import Bits, Key, Value


class Eviction(Value, frozen=True, gc=False, array_like=True):
    """What was chosen by the last order of a lot."""

    lot: Key
    number: int
    going: tuple[tuple[int, Bits], ...]
    because: str = ""


class AskedEnds(Value, frozen=True, gc=False, array_like=True):
    """Runs, by number, that a host in maintenance asks to end, and that wait to be spared."""

    host: Key
    runs: tuple[tuple[int, Bits], ...]


class Slice(Value, frozen=True, gc=False, array_like=True):
    """Up to a thousand instances of a job."""

    job: Key
    number: int
    count: int
    specs: tuple[SpecRow, ...]
    version: int = 0
    goal: TaskGoals = TaskGoals.SUCCEEDED
    stopped: Bits = Bits()
    grant: int | None = None  # how many may be active at once
    closed: tuple[Bits, ...] = ()  # by row: members that do not exist yet for lack of a grant
    held: Bits = Bits()  # ended members that are to be restarted, and wait for lack of a grant
    reviving: Bits = Bits()  # members that were told of their restart since the goal changed
    begins: int | None = None  # how many may have begun in all, by the job's throttle
    begun: int = 0  # how many have, or will not
    begun_at: float = 0.0  # when the last one did
    evictions: tuple[Eviction, ...] = ()  # the last one of each lot that had any
    gang_lots: tuple[tuple[Key, Bits], ...] = ()  # of the job's gang: its members by lot
    gang_open: bool = False  # it is not complete yet: none of `gang_base` may start
    gang_base: Bits = Bits()  # who is to start together, as far as they are not stopped
    gang_round: int = 0  # how often it was complete, or formed anew
    rollout: r.Rollout | None = None  # the last one that its job ordered
    lots_made: int = 0  # numbers that were given to lots; 0: as many as its configs name
    budget: DownBudget | None = None  # how many may be down; None: any number
    spared: tuple[tuple[int, Bits], ...] = ()  # by run: members taken down by the last such order
    ends: tuple[AskedEnds, ...] = ()  # by host
    wished: int = 0  # how many more are to be down for what does not wait
    asks: int = 0  # how often there was something new to be wished of the job
    homes: Homes | None = None  # of a daemon job: its hosts
    gone: Bits = Bits()  # of `count` members, those that were removed, or dropped
    past: int = 0  # no run or ticket of a removed member had a higher number
    steps: tuple[RolloutStep, ...] = ()  # of the last rollouts
    volumes: VolumeHomes | None = None  # where any config has a volume

    @property
    def members(self) -> Bits:
        """All that exist or are to begin."""
        return Bits.span(0, self.count) - self.gone

    @property
    def waiting(self) -> Bits:
        """The members that do not exist yet."""
        if not self.closed:
            return NO_MEMBERS  # of most slices, and asked in every turn
        raw = 0
        for members in self.closed:
            raw |= members.raw
        return Bits(raw)

    @property
    def unadded(self) -> Bits:
        """Of those, the ones that a workflow adds: they are none of the job's instances before it
        has come to them."""
        return self.rollout.unadded if self.rollout is not None else NO_MEMBERS

    @property
    def forming(self) -> Bits:
        """The members that are to be admitted, held and started together."""
        wanted = self.goal in (TaskGoals.SUCCEEDED, TaskGoals.RUNNING)
        return self.gang_base - self.stopped if self.gang_open and wanted else NO_MEMBERS

    def gang_terms(self, lot: Key) -> GangTerms | None:
        """What a lot has to know of the gang; None where it has no member of one."""
        known = dict(self.gang_lots) if self.gang_lots else {}
        if lot not in known:
            return None
        forming = self.forming
        if not forming:
            return GangTerms(self.gang_round, self.version)
        lots = sum(bool(members & forming) for members in known.values())
        return GangTerms(self.gang_round, self.version, lots, known[lot] & forming)

    @property
    def starts(self) -> StartsUsed | None:
        """How it uses what the throttle allows; None without one."""
        if self.begins is None:
            return None
        return StartsUsed(self.begun, len(self.waiting | self.held), self.begun_at)


NO_MEMBERS = Bits()
"""No member; sets never change, so one serves all."""
