"""How facts change the state of a slice.

A fold must not refuse a fact: what was journaled has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from peloton.actors.job.slice import facts as f
from peloton.actors.job.slice import rollouts as r
from peloton.actors.job.slice.configs import SpecRow, lots_of, run_limit, spec_rows
from peloton.actors.job.slice.homes import HOMES_EVOLVE, Homes, asked_anew
from peloton.actors.job.slice.rollout_messages import RolloutOrder, StepStates
from peloton.actors.job.slice.state import NO_MEMBERS, AskedEnds, Eviction, Slice
from peloton.actors.job.slice.volume_homes import VOLUME_EVOLVE, VolumeHomes
from peloton.actors.task.messages import TaskGoals
from peloton.runtime.vocabulary import Bits, Key


def _opened(slice_: Slice | None, fact: f.SliceOpened) -> Slice:
    rows, members = spec_rows(fact.number, fact.opening)
    closed = members if fact.limited and any(members) else ()
    slice_ = Slice(fact.job, fact.number, fact.opening.count, rows, closed=closed)
    if fact.opening.hosts_of is not None:
        return msgspec.structs.replace(slice_, homes=Homes(fact.opening.hosts_of))
    if not fact.opening.gang:
        return _with_volumes(slice_) if fact.opening.service else slice_
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
    rows, members = spec_rows(
        slice_.number,
        fact.opening,
        known=slice_.specs,
        count=slice_.count,
        lots_made=slice_.lots_made,
    )
    closed = slice_.closed or (Bits(),) * len(slice_.specs)
    grown = msgspec.structs.replace(
        slice_,
        count=fact.opening.count,
        specs=(*slice_.specs, *rows),
        closed=(*closed, *members),
    )
    return _with_volumes(grown) if fact.opening.service else grown


def _limited(slice_: Slice, fact: f.RunsLimited) -> Slice:
    replace = msgspec.structs.replace
    specs = []
    for row in slice_.specs:
        limit = run_limit(row.config, fact.max_running_s)
        run, policy = replace(row.run, max_running_s=limit), row.policy
        specs.append(replace(row, run=run, policy=replace(policy, max_running_s=limit)))
    return replace(slice_, specs=tuple(specs))


def _begun(slice_: Slice, fact: f.MembersBegun) -> Slice:
    closed = tuple(members - fact.members for members in slice_.closed)
    begun = slice_.begun + (len(fact.members) if fact.at is not None else 0)
    after = msgspec.structs.replace(
        slice_,
        closed=closed if any(closed) else (),
        awaiting_restart=slice_.awaiting_restart - fact.members,
        reviving=slice_.reviving | (slice_.awaiting_restart & fact.members),
        begun=begun,
        begun_at=slice_.begun_at if fact.at is None else fact.at,
    )
    if slice_.rollout is not None and slice_.rollout.unadded & fact.members:
        # They begin only to end, for they are not to run: no leave is needed for that.
        after = _rolled(after, lambda rollout: r.born_stopped(rollout, fact.members))
    return _without_spare(after)


def _restarts(slice_: Slice, fact: f.RestartsOrdered) -> Slice:
    return _without_spare(
        msgspec.structs.replace(
            slice_, awaiting_restart=fact.awaiting_restart, reviving=fact.reviving
        )
    )


def _goal(slice_: Slice, fact: f.SliceGoalSet) -> Slice:
    rollout = slice_.rollout
    if rollout is not None and rollout.downed - fact.stopped:  # these are started
        downed = rollout.downed & fact.stopped
        slice_ = _rolled(slice_, lambda one: msgspec.structs.replace(one, downed=downed))
    after = msgspec.structs.replace(
        slice_,
        version=fact.version,
        goal=fact.goal,
        stopped=fact.stopped,
        grant=fact.grant,
        begins=fact.begins,
        budget=fact.budget,
    )
    if slice_.homes is not None and fact.goal in (TaskGoals.KILLED, TaskGoals.DELETED):
        return msgspec.structs.replace(after, homes=asked_anew(slice_.homes))
    return _without_spare(after)


def _without_spare(slice_: Slice) -> Slice:
    """Return the slice without starts that no member waits for: they are given to other slices."""
    starts = slice_.starts
    if starts is None or slice_.begins is None or slice_.begins - starts.begun <= starts.waiting:
        return slice_
    return msgspec.structs.replace(slice_, begun=slice_.begins - starts.waiting)


def _evicted(slice_: Slice, fact: f.MembersEvicted) -> Slice:
    others = tuple(each for each in slice_.evictions if each.lot != fact.lot)
    last = Eviction(fact.lot, fact.number, fact.going, fact.because)
    return msgspec.structs.replace(slice_, evictions=(*others, last))


def _rollout(slice_: Slice, fact: f.RolloutBegun) -> Slice:
    groups: tuple[SpecRow, ...] = ()
    order, made = fact.order, max(slice_.lots_made, lots_of(slice_.specs))
    if any(row.group is not None for row in fact.rows):
        groups, _ = spec_rows(
            slice_.number, fact.opening, known=slice_.specs, lots_made=slice_.lots_made
        )
        made += len({row.lot for row in groups} - {row.lot for row in slice_.specs})
    beyond = max((row.place for row in fact.rows), default=-1) + 1 - len(slice_.specs)
    specs = [*slice_.specs, *slice_.specs[:1] * max(beyond, 0)]
    unborn = slice_.waiting | fact.added
    given = fact.dropped
    for row in fact.rows:
        given = given | (row.members & unborn if row.runs else NO_MEMBERS)
    closed = [members - given for members in slice_.closed]
    closed += [NO_MEMBERS] * (len(specs) - len(closed))
    targets: list[tuple[int, Bits]] = []
    for row in fact.rows:
        specs[row.place] = _new_row(slice_, row, groups=groups, version=order.config_version)
        if row.runs:
            closed[row.place] = row.members & unborn
            some = row.members - unborn - fact.current
            targets += [(row.place, some)] if some else []
    rollout = r.Rollout(
        order=order,
        targets=tuple(targets),
        added=fact.added,
        kept=fact.kept,
        asleep=fact.asleep,
        current=fact.current,
        places=tuple(row.place for row in fact.rows),
        before=fact.before,
        updated=_united(targets) | fact.current,
        removed=fact.removing | fact.leaving,
        removing=fact.removing,
        leaving=fact.leaving,
        downed=_still_down(slice_, order) - fact.dropped,
    )
    after = msgspec.structs.replace(
        slice_,
        count=max(slice_.count, fact.opening.count),
        specs=tuple(specs),
        closed=tuple(closed) if any(closed) else (),
        rollout=rollout,
        lots_made=made,
        homes=_homes_for(slice_, fact),
        gone=(slice_.gone | fact.dropped) - fact.added,
    )
    return _without_gone(_with_volumes(_with_free_down(after)))


def _with_free_down(slice_: Slice) -> Slice:
    """Return the slice of a daemon job without numbers for hosts that join, once a stop has
    reached all of its members that have hosts."""
    rollout = slice_.rollout
    if slice_.homes is None or rollout is None or not rollout.order.stops or rollout.targets:
        return slice_
    free = (rollout.order.members or NO_MEMBERS) - slice_.homes.placed
    return _rolled(slice_, lambda one: msgspec.structs.replace(one, downed=rollout.downed | free))


def _still_down(slice_: Slice, order: RolloutOrder) -> Bits:
    """Return members that a rollout before has stopped, and this one does not start."""
    downed = slice_.rollout.downed if slice_.rollout is not None else NO_MEMBERS
    if not order.starts:
        return downed
    return NO_MEMBERS if order.members is None else downed - order.members


def _united(targets: list[tuple[int, Bits]]) -> Bits:
    raw = 0
    for _, members in targets:
        raw |= members.raw
    return Bits(raw)


def _without_gone(slice_: Slice) -> Slice:
    """Return the slice without the last members, as far as they are gone."""
    if not slice_.gone:
        return slice_
    count = slice_.members.raw.bit_length()
    return msgspec.structs.replace(slice_, count=count, gone=slice_.gone & Bits.span(0, count))


def _stepped(slice_: Slice, state: StepStates, *, at: float, members: Bits) -> Slice:
    assert slice_.rollout is not None
    number = slice_.rollout.order.number
    steps = r.stepped(slice_.steps, number, state=state, at=at, members=members)
    return msgspec.structs.replace(slice_, steps=steps)


def _taken(slice_: Slice, fact: f.MembersTaken) -> Slice:
    after = _with_free_down(_rolled(slice_, lambda rollout: r.taken(rollout, fact.members)))
    return _stepped(after, StepStates.TAKEN, at=fact.at, members=fact.members)


def _settled(slice_: Slice, fact: f.MembersSettled) -> Slice:
    if fact.steady:
        return _rolled(slice_, lambda one: msgspec.structs.replace(one, steady=True))
    done, failed, fallen, at = fact.done, fact.failed, fact.fallen, fact.at
    after = _rolled(
        slice_, lambda one: r.settled(one, done=done, failed=failed, fallen=fallen, at=at)
    )
    after = _stepped(after, StepStates.TAKEN, at=at, members=fallen)
    after = _stepped(after, StepStates.DONE, at=at, members=done)
    return _stepped(after, StepStates.FAILED, at=at, members=failed)


def _removed(slice_: Slice, fact: f.MembersRemoved) -> Slice:
    after = _rolled(slice_, lambda one: r.removed(one, fact.members, at=fact.at))
    after = _stepped(after, StepStates.DONE, at=fact.at, members=fact.members)
    gone, past = after.gone | fact.members, max(after.past, fact.past)
    return _without_gone(msgspec.structs.replace(after, gone=gone, past=past))


def _homes_for(slice_: Slice, fact: f.RolloutBegun) -> Homes | None:
    """Return the hosts for the new config: those that it allows are to be told anew."""
    homes, wanted = slice_.homes, fact.opening.hosts_of
    if homes is None or wanted is None or homes.of.terms == wanted.terms:
        return homes
    return asked_anew(homes, wanted.terms)


def _new_row(slice_: Slice, row: r.NewRow, *, groups: tuple[SpecRow, ...], version: int) -> SpecRow:
    if row.like is None:
        return groups[row.group or 0]
    like = slice_.specs[row.like]
    config = like.config if row.group is None else groups[row.group].config
    return msgspec.structs.replace(like, config=config, config_version=version)


def _asked(slice_: Slice, fact: f.EndsAsked) -> Slice:
    others = tuple(each for each in slice_.ends if each.host != fact.host)
    more = (AskedEnds(fact.host, fact.runs),) if fact.runs else ()
    before = sum(len(some) for each in slice_.ends for _, some in each.runs if each not in others)
    grown = sum(len(some) for _, some in fact.runs) > before
    return msgspec.structs.replace(slice_, ends=(*others, *more), asks=slice_.asks + grown)


def _disruption_wanted(slice_: Slice, fact: f.DisruptionWanted) -> Slice:
    asks = slice_.asks + (fact.count > slice_.disruption_wanted)
    return msgspec.structs.replace(slice_, disruption_wanted=fact.count, asks=asks)


def _rolled(slice_: Slice, fold: Callable[[r.Rollout], r.Rollout]) -> Slice:
    assert slice_.rollout is not None
    return msgspec.structs.replace(slice_, rollout=fold(slice_.rollout))


def _homes(slice_: Slice, fact: Any) -> Slice:
    assert slice_.homes is not None
    homes = HOMES_EVOLVE[type(fact)](slice_.homes, fact)
    if not isinstance(fact, f.HomesGiven):
        return msgspec.structs.replace(slice_, homes=homes)
    closed = tuple(members - fact.members for members in slice_.closed)
    return msgspec.structs.replace(slice_, homes=homes, closed=closed if any(closed) else ())


def _volumes(slice_: Slice, fact: Any) -> Slice:
    assert slice_.volumes is not None
    return msgspec.structs.replace(slice_, volumes=VOLUME_EVOLVE[type(fact)](slice_.volumes, fact))


def _with_volumes(slice_: Slice) -> Slice:
    """Return the slice as one that remembers homes, if any of its configs has a volume."""
    if slice_.volumes is not None or not any(row.config.volume for row in slice_.specs):
        return slice_
    return msgspec.structs.replace(slice_, volumes=VolumeHomes())


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
    f.RolloutBegun: _rollout,
    f.LeaveChanged: lambda s, fact: _rolled(
        s, lambda rollout: r.permitted(rollout, leave=fact.leave, over=fact.over)
    ),
    f.MembersSpared: lambda s, fact: msgspec.structs.replace(s, spared=(*fact.still, *fact.runs)),
    f.EndsAsked: _asked,
    f.RestartGiven: lambda s, fact: s,
    f.DisruptionWanted: _disruption_wanted,
    f.MembersTaken: _taken,
    f.MembersSettled: _settled,
    f.MembersRemoved: _removed,
    **dict.fromkeys(HOMES_EVOLVE, _homes),
    **dict.fromkeys(VOLUME_EVOLVE, _volumes),
}
