"""The state of a workflow, and what follows from it."""

from __future__ import annotations

import immutables

from peloton.actors.job.slice.rollout_messages import RolloutOrder, RolloutTally
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.volume_sizes import VolumeSizes
from peloton.actors.job.workflow.messages import (
    WorkflowOptions,
    WorkflowStates,
    WorkflowTypes,
    WorkflowView,
)
from peloton.runtime.vocabulary import Bits, Value

EVENTS_KEPT_MAX = 20
ENDED_KEPT_MAX = 10
"""Workflows of a job that have ended and are kept, the last ones: as in the original."""
WORKFLOW_OVER = frozenset(
    (
        WorkflowStates.SUCCEEDED,
        WorkflowStates.ABORTED,
        WorkflowStates.FAILED,
        WorkflowStates.ROLLED_BACK,
    )
)
ROLLING = frozenset((WorkflowStates.ROLLING_FORWARD, WorkflowStates.ROLLING_BACKWARD))
TEXTS = {
    WorkflowTypes.UPDATE: "Job configuration updated via API",
    WorkflowTypes.RESTART: "restarted on request",
    WorkflowTypes.START: "Task start API request",
    WorkflowTypes.STOP: "Task stop API request",
}


class Progress(Value, frozen=True, gc=False, array_like=True):
    """Instances that a workflow is to change, by how far they are; and how many are new, updated
    and removed."""

    waiting: int = 0
    current: int = 0
    done: int = 0
    failed: int = 0
    added: int = 0
    updated: int = 0
    removed: int = 0

    def plus(self, tally: RolloutTally) -> Progress:
        """Return the progress with that of one more slice."""
        return Progress(
            self.waiting + tally.waiting,
            self.current + tally.current + tally.fallen,
            self.done + tally.done - tally.fallen,
            self.failed + tally.failed,
            self.added + tally.added,
            self.updated + tally.updated,
            self.removed + tally.removed,
        )


class Workflow(Value, frozen=True, gc=False, array_like=True):
    """A workflow of a job.

    `number` is that of its present rollout, which a rollback changes; `first` is that of the first
    one, by which clients know the workflow. `leaves`: how many members of a slice may be under way
    at once. `carried`: how many may be from the workflow before, which this one replaced.
    """

    number: int
    kind: WorkflowTypes
    options: WorkflowOptions
    version: int
    previous_version: int
    created_at: float
    state: WorkflowStates = WorkflowStates.INITIALIZED
    previous: WorkflowStates = WorkflowStates.INITIALIZED
    members: immutables.Map[int, Bits] | None = None  # of all but updates, by slice
    ranges: tuple[tuple[int, int], ...] = ()
    leaves: immutables.Map[int, int] = immutables.Map()
    carried: immutables.Map[int, int] = immutables.Map()
    opaque: str = ""
    digest: str = ""  # of the spec and the configs that it rolls to
    before: JobSpec | None = None  # while it may go back
    undone: int = 0  # the rollout that it takes back, once it does
    updated_at: float = 0.0
    completed_at: float = 0.0
    events: tuple[tuple[WorkflowStates, float], ...] = ()
    ended: Progress | None = None  # how far it was, once it is over
    because: str = ""  # why it failed
    first: int = 0
    progressed_at: float = 0.0  # when an instance was last through, or it began to roll
    sizes: VolumeSizes | None = None  # those of the job as it was before, while it may go back

    @property
    def is_over(self) -> bool:
        """Return whether the workflow changes nothing more."""
        return self.state in WORKFLOW_OVER

    @property
    def is_rolling(self) -> bool:
        """Return whether the workflow may begin with instances."""
        return self.state in ROLLING

    @property
    def text(self) -> str:
        """Return what instances are told of the workflow."""
        return TEXTS[self.kind] + (" due to rollback" if self.undone else "")

    def order(self, number: int) -> RolloutOrder:
        """Return what a slice is ordered."""
        return RolloutOrder(
            number=self.number,
            config_version=self.version,
            because=self.text,
            leave=self.leaves.get(number, 0) if self.is_rolling else 0,
            over=self.is_over,
            members=None if self.members is None else self.members.get(number, Bits()),
            max_attempts=self.options.max_attempts,
            starts=self.options.starts,
            back=self.undone,
            keeps=self.before is not None,
            quiet=self.kind == WorkflowTypes.START,
            stops=self.kind == WorkflowTypes.STOP,
            in_place=self.options.in_place,
            healthy_s=self.options.healthy_s,
        )

    def view(self, progress: Progress) -> WorkflowView:
        """Return the workflow as clients see it, with what is known of its slices."""
        found = self.ended or progress
        return WorkflowView(
            number=self.first,
            kind=self.kind,
            state=self.state,
            previous=self.previous,
            options=self.options,
            version=self.version,
            previous_version=self.previous_version,
            total=found.waiting + found.current + found.done + found.failed,
            done=found.done,
            failed=found.failed,
            current=found.current,
            added=found.added,
            updated=found.updated,
            ranges=self.ranges,
            opaque=self.opaque,
            created_at=self.created_at,
            updated_at=self.updated_at,
            completed_at=self.completed_at,
            events=self.events,
            because=self.because,
            removed=found.removed,
            rollouts=(self.first, self.number) if self.undone else (self.first,),
        )
