"""How many members of each slice may be under way at once, if a workflow has a batch size.

The leaves follow from the batch and from what slices report; the sum of their bounds never exceeds
the batch and what has failed. Within its leave a slice goes on without asking; what fails uses its
leave up, so the job sees each failure before another instance is begun with. A leave is never
lowered: what is left in a slice only becomes less, so a report of any age still bounds what is
under way there.
"""

from __future__ import annotations

from collections.abc import Mapping

from peloton.actors.job.slice.rollout_messages import RolloutTally
from peloton.actors.job.state import Job
from peloton.actors.job.workflow.state import Progress, Workflow
from peloton.actors.task.messages import SLICE_SIZE


def tallies_of(job: Job) -> dict[int, RolloutTally]:
    """Return what slices have reported of the present rollout."""
    workflow, found = job.workflow, {}
    for number in sorted(job.reports):
        tally = job.reports[number].tally.rollout
        if tally is not None and workflow is not None and tally.number == workflow.number:
            found[number] = tally
    return found


def progress_of(job: Job) -> Progress:
    """Return how far the workflow is; slices that have not reported count as not begun."""
    progress, known = Progress(), tallies_of(job)
    for number in range(job.slices):
        tally = known.get(number)
        if tally is None:
            tally = RolloutTally(0, waiting=_assumed(job, number))
        progress = progress.plus(tally)
    return progress


def is_through(job: Job) -> bool:
    """Return whether nothing is left in any slice, and all that are done have stayed well long
    enough."""
    known = tallies_of(job)
    if len(known) < job.slices:
        return False
    return not any(tally.left or not tally.steady for tally in known.values())


def bounds_of(job: Job) -> dict[int, int]:
    """Return the most members of each slice that may be under way now, or have failed."""
    workflow, known = job.workflow, tallies_of(job)
    if workflow is None or workflow.is_over:
        return {}
    found = {}
    for number in range(job.slices):
        bound = _bound(job, workflow, number=number, tally=known.get(number))
        if bound:
            found[number] = bound
    return found


def higher_leaves(job: Job) -> tuple[tuple[int, int], ...]:
    """Return higher leaves, by slice, for what others cannot use.

    Slices with new members come first, then the lowest.
    """
    workflow, spec = job.workflow, job.spec
    if workflow is None or spec is None or not workflow.is_rolling:
        return ()
    known, bounds = tallies_of(job), bounds_of(job)
    # Of fewer instances, those that are to be removed are part of it.
    free = (workflow.options.batch or job.reach) - sum(bounds.values())
    free += sum(tally.failed for tally in known.values())
    found: list[tuple[int, int]] = []
    for number in _in_order(job, known):
        if free <= 0:
            break
        tally = known.get(number)
        left = tally.left + tally.failed if tally is not None else _assumed(job, number)
        bound = bounds.get(number, 0)
        leave = min(left, bound + free)
        if leave > workflow.leaves.get(number, 0):
            found.append((number, leave))
            free -= max(leave - bound, 0)
    return tuple(found)


def _in_order(job: Job, known: Mapping[int, RolloutTally]) -> list[int]:
    def has_no_new(number: int) -> bool:
        tally = known.get(number)
        return tally is None or not tally.added

    return sorted(range(job.slices), key=lambda number: (has_no_new(number), number))


def _bound(job: Job, workflow: Workflow, *, number: int, tally: RolloutTally | None) -> int:
    leave = workflow.leaves.get(number, 0)
    if tally is not None:
        return min(tally.left + tally.failed, max(leave, tally.current + tally.failed))
    most = max(leave, workflow.carried.get(number, 0))
    return min(_assumed(job, number), most)


def _assumed(job: Job, number: int) -> int:
    """Return how many members a slice has to change, at most."""
    workflow = job.workflow
    assert workflow is not None
    if workflow.members is None:
        return max(job.reach_in(number), min(workflow.carried.get(number, 0), SLICE_SIZE))
    return max(len(workflow.members.get(number, ())), workflow.carried.get(number, 0))
