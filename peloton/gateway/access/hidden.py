"""Answers about objects that the caller may not see: the same as about objects that do not exist.

A message to an actor is answered as by an actor that does not exist, without sending it: any
difference would tell the caller that there is something.
"""

from __future__ import annotations

from typing import Any

from peloton.actors.job.messages import DeleteJob, StartInstances, StartJob, StopJob
from peloton.actors.job.slice.messages import LeaveVolume, VolumeLeft
from peloton.actors.job.workflow.messages import ControlWorkflow, RestartJob
from peloton.actors.respool.messages import CreatePool, DeletePool, UpdatePool
from peloton.actors.respool.rules import NOT_FOUND, check_orphan
from peloton.actors.schedule.messages import DeleteSchedule, PauseSchedule
from peloton.runtime.vocabulary import Key, Message, Query, Refused

OF_JOBS = (
    ControlWorkflow, DeleteJob, RestartJob, StartInstances, StartJob, StopJob,
)  # fmt: skip
"""Commands that calls give to a job without having read it."""


def answer_of_nothing(message: Message | Query) -> Any:
    """Return the answer; None to a query, which no existing actor answers with."""
    if isinstance(message, Query):
        return None
    if isinstance(message, CreatePool):
        # It is the parent that does not exist; errors of the config itself come first.
        return check_orphan(message.config)
    if isinstance(message, PauseSchedule | DeleteSchedule):
        return Refused(NOT_FOUND, "schedule not found", "name")
    if isinstance(message, LeaveVolume):
        return VolumeLeft(Key(""))
    if isinstance(message, UpdatePool | DeletePool):
        return Refused(NOT_FOUND, "resource pool not found", "id")
    assert isinstance(message, OF_JOBS), message
    return Refused(NOT_FOUND, "job not found", "id")
