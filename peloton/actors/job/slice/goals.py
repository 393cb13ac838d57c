"""Goal table of a slice: its instances by the goal its job gave.

Turns (how far, goal) into the next step. A slice wishes hosts for members that its pool admitted,
and vanishes when it should and nothing of it is left; all else its tasks do by themselves.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

import msgspec

from peloton.actors.job.slice.facts import SliceForgotten
from peloton.actors.job.slice.messages import SliceGone
from peloton.actors.job.slice.state import Slice, WishNotes
from peloton.actors.task.messages import TaskGoals
from peloton.actors.task.state import ENDED, Room, Task, TaskStates
from peloton.placement.messages import PLACER_ANY, Shape, Wish
from peloton.runtime.vocabulary import SETTLED, WAITING, At, Bits, Decision, Rest, Send

WISH_TIMEOUT_S = 5.0
PLACE_RETRY_S = 1.0


class SliceStates(enum.Enum):
    """What is, seen from the crowd."""

    ACTIVE = "active"  # some instance is not where it should be
    ENDED = "ended"  # all have ended, and owe nothing
    EMPTY = "empty"  # no instance exists


def state_of(at: At) -> SliceStates:
    """How far the instances are."""
    if at.index is None or not at.index.present:
        return SliceStates.EMPTY
    return SliceStates.ACTIVE if at.index.where(_acts) else SliceStates.ENDED


def _acts(task: Task) -> bool:
    return task.state not in ENDED or task.room != Room.NONE


def ready_for_host(task: Task) -> bool:
    """Admitted by its pool, wanted, and not launched."""
    wanted = task.goal in (TaskGoals.SUCCEEDED, TaskGoals.RUNNING)
    return task.state == TaskStates.WAITING and task.room == Room.ADMITTED and wanted


def wish(slice_: Slice, at: At) -> Decision | Rest:
    """Ask a placer for hosts, for members that nobody has been asked for."""
    notes: WishNotes = at.notes if at.notes is not None else WishNotes()
    ready = Bits(at.index.where(ready_for_host))
    waiting = notes.wished if at.now < notes.wished_at + WISH_TIMEOUT_S else Bits()
    resting = notes.resting if at.now < notes.retry_at else Bits()
    fresh = ready - waiting - resting
    if not fresh:
        if waiting & ready == notes.wished and resting == notes.resting:
            return WAITING
        # Who launched is wished for no more, else its next try would wait for the old wish's
        # time; and a time that nobody needed has come: kept, it would hide the next one.
        after = msgspec.structs.replace(notes, wished=waiting & ready, resting=resting)
        return Decision(notes=after)
    number = notes.number
    sends = []
    for shape, members in _by_shape(slice_, fresh, at):
        number += 1
        sends.append(Send(PLACER_ANY, Wish(at.key, number, members, shape, notes.refused)))
    after = msgspec.structs.replace(
        notes,
        wished=(waiting & ready) | fresh,
        # The oldest wish dates them all: else a stream of fresh ones would keep a lost one waiting.
        wished_at=notes.wished_at if waiting & ready else at.now,
        number=number,
        resting=resting & ready,
        refused=(),
    )
    because = f"{len(fresh)} instances wait for a host"
    return Decision(sends=tuple(sends), because=because, notes=after)


def _by_shape(slice_: Slice, members: Bits, at: At) -> list[tuple[Shape, Bits]]:
    groups: dict[Shape, Bits] = {}
    for spec, raw in at.index.columns.groups("spec", members.raw):
        shape = slice_.specs[spec].shape
        groups[shape] = groups.get(shape, Bits()) | Bits(raw)
    return list(groups.items())


def settle(slice_: Slice, at: At) -> Decision | Rest:
    """All have ended."""
    return SETTLED


def wait(slice_: Slice, at: At) -> Decision | Rest:
    """The tasks are on their way to their end."""
    return WAITING


def forget(slice_: Slice, at: At) -> Decision | Rest:
    """Nothing is left: tell the job, and vanish."""
    gone = Send(slice_.job, SliceGone(slice_.number))
    return Decision(facts=(SliceForgotten(),), sends=(gone,), because="deleted")


Step = Callable[[Slice, At], Decision | Rest]
TABLE: Mapping[SliceStates, Mapping[TaskGoals, Step]] = {
    SliceStates.ACTIVE: {
        TaskGoals.SUCCEEDED: wish,
        TaskGoals.RUNNING: wish,
        TaskGoals.KILLED: wait,
        TaskGoals.DELETED: wait,
    },
    SliceStates.ENDED: {
        TaskGoals.SUCCEEDED: settle,
        TaskGoals.RUNNING: settle,
        TaskGoals.KILLED: settle,
        TaskGoals.DELETED: wait,
    },
    SliceStates.EMPTY: {
        TaskGoals.SUCCEEDED: wait,
        TaskGoals.RUNNING: wait,
        TaskGoals.KILLED: wait,
        TaskGoals.DELETED: forget,
    },
}


def pursue(slice_: Slice, at: At) -> Decision | Rest:
    """The next step towards the goal."""
    return TABLE[state_of(at)][slice_.goal](slice_, at)


def recall_s(notes: WishNotes) -> float | None:
    """When to look again although nobody said anything."""
    times = []
    if notes.wished:
        times.append(notes.wished_at + WISH_TIMEOUT_S)
    if notes.resting:
        times.append(notes.retry_at)
    return min(times, default=None)
