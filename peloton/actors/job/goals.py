"""Goal table of a job: its slices hold its goal and carry it out; the job waits for their word.

Turns (state, goal) into the next step. Only vanishing needs one: all else is owed to the slices,
and said again until each has confirmed it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from peloton.actors.job.facts import JobForgotten
from peloton.actors.job.messages import JobGoals, JobStates
from peloton.actors.job.state import Job
from peloton.runtime.vocabulary import SETTLED, WAITING, At, Decision, Rest

JobStep = Callable[[Job], Decision | Rest]


def wait(job: Job) -> Decision | Rest:
    """The slices are on their way."""
    return WAITING


def settle(job: Job) -> Decision | Rest:
    """The goal is reached, or nothing more is tried."""
    return SETTLED


def vanish(job: Job) -> Decision | Rest:
    """Once no slice is left, nothing is."""
    if len(job.gone) < job.slices:
        return WAITING
    return Decision(facts=(JobForgotten(),), because="deleted")


_ON_THE_WAY: Mapping[JobGoals, JobStep] = {
    JobGoals.SUCCEEDED: wait,
    JobGoals.RUNNING: wait,
    JobGoals.KILLED: wait,
    JobGoals.DELETED: vanish,
}
_OVER: Mapping[JobGoals, JobStep] = {
    JobGoals.SUCCEEDED: settle,
    JobGoals.RUNNING: wait,
    JobGoals.KILLED: settle,
    JobGoals.DELETED: vanish,
}

TABLE: Mapping[JobStates, Mapping[JobGoals, JobStep]] = {
    JobStates.INITIALIZED: _ON_THE_WAY,
    JobStates.PENDING: _ON_THE_WAY,
    JobStates.RUNNING: _ON_THE_WAY,
    JobStates.KILLING: _ON_THE_WAY,
    JobStates.SUCCEEDED: _OVER,
    JobStates.FAILED: _OVER,
    JobStates.KILLED: _OVER,
    JobStates.DELETED: _OVER,
}


def pursue(job: Job, at: At) -> Decision | Rest:
    """The next step towards the goal."""
    if job.spec is None:
        return WAITING  # for the rest of what the client began to say
    return TABLE[job.state][job.goal](job)
