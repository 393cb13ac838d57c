"""How many instances each slice may have under way at once, where the job as a whole has a limit.

Turns the limit and what slices said into grants whose sum never allows more than the limit. A
slice that holds a grant needs no leave for each start. Grants must only ever rise: see `higher`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from peloton.actors.job.slice.messages import Tally, slices_of
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.totals import ENDED_NAMES
from peloton.actors.task.messages import SLICE_SIZE


def limited(spec: JobSpec) -> bool:
    """Whether there is a limit that could ever be felt."""
    return 0 < spec.maximum_running < spec.instances


def count_of(spec: JobSpec, number: int) -> int:
    """The instances of one slice."""
    return min(SLICE_SIZE, spec.instances - number * SLICE_SIZE)


def first(spec: JobSpec) -> Iterable[tuple[int, int]]:
    """The grants a job begins with: the lowest slices first, as far as the limit goes."""
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
    """Grants that may rise, by slice, now that instances of other slices have ended.

    No slice is ever told a lower grant. An instance that has ended stays so, hence a slice cannot
    use more of its grant than it has instances left, and its own tally, which stands in the
    journal before anything is made of it, is its confirmation of having shrunk. If ended
    instances are ever started again, that ends: then a grant must be taken back and confirmed
    before another rises, or this happens:

    1. slice 0, granted 10, says that 4 of its 10 last instances have ended: 4 go to slice 1;
    2. the 4 of slice 0 are started again under its old grant of 10;
    3. 14 run where the limit is 10.
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
    """How many instances of a slice have not ended, as far as it has said."""
    tally = tallies.get(number)
    ended = sum(count for name, count in tally.counts if name in ENDED_NAMES) if tally else 0
    return count_of(spec, number) - ended
