"""The state of a slice: its goal, and the table of its distinct effective configs.

Instances with equal configs share a row; a member's `spec` column names it. So a slice of a
thousand alike instances holds one row.

What differs from member to member must not be stored here: columns hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from peloton.actors.host.messages import RunSpec
from peloton.actors.job.slice import facts as f
from peloton.actors.job.slice.messages import (
    Command,
    SliceOpening,
    StartsUsed,
    TaskConfig,
    effective,
)
from peloton.actors.resources import Resources
from peloton.actors.respool.lot.messages import GangTerms, LotShape, lot_key
from peloton.actors.task.messages import SLICE_SIZE, Policy, TaskGoals
from peloton.placement.messages import JOB_LABEL, HostSummary, Label, Shape
from peloton.runtime.vocabulary import Bits, Key, Value

DEFAULT_KILL_GRACE_S = 30.0
MAX_FAILURES_MAX = 100
"""A higher `max_failures` is silently lowered to this, as in the original."""


class SpecRow(Value, frozen=True, gc=False, array_like=True):
    """One distinct config, as each of its readers needs it."""

    config: TaskConfig
    run: RunSpec  # for the host
    shape: Shape  # for the placer
    lot: Key
    lot_shape: LotShape  # for the pool
    policy: Policy  # for the task
    config_version: int = 1


class Eviction(Value, frozen=True, gc=False, array_like=True):
    """What was chosen by the last order of a lot."""

    lot: Key
    number: int
    going: tuple[tuple[int, Bits], ...]
    because: str = ""


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


class PendingEviction(Value, frozen=True, gc=False, array_like=True):
    """An order of a lot that waits for a placer to say what hosts have free."""

    lot: Key
    number: int
    count: int
    need: Resources
    reason: str
    min_run_s: float = 0.0


class GangNotes(Value, frozen=True, gc=False, array_like=True):
    """How far the members of a gang are that look for hosts together. Never journaled, too."""

    number: int = 0  # of the wish that is not answered, or kept; 0: there is none
    asked_at: float = 0.0
    kept: bool = False  # the placer keeps the wish
    placer: Key | None = None
    assigned: Bits = Bits()  # members that were told to hold, and have not begun to
    told: Bits = Bits()  # members that were told to start, or to give back
    ending: Bits = Bits()  # members that were told to end, because the gang restarts as one
    held_at: float = 0.0  # since when they hold
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
    holding: tuple[tuple[float, Bits], ...] = ()  # members without a host, by since when
    avoid: tuple[tuple[Key, float], ...] = ()  # hosts where a run did not start, and until when


def spec_rows(
    number: int, opening: SliceOpening, *, known: tuple[SpecRow, ...] = (), count: int = 0
) -> tuple[tuple[SpecRow, ...], tuple[Bits, ...]]:
    """The distinct configs of a slice, and the members of each.

    Of a slice that has `count` members with `known` configs, those of the members beyond them.
    """
    groups: dict[tuple[TaskConfig, bool], int] = {}
    gang = (1 << opening.gang) - 1
    first, rest = number * SLICE_SIZE, (1 << opening.count) - (1 << count)
    for override in opening.overrides:
        bit = 1 << override.instance - first
        if not rest & bit:
            continue  # of a member that has its config already
        name = effective(opening.default, override.config), bool(bit & gang)
        groups[name] = groups.get(name, 0) | bit
        rest &= ~bit
    for some, together in ((rest & gang, True), (rest & ~gang, False)):
        if some:
            name = opening.default, together
            groups[name] = groups.get(name, 0) | some
    lots: dict[LotShape, Key] = {row.lot_shape: row.lot for row in known}
    rows = tuple(
        _row(number, opening, config=config, lots=lots, gang=gang) for config, gang in groups
    )
    return rows, tuple(Bits(raw) for raw in groups.values())


def _labels(opening: SliceOpening, config: TaskConfig) -> tuple[tuple[Label, ...], Label | None]:
    """Those of a run, and of these the one by which its job's runs are kept apart."""
    labels = tuple(Label(name, value) for name, value in config.labels)
    apart = Label(JOB_LABEL, opening.job) if opening.spread else None
    return (*labels, *((apart,) if apart is not None and apart not in labels else ())), apart


def _row(
    number: int,
    opening: SliceOpening,
    *,
    config: TaskConfig,
    lots: dict[LotShape, Key],
    gang: bool,
) -> SpecRow:
    resources = config.resources or Resources()
    may_go = opening.preemptible if config.preemptible is None else config.preemptible
    lot_shape = LotShape(
        pool=opening.pool,
        resources=resources,
        priority=opening.priority,
        preemptible=may_go or resources.slack > 0,
        revocable=opening.revocable,
        controller=config.controller,
        gang=gang,
    )
    lot = lots.setdefault(lot_shape, lot_key(opening.job, number, shape_number=len(lots)))
    command = config.command or Command("")
    labels, apart = _labels(opening, config)
    run = RunSpec(
        resources=resources,
        value=command.value,
        shell=command.shell,
        arguments=command.arguments,
        environment=command.environment,
        ports=config.ports,
        kill_grace_s=_grace_s(config),
        image=config.image,
        user=command.user,
        caller=command.caller,
        labels=labels,
        constraint=config.constraint,
        apart=apart,
        priority=opening.priority if resources.slack else 0,
    )
    shape = Shape(
        resources=resources,
        ports=sum(1 for port in config.ports if port.number == 0),
        constraint=config.constraint,
        strategy=opening.strategy or ("spread" if opening.spread else "pack"),
        labels=labels,
        apart=apart,
        fixed_ports=tuple(port.number for port in config.ports if port.number),
    )
    policy = _policy(opening, config, gang=gang)
    return SpecRow(config, run, shape, lot, lot_shape, policy, opening.config_version)


def _grace_s(config: TaskConfig) -> float:
    return DEFAULT_KILL_GRACE_S if config.kill_grace_s is None else config.kill_grace_s


def _policy(opening: SliceOpening, config: TaskConfig, *, gang: bool) -> Policy:
    return Policy(
        max_failures=min(config.max_failures or 0, MAX_FAILURES_MAX),
        kill_grace_s=_grace_s(config),
        max_running_s=run_limit(config, opening.max_running_s),
        together=gang and opening.gang_together,
        ends_with_slack=opening.revocable and bool(config.kill_on_preempt),
    )


def run_limit(config: TaskConfig, max_running_s: float | None) -> float | None:
    """How long one run may take, of an instance with this config, by its job's limit."""
    return min((limit for limit in (config.max_running_s, max_running_s) if limit), default=None)


def _opened(slice_: Slice | None, fact: f.SliceOpened) -> Slice:
    rows, members = spec_rows(fact.number, fact.opening)
    closed = members if fact.limited else ()
    slice_ = Slice(fact.job, fact.number, fact.opening.count, rows, closed=closed)
    if not fact.opening.gang:
        return slice_
    lots: dict[Key, Bits] = {}
    for row, some in zip(rows, members, strict=True):
        if row.lot_shape.gang:
            lots[row.lot] = lots.get(row.lot, Bits()) | some
    base = Bits.span(0, fact.opening.gang)
    return msgspec.structs.replace(
        slice_, gang_lots=tuple(lots.items()), gang_open=True, gang_base=base
    )


def _complete(slice_: Slice, fact: f.GangComplete) -> Slice:
    return msgspec.structs.replace(slice_, gang_open=False, gang_round=slice_.gang_round + 1)


def _formed(slice_: Slice, fact: f.GangFormed) -> Slice:
    return msgspec.structs.replace(
        slice_, gang_open=True, gang_base=fact.members, gang_round=slice_.gang_round + 1
    )


def _grown(slice_: Slice, fact: f.SliceGrown) -> Slice:
    rows, members = spec_rows(slice_.number, fact.opening, known=slice_.specs, count=slice_.count)
    closed = slice_.closed or (Bits(),) * len(slice_.specs)
    return msgspec.structs.replace(
        slice_,
        count=fact.opening.count,
        specs=(*slice_.specs, *rows),
        closed=(*closed, *members),
    )


def _limited(slice_: Slice, fact: f.RunsLimited) -> Slice:
    replace = msgspec.structs.replace
    specs = []
    for row in slice_.specs:
        limit = run_limit(row.config, fact.max_running_s)
        specs.append(replace(row, policy=replace(row.policy, max_running_s=limit)))
    return replace(slice_, specs=tuple(specs))


def _begun(slice_: Slice, fact: f.MembersBegun) -> Slice:
    closed = tuple(members - fact.members for members in slice_.closed)
    begun = slice_.begun + (len(fact.members) if fact.at is not None else 0)
    after = msgspec.structs.replace(
        slice_,
        closed=closed if any(closed) else (),
        held=slice_.held - fact.members,
        reviving=slice_.reviving | (slice_.held & fact.members),
        begun=begun,
        begun_at=slice_.begun_at if fact.at is None else fact.at,
    )
    return _without_spare(after)


def _restarts(slice_: Slice, fact: f.RestartsOrdered) -> Slice:
    return _without_spare(msgspec.structs.replace(slice_, held=fact.held, reviving=fact.reviving))


def _goal(slice_: Slice, fact: f.SliceGoalSet) -> Slice:
    after = msgspec.structs.replace(
        slice_,
        version=fact.version,
        goal=fact.goal,
        stopped=fact.stopped,
        grant=fact.grant,
        begins=fact.begins,
    )
    return _without_spare(after)


def _without_spare(slice_: Slice) -> Slice:
    """The slice without starts that nobody waits for any more: they are given to other slices."""
    starts = slice_.starts
    if starts is None or slice_.begins is None or slice_.begins - starts.begun <= starts.waiting:
        return slice_
    return msgspec.structs.replace(slice_, begun=slice_.begins - starts.waiting)


def _evicted(slice_: Slice, fact: f.MembersEvicted) -> Slice:
    others = tuple(each for each in slice_.evictions if each.lot != fact.lot)
    last = Eviction(fact.lot, fact.number, fact.going, fact.because)
    return msgspec.structs.replace(slice_, evictions=(*others, last))


EVOLVE: Mapping[type, Callable[[Any, Any], Slice | None]] = {
    f.SliceOpened: _opened,
    f.SliceGoalSet: _goal,
    f.SliceForgotten: lambda slice_, fact: None,
    f.MembersBegun: _begun,
    f.SliceGrown: _grown,
    f.RestartsOrdered: _restarts,
    f.RunsLimited: _limited,
    f.MembersEvicted: _evicted,
    f.GangComplete: _complete,
    f.GangFormed: _formed,
}
