"""Describes what a draining host waits for.

It waits for runs of services, which their slices end when they can be spared, and then for its
backend, which tells the other users of the machine.
"""

from __future__ import annotations

from collections.abc import Iterable

from peloton.actors.host.ledger import RunSet
from peloton.actors.host.machine_messages import HostUse, UseAtBackend
from peloton.actors.host.stages import RunPhase
from peloton.actors.mentions import job_mention
from peloton.runtime.vocabulary import Key, counted

JOBS_NAMED_MAX = 3
"""Jobs that are named as what a drain waits for."""
NOT_OUT_OF_USE = "its backend has not put it out of use yet"


def why_draining(waiting: Iterable[tuple[Key, int]]) -> str:
    """Return text about the runs, by crowd, that cannot be spared yet."""
    counts: dict[str, int] = {}
    for crowd, count in waiting:
        job = crowd.split("/")[1]
        counts[job] = counts.get(job, 0) + count
    if not counts:
        return ""
    runs = counted(sum(counts.values()), "run goes", many="runs go")
    jobs = ", ".join(map(job_mention, sorted(counts)[:JOBS_NAMED_MAX]))
    more = f" and {len(counts) - JOBS_NAMED_MAX} more" if len(counts) > JOBS_NAMED_MAX else ""
    return f"{runs} on until services can spare them: {jobs}{more}"


def waits_for_slice(some: RunSet) -> bool:
    """Return whether runs on a draining host continue until their slice ends them."""
    return some.asks and some.phase in (RunPhase.ACCEPTED, RunPhase.STARTED)


def why_not_down(waiting: Iterable[tuple[Key, int]], use: UseAtBackend) -> str:
    """Return text about the runs that the host waits for, and what its backend has not done or
    could not do."""
    if use.wanted == HostUse.OUT_OF_USE and use.open:
        return NOT_OUT_OF_USE
    return why_draining(waiting) or use.text
