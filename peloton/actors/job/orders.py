"""Common parts of the decisions of a job: folds, ranges, grants, and goals for its slices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peloton.actors.host.inventory.messages import FollowTerms, HostsOf
from peloton.actors.job import facts as f
from peloton.actors.job import messages as m
from peloton.actors.job.budget import budget_of, is_shared, share_budget, spare_heard
from peloton.actors.job.folds import EVOLVE
from peloton.actors.job.grants import count_of, higher, limited, metered
from peloton.actors.job.messages import OTHER_VERSION
from peloton.actors.job.name.messages import ClaimName, FreeName, name_key
from peloton.actors.job.notice_messages import NOTIFIER, PostNotice
from peloton.actors.job.slice.messages import SetSliceGoal, SliceOpening, slice_key
from peloton.actors.job.slice.rollout_messages import SpareAsked
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.spec_versions import newly_owed
from peloton.actors.job.stages import TERMINAL_JOB_STATES, EntityVersion, JobGoals, JobStates
from peloton.actors.job.state import Job, Share, known_use, known_uses, version_of
from peloton.actors.job.throttle import to_release
from peloton.actors.job.waits import NameStates, unnoted
from peloton.actors.job.workflow.progress import go_on, touched_by
from peloton.actors.task.messages import SLICE_SIZE, TaskGoals
from peloton.runtime.vocabulary import At, Bits, Decision, Fact, Refused, Send, counted, key

NOT_FOUND = "NOT_FOUND"


def sender_of(who: str) -> str:
    """Return how and under which name a principal is known; a repeat may come from another
    address."""
    return who.partition("@")[0].partition("/")[0]


def missing(message: Any, at: At) -> Decision:
    """Answer that there is no such job."""
    return Decision(reply=Refused(NOT_FOUND, "job not found", "id"))


def other_version(job: Job, expected: EntityVersion | None) -> Decision | None:
    """Refuse a change if the client expects another version of the job; else return None."""
    if expected is None or expected == version_of(job):
        return None
    return Decision(reply=Refused(OTHER_VERSION, "unexpected entity version", "version"))


def evolved_by(job: Job, facts: tuple[Fact, ...]) -> Job:
    """Return the job after these facts."""
    for fact in facts:
        job = evolve(job, fact)
    return job


def evolve(job: Job | None, fact: Fact) -> Job:
    """Return the job after one fact."""
    evolved = EVOLVE[type(fact)](job, fact)
    assert evolved is not None
    return evolved


def tallied_by(job: Job, facts: tuple[Fact, ...], *, now: float) -> Decision:
    """Return what these facts of a tally mean for the job, and for the grants of its slices."""
    folded = evolved_by(job, facts)
    terminal = folded.state in TERMINAL_JOB_STATES
    ended = f"the job ended as {folded.state.name}" if terminal else ""
    before = folded
    raised, folded, touched = raise_grants(folded, now=now)
    moved: tuple[Fact, ...] = ()
    if folded.workflow is not None:
        moved, folded = go_on(folded, now=now)
    spec = folded.spec
    shared = share_budget(folded) if spec is not None and spec.maximum_unavailable else None
    if shared is not None:
        moved, folded = (*moved, shared), evolve(folded, shared)
    if moved:
        sends = goals_of(folded, touched_by(before, folded) | touched)
        sends += newly_owed(job.key, before=job.versions, after=folded.versions)
        because = _moved(folded) if shared is None else "other slices may have instances down"
        return Decision(facts=(*facts, *raised, *moved), sends=sends, because=because)
    if not raised:
        return Decision(facts=facts, sends=said_at_end(folded), because=ended)
    return Decision(
        facts=(*facts, *raised),
        sends=goals_of(folded, touched),
        because=counted(len(touched), "slice", many="slices")
        + " may have more instances under way",
    )


def _moved(job: Job) -> str:
    workflow = job.workflow
    assert workflow is not None
    state = workflow.state.name.lower().replace("_", " ")
    return f"the workflow to config {workflow.version} is {state} {workflow.because}".strip()


def asked_first(job: Job) -> tuple[Send, ...]:
    """Return what a job that may not begin asks of others, until they have answered."""
    if not job.blocked:
        return ()
    asked = tuple(Send(other, m.AwaitEnd()) for other in unnoted(job.waits))
    return (*asked, *_about_name(job, asks=True))


def said_at_end(job: Job) -> tuple[Send, ...]:
    """Return what a job that has ended, or is deleted, tells other actors."""
    deleted = job.goal == JobGoals.DELETED
    ended = job.state in TERMINAL_JOB_STATES
    told: tuple[Send, ...] = ()
    if ended or deleted:
        state = job.state if ended else JobStates.DELETED
        end = m.EndTold(job.key, state, "" if ended else "it was deleted")
        told = tuple(Send(waiter, end) for waiter in sorted(job.waits.waiters))
    # The name of a job that is deleted is free once nothing of it runs.
    if len(job.gone) >= job.slices if deleted else ended:
        told += _about_name(job, asks=False)
    return (*told, *_outside(job))


def _outside(job: Job) -> tuple[Send, ...]:
    """Return the notice of the end for a listener outside the cluster."""
    notice, spec = job.waits.notice, job.spec
    if notice is None or spec is None or spec.notify is None:
        return ()
    post = PostNotice(
        job=job.key,
        url=spec.notify.url,
        notice=notice,
        name=spec.name,
        owner=spec.owner,
        pool_path=job.pool_path,
        instances=spec.instances,
        created_at=job.created_at,
    )
    return (Send(NOTIFIER, post),)


def _about_name(job: Job, *, asks: bool) -> tuple[Send, ...]:
    spec = job.spec
    wanted = job.waits.name == NameStates.ASKED if asks else job.waits.has_name
    if spec is None or not wanted:
        return ()
    return (Send(name_key(spec.pool, spec.name), (ClaimName if asks else FreeName)(job.key)),)


def raise_grants(job: Job, *, now: float) -> tuple[tuple[Fact, ...], Job, Bits]:
    """Give slices what others cannot use, and what the throttle allows by now.

    Returns the fact, the job after it, and these slices.
    """
    spec = job.spec
    if not job.is_wanted or spec is None or not metered(spec):
        return (), job, Bits()
    more = higher(spec, job.grants, uses=known_uses(job)) if limited(spec) else ()
    totals = _releasable(job, job.grants.update(dict(more)), now=now)
    if not (more or totals):
        return (), job, Bits()
    raised = f.GrantsRaised(more, f.StartsReleased(now, totals) if totals else None)
    touched = Bits.of(*(number for number, _ in (*more, *totals)))
    return (raised,), evolved_by(job, (raised,)), touched


def _releasable(job: Job, grants: Mapping[int, int], *, now: float) -> tuple[tuple[int, int], ...]:
    """Return how many members of slices may have begun in all, if that is more than before."""
    spec = job.spec
    if spec is None or spec.throttle is None or job.throttled is None or job.blocked:
        return ()

    def room(number: int) -> int:
        if not limited(spec):
            return count_of(spec, number)
        return grants.get(number, 0) - known_use(job, number).active

    return to_release(job.throttled, spec.throttle, now=now, room=room)


def goals_of(job: Job, slices: Bits) -> tuple[Send, ...]:
    """Return the goals of these slices; none while the job may not begin."""
    if job.blocked:
        return ()
    return tuple(
        Send(slice_key(job.key.partition("/")[2], number), _goal(job, number)) for number in slices
    )


def _goal(job: Job, number: int) -> SetSliceGoal:
    spec = job.spec
    assert spec is not None
    opening = None
    if job.goal != JobGoals.DELETED:
        count = count_of(spec, number)
        opening = SliceOpening(
            job=job.key.partition("/")[2],
            name=spec.name,
            pool=spec.pool,
            count=count,
            default=spec.default,
            overrides=job.overrides.get(number, ()),
            labels=spec.labels,
            priority=spec.priority,
            preemptible=spec.preemptible,
            revocable=spec.revocable,
            spread=spec.spread,
            max_running_s=spec.max_running_time_s or None,
            config_version=spec.config_version,
            gang=0 if number else spec.gang,
            gang_together=spec.gang_together,
            healthy_after_s=spec.healthy_after_s,
            strategy=spec.strategy,
            service=spec.is_service and not spec.is_daemon,
            hosts_of=_hosts_of(spec, number) if spec.inventories else None,
        )
    return SetSliceGoal(
        version=job.version,
        job=job.key,
        number=number,
        goal=TaskGoals(int(job.goal)),
        stopped=job.stopped.get(number, Bits()),
        opening=opening,
        grant=job.grants.get(number, 0) if limited(spec) else None,
        restarts=job.restarts.get(number, ()),
        tallied=number in job.awaited,
        begins=_begins(job, number),
        rollout=job.workflow.order(number) if job.workflow is not None else None,
        budget=budget_of(job, number) if spec.maximum_unavailable else None,
    )


def _hosts_of(spec: JobSpec, number: int) -> HostsOf:
    """Return whose hosts a slice of a daemon job has: those of one inventory, or a part of them."""
    part, inventory = divmod(number, spec.inventories)
    parts = spec.instances // (spec.inventories * SLICE_SIZE)
    terms = FollowTerms(spec.default.constraint, part, parts)
    return HostsOf(key("inventory", inventory), terms, spec.room_first)


def _begins(job: Job, number: int) -> int | None:
    starts = job.throttled.slices.get(number) if job.throttled is not None else None
    return starts.released if starts is not None else None


def spare_asked(job: Job, message: SpareAsked, at: At) -> Decision:
    """Let a slice that wishes for more report how many, and who is down by then."""
    if not is_shared(job) or not job.is_wanted:
        return Decision(because="nothing is shared")
    if job.shares.get(message.number, Share()).heard >= message.asks:
        return Decision(because="the request is known")
    fact = f.SpareHeard(message.number, message.asks)
    sends = goals_of(spare_heard(job, fact), Bits.of(message.number))
    return Decision(facts=(fact,), sends=sends, because="a slice wants more disruption")


def clipped(ranges: tuple[tuple[int, int], ...], instances: int) -> tuple[tuple[int, int], ...]:
    """Return the ranges within the instances, ascending and disjoint."""
    inside = sorted((max(start, 0), min(stop, instances)) for start, stop in ranges)
    merged: list[tuple[int, int]] = []
    for start, stop in inside:
        if start >= stop:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return tuple(merged)


def slices_in(ranges: tuple[tuple[int, int], ...]) -> list[int]:
    """Return the slices that have instances in these ranges."""
    return sorted(
        {k for start, stop in ranges for k in range(start // SLICE_SIZE, -(-stop // SLICE_SIZE))}
    )
