"""How many members of each slice of a service may be down at once, within the job's number.

A job of one slice gives it the whole number, and nothing is asked or told: the slice decides in its
own turn. Several slices share it:

1. A slice that wants to take nobody down has no allowance; the others are given even parts of
   what is left, as far as they want it.
2. A slice has at most its bound of members down for what somebody wants, and the sum of these
   is within the job's number. What fails uses it up, too: then nothing is given.
3. An allowance that is lowered is given to others only once a tally of the slice names the goal
   that lowered it, or a later one: until then it may have used what it had before.

All messages are absolute and versioned, so one that is lost, late or repeated gives away nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import immutables
from msgspec.structs import replace

from peloton.actors.job import facts as f
from peloton.actors.job.grants import count_of
from peloton.actors.job.slice.rollout_messages import DownBudget, DownTally
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.state import Job, Share
from peloton.runtime.vocabulary import Bits

NOTHING = DownTally()


def is_bounded(spec: JobSpec) -> bool:
    """Return whether the number of instances that are down at once is limited."""
    return spec.maximum_unavailable > 0 and spec.is_service


def is_shared(job: Job) -> bool:
    """Return whether several slices share the job's number."""
    return job.spec is not None and is_bounded(job.spec) and job.slices > 1


def budget_of(job: Job, number: int) -> DownBudget | None:
    """Return what a slice is told of its allowance."""
    spec = job.spec
    if spec is None or not is_bounded(spec):
        return None
    if job.slices == 1:
        return DownBudget(spec.maximum_unavailable)
    share = job.shares.get(number, Share())
    return DownBudget(share.allowance, spec.maximum_unavailable, share.heard)


def reshared(before: Job, after: Job) -> Job:
    """Return the job with the spec of `after`, and no allowance that was given by that of `before`.

    The slices first report what they use.
    """
    spec = after.spec
    if spec is None or not is_shared(after):
        return replace(after, shares=immutables.Map()) if after.shares else after
    if is_shared(before) and _sum(after.shares) <= spec.maximum_unavailable:
        return after
    shares = after.shares
    for number in range(before.slices):
        heard = shares.get(number, Share()).heard
        share = Share(0, _most(before, number), since=after.version, heard=heard)
        shares = shares.set(number, share)
    awaited = after.awaited.update(dict.fromkeys(range(before.slices), after.version))
    touched = Bits.span(0, before.slices)
    return replace(after, shares=shares, awaited=awaited, confirmed=after.confirmed - touched)


def _sum(shares: Mapping[int, Share]) -> int:
    return sum(share.allowance for share in shares.values())


def _most(job: Job, number: int) -> int:
    """Return the most members of a slice that may be down by an allowance that it was told."""
    spec = job.spec
    assert spec is not None
    if not is_bounded(spec):
        return count_of(spec, number)
    if job.slices == 1:
        return spec.maximum_unavailable
    share = job.shares.get(number, Share())
    report = job.reports.get(number)
    told = report is not None and report.goal >= share.since
    return share.allowance if told else max(share.allowance, share.carried)


def told_by(job: Job, number: int) -> DownTally:
    """Return what a slice has reported; a slice without a report has taken nobody down."""
    report = job.reports.get(number)
    return (report.tally.down if report is not None else None) or NOTHING


def bounds_of(job: Job) -> dict[int, int]:
    """Return the most members of each slice that may be down, as far as is known."""
    return {
        number: max(_most(job, number), told_by(job, number).down) for number in range(job.slices)
    }


def share_budget(job: Job) -> f.BudgetShared | None:
    """Return the fact of new allowances, by slice, if the reports of slices call for them."""
    spec = job.spec
    if spec is None or not is_shared(job) or not job.is_wanted:
        return None
    bounds = bounds_of(job)
    free = max(spec.maximum_unavailable - sum(bounds.values()), 0)
    found: list[tuple[int, int]] = []
    for number, target in _targets(job, bounds, most=spec.maximum_unavailable).items():
        known = job.shares.get(number, Share()).allowance
        if target > known:
            # Up to its bound costs nothing: the slice may have as many down already.
            costs_nothing = max(known, bounds[number])
            target = min(target, costs_nothing + free)
            free -= max(target - costs_nothing, 0)
        if target != known:
            found.append((number, target))
    return f.BudgetShared(tuple(found)) if found else None


def _targets(job: Job, bounds: Mapping[int, int], *, most: int) -> dict[int, int]:
    """Return what each slice should have: an even part of what the others leave, if it wishes
    for any."""
    tallies = {number: told_by(job, number) for number in range(job.slices)}
    left = max(
        most - sum(bounds[at] for at, one in tallies.items() if not one.disruption_wanted), 0
    )
    wanted = {
        number: one.down + one.disruption_wanted
        for number, one in tallies.items()
        if one.disruption_wanted
    }
    targets = dict.fromkeys(tallies, 0)
    for at, number in enumerate(sorted(wanted, key=lambda each: (wanted[each], each))):
        targets[number] = min(wanted[number], -(-left // (len(wanted) - at)))
        left -= targets[number]
    return targets


def shared(job: Job, fact: f.BudgetShared) -> Job:
    """Return the job with these allowances; a slice that has less is asked for a new tally."""
    version, shares, awaited = job.version + 1, job.shares, job.awaited
    for number, allowance in fact.allowances:
        known = shares.get(number, Share())
        if allowance < known.allowance:
            share = Share(allowance, _most(job, number), since=version, heard=known.heard)
            awaited = awaited.set(number, version)
        else:
            share = replace(known, allowance=allowance)
        shares = shares.set(number, share)
    touched = Bits.of(*(number for number, _ in fact.allowances))
    return replace(
        job, version=version, shares=shares, awaited=awaited, confirmed=job.confirmed - touched
    )


def spare_heard(job: Job, fact: f.SpareHeard) -> Job:
    """Return the job that waits for the tally of this slice."""
    share = replace(job.shares.get(fact.number, Share()), heard=fact.asks)
    return replace(
        job,
        version=job.version + 1,
        shares=job.shares.set(fact.number, share),
        awaited=job.awaited.set(fact.number, job.version + 1),
        confirmed=job.confirmed - Bits.of(fact.number),
    )
