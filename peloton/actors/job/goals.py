"""Goal table of a job: its slices carry out its goal, and the job waits for their reports.

Only deletion needs a step: all else is owed to the slices and sent again until each has confirmed
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from peloton.actors.job.facts import JobForgotten
from peloton.actors.job.stages import JobGoals, JobStates
from peloton.actors.job.state import Job
from peloton.runtime.vocabulary import SETTLED, WAITING, At, Decision, Rest

JobStep = Callable[[Job], Decision | Rest]


def wait(job: Job) -> Decision | Rest:
    """Return that the slices are working towards the goal."""
    return WAITING


def settle(job: Job) -> Decision | Rest:
    """Return that the goal is reached, or nothing more is tried."""
    return SETTLED


def finish_deletion(job: Job) -> Decision | Rest:
    """Forget the job once no slice is left, no other job waits for its end, its name is free,
    and no earlier spec is kept."""
    if len(job.gone) < job.slices or job.waits.keeps or job.versions.owes:
        return WAITING
    return Decision(facts=(JobForgotten(),), because="deleted")


_ACTIVE: Mapping[JobGoals, JobStep] = {
    JobGoals.SUCCEEDED: wait,
    JobGoals.RUNNING: wait,
    JobGoals.KILLED: wait,
    JobGoals.DELETED: finish_deletion,
}
_ENDED: Mapping[JobGoals, JobStep] = {
    JobGoals.SUCCEEDED: settle,
    JobGoals.RUNNING: wait,
    JobGoals.KILLED: settle,
    JobGoals.DELETED: finish_deletion,
}

TABLE: Mapping[JobStates, Mapping[JobGoals, JobStep]] = {
    JobStates.INITIALIZED: _ACTIVE,
    JobStates.PENDING: _ACTIVE,
    JobStates.RUNNING: _ACTIVE,
    JobStates.KILLING: _ACTIVE,
    JobStates.SUCCEEDED: _ENDED,
    JobStates.FAILED: _ENDED,
    JobStates.KILLED: _ENDED,
    JobStates.DELETED: _ENDED,
}


def pursue(job: Job, at: At) -> Decision | Rest:
    """Take the next step towards the goal."""
    if job.spec is None:
        return WAITING  # for the remaining pieces of the job
    return TABLE[job.state][job.goal](job)
