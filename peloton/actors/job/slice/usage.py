"""When the instances of a slice began and ended, and what their ended runs used.

The usage is a sum per kind of resource: the limit of an instance times the seconds that its runs
ran, as the original counts. What a process really used is not known here. It takes one pass over
the columns, so it is made for tallies, and never for a single end.
"""

from __future__ import annotations

from typing import Any

from peloton.actors.job.slice.state import Slice
from peloton.actors.resources import UNIT, Resources
from peloton.runtime.vocabulary import members_of

USAGE_KINDS = ("cpu", "memory", "gpu")
"""The kinds of which clients see the usage: those of the original."""


def times(slice_: Slice, index: Any) -> tuple[float, ...]:
    """Return the first start, the last end, and the usage of ended runs.

    The tuple is cut to the first start, or to nothing, if there is no more: a tally is journaled.
    """
    columns, present = index.columns, index.present
    starts = columns.values("started_at", present)
    began = [at for at in starts if at is not None]
    if not began:
        return ()
    ends = columns.values("ended_at", present)
    ended = [at for at in ends if at is not None]
    if not ended:
        return (min(began),)
    before = columns.values("ran_s", present)
    # As `ran_s`, but without a call for each of a thousand members.
    seconds = [
        (past or 0.0) + (end - start if start and end and end > start else 0.0)
        for start, end, past in zip(starts, ends, before, strict=True)
    ]
    groups = columns.groups("spec", present)
    if len(groups) > 1:
        by_member = dict(zip(members_of(present), seconds, strict=True))
        totals = [(spec, sum([by_member[one] for one in members_of(raw)])) for spec, raw in groups]
    else:
        totals = [(groups[0][0], sum(seconds))]
    used = [usage(slice_.specs[spec or 0].run.resources, total) for spec, total in totals]
    sums = [*map(sum, zip(*used, strict=True))]
    while sums and not sums[-1]:
        sums.pop()  # most use no gpu, and a tally is journaled
    return (min(began), max(ended), *sums)


def ran_s(started_at: float | None, ended_at: float | None, *, before: float | None) -> float:
    """Return the seconds that the ended runs of an instance ran; `before` are those of earlier
    runs."""
    last = 0.0 if started_at is None or ended_at is None else max(ended_at - started_at, 0.0)
    return last + (before or 0.0)


def usage(resources: Resources, seconds: float) -> tuple[float, ...]:
    """Return the amounts of `USAGE_KINDS`, each times these seconds."""
    amounts = resources.cpu + resources.slack, resources.memory, resources.gpu
    return tuple([amount * seconds / UNIT for amount in amounts])
