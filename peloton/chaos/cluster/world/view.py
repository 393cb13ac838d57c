"""The read-only view that checks have of a cluster, and whether all its jobs are over.

Turns cells, crowds and machines into a yes or no. A `ClusterView` is anything that has those three.
"""

from __future__ import annotations

from typing import Any, Protocol

from peloton.actors.job.stages import TERMINAL_JOB_STATES
from peloton.actors.task.state import ENDED, Admission
from peloton.chaos.cluster.world.machines import Machines
from peloton.runtime.vocabulary import Key


class ClusterView(Protocol):
    """The state of a cluster, as the newest owners have it."""

    @property
    def machines(self) -> Machines:
        """The truth about runs."""

    def cells(self, kind: str) -> dict[Key, Any]:
        """Return every state of one kind that is in memory, wherever."""

    def crowds(self) -> dict[Key, Any]:
        """Return every crowd of tasks that is in memory."""


def over(view: ClusterView) -> bool:
    """Return whether all jobs have ended, nothing runs, and nobody holds or wants room."""
    if view.machines.running:
        return False
    for job in view.cells("job").values():
        # A job of which only pieces were said is nobody's goal: it is forgotten some time.
        said = job.spec is not None
        if said and (job.state not in TERMINAL_JOB_STATES or job.goal.name == "DELETED"):
            return False
    if any(host.runs for host in view.cells("host").values()):
        return False
    if any(lot.waiting or lot.admitted for lot in view.cells("lot").values()):
        return False
    return all(
        state.state in ENDED and state.admission == Admission.NONE
        for crowd in view.crowds().values()
        for state in crowd.classes
    )
