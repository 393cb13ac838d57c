"""Which members of a slice give up what they hold, and what becomes of a task that does.

The orders say how many, and are made by hand.
"""

from __future__ import annotations

import pytest

from peloton.actors.host.messages import KillRun
from peloton.actors.job.slice.evicting import gaining
from peloton.actors.job.slice.kind import kind as slice_kind
from peloton.actors.job.slice.messages import Evict
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.lot.messages import Enqueue, Yielded
from peloton.actors.task import facts as f
from peloton.actors.task import messages as m
from peloton.actors.task.kind import KIND as TASK
from peloton.actors.task.state import EVOLVE, Admission, Task, TaskStates
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Key, Message

SLICE = slice_kind()

ONE = Resources(UNIT)
H1, H2, H3 = (Key(f"host/h{number}") for number in (1, 2, 3))
NONE = Resources()
PREEMPTED, FOR_GOOD = m.KillCause.PREEMPTED, m.KillCause.PREEMPTED_FOR_GOOD


def cpus(count: float) -> Resources:
    return Resources(round(count * UNIT))


@pytest.mark.parametrize(
    ("victims", "free", "need", "most", "expected"),
    [
        # One makes room for one: in the order given.
        ([(3, H1), (1, H2), (2, H1)], {H1: 0, H2: 0}, 1, 2, [3, 1]),
        ([(3, H1), (1, H2)], {H1: 0, H2: 0}, 1, 9, [3, 1]),
        # A task of two needs two of one host: the first host on which two have been found.
        ([(5, H1), (4, H2), (3, H2), (2, H1)], {H1: 0, H2: 0}, 2, 2, [4, 3]),
        ([(5, H1), (4, H2), (3, H2), (2, H1)], {H1: 0, H2: 0}, 2, 4, [4, 3, 5, 2]),
        # What the host has free counts once.
        ([(5, H1), (4, H1), (3, H1)], {H1: 1}, 2, 3, [5, 4, 3]),
        # Too few there, too few allowed, or a host that takes no tasks: no gain.
        ([(5, H1), (4, H2)], {H1: 0, H2: 0}, 2, 2, []),
        ([(5, H1), (4, H1)], {H1: 0}, 2, 1, []),
        ([(5, H1), (4, H2)], {H2: 0}, 1, 2, [4]),
        ([(5, H1), (4, H1)], {H1: 0}, 3, 2, []),
    ],
)
def test_only_those_that_make_room_are_chosen(
    victims: list[tuple[int, Key]],
    free: dict[Key, int],
    need: int,
    most: int,
    expected: list[int],
) -> None:
    rooms: dict[Key, Resources | None] = {H1: None, H2: None}
    rooms.update({host: cpus(count) for host, count in free.items()})
    assert gaining(victims, rooms, size=ONE, need=cpus(need), most=most) == expected


def test_a_slice_that_is_gone_answers() -> None:
    at = At(now=1.0, key=Key("slice/j/0"), sender=Key("lot/j/0/0"))
    turn = take_turn(SLICE, None, message=Evict(7, 3, NONE, "why"), at=at)
    (send,) = turn.sends
    assert send.message == Yielded(7, (), "the slice is gone")


def task(state: TaskStates, admission: Admission = Admission.ADMITTED, **rest: object) -> Task:
    return Task(m.TaskGoals.SUCCEEDED, state, m.Policy(max_failures=3), 1, 1, admission, **rest)  # type: ignore[arg-type]


def receive(state: Task, message: Message) -> tuple[Task, list[Message]]:
    at = At(now=1.0, key=Key("task/j/0"), sender=H1, members=Bits.of(0))
    turn = take_turn(TASK, state, message=message, at=at)
    return turn.state, [send.message for send in turn.sends]


def test_a_run_that_is_preempted_ends_with_its_grace_and_is_free() -> None:
    killing, sends = receive(task(TaskStates.RUNNING), m.GiveWay(PREEMPTED, "for /b"))
    assert sends == [KillRun(1, 30.0, "for /b")]
    assert (killing.state, killing.cause) == (TaskStates.KILLING, m.KillCause.PREEMPTED)
    outcome = m.RunOutcome(m.End.FAILED, 143, "")
    ended, sends = receive(killing, m.Ended(1, outcome))
    assert Enqueue(2) in sends, "a new run, under a new ticket"
    assert (ended.state, ended.run, ended.failures) == (TaskStates.WAITING, 2, 0)
    assert ended.system_failures == 0


def test_what_it_is_told_of_its_end_is_the_reason() -> None:
    killing, _ = receive(task(TaskStates.RUNNING), m.GiveWay(PREEMPTED, "for /b"))
    at = At(now=1.0, key=Key("task/j/0"), sender=H1, members=Bits.of(0))
    outcome = m.RunOutcome(m.End.KILLED, None, "SIGTERM", "killed", "killed")
    turn = take_turn(TASK, killing, message=m.Ended(1, outcome), at=at)
    (told,) = [fact.outcome for fact in turn.facts if isinstance(fact, f.RunEnded)]
    assert (told.reason, told.message, told.signal) == (m.PREEMPTED, "for /b", "SIGTERM")


def test_one_that_is_killed_for_good_ends_so() -> None:
    killing, _ = receive(task(TaskStates.RUNNING), m.GiveWay(FOR_GOOD, "for /b"))
    ended, sends = receive(killing, m.Ended(1, m.RunOutcome(m.End.KILLED)))
    assert ended.state == TaskStates.KILLED and ended.failures == 0
    assert not any(isinstance(each, Enqueue) for each in sends)


def test_one_that_succeeds_in_its_grace_has_succeeded() -> None:
    killing, _ = receive(task(TaskStates.RUNNING), m.GiveWay(FOR_GOOD, "for /b"))
    ended, _ = receive(killing, m.Ended(1, m.RunOutcome(m.End.SUCCEEDED, 0)))
    assert ended.state == TaskStates.SUCCEEDED


def test_one_that_waits_for_a_host_queues_anew() -> None:
    waiting, sends = receive(task(TaskStates.WAITING), m.GiveWay(FOR_GOOD, "for /b"))
    assert sends == [Enqueue(2)]
    assert (waiting.state, waiting.run, waiting.ticket) == (TaskStates.WAITING, 1, 2)
    assert waiting.admission == Admission.REQUESTED


@pytest.mark.parametrize("state", [state for state in TaskStates if state != TaskStates.RUNNING])
@pytest.mark.parametrize("admission", [Admission.NONE, Admission.QUEUED, Admission.RELEASING])
def test_all_others_are_left_alone(state: TaskStates, admission: Admission) -> None:
    found = TASK.decide[m.GiveWay](
        task(state, admission), m.GiveWay(PREEMPTED, "for /b"), At(now=1.0, key=Key("task/j/0"))
    )
    assert not found.facts and not found.sends


@pytest.mark.parametrize("end", [*m.End])
def test_the_end_of_a_preempted_run_charges_nothing(end: m.End) -> None:
    killing = task(TaskStates.KILLING, cause=m.KillCause.PREEMPTED)
    after = EVOLVE[f.RunEnded](killing, f.RunEnded(m.RunOutcome(end)))
    assert after is not None and after.failures == 0 and after.system_failures == 0
