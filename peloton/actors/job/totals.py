"""The state of a job from the states of its instances.

The tallies of slices are summed, and the sums give the job's state by the original's rules, first
match wins.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterable, Mapping

from peloton.actors.job.slice.messages import BETWEEN_ATTEMPTS, Tally
from peloton.actors.job.stages import ENDED_NAMES, TERMINAL_JOB_STATES, JobStates

BEGUN = (
    *("STARTING", "RUNNING", "SUCCEEDED", "FAILED", "LOST", "PREEMPTING", "KILLING"),
    BETWEEN_ATTEMPTS,
)


def total(tallies: Iterable[Tally]) -> dict[str, int]:
    """Return instances by state, over all slices, in no order."""
    sums: dict[str, int] = {}
    for tally in tallies:
        for name, count in tally.counts:
            sums[name] = sums.get(name, 0) + count
    return sums


def used(tallies: Iterable[Tally]) -> tuple[float, ...]:
    """Return the usage of all slices, by kind, without kinds of which nothing is used at the
    end."""
    some = [tally.times[2:] for tally in tallies if len(tally.times) > 2]
    if len(some) < 2:
        return some[0] if some else ()
    columns = itertools.zip_longest(*some, fillvalue=0.0)
    return tuple(math.fsum(column) for column in columns)  # exact, so in any order the same


def by_version(tallies: Iterable[Tally]) -> tuple[tuple[int, int], ...]:
    """Return instances by the version of their config, over all slices."""
    sums: dict[int, int] = {}
    for tally in tallies:
        alike = ((1, sum(count for _, count in tally.counts)),)
        for version, count in tally.versions or alike:
            sums[version] = sums.get(version, 0) + count
    return tuple(sorted(sums.items()))


class Ending(enum.Enum):
    """How a job ends once all its instances have ended."""

    AS_ITS_RUNS = 1
    NEVER = 2  # a service, of which some instances are to run: what has ended of it begins anew
    KILLED = 3  # a service that was stopped, whatever its runs made of their end


def job_state_of(
    counts: Mapping[str, int],
    instances: int,
    *,
    known: JobStates,
    controller: str = "",
    ends: Ending = Ending.AS_ITS_RUNS,
) -> JobStates:
    """Return the job's state.

    `controller` is the state of instance 0 if it decides the end. `instances`: 0 of a daemon job,
    which has as many as there are hosts, and of a service that had a workflow, which has as many as
    that has added. The original calls a service FAILED or SUCCEEDED while all of its instances are
    between two runs.
    """
    if ends == Ending.NEVER:
        return JobStates.RUNNING if counts.get("RUNNING", 0) else JobStates.PENDING
    if not instances:
        # It was stopped. Its slices have told what they had, or are awaited.
        over = all(name in ENDED_NAMES for name, count in counts.items() if count)
        return JobStates.KILLED if over else JobStates.KILLING
    there = sum(counts.values())
    if there < instances:
        # Some slices have not opened yet: the job is being created, or was stopped meanwhile.
        return JobStates.KILLING if known == JobStates.KILLING else JobStates.INITIALIZED
    # Those that are to be removed are more than the spec says.
    state = _by_counts(counts, there, known=known)
    if ends == Ending.KILLED and state in TERMINAL_JOB_STATES:
        return JobStates.KILLED
    if state not in TERMINAL_JOB_STATES or not controller:
        return state
    if controller == "SUCCEEDED":
        return JobStates.SUCCEEDED
    return JobStates.FAILED if controller in ("FAILED", "LOST") else JobStates.KILLED


def _by_counts(counts: Mapping[str, int], instances: int, *, known: JobStates) -> JobStates:
    succeeded, killed = counts.get("SUCCEEDED", 0), counts.get("KILLED", 0)
    failed = counts.get("FAILED", 0) + counts.get("LOST", 0)
    if succeeded >= instances:
        return JobStates.SUCCEEDED
    if succeeded + failed >= instances:
        return JobStates.FAILED
    if killed and succeeded + failed + killed >= instances:
        return JobStates.KILLED
    if known == JobStates.KILLING:
        return JobStates.KILLING
    return JobStates.RUNNING if counts.get("RUNNING", 0) else JobStates.PENDING


def has_begun(counts: Mapping[str, int]) -> bool:
    """Return whether any instance has ever been started."""
    for name, count in counts.items():  # noqa: SIM110 (asked at each tally: no generator)
        if count and name in BEGUN:
            return True
    return False


def began(counts: Mapping[str, int], known: float, *, at: float, times: tuple[float, ...]) -> float:
    """Return the first start of an instance; until it is told, the time of the first report of a
    start."""
    if not has_begun(counts):
        return known
    known = known or at
    return min(known, times[0]) if times and times[0] else known
