"""The facts of a job about its workflows; the numbers are in the job's table, and permanent."""

from __future__ import annotations

from peloton.actors.job.slice.task_config import Override
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.workflow.messages import WorkflowOptions, WorkflowStates, WorkflowTypes
from peloton.runtime.vocabulary import Bits, Fact


class WorkflowBegun(Fact, frozen=True, gc=False, array_like=True):
    """A workflow has begun; one that was under way is aborted.

    The job has this spec from now on, and slices these configs of single instances. `members`: of a
    restart, the members that begin a new run, by slice.
    """

    kind: WorkflowTypes
    options: WorkflowOptions
    spec: JobSpec
    at: float
    overrides: tuple[tuple[int, tuple[Override, ...]], ...] = ()
    members: tuple[tuple[int, Bits], ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    opaque: str = ""
    digest: str = ""
    who: str = ""


class WorkflowMoved(Fact, frozen=True, gc=False, array_like=True):
    """The workflow is in this state. `ordered`: by a client, so the job's version rises."""

    state: WorkflowStates
    at: float
    ordered: bool = False
    opaque: str = ""
    because: str = ""
    who: str = ""


class WorkflowUndone(Fact, frozen=True, gc=False, array_like=True):
    """The instances are given the configs before, as a new version.

    Too many instances have failed, or a client ordered it. `ordered`: by a client, so the workflow
    part of the version rises, too.
    """

    at: float
    because: str
    ordered: bool = False
    who: str = ""


class LeavesRaised(Fact, frozen=True, gc=False, array_like=True):
    """How many members of these slices may be under way at once."""

    leaves: tuple[tuple[int, int], ...]


class OpaqueChanged(Fact, frozen=True, gc=False, array_like=True):
    """The client's data of the workflow have changed."""

    opaque: str
    at: float
