"""Goal table of a task: state by goal, a step in every cell; and that of its room in the pool.

Turns (state, goal) into the next step, `SETTLED` or `WAITING`. The table is total: a missing pair
would silently mean "do nothing", which is how instances get stuck. Steps must not wait or send by
themselves: they return a decision.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from peloton.actors.delays import throttle_s
from peloton.actors.host.messages import KillRun
from peloton.actors.respool.lot.messages import Ask, Leave
from peloton.actors.task.facts import (
    RoomAsked,
    RoomLeaving,
    TaskForgotten,
    TaskKilling,
    TaskRetried,
    TaskThrottled,
    TaskWithdrawn,
)
from peloton.actors.task.messages import TaskGoals
from peloton.actors.task.state import Room, Task, TaskStates
from peloton.runtime.vocabulary import SETTLED, WAITING, At, Column, Decision, Rest, Send

Step = Callable[[Task], Decision | Rest]
HOST, LOT = Column("host"), Column("lot")


def wait(task: Task) -> Decision | Rest:
    """Somebody else's word is awaited."""
    return WAITING


def settle(task: Task) -> Decision | Rest:
    """Nothing is left to do."""
    return SETTLED


def ask(task: Task) -> Decision | Rest:
    """Stand in the pool's queue, under a number of its own."""
    ask = Send(LOT, Ask(task.ask + 1))
    return Decision(facts=(RoomAsked(),), sends=(ask,), because="room asked of the pool")


def leave(task: Task) -> Decision | Rest:
    """Give the room back, or the place in the queue."""
    leave = Send(LOT, Leave(task.ask))
    return Decision(facts=(RoomLeaving(),), sends=(leave,), because="room given back")


class RoomGoals(enum.Enum):
    """What should be with a task's room in its pool."""

    HELD = "held"
    RETURNED = "returned"


ROOM_TABLE: Mapping[Room, Mapping[RoomGoals, Step]] = {
    Room.NONE: {RoomGoals.HELD: ask, RoomGoals.RETURNED: settle},
    Room.ASKED: {RoomGoals.HELD: wait, RoomGoals.RETURNED: leave},  # for the lot to have it
    Room.QUEUED: {RoomGoals.HELD: wait, RoomGoals.RETURNED: leave},  # for the pool to have room
    Room.ADMITTED: {RoomGoals.HELD: wait, RoomGoals.RETURNED: leave},  # for a host
    Room.LEAVING: {RoomGoals.HELD: ask, RoomGoals.RETURNED: wait},  # for the lot to let go
}


def ask_for_room(task: Task) -> Decision | Rest:
    """Wait for room in the pool and a host; ask first if no ask stands, and any host would do."""
    return WAITING if task.shelved else ROOM_TABLE[task.room][RoomGoals.HELD](task)


def withdraw(task: Task) -> Decision | Rest:
    """End as killed: nothing was launched, so there is nothing to wait for but the lot."""
    return Decision(facts=(TaskWithdrawn(),), because="stopped before it was launched")


def kill(task: Task) -> Decision | Rest:
    """The run may exist: only its host can say that it is over."""
    return Decision(
        facts=(TaskKilling("stopped on request"),),
        sends=(Send(HOST, KillRun(task.run, task.policy.kill_grace_s)),),
        because="stopped on request",
    )


def rest(task: Task) -> Decision | Rest:
    """The instance is where it should be: give the room back."""
    return ROOM_TABLE[task.room][RoomGoals.RETURNED](task)


def forget(task: Task) -> Decision | Rest:
    """The instance is to vanish, once the lot has let go of it."""
    if task.room != Room.NONE:
        return rest(task)
    return Decision(facts=(TaskForgotten(),), because="deleted")


def retry(task: Task) -> Decision | Rest:
    """A new run while tries last; a system failure does not use one up."""
    if not may_retry(task):
        return rest(task)
    ask = Send(LOT, Ask(task.ask + 1))
    return Decision(facts=(TaskRetried(),), sends=(ask,), because="tried again")


def run_again(task: Task) -> Decision | Rest:
    """A service starts again whatever ended it, slower with every failure."""
    if throttle_s(task.failures) > 0:
        return Decision(facts=(TaskThrottled(),), because="throttled after a failure")
    ask = Send(LOT, Ask(task.ask + 1))
    return Decision(facts=(TaskRetried(),), sends=(ask,), because="started again")


def may_retry(task: Task) -> bool:
    """Whether an ended batch task gets another run: a system failure is free up to its limit."""
    return task.free_try or task.failures < task.policy.max_failures


_RUN_ON: Mapping[TaskGoals, Step] = {
    TaskGoals.SUCCEEDED: wait,
    TaskGoals.RUNNING: wait,
    TaskGoals.KILLED: kill,
    TaskGoals.DELETED: kill,
}
_ENDED_BADLY: Mapping[TaskGoals, Step] = {
    TaskGoals.SUCCEEDED: retry,
    TaskGoals.RUNNING: run_again,
    TaskGoals.KILLED: rest,
    TaskGoals.DELETED: forget,
}

TABLE: Mapping[TaskStates, Mapping[TaskGoals, Step]] = {
    TaskStates.WAITING: {
        TaskGoals.SUCCEEDED: ask_for_room,
        TaskGoals.RUNNING: ask_for_room,
        TaskGoals.KILLED: withdraw,
        TaskGoals.DELETED: withdraw,
    },
    TaskStates.LAUNCHING: _RUN_ON,
    TaskStates.LAUNCHED: _RUN_ON,
    TaskStates.STARTING: _RUN_ON,
    TaskStates.RUNNING: _RUN_ON,
    TaskStates.KILLING: {
        TaskGoals.SUCCEEDED: wait,
        TaskGoals.RUNNING: wait,
        TaskGoals.KILLED: wait,
        TaskGoals.DELETED: wait,
    },
    TaskStates.SUCCEEDED: {
        TaskGoals.SUCCEEDED: rest,
        TaskGoals.RUNNING: run_again,
        TaskGoals.KILLED: rest,
        TaskGoals.DELETED: forget,
    },
    TaskStates.FAILED: _ENDED_BADLY,
    TaskStates.LOST: _ENDED_BADLY,
    TaskStates.KILLED: _ENDED_BADLY,
    TaskStates.THROTTLED: {
        TaskGoals.SUCCEEDED: wait,
        TaskGoals.RUNNING: wait,
        TaskGoals.KILLED: withdraw,
        TaskGoals.DELETED: withdraw,
    },
}


def pursue(task: Task, at: At) -> Decision | Rest:
    """The next step towards the goal."""
    return TABLE[task.state][task.goal](task)
