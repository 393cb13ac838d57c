"""How facts change the state of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import immutables
from msgspec.structs import replace

from peloton.actors.job import facts as f
from peloton.actors.job import spec_versions as v
from peloton.actors.job import throttle as t
from peloton.actors.job import waits as w
from peloton.actors.job.budget import reshared, spare_heard
from peloton.actors.job.budget import shared as budget_shared
from peloton.actors.job.grants import (
    Use,
    count_of,
    first,
    limited,
    lowered,
    shared,
    unended_of,
    use_of,
)  # fmt: skip
from peloton.actors.job.messages import StopRecord, moment_of
from peloton.actors.job.notice_messages import Notice
from peloton.actors.job.slice.messages import slices_of
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import TERMINAL_JOB_STATES, JobGoals, JobStates
from peloton.actors.job.state import (
    Job,
    SliceReport,
    awaited_of,
    counts_of,
    default_goal,
    known_use,
    known_uses,
)
from peloton.actors.job.totals import Ending, began, job_state_of
from peloton.actors.job.volume_sizes import configs_of, sizes_with
from peloton.actors.job.workflow import folds as wf
from peloton.actors.task.messages import SLICE_SIZE
from peloton.runtime.vocabulary import Bits


def _given(job: Job | None, fact: f.OverridesGiven) -> Job:
    job = job if job is not None else Job()
    overrides = job.overrides.set(fact.slice_number, fact.overrides)
    return replace(job, overrides=overrides, created_by=fact.who or job.created_by)


def _made(job: Job | None, fact: f.JobMade) -> Job:
    job = job if job is not None else Job()
    made = replace(
        job,
        key=fact.job,
        spec=fact.spec,
        goal=default_goal(fact.spec),
        pool_path=fact.pool_path,
        created_at=fact.at,
        updated_at=fact.at,
        created_by=fact.who,
        grants=immutables.Map(first(fact.spec) if limited(fact.spec) else ()),
        waits=w.first_waits(fact.spec, fact.at),
        throttled=t.first_starts(fact.spec),
    )
    if job.overrides:
        began = v.began(job.versions, fact.spec, overrides=job.overrides.items())
        made = replace(made, versions=began)
        own = configs_of(sorted(job.overrides.items()))
        made = replace(made, volume_sizes=sizes_with(job.volume_sizes, fact.spec, own=own))
    if fact.spec.inventories:
        made = replace(made, awaited=awaited_of(made, made.version))
    if fact.options is None:
        return made
    return wf.with_creation(made, fact.options, opaque=fact.opaque, at=fact.at)


def _stop(job: Job, fact: f.StopOrdered) -> Job:
    every = dict.fromkeys(range(job.slices), job.version + 1) if fact.tallied else {}
    return replace(
        job,
        awaited=job.awaited.update(every),
        goal=JobGoals.KILLED,
        state=JobStates.KILLING,
        stop=StopRecord(fact.at, fact.who, fact.reason),
        version=job.version + 1,
        desired_state_version=job.desired_state_version + 1,
        confirmed=Bits(),
        updated_at=fact.at,
    )


def _stop_some(job: Job, fact: f.InstancesStopped) -> Job:
    before = job.stopped.get(fact.slice_number, Bits())
    return replace(
        job,
        version=job.version + 1,
        confirmed=job.confirmed - Bits.of(fact.slice_number),
        stopped=job.stopped.set(fact.slice_number, before | fact.members),
        part_stops=job.part_stops.set(fact.slice_number, StopRecord(fact.at, fact.who)),
        awaited=job.awaited.update({fact.slice_number: job.version + 1} if fact.tallied else {}),
    )


def _delete(job: Job, fact: f.DeletionOrdered) -> Job:
    return replace(
        job,
        goal=JobGoals.DELETED,
        versions=v.deleted(job.versions),
        version=job.version + 1,
        desired_state_version=job.desired_state_version + 1,
        confirmed=Bits(),
        updated_at=fact.at,
    )


def _confirmed(job: Job, number: int) -> Job:
    overrides, restarts = job.overrides, job.restarts
    if number in overrides:
        overrides = overrides.delete(number)
    if number in restarts:
        restarts = restarts.delete(number)
    confirmed = job.confirmed | Bits.of(number)
    return replace(job, confirmed=confirmed, overrides=overrides, restarts=restarts)


def _end_of_service(job: Job) -> Ending:
    return Ending.KILLED if job.is_stopped else Ending.NEVER


def _tallied(job: Job, fact: f.JobTallied) -> Job:
    spec = job.spec
    assert spec is not None
    job = _told(job, fact)
    if fact.tally.rollout is not None and fact.tally.rollout.downed:
        rollout = fact.tally.rollout
        job = wf.with_downed(job, number=fact.number, tally=rollout, goal=fact.goal)
    if spec.progress_s and fact.tally.rollout is not None:
        rollout = fact.tally.rollout
        job = wf.with_progress(job, number=fact.number, tally=rollout, at=fact.at)
    if job.version == 1 and fact.number == 0 and 0 not in job.confirmed:
        job = _confirmed(job, 0)  # there was no other goal: who has tasks holds it
    tally = fact.tally
    if len(tally.times) < 2 and fact.number in job.reports:
        # Not counted this time: what was counted stays.
        tally = replace(tally, times=job.reports[fact.number].tally.times or tally.times)
    reports = job.reports.set(fact.number, SliceReport(fact.version, tally, fact.goal))
    awaited, uses = job.awaited, job.uses
    if fact.goal >= awaited.get(fact.number, 0):
        awaited = awaited.delete(fact.number) if fact.number in awaited else awaited
        if limited(spec):
            uses = uses.set(fact.number, use_of(fact.tally, job.grants.get(fact.number, 0)))
    rolled = job.workflow is not None
    counts = counts_of(spec, reports, rolled=rolled)
    controller = reports[0].tally.controller if 0 in reports else ""
    state = job_state_of(
        counts,
        0 if spec.inventories or rolled else spec.instances,
        known=job.state,
        controller=controller,
        ends=_end_of_service(job) if spec.is_service else Ending.AS_ITS_RUNS,
    )
    if awaited and state in TERMINAL_JOB_STATES:
        state = JobStates.KILLING if job.goal == JobGoals.KILLED else JobStates.PENDING
    folded = replace(
        job,
        reports=reports,
        state=state,
        awaited=awaited,
        uses=uses,
        started_at=began(counts, job.started_at, at=fact.at, times=fact.tally.times),
        completed_at=_last_end(job, fact, reports=reports) if state in TERMINAL_JOB_STATES else 0.0,
        updated_at=fact.at,
    )
    if state == job.state or state not in TERMINAL_JOB_STATES:
        return folded
    counted = tuple(sorted(counts.items()))
    end = Notice(0, state, counted, folded.started_at, folded.completed_at)
    return replace(folded, waits=w.noticed(folded.waits, spec, end=end))


def _told(job: Job, fact: f.JobTallied) -> Job:
    """Apply what the tally says of starts; the next release is timed from it."""
    starts, known = fact.tally.starts, job.throttled
    if starts is None or known is None or job.spec is None or job.spec.throttle is None:
        return job
    rule = job.spec.throttle
    told = t.told(known, rule, number=fact.number, starts=starts)
    told = t.without_old(told, rule, now=fact.at)
    return replace(job, throttled=told, waits=w.timed(job.waits, fact.at))


def _last_end(job: Job, fact: f.JobTallied, *, reports: immutables.Map[int, SliceReport]) -> float:
    ends = [at for number in sorted(reports) for at in reports[number].tally.times[1:2]]
    return max(ends, default=job.completed_at or fact.at)


def _raised(job: Job, fact: f.GrantsRaised) -> Job:
    grants, touched = job.grants, Bits()
    for number, grant in fact.grants:
        grants, touched = grants.set(number, grant), touched | Bits.of(number)
    throttled, waits, released = job.throttled, job.waits, fact.released
    if released is not None and throttled is not None and job.spec and job.spec.throttle:
        throttled = t.without_old(throttled, job.spec.throttle, now=released.at)
        throttled = t.released(throttled, released.totals)
        waits = w.timed(waits, released.at)
        touched = touched | Bits.of(*(number for number, _ in released.totals))
    return replace(
        job,
        grants=grants,
        throttled=throttled,
        waits=waits,
        version=job.version + 1,
        confirmed=job.confirmed - touched,
    )


def _started(job: Job, fact: f.InstancesStarted) -> Job:
    spec = job.spec
    assert spec is not None
    version, touched = job.version + 1, Bits.of(*(number for number, _ in fact.members))
    revived = job.goal == JobGoals.KILLED
    stopped, restarts = job.stopped, job.restarts
    if revived:
        every = {number: Bits.span(0, count_of(spec, number)) for number in range(job.slices)}
        stopped, touched = immutables.Map(every), Bits.span(0, job.slices)
    grants, uses = job.grants, job.uses
    for number, members in fact.members:
        stopped = stopped.set(number, stopped.get(number, Bits()) - members)
        older = ((known, some - members) for known, some in restarts.get(number, ()))
        kept = tuple((known, some) for known, some in older if some)
        restarts = restarts.set(number, (*kept, (version, members)))
        if limited(spec):
            use = known_use(job, number)
            grant, use = lowered(grants.get(number, 0), use, more=len(members))
            use = replace(use, unended=min(use.unended, count_of(spec, number)))
            grants, uses = grants.set(number, grant), uses.set(number, use)
    ended = job.state in TERMINAL_JOB_STATES or revived
    moment = moment_of(spec.deadline, job.created_at)
    return replace(
        job,
        version=version,
        goal=default_goal(spec) if revived else job.goal,
        desired_state_version=job.desired_state_version + fact.whole,
        state=JobStates.PENDING if ended else job.state,
        confirmed=job.confirmed - touched,
        stopped=stopped,
        restarts=restarts,
        awaited=job.awaited.update({number: version for number, _ in fact.members}),
        grants=grants,
        uses=uses,
        stop=None if revived else job.stop,
        waits=w.started_again(job.waits, at=fact.at, moment=moment),
        completed_at=0.0,
        updated_at=fact.at,
    )


def _changed(job: Job, fact: f.JobChanged) -> Job:
    known, spec, version = job.spec, fact.spec, job.version + 1
    assert known is not None
    grown = range(known.instances // SLICE_SIZE, slices_of(spec.instances))
    if spec.instances == known.instances:
        grown = range(0)
    overrides = job.overrides
    for number, more in fact.overrides:
        overrides = overrides.set(number, (*overrides.get(number, ()), *more))
    grants, uses, lower = _regranted(job, spec, grown=grown)
    versions = v.replaced(job.versions, known)
    awaited = dict.fromkeys((*grown, *lower), version)
    touched = [*grown, *lower]
    if (limited(known), known.max_running_time_s) != (limited(spec), spec.max_running_time_s):
        touched = [*range(slices_of(spec.instances))]
    changed = replace(
        job,
        spec=spec,
        version=version,
        state=JobStates.INITIALIZED if grown else job.state,
        confirmed=job.confirmed - Bits.of(*touched),
        overrides=overrides,
        awaited=job.awaited.update(awaited),
        grants=grants,
        uses=uses,
        pieces=immutables.Map(),
        pieces_by="",
        waits=w.timed(job.waits, fact.at),
        throttled=t.grown(job.throttled, spec) if job.throttled is not None else None,
        updated_at=fact.at,
        versions=v.began(versions, spec),
        volume_sizes=sizes_with(job.volume_sizes, spec, own=configs_of(fact.overrides)),
    )
    return reshared(job, changed)


def _regranted(
    job: Job, spec: JobSpec, *, grown: range
) -> tuple[immutables.Map[int, int], immutables.Map[int, Use], tuple[int, ...]]:
    """Return grants and uses under a new spec, and the slices whose grant is lower than it was."""
    known = job.spec
    assert known is not None
    if not limited(spec):
        return immutables.Map(), immutables.Map(), ()
    grants, uses = job.grants, job.uses
    if not limited(known):
        # All may be active that have not ended; each slice has to end as many as are too many.
        for number in range(job.slices):
            unended = _unended(job, number)
            uses = uses.set(number, Use(unended, unended))
        grants = immutables.Map(dict.fromkeys(range(job.slices), 0))
        lower = tuple(range(job.slices))
    else:
        less = {}
        if spec.maximum_running < known.maximum_running:
            less = shared(known, grants, uses=known_uses(job), most=spec.maximum_running)
        for number, (grant, use) in less.items():
            grants, uses = grants.set(number, grant), uses.set(number, use)
        lower = tuple(less)
    for number in grown:
        before = count_of(known, number)
        use = uses.get(number) or (known_use(job, number) if before else Use(0, 0))
        more = count_of(spec, number) - before
        grant, use = lowered(grants.get(number, 0), use, more=more) if before else (0, Use(0, more))
        grants, uses = grants.set(number, grant), uses.set(number, use)
    return grants, uses, lower


def _unended(job: Job, number: int) -> int:
    """Return how many instances of a slice of an unlimited job have not ended, at most."""
    report = job.reports.get(number)
    assert job.spec is not None
    if report is None or report.goal < job.awaited.get(number, 0):
        return count_of(job.spec, number)
    return unended_of(report.tally)


def _piece(job: Job, fact: f.ChangePieceGiven) -> Job:
    pieces = job.pieces.set(fact.slice_number, fact.overrides)
    waits = w.timed(job.waits, fact.at)
    return replace(job, pieces=pieces, pieces_by=fact.who or job.pieces_by, waits=waits)


def _pieces_dropped(job: Job, fact: f.ChangePiecesDropped) -> Job:
    return replace(job, pieces=immutables.Map(), pieces_by="", waits=w.timed(job.waits, fact.at))


def _archived(job: Job, fact: f.ArchivedIn) -> Job:
    return replace(job, period=fact.period, archived_end=fact.completed_at)


def _confirmed_spec(job: Job, fact: f.SpecConfirmed) -> Job:
    return replace(job, versions=v.stored(job.versions, fact.number))


def _gone_spec(job: Job, fact: f.SpecGone) -> Job:
    return replace(job, versions=v.dropped(job.versions, fact.number))


def _waits(fold: Callable[[w.Waits, Any], w.Waits]) -> Callable[[Any, Any], Job]:
    """Return the fold of a fact that changes nothing but what the job waits for."""
    return lambda job, fact: replace(job, waits=fold(job.waits, fact))


def _name(waits: w.Waits, fact: f.NameSettled) -> w.Waits:
    return w.named(waits, w.NameStates.GRANTED if fact.granted else w.NameStates.FREED)


EVOLVE: Mapping[type, Callable[[Any, Any], Job | None]] = {
    f.OverridesGiven: _given,
    f.JobMade: _made,
    f.StopOrdered: _stop,
    f.InstancesStopped: _stop_some,
    f.DeletionOrdered: _delete,
    f.SliceConfirmed: lambda job, fact: _confirmed(job, fact.number),
    f.JobTallied: _tallied,
    f.SliceVanished: lambda job, fact: replace(job, gone=job.gone | Bits.of(fact.number)),
    f.JobForgotten: lambda job, fact: None,
    f.GrantsRaised: _raised,
    f.BudgetShared: budget_shared,
    f.SpareHeard: spare_heard,
    f.InstancesStarted: _started,
    f.JobChanged: _changed,
    f.ChangePieceGiven: _piece,
    f.ChangePiecesDropped: _pieces_dropped,
    f.ArchivedIn: _archived,
    f.OtherNoted: _waits(lambda waits, fact: w.noted(waits, fact.other)),
    f.OtherEnded: _waits(lambda waits, fact: w.learned(waits, fact.other)),
    f.WaiterNoted: _waits(lambda waits, fact: w.awaited_by(waits, fact.waiter)),
    f.WaiterTold: _waits(lambda waits, fact: w.told(waits, fact.waiter)),
    f.NameSettled: _waits(_name),
    f.NoticeSettled: _waits(lambda waits, fact: w.told_outside(waits, fact.number)),
    f.SpecConfirmed: _confirmed_spec,
    f.SpecGone: _gone_spec,
    **wf.WORKFLOW_EVOLVE,
}
