"""The kind "job", as registered with the runtime."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from msgspec.structs import replace

from peloton.actors.archive.messages import archive_key
from peloton.actors.job import messages as m
from peloton.actors.job.decide import ABSENT, DECIDE, deadline, owed
from peloton.actors.job.facts import (
    FACTS,
    SliceConfirmed,
)
from peloton.actors.job.folds import EVOLVE
from peloton.actors.job.goals import pursue
from peloton.actors.job.stages import TERMINAL_JOB_STATES
from peloton.actors.job.state import Job
from peloton.actors.job.view import get_job, summary, texts
from peloton.actors.job.waiting import dated_deadline_of
from peloton.actors.job.workflow.messages import ControlWorkflow, ReplaceJob, RestartJob
from peloton.runtime.kinds import Kind, Listing, Retention
from peloton.runtime.vocabulary import OWN_STATE, WAITING, Key

FINISHED_JOBS_MAX = 10_000
"""Finished jobs a shard keeps in memory and in listings; older ones are found by id."""
FINISHED_JOBS_BYTES_MAX = 64_000_000
"""Bytes of them in all shards, as encoded: a spec may have a hundred kilobytes."""
FINISHED_JOBS_S = 24 * 3600.0
"""How long they are kept at most: a day, so that a list still has yesterday's."""


def _partition(key: Key) -> str:
    return key.partition("/")[2] + "/0"


def _ended(job: Job, index: object) -> bool:
    # Such a job sends nothing more: all slices have confirmed its goal, all have ended, and whoever
    # awaited the end knows it, inside and outside.
    confirmed = len(job.confirmed) == job.slices
    # A service that was stopped is to be started again some day, and no policy deletes it.
    spec, ended = job.spec, job.state in TERMINAL_JOB_STATES
    ended = ended and spec is not None and not spec.is_service
    owes = job.versions.keeping or job.versions.leaving
    return ended and confirmed and not (job.waits.keeps or owes)


KIND = Kind(
    name="job",
    group="jobmgr",
    state=Job,
    decide=DECIDE,
    absent=ABSENT,
    pursue=pursue,
    at_rest=WAITING,
    evolve=EVOLVE,
    messages=m.MESSAGES,
    facts=FACTS,
    answers={**m.ANSWERS, 501: m.JobView, 502: m.JobSummary},
    partition=_partition,
    owed=owed,
    lazy=frozenset((SliceConfirmed,)),  # until then the goal is owed, and answered by the slice
    deadline=deadline,
    moment=dated_deadline_of,
    ended=_ended,
    inspect={m.GetJob: get_job},
    depends=lambda query: OWN_STATE if isinstance(query, m.GetJob) else "",
    queries={501: m.GetJob},
    listing=Listing(summary=summary, texts=texts, ranked=("created_at", "job")),
    lookup=frozenset(
        (
            m.StopJob,
            m.DeleteJob,
            m.AddOverrides,
            m.CreateJob,
            m.StartInstances,
            m.StartJob,
            m.AddChange,
            m.UpdateJob,
            ReplaceJob,
            RestartJob,
            ControlWorkflow,
            m.ForgetJob,
            m.AwaitEnd,
            m.MakeJob,
            m.SpecStored,
        )
    ),  # fmt: skip
    fresh=lambda message: isinstance(message, m.CreateJob) and message.drawn,
    unfinished=lambda job: job.spec is None,
)


def _parting(shards: int) -> Callable[[Key, Job], m.LeaveMemory | None]:
    archives = [m.LeaveMemory(archive_key(number)) for number in range(shards)]

    def parting(key: Key, job: Job) -> m.LeaveMemory | None:
        if job.period and job.archived_end == job.completed_at:
            return None
        return archives[zlib.crc32(_partition(key).encode()) % shards]

    return parting


def kind(
    shards: int,
    *,
    finished_jobs_max: int = FINISHED_JOBS_MAX,
    finished_bytes_max: float = FINISHED_JOBS_BYTES_MAX,
    archive_after_s: float = FINISHED_JOBS_S,
) -> Kind:
    """Return the kind, for a cluster whose jobmgr group has `shards` shards.

    So many finished jobs are kept in the memory of a shard, for so many seconds at most, and so
    many bytes of them in that of all shards: an even part in each.
    """
    retention = Retention(
        count=finished_jobs_max,
        size=finished_bytes_max / shards,
        seconds=archive_after_s,
        ended_at=lambda job: job.completed_at,
        parting=_parting(shards),
    )
    return replace(KIND, retention=retention)
