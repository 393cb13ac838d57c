"""Facts of an archive and its periods. Numbers and meanings are permanent: journals hold them."""

from __future__ import annotations

from peloton.actors.job.messages import JobSummary
from peloton.runtime.vocabulary import Fact, Key


class JobArchived(Fact, frozen=True, gc=False, array_like=True):
    """A period has this job."""

    summary: JobSummary


class JobDropped(Fact, frozen=True, gc=False, array_like=True):
    """A period no longer has this job."""

    job: Key


class PeriodNoted(Fact, frozen=True, gc=False, array_like=True):
    """A period has so many jobs, as its archive knows; none means that the period is gone."""

    number: int
    jobs: int
    at: float
    forgotten: bool = False


class PolicyApplied(Fact, frozen=True, gc=False, array_like=True):
    """An archive has looked for periods that are too old.

    `tried`: how many jobs of which periods were ordered to go and have not gone before. `over`: all
    that are old enough were ordered.
    """

    at: float
    tried: tuple[tuple[int, int], ...] = ()
    over: bool = False


FACTS: dict[int, type] = {1: JobArchived, 2: JobDropped, 3: PeriodNoted, 4: PolicyApplied}
