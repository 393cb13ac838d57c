"""A task: its tries, its throttle, late and repeated words, what it owes.

Must not run more than one task by itself: pools and hosts answer in the simulated world.
"""

from __future__ import annotations

from typing import Any

import pytest

from peloton.actors.delays import throttle_s
from peloton.actors.host.messages import KillRun, Launch, RunSeen
from peloton.actors.job.slice.messages import HostRefused
from peloton.actors.respool.lot.messages import Ask, Leave
from peloton.actors.task import messages as m
from peloton.actors.task.decide import ABSENT, deadline, owed
from peloton.actors.task.kind import KIND
from peloton.actors.task.messages import End, Outcome, Policy, TaskGoals
from peloton.actors.task.state import ON_HOST, Room, Task, TaskStates
from peloton.runtime.core.turn import Outcome as Turn
from peloton.runtime.core.turn import take_turn
from peloton.runtime.vocabulary import At, Due, Key, Message

AT = At(now=100.0, key=Key("task/j/0"), sender=Key("host/h"))
FAILED = Outcome(End.FAILED, 1)
SYSTEM = Outcome(End.FAILED, reason="launch failed", system=True)
LOST = Outcome(End.LOST, system=True)
KILLED = Outcome(End.KILLED)
SUCCEEDED = Outcome(End.SUCCEEDED, 0)


def hears(task: Task, message: Message) -> Turn:
    """One turn of a task."""
    return take_turn(KIND, task, message=message, at=AT)


def said(turn: Turn) -> list[Message]:
    """What leaves."""
    return [send.message for send in turn.sends]


def running(goal: TaskGoals = TaskGoals.SUCCEEDED, **fields: Any) -> Task:
    """A task whose run 1 runs under ask 1."""
    policy = Policy(max_failures=fields.pop("max_failures", 0))
    given = {"run": 1, "ask": 1, "room": Room.ADMITTED, **fields}
    return Task(goal, TaskStates.RUNNING, policy, **given)


def run_again(task: Task) -> Task:
    """The next run of a retried task runs."""
    fields = {"state": TaskStates.RUNNING, "room": Room.ADMITTED}
    return Task(**{**{f: getattr(task, f) for f in task.__struct_fields__}, **fields})


def tries(outcome: Outcome, max_failures: int) -> int:
    """How many runs a batch task has when all end so."""
    task = running(max_failures=max_failures)
    for count in range(1, 1000):
        task = hears(task, m.Ended(task.run, outcome)).state
        if task.state != TaskStates.WAITING:
            return count
        assert task.run == count + 1 and task.ask == count + 1
        task = run_again(task)
    raise AssertionError("it never gives up")


@pytest.mark.parametrize(
    ("outcome", "max_failures", "runs"),
    [
        (FAILED, 0, 1),
        (FAILED, 1, 1),  # one failure, and one is the most
        (FAILED, 3, 3),
        (KILLED, 3, 3),  # not by us: a failure like any other
        (LOST, 0, 5),  # four are free
        (SYSTEM, 0, 5),
        (SYSTEM, 2, 6),  # after the free ones it counts
        (SUCCEEDED, 3, 1),
    ],
)
def test_a_batch_task_is_tried_until_failures_reach_the_most(
    outcome: Outcome, max_failures: int, runs: int
) -> None:
    assert tries(outcome, max_failures) == runs


@pytest.mark.parametrize(
    ("goal", "outcome", "failures", "system_failures"),
    [
        (TaskGoals.SUCCEEDED, FAILED, 1, 0),
        (TaskGoals.SUCCEEDED, SUCCEEDED, 0, 0),
        (TaskGoals.SUCCEEDED, LOST, 0, 1),
        (TaskGoals.RUNNING, SUCCEEDED, 1, 0),  # a service that ends has failed
        (TaskGoals.RUNNING, FAILED, 1, 0),
        (TaskGoals.KILLED, KILLED, 0, 0),
        (TaskGoals.KILLED, FAILED, 0, 0),
        (TaskGoals.DELETED, LOST, 0, 0),
    ],
)
def test_what_counts_as_a_failure(
    goal: TaskGoals, outcome: Outcome, failures: int, system_failures: int
) -> None:
    after = KIND.evolve[type(_run_ended(outcome))](running(goal), _run_ended(outcome))
    assert (after.failures, after.system_failures) == (failures, system_failures)


def _run_ended(outcome: Outcome) -> Any:
    return hears(running(), m.Ended(1, outcome)).facts[0]


def test_the_throttle_doubles_to_an_hour() -> None:
    assert [throttle_s(n) for n in range(9)] == [0, 30, 60, 120, 240, 480, 960, 1920, 3600]
    assert throttle_s(10_000) == 3600


def test_a_service_rests_before_its_next_run() -> None:
    turn = hears(running(TaskGoals.RUNNING, failures=2), m.Ended(1, FAILED))
    assert turn.state.state == TaskStates.THROTTLED
    assert deadline(turn.state) == ("throttle", 120.0)
    after = hears(turn.state, Due("throttle"))
    assert (after.state.state, after.state.run, after.state.ask) == (TaskStates.WAITING, 2, 2)
    assert said(after) == [Ask(2)]


def test_a_start_that_takes_too_long_is_a_system_failure() -> None:
    launched = run_again(running())
    launched = Task(launched.goal, TaskStates.LAUNCHED, launched.policy, 1, 1, Room.ADMITTED)
    assert deadline(launched) == ("start", 180 * 60.0)
    killing = hears(launched, Due("start"))
    assert killing.state.state == TaskStates.KILLING and said(killing) == [KillRun(1, 30.0)]
    assert killing.state.run == 1, "no new run before the last one is known to be over"
    gone = hears(killing.state, m.Gone(1))
    assert (gone.state.state, gone.state.run) == (TaskStates.WAITING, 2)
    assert (gone.state.failures, gone.state.system_failures) == (0, 1)


def test_a_refused_launch_is_a_new_run_under_the_same_ask() -> None:
    task = Task(TaskGoals.SUCCEEDED, TaskStates.LAUNCHING, Policy(), 1, 1, Room.ADMITTED)
    turn = hears(task, m.RunRefused(1, "no room"))
    assert (turn.state.state, turn.state.run) == (TaskStates.WAITING, 2)
    assert (turn.state.ask, turn.state.room, turn.state.failures) == (1, Room.ADMITTED, 0)
    assert said(turn) == [RunSeen(1), HostRefused("no room")]


@pytest.mark.parametrize("goal", [TaskGoals.KILLED, TaskGoals.DELETED])
def test_a_refusal_ends_a_task_that_is_stopped(goal: TaskGoals) -> None:
    task = Task(goal, TaskStates.KILLING, Policy(), 1, 1, Room.ADMITTED)
    turn = hears(task, m.RunRefused(1, "no room"))
    assert turn.state.state == TaskStates.KILLED and Leave(1) in said(turn)


@pytest.mark.parametrize("state", [s for s in TaskStates if s not in ON_HOST])
@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (m.Accepted(1), KillRun(1, 30.0)),
        (m.Started(1), KillRun(1, 30.0)),
        (m.Ended(1, FAILED), RunSeen(1)),
        (m.RunRefused(1, "no"), RunSeen(1)),
    ],
)
def test_a_late_word_of_a_host_changes_nothing(
    state: TaskStates, message: Message, answer: Message
) -> None:
    task = Task(TaskGoals.SUCCEEDED, state, Policy(), run=2, ask=2, room=Room.QUEUED)
    decision = KIND.decide[type(message)](task, message, AT)
    assert not decision.facts
    assert [send.message for send in decision.sends] == [answer]


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (m.Accepted(3), [KillRun(3, 0.0)]),
        (m.Started(3), [KillRun(3, 0.0)]),
        (m.Ended(3, FAILED), [RunSeen(3)]),
        (m.RunRefused(3, "no"), [RunSeen(3)]),
        (m.Admitted(2), [Leave(2)]),
        (m.Left(2), []),
        (m.Gone(2), []),
        (m.Queued(2), []),
    ],
)
def test_what_nobody_is_told_is_answered(message: Message, answer: list[Message]) -> None:
    decision = ABSENT[type(message)](message, AT)
    assert not decision.facts and [send.message for send in decision.sends] == answer


@pytest.mark.parametrize(
    ("ask", "room", "answer"),
    [
        (1, Room.ASKED, []),
        (1, Room.QUEUED, []),
        (1, Room.ADMITTED, []),
        (1, Room.LEAVING, [Leave(1)]),
        (1, Room.NONE, [Leave(1)]),
        (2, Room.QUEUED, [Leave(1)]),
    ],
)
def test_room_that_is_not_wanted_is_given_back(ask: int, room: Room, answer: list[Message]) -> None:
    task = Task(TaskGoals.SUCCEEDED, TaskStates.WAITING, Policy(), 1, ask, room)
    decision = KIND.decide[m.Admitted](task, m.Admitted(1), AT)
    assert [send.message for send in decision.sends] == answer
    assert bool(decision.facts) == (not answer and room != Room.ADMITTED)


@pytest.mark.parametrize(
    ("state", "room", "words"),
    [
        (TaskStates.WAITING, Room.QUEUED, [Ask(4)]),
        (TaskStates.WAITING, Room.ADMITTED, []),
        (TaskStates.LAUNCHING, Room.ADMITTED, [Launch(3)]),
        (TaskStates.LAUNCHED, Room.ADMITTED, [Launch(3)]),
        (TaskStates.RUNNING, Room.ADMITTED, []),
        (TaskStates.KILLING, Room.ADMITTED, [KillRun(3, 30.0)]),
        (TaskStates.SUCCEEDED, Room.LEAVING, [Leave(4)]),
        (TaskStates.SUCCEEDED, Room.NONE, []),
    ],
)
def test_what_is_owed_follows_from_the_state(
    state: TaskStates, room: Room, words: list[Message]
) -> None:
    task = Task(TaskGoals.SUCCEEDED, state, Policy(), 3, 4, room)
    assert [send.message for send in owed(task)] == words


def test_deletion_is_never_taken_back() -> None:
    task = running(TaskGoals.DELETED)
    goal = m.SetTaskGoal(9, TaskGoals.SUCCEEDED, Policy(), 0, Key("lot/j/0/0"))
    assert not KIND.decide[m.SetTaskGoal](task, goal, AT).facts


def test_a_deleted_task_leaves_its_lot_first() -> None:
    task = Task(TaskGoals.SUCCEEDED, TaskStates.WAITING, Policy(), 1, 1, Room.ADMITTED)
    goal = m.SetTaskGoal(2, TaskGoals.DELETED, Policy(), 0, Key("lot/j/0/0"))
    turn = hears(task, goal)
    assert turn.state.room == Room.LEAVING and said(turn) == [Leave(1)]
    assert hears(turn.state, m.Left(1)).state is None


# ---- no host could ever run it ----


def waiting(**fields: Any) -> Task:
    given = {"run": 1, "ask": 1, "room": Room.ADMITTED, **fields}
    return Task(given.pop("goal", TaskGoals.SUCCEEDED), TaskStates.WAITING, Policy(), **given)


def test_what_is_shelved_leaves_its_pool_and_asks_for_nothing() -> None:
    turn = hears(waiting(), m.Shelve(True))
    assert said(turn) == [Leave(1)] and turn.state.shelved
    assert [send.message for send in owed(turn.state)] == [Leave(1)]
    after = hears(turn.state, m.Left(1))
    assert after.state.room == Room.NONE and said(after) == []
    assert said(hears(after.state, m.Shelve(True))) == []


def test_it_asks_anew_when_a_host_could_run_it() -> None:
    turn = hears(waiting(room=Room.NONE, shelved=True), m.Shelve(False))
    assert said(turn) == [Ask(2)]
    assert turn.state.ask == 2 and turn.state.room == Room.ASKED and not turn.state.shelved


def test_a_late_admission_of_what_is_shelved_is_given_back() -> None:
    assert said(hears(waiting(room=Room.LEAVING, shelved=True), m.Admitted(1))) == [Leave(1)]


@pytest.mark.parametrize(
    "task",
    [running(), waiting(room=Room.QUEUED), waiting(goal=TaskGoals.KILLED, room=Room.NONE)],
)
def test_only_who_waits_for_a_host_is_shelved(task: Task) -> None:
    assert not hears(task, m.Shelve(True)).state.shelved


def test_what_is_shelved_can_be_stopped() -> None:
    shelved = waiting(room=Room.NONE, shelved=True)
    turn = hears(shelved, m.SetTaskGoal(2, TaskGoals.KILLED, Policy(), 0, Key("")))
    assert turn.state.state == TaskStates.KILLED and said(turn) == []
