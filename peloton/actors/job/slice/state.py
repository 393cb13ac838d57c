"""The state of a slice: its goal, and the table of its distinct effective configs.

Instances with equal configs share a row; a member's `spec` column names it. So a slice of a
thousand alike instances holds one row. What differs from member to member is in the columns of the
crowd.
"""

from __future__ import annotations

import immutables

from peloton.actors.job.slice import rollouts as r
from peloton.actors.job.slice.configs import SpecRow
from peloton.actors.job.slice.homes import Homes
from peloton.actors.job.slice.messages import StartsUsed
from peloton.actors.job.slice.rollout_messages import DownBudget, RolloutStep
from peloton.actors.job.slice.volume_homes import VolumeHomes
from peloton.actors.resources import Resources
from peloton.actors.respool.lot.messages import GangTerms
from peloton.actors.task.messages import WANTED, TaskGoals, crowd_key
from peloton.placement.messages import HostSummary
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
    awaiting_restart: Bits = (
        Bits()
    )  # ended members that are to be restarted, and wait for lack of a grant
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
    disruption_wanted: int = 0  # how many more are to be down for what does not wait
    asks: int = 0  # how often there was something new to be wanted of the job
    homes: Homes | None = None  # of a daemon job: its hosts
    gone: Bits = Bits()  # of `count` members, those that were removed, or dropped
    past: int = 0  # no run or ticket of a removed member had a higher number
    steps: tuple[RolloutStep, ...] = ()  # of the last rollouts
    volumes: VolumeHomes | None = None  # where any config has a volume

    @property
    def crowd(self) -> Key:
        """Return the key of the instances."""
        return crowd_key(self.job.partition("/")[2], self.number)

    @property
    def members(self) -> Bits:
        """Return all members that exist or are to begin."""
        return Bits.span(0, self.count) - self.gone

    @property
    def waiting(self) -> Bits:
        """Return the members that do not exist yet."""
        if not self.closed:
            return NO_MEMBERS  # of most slices, and asked in every turn
        raw = 0
        for members in self.closed:
            raw |= members.raw
        return Bits(raw)

    @property
    def unadded(self) -> Bits:
        """Return the members that a workflow is still to add, which are no instances of the job
        before."""
        return self.rollout.unadded if self.rollout is not None else NO_MEMBERS

    @property
    def forming(self) -> Bits:
        """The members that are to be admitted, prepared and started together."""
        if self.gang_open and self.goal in WANTED:
            return self.gang_base - self.stopped
        return NO_MEMBERS

    def gang_terms(self, lot: Key) -> GangTerms | None:
        """Return what a lot has to know of the gang; None if the lot has no member of one."""
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
        """Return how the slice uses what the throttle allows; None without one."""
        if self.begins is None:
            return None
        return StartsUsed(self.begun, len(self.waiting | self.awaiting_restart), self.begun_at)


NO_MEMBERS = Bits()
"""No member; sets never change, so one serves all."""


class PendingEviction(Value, frozen=True, gc=False, array_like=True):
    """An order of a lot that waits for the job, or for a placer to say what hosts have free."""

    lot: Key
    number: int
    count: int
    need: Resources
    reason: str
    min_run_s: float = 0.0
    spare: bool = False  # it waits for the job to say whom it can spare, not for a placer
    hosts: tuple[Key, ...] | None = None


class GangNotes(Value, frozen=True, gc=False, array_like=True):
    """How far the members of a gang are that look for hosts together. Never journaled.

    Lost with the daemon; the gang then begins anew.
    """

    number: int = 0  # of the wish that is not answered, or kept; 0: there is none
    asked_at: float = 0.0
    kept: bool = False  # the placer keeps the wish
    placer: Key | None = None
    assigned: Bits = Bits()  # members that were told to ask for room, and have not begun to
    told: Bits = Bits()  # members that were told to start, or to give back
    ending: Bits = Bits()  # members that were told to end, because the gang restarts as one
    prepare_at: float = 0.0  # since when they ask for room, or have it
    attempt: int = 0  # how many attempts have failed
    rest_until: float = 0.0
    refused: tuple[HostSummary, ...] = ()
    because: str = ""  # why the last attempt failed, or no hosts were found
    reasons: tuple[tuple[str, int], ...] = ()
    reasons_at: float = 0.0
    never: bool = False


class WishNotes(Value, frozen=True, gc=False, array_like=True):
    """Pending wishes, and why no host was found. Never journaled.

    Lost with the daemon; the slice then wishes again.
    """

    wished: Bits = Bits()  # members whose wish is not answered yet
    wished_at: float = 0.0
    number: int = 0
    resting: Bits = Bits()  # members without a host, not wished for again before `retry_at`
    retry_at: float = 0.0
    reasons: tuple[tuple[str, int], ...] = ()
    reasons_at: float = 0.0
    refused: tuple[HostSummary, ...] = ()  # hosts that refused a member since the last launch
    refusals: tuple[tuple[Key, int], ...] = ()  # the last ones: hosts and their positions
    refusal: str = ""
    shortfall: str = ""  # `reasons` as the placer's text
    never: bool = False  # no host could run it, even if it were empty
    kept: Bits = Bits()  # members whose wish the placer keeps until a host has room
    kept_at: float = 0.0
    placer: Key | None = None  # the one that was the last to keep members
    evicting: tuple[PendingEviction, ...] = ()  # orders that wait for what hosts have free
    gang: GangNotes | None = None
    unplaced_since: tuple[tuple[float, Bits], ...] = ()  # members without a host, by since when
    avoid: tuple[tuple[Key, float], ...] = ()  # hosts where a run did not start, and until when
    disruption_until: float = 0.0  # when what is wanted of the job, and not used, is given back
    at_home: immutables.Map[int, str] = immutables.Map()  # why its only host has not a member
    held_at: immutables.Map[int, float] = immutables.Map()  # when its host was asked to keep room
