"""The kind "job", as registered with the runtime. Must hold nothing but the table."""

from __future__ import annotations

from msgspec.structs import replace

from peloton.actors.job import messages as m
from peloton.actors.job.decide import ABSENT, DECIDE, deadline, owed
from peloton.actors.job.facts import FACTS, SliceConfirmed
from peloton.actors.job.goals import pursue
from peloton.actors.job.state import EVOLVE, Job
from peloton.actors.job.totals import TERMINAL_JOB_STATES
from peloton.actors.job.view import get_job, summary
from peloton.runtime.vocabulary import OWN_STATE, Key, Kind

FINISHED_JOBS_MAX = 10_000
"""Finished jobs a shard keeps in memory and in listings; older ones are found by id."""
FINISHED_JOBS_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of them, as encoded: a spec may have a hundred kilobytes."""
FINISHED_JOBS_S = 24 * 3600.0
"""How long they are kept at most: a day, so that a list still has yesterday's."""


def _partition(key: Key) -> str:
    return key.partition("/")[2] + "/0"


def _ended(job: Job, index: object) -> bool:
    # Such a job sends nothing more: all slices have confirmed its goal, and all have ended.
    confirmed = len(job.confirmed) == job.slices
    return job.spec is not None and job.state in TERMINAL_JOB_STATES and confirmed


KIND = Kind(
    name="job",
    group="jobmgr",
    state=Job,
    decide=DECIDE,
    absent=ABSENT,
    pursue=pursue,
    evolve=EVOLVE,
    messages=m.MESSAGES,
    facts=FACTS,
    answers={**m.ANSWERS, 501: m.JobView, 502: m.JobSummary},
    partition=_partition,
    owed=owed,
    lazy=frozenset((SliceConfirmed,)),  # until then the goal is owed, and answered by the slice
    deadline=deadline,
    ended=_ended,
    keep=FINISHED_JOBS_MAX,
    keep_bytes=FINISHED_JOBS_BYTES_MAX,
    keep_s=FINISHED_JOBS_S,
    inspect={m.GetJob: get_job},
    depends=lambda query: OWN_STATE if isinstance(query, m.GetJob) else "",
    queries={501: m.GetJob},
    view=summary,
    lookup=frozenset((m.StopJob, m.DeleteJob, m.AddOverrides, m.CreateJob)),
    fresh=lambda message: isinstance(message, m.CreateJob) and message.drawn,
    unfinished=lambda job: job.spec is None,
)


def kind(finished_jobs_max: int = FINISHED_JOBS_MAX) -> Kind:
    """The kind, with so many finished jobs kept in the memory of a shard."""
    return replace(KIND, keep=finished_jobs_max)
