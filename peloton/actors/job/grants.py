"""How many instances each slice may have active at once, if the job as a whole has a limit.

Grants follow from the limit and from what slices report; their sum never allows more than the
limit. Within its grant a slice starts instances without asking. What the job knows of a slice is a
`Use`; a slice never has more active instances than `bound`, and the sum of these is within the
limit:

1. Within its grant a slice cannot have more active than it has instances that have not ended, so
   what it cannot use is granted to others, by `higher`.
2. An order that lets ended instances run again, or adds instances, lowers the slice's grant in
   the same message to what it could use before (`lowered`), so that the bound stays what it was.
3. From then on only a tally made under that order says again what the slice uses: an older one
   does not know of the instances that run again.
4. A grant that is lowered ends nobody: until a tally says that fewer are active, the bound stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from peloton.actors.job.slice.messages import Tally, slices_of
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import ENDED_NAMES
from peloton.actors.task.messages import SLICE_SIZE
from peloton.runtime.vocabulary import Value


class Use(Value, frozen=True, gc=False, array_like=True):
    """What the job knows of a slice: the most instances that are active now, or have not ended."""

    active: int
    unended: int


def limited(spec: JobSpec) -> bool:
    """Return whether the job has a limit below its number of instances."""
    return 0 < spec.maximum_running < spec.instances


def metered(spec: JobSpec) -> bool:
    """Return whether instances begin only when the job allows it: by its limit, or by its
    throttle."""
    return limited(spec) or spec.throttle is not None


def count_of(spec: JobSpec, number: int) -> int:
    """Return the number of instances of one slice."""
    return max(min(SLICE_SIZE, spec.instances - number * SLICE_SIZE), 0)


def first(spec: JobSpec) -> Iterable[tuple[int, int]]:
    """Return the grants a job starts with: up to the limit, the lowest slices first."""
    left = spec.maximum_running
    for number in range(slices_of(spec.instances)):
        if left <= 0:
            return
        grant = min(left, count_of(spec, number))
        yield number, grant
        left -= grant


def unended_of(tally: Tally) -> int:
    """Return how many instances have not ended, by a tally."""
    return sum(count for name, count in tally.counts if name not in ENDED_NAMES)


def use_of(tally: Tally, grant: int) -> Use:
    """Return what a slice uses by its tally, under this grant."""
    unended = unended_of(tally)
    return Use(tally.active if tally.active >= 0 else min(grant, unended), unended)


def bound(grant: int, use: Use) -> int:
    """Return the most instances that a slice may have active, until it is sent another grant."""
    return max(use.active, min(grant, use.unended))


def higher(
    spec: JobSpec, grants: Mapping[int, int], *, uses: Mapping[int, Use]
) -> tuple[tuple[int, int], ...]:
    """Return higher grants, by slice, for what others cannot use; the lowest slices first."""
    numbers = range(slices_of(spec.instances))
    known = {number: uses.get(number) or Use(0, count_of(spec, number)) for number in numbers}
    bounds = {number: bound(grants.get(number, 0), known[number]) for number in numbers}
    free = spec.maximum_running - sum(bounds.values())
    found: list[tuple[int, int]] = []
    for number in numbers:
        if free <= 0:
            break
        most = min(known[number].unended, bounds[number] + free)
        if most > grants.get(number, 0):
            found.append((number, most))
            free -= max(most - bounds[number], 0)
    return tuple(found)


def lowered(grant: int, use: Use, *, more: int) -> tuple[int, Use]:
    """Return grant and use of a slice in which `more` instances are to run: its bound stays."""
    return min(grant, use.unended), Use(bound(grant, use), use.unended + more)


def shared(
    spec: JobSpec, grants: Mapping[int, int], *, uses: Mapping[int, Use], most: int
) -> dict[int, tuple[int, Use]]:
    """Return lower grants within a limit that is lowered to `most`, with unchanged uses.

    The lowest slices keep theirs.
    """
    left, found = most, {}
    for number in range(slices_of(spec.instances)):
        before = grants.get(number, 0)
        use = uses.get(number) or Use(0, count_of(spec, number))
        grant = min(before, use.unended, left)
        left -= grant
        if grant < before:
            found[number] = grant, Use(bound(before, use), use.unended)
    return found
