"""All that keeps an instance from its goal, what would have to change, and when that may be.

Views of an instance, its job and its lot become typed blockers and an estimate. Limits are those of
the lot's answer, hosts those of the slice's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from peloton.actors.job.messages import JobView, moment_of
from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.mentions import job_mention, pool_mention
from peloton.actors.resources import amount
from peloton.actors.respool.lot.messages import LotWaits, Outlook, PoolBlocker, QueuePosition
from peloton.gateway.ops.host_rules import blockers_of_hosts
from peloton.gateway.translate.reasons import active_instances, retry_text
from peloton.gateway.translate.texts import rfc3339
from peloton.ops.v1 import ops_pb2 as ops

CODES = {
    "limit": "pool-limit",
    "controllers": "controller-limit",
    "reservation": "pool-reservation",
    "slack": "pool-slack-limit",
    "capacity": "cluster-full",
    "entitlement": "pool-entitlement",
    "queue": "queue",
    "gang": "gang",
}
UNITS = {"memory": " MB", "disk": " MB"}
NO_HISTORY = "no instance of this job has ended yet"


class WaitingInstance(NamedTuple):
    """An instance that is not at its goal, its job, its lot if it is queued, and how many are
    alike.

    `runs_s` are the run times of instances of the job that ended.
    """

    view: InstanceView
    job: JobView
    lot: LotWaits | None
    alike: int
    runs_s: Sequence[float]


def run_times(views: Iterable[InstanceView]) -> list[float]:
    """Return how long each of these instances ran that have ended."""
    times = [(view.started_at, view.ended_at) for view in views]
    return [end - begin for begin, end in times if begin and end and end >= begin]


def explain_reason(into: ops.Reason, of: WaitingInstance, *, now: float) -> None:
    """Add the blockers and the estimate to a reason."""
    into.blockers.extend(_blockers(of, now=now))
    if into.blockers:
        into.estimate.CopyFrom(_estimate(of, now))


def _blockers(of: WaitingInstance, *, now: float) -> Iterator[ops.Blocker]:
    view, job = of.view, of.job
    if view.code == "POOL":
        yield from _of_pools(of.lot, view)
    elif view.code == "LIMIT":
        yield _of_job_limit(of)
    elif view.code == "THROTTLE":
        rule = job.spec.throttle.text if job.spec.throttle is not None else "unknown"
        yield _at(
            ops.Blocker(
                code="throttle",
                text=f"the throttle of its job lets {rule} begin",
                change="wait, or create the job with a wider peloton.throttle",
            ),
            job.next_start_at,
        )
    elif view.code in ("HOST", "NEVER", "GANG"):
        yield from blockers_of_hosts(view)
    elif view.code == "RETRY":
        again = ops.Blocker(code="retry", text=retry_text(view), change="wait until that time")
        yield _at(again, view.retry_at)
    elif view.code == "NEW" and job.blocked_by:
        change = "wait until these jobs end so, or create the job without them in peloton.after"
        yield ops.Blocker(code="after", text=job.blocked_by, change=change)
    elif view.code == "LAUNCH":
        text = view.because or "its host has not answered yet"
        yield ops.Blocker(code="launch", text=text, change="wait until its host answers")
    else:
        return
    yield from _deadline(job, now=now)


def _at(blocker: ops.Blocker, moment: float | None) -> ops.Blocker:
    if moment is not None:
        blocker.at = moment
    return blocker


def _deadline(job: JobView, *, now: float) -> Iterator[ops.Blocker]:
    moment = moment_of(job.spec.deadline, job.summary.created_at)
    if moment is not None and moment > now:
        yield ops.Blocker(
            code="deadline",
            text=f"the job is killed at {rfc3339(moment)[:19]}Z unless it has ended by then",
            change="finish earlier; the deadline cannot be changed",
            at=moment,
        )


def _of_job_limit(of: WaitingInstance) -> ops.Blocker:
    most, active = of.job.spec.maximum_running, active_instances(of.job)
    return ops.Blocker(
        code="job-limit",
        text=f"sla.maximumRunningInstances of its job is {most}, and {active} are active",
        change=f"wait until one of them ends, or update the job to at least {active + 1}; to "
        f"{active + of.alike} for all {of.alike} that wait",
        resource="instances",
        limit=most,
        used=active,
        wanted=1,
        missing=max(active + 1 - most, 0),
    )


# ---- pools ----


def _of_pools(lot: LotWaits | None, view: InstanceView) -> Iterator[ops.Blocker]:
    if lot is None:
        yield ops.Blocker(code="queue", text=view.because, change="ask for this instance alone")
        return
    if lot.rule == "deleted":
        text = "its pool does not exist any more"
        yield ops.Blocker(code="pool-deleted", text=text, change="create the job in another pool")
        return
    yield from blockers_of_lot(lot)


def blockers_of_lot(lot: LotWaits) -> Iterator[ops.Blocker]:
    """Yield all blockers of the pools."""
    for each in lot.blockers:
        if each.rule == "queue":
            if lot.place is not None:
                yield _of_queue(lot.place, lot.path)
        elif each.rule == "gang":
            yield _of_gang(each)
        else:
            yield of_limit(each)


def _of_queue(place: QueuePosition, path: str) -> ops.Blocker:
    among = f" of the first {place.looked_at} entries"
    gangs = f" ({place.gangs}{among} are gangs)" if place.gangs else ""
    text = (
        f"{place.tasks} tasks are before it in the queue of {pool_mention(path)}{gangs}: "
        f"{place.higher} of a higher priority, {place.tasks - place.higher} that came before; the "
        f"first is {job_mention(place.head)} of priority {place.head_priority}"
    )
    return ops.Blocker(
        code="queue",
        text=text,
        change=f"wait until these are admitted or stopped; a priority above {place.head_priority} "
        "goes before all of them",
        pool=path,
        missing=place.tasks,
        queue=ops.QueuePlace(
            tasks=place.tasks,
            higher=place.higher,
            gangs=place.gangs,
            looked_at=place.looked_at,
            head_job=place.head,
            head_priority=place.head_priority,
        ),
    )


def _of_gang(each: PoolBlocker) -> ops.Blocker:
    return ops.Blocker(
        code="gang",
        text=f"its gang is admitted as one: {each.used} of {each.wanted} have come",
        change=f"wait until {each.missing} more of its members queue",
        pool=each.pool,
        resource="instances",
        limit=each.limit,
        used=each.used,
        wanted=each.wanted,
        missing=each.missing,
    )


def of_limit(each: PoolBlocker) -> ops.Blocker:
    """Return the blocker for a limit, a capacity or an entitlement, with its numbers."""
    found = ops.Blocker(
        code=CODES[each.rule],
        text=f"{_name(each)}: {each.kind} {_shown(each, each.limit)}, in use "
        f"{_shown(each, each.used)}, wanted {_shown(each, each.wanted)}, missing "
        f"{_shown(each, each.missing)}",
        change=_change(each),
        pool=each.pool,
        resource=each.kind,
        limit=amount(each.limit),
        used=amount(each.used),
        wanted=amount(each.wanted),
        missing=amount(each.missing),
        never=each.never,
    )
    if each.never:
        found.proof = (
            f"{_shown(each, each.wanted)} {each.kind} is more than the {_name(each)} of "
            f"{_shown(each, each.limit)}, which counts even where nothing else runs"
        )
    return found


def _name(each: PoolBlocker) -> str:
    pool = pool_mention(each.pool)
    return {
        "limit": f"limit of {pool}",
        "controllers": f"limit of {pool} for controllers",
        "reservation": f"reservation of {pool} for tasks that may not be preempted",
        "slack": f"limit of {pool} for tasks on slack",
        "capacity": "capacity of the cluster",
        "entitlement": f"entitlement of {pool}",
    }[each.rule]


def _change(each: PoolBlocker) -> str:
    kind, missing = each.kind, _shown(each, each.missing)
    enough = _shown(each, each.used + each.wanted)
    whole = _shown(each, each.used + each.in_all)
    for_all = f"; {whole} for all of it that waits" if each.in_all > each.wanted else ""
    if each.rule == "capacity":
        return f"end tasks that hold {missing} {kind}, or add hosts that have as much{for_all}"
    if each.rule == "entitlement":
        raised = "its share of cpu" if kind == "slack" else "its reservation or share"
        return (
            f"raise {raised} so that it may have {enough} {kind}, or wait until other pools need "
            f"{missing} less{for_all}"
        )
    if each.rule == "reservation":
        return f"raise the reservation to {enough} {kind}{for_all}, or let it be preempted"
    if each.never:
        least = _shown(each, each.wanted)
        most = _shown(each, each.limit)
        if each.rule == "slack":
            return (
                f"raise the pool's reservation of {kind} or its slackLimit, so that slackLimit "
                f"percent of the reservation are at least {least}, or request at most {most}"
            )
        return f"raise the limit to at least {least} {kind}, or request at most {most}"
    return f"raise the limit to {enough} {kind}, or end tasks below it that hold {missing}{for_all}"


def _shown(each: PoolBlocker, millionths: int) -> str:
    return f"{amount(millionths):.10g}{UNITS.get(each.kind, '')}"


# ---- the estimate ----


def _estimate(of: WaitingInstance, now: float) -> ops.Estimate:
    view, job = of.view, of.job
    if view.code == "POOL":
        return estimate_of(of.lot.outlook if of.lot is not None else None, of.lot)
    if view.code == "LIMIT":
        return _of_run_times(of)
    planned = job.next_start_at if view.code == "THROTTLE" else view.retry_at
    if view.code in ("THROTTLE", "RETRY") and planned is not None:
        return ops.Estimate(after_s=max(planned - now, 0.0), basis="this time is planned")
    if view.code in ("HOST", "NEVER", "GANG"):
        return ops.Estimate(basis="it depends on when a host that fits has room")
    return ops.Estimate(basis="cannot be estimated")


def estimate_of(outlook: Outlook | None, lot: LotWaits | None) -> ops.Estimate:
    """Return the estimate for the first waiting member of a lot."""
    if outlook is None:
        never = lot is not None and lot.never
        return ops.Estimate(basis="waiting alone does not help" if never else "not known")
    found = ops.Estimate(basis=outlook.basis)
    if outlook.after_s is not None:
        found.after_s = outlook.after_s
    return found


def _of_run_times(of: WaitingInstance) -> ops.Estimate:
    active = active_instances(of.job)
    if not of.runs_s or not active:
        return ops.Estimate(basis=NO_HISTORY)
    mean_s = sum(of.runs_s) / len(of.runs_s)
    return ops.Estimate(
        after_s=mean_s / active,
        until_s=of.alike * mean_s / active,
        basis=f"{len(of.runs_s)} instances of it ran {mean_s:.3g} s on average, and {active} run "
        "at a time",
    )
