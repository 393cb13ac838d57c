"""How many instances each slice may have active at once, if the job as a whole has a limit.

Turns the limit and the tallies of slices into grants whose sum never allows more than the limit.
Within its grant a slice starts instances without asking. Grants must only ever rise: see `higher`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from peloton.actors.job.slice.messages import Tally, slices_of
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.totals import ENDED_NAMES
from peloton.actors.task.messages import SLICE_SIZE


def limited(spec: JobSpec) -> bool:
    """Whether the job has a limit below its number of instances."""
    return 0 < spec.maximum_running < spec.instances


def count_of(spec: JobSpec, number: int) -> int:
    """The instances of one slice."""
    return min(SLICE_SIZE, spec.instances - number * SLICE_SIZE)


def first(spec: JobSpec) -> Iterable[tuple[int, int]]:
    """The grants a job starts with: up to the limit, the lowest slices first."""
    left = spec.maximum_running
    for number in range(slices_of(spec.instances)):
        if left <= 0:
            return
        grant = min(left, count_of(spec, number))
        yield number, grant
        left -= grant


def higher(
    spec: JobSpec, grants: Mapping[int, int], *, tallies: Mapping[int, Tally]
) -> tuple[tuple[int, int], ...]:
    """Higher grants, by slice, for the instances of other slices that have ended.

    No slice is ever sent a lower grant. An instance that has ended stays ended, so a slice cannot
    use more of its grant than it has instances left; its own tally, which is journaled before it
    is used here, confirms that it uses less. If ended instances are ever to be restarted, this no
    longer holds: a grant must then be lowered and confirmed before another rises, or this happens:

    1. slice 0, granted 10, reports that 4 of its last 10 instances have ended: 4 go to slice 1;
    2. the 4 of slice 0 are restarted under its old grant of 10;
    3. 14 run though the limit is 10.
    """
    numbers = range(slices_of(spec.instances))
    left = {number: _left(spec, number, tallies=tallies) for number in numbers}
    free = spec.maximum_running
    free -= sum(min(grants.get(number, 0), left[number]) for number in numbers)
    found: list[tuple[int, int]] = []
    for number in numbers:
        held = grants.get(number, 0)
        more = min(free, left[number] - held)
        if more > 0:
            found.append((number, held + more))
            free -= more
    return tuple(found)


def _left(spec: JobSpec, number: int, *, tallies: Mapping[int, Tally]) -> int:
    """How many instances of a slice have not ended, by its last tally."""
    tally = tallies.get(number)
    ended = sum(count for name, count in tally.counts if name in ENDED_NAMES) if tally else 0
    return count_of(spec, number) - ended
