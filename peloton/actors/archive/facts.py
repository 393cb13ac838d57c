"""What an archive and its periods journal. Numbers are permanent, because journals hold them.

A fact must not hold more than its fold needs, nor ever change its meaning.
"""

from __future__ import annotations

from peloton.actors.job.messages import JobSummary
from peloton.runtime.vocabulary import Fact, Key


class JobArchived(Fact, frozen=True, gc=False, array_like=True):
    """A period has this job."""

    summary: JobSummary


class JobDropped(Fact, frozen=True, gc=False, array_like=True):
    """A period has this job no more."""

    job: Key


class PeriodNoted(Fact, frozen=True, gc=False, array_like=True):
    """An archive knows how many jobs a period has; none: it is gone."""

    number: int
    jobs: int
    at: float
    forgotten: bool = False


class PolicyApplied(Fact, frozen=True, gc=False, array_like=True):
    """An archive has looked for periods that are too old.

    `tried`: of which periods how many jobs have been ordered to go and had not gone before. `over`:
    those of all have been.
    """

    at: float
    tried: tuple[tuple[int, int], ...] = ()
    over: bool = False


FACTS: dict[int, type] = {1: JobArchived, 2: JobDropped, 3: PeriodNoted, 4: PolicyApplied}
