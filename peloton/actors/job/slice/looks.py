"""Which members of a slice look for a host, and with which shapes."""

from __future__ import annotations

from peloton.actors.job.slice.configs import SpecRow
from peloton.actors.job.slice.state import Slice
from peloton.actors.task.messages import WANTED
from peloton.actors.task.state import Admission, Task, TaskStates
from peloton.placement.messages import Shape
from peloton.runtime.vocabulary import At, Bits

WISH_TIMEOUT_S = 5.0
"""A wish that was not answered for so long is considered lost."""
KEPT_REPEAT_S = 10.0
"""A wish that a placer keeps is repeated after this time: the placer may have been lost."""
REFUSED_REST_S = 0.2
"""Before members wish again whose hosts refuse again and again without news."""
PLACE_RETRY_S = 1.0
"""A wish that no placer keeps, because there are too many, is repeated after this time."""


def looks_for_host(task: Task) -> bool:
    """Return whether the task is ready for a host, or unschedulable.

    An unschedulable task looks on, as only a placer learns of new hosts that could run it.
    """
    may = task.admission == Admission.ADMITTED or task.unschedulable
    return may and task.state == TaskStates.WAITING and task.goal in WANTED


def by_shape(slice_: Slice, members: Bits, at: At) -> list[tuple[SpecRow, Bits]]:
    """Return members by shape, each with a row of it."""
    groups: dict[Shape, tuple[SpecRow, Bits]] = {}
    for spec, raw in at.index.columns.groups("spec", members.raw):
        row = slice_.specs[spec]
        _, known = groups.get(row.shape, (row, Bits()))
        groups[row.shape] = row, known | Bits(raw)
    return list(groups.values())
