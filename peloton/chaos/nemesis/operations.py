"""Requests and answers of clients, as the values of histories.

Turns sizes into specs, and what the SDK returns or raises into `JobCreated`, `JobView`, `Absent`
and their like. An unknown answer is an error.
"""

from __future__ import annotations

from typing import Any, cast

from peloton.actors.job.messages import JobSummary, JobView, job_key
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import TERMINAL_JOB_STATES, JobGoals, JobStates
from peloton.chaos.cluster.world.history import Asked, Operation
from peloton.chaos.nemesis.ground import HOST_CPUS, HOSTS
from peloton.runtime.vocabulary import Absent, Key, Refused
from peloton.sdk.errors import NotFound, PelotonError, ServiceUnavailable, TryLater
from peloton.sdk.jobs import JobQuery

JOBS_MAX = 100_000
EVERYTHING = JobQuery(limit=JOBS_MAX, total_max=JOBS_MAX)
POOL = "/work"
MARK = "ran"
"""The file in its sandbox in which a run notes when it begins and when it ends."""
BEGUN, ENDED = "begun", "ended"
DYING_S = 0.5
"""How long a run takes to end when it is asked to: time for another one to overlap with it."""

# ---- requests ----


def pool_spec() -> dict[str, Any]:
    """Return a pool that may use the whole cluster, so that hosts have to refuse, too."""
    limits = {"cpu": HOST_CPUS * len(HOSTS), "memory": 8192.0, "disk": 80000.0, "gpu": 0.0}
    resources = [
        {"kind": kind, "reservation": 0, "limit": limit, "share": 1}
        for kind, limit in limits.items()
    ]
    return {"name": POOL.strip("/"), "resources": resources}


def job_spec(instances: int, *, lasts_s: float, cpus: float) -> dict[str, Any]:
    """Return a job of processes that note their beginning and their end, and succeed.

    A note waits for a full disk. A process that is asked to end takes its time.
    """
    begun, ended = (
        f"until date '+{what} %s.%N' 2>/dev/null >> {MARK}; do sleep 0.2; done"
        for what in (BEGUN, ENDED)
    )
    die = f'trap "" TERM; sleep {DYING_S}; {ended}; exit 143'
    script = f"die() {{ {die}; }}; trap die TERM; {begun}; sleep {lasts_s} & wait; {ended}"
    return {
        "name": "nemesis",
        "type": "BATCH",
        "owningTeam": "nemesis",
        "instanceCount": instances,
        "defaultConfig": {
            "resource": {"cpuLimit": cpus, "memLimitMb": 1.0, "diskLimitMb": 1.0},
            "command": {"shell": True, "value": script},
        },
    }


# ---- answers ----


def uncertain(error: PelotonError) -> bool:
    """Return whether the request may have had an effect, or may yet."""
    return isinstance(error, ServiceUnavailable | TryLater)


def raised(operation: Operation, error: PelotonError) -> Any:
    """Return the definite answer of an exception."""
    if isinstance(error, NotFound) and operation.what is not Asked.CREATE:
        return Absent(operation.job)
    return Refused(error.kind or type(error).__name__, error.message)


def has_ended(answer: Any) -> bool:
    """Return whether the answer of a get is a job that has ended."""
    return isinstance(answer, JobView) and answer.summary.state in TERMINAL_JOB_STATES


def view(answer: Any) -> JobView:
    """Return the answer of a get, as a view."""
    runtime = answer.jobInfo.runtime
    return JobView(
        summary=_summary(answer.jobInfo.id.value, runtime),
        spec=cast(JobSpec, None),  # no history uses it
        goal=JobGoals.SUCCEEDED,
        desired_state_version=runtime.desiredStateVersion,
        slices=1,
        because="",
    )


def listing(answer: Any) -> tuple[JobSummary, ...]:
    """Return the answer of a listing, as summaries."""
    return tuple(_summary(line.id.value, line.runtime) for line in answer.results)


def _summary(job_id: str, runtime: Any) -> JobSummary:
    counts = tuple(sorted((name, n) for name, n in runtime.taskStats.items() if n))
    return JobSummary(
        job=job_key(job_id),
        name="",
        owner="",
        state=JobStates(runtime.state),
        instances=sum(count for _, count in counts),
        pool=Key(""),
        pool_path="",
        created_at=0.0,
        started_at=0.0,
        completed_at=0.0,
        updated_at=0.0,
        labels=(),
        job_type="",
        counts=counts,
    )
