"""How long an allocation is held without a host: the rows of the original's table of retries.

Times, orders and answers of one actor at a time. Whole lives: `tests/worlds/hosts/test_parking.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from peloton.actors.host.messages import KillRun
from peloton.actors.job.slice.configs import spec_rows
from peloton.actors.job.slice.goals import recall_s
from peloton.actors.job.slice.kind import kind as slice_kind
from peloton.actors.job.slice.parking import STEPS, ParkingPolicy, pursue_with, recall_with
from peloton.actors.job.slice.placing import AVOIDED_S
from peloton.actors.job.slice.rollout_messages import RunNotStarted
from peloton.actors.job.slice.state import Slice, WishNotes
from peloton.actors.job.slice.tally import why
from peloton.actors.respool.lot.decide import ABSENT as LOT_ABSENT
from peloton.actors.respool.lot.facts import LotEnqueued
from peloton.actors.respool.lot.kind import KIND as LOT
from peloton.actors.respool.lot.messages import Admit, Enqueue, ParkTicket, ReleaseTicket
from peloton.actors.respool.lot.state import Lot
from peloton.actors.task import messages as m
from peloton.actors.task.decide import deadline, owed
from peloton.actors.task.kind import KIND as TASK
from peloton.actors.task.messages import Policy, TaskGoals
from peloton.actors.task.state import Admission, Task, TaskStates
from peloton.placement.messages import Placed, Unplaced, Wish
from peloton.runtime.core.entities.crowd import Crowd
from peloton.runtime.core.turning.turn import TurnOutcome, take_turn
from peloton.runtime.vocabulary import WAITING, At, Bits, Decision, Due, Key, Message
from tests.actors.pools.test_lot import SHAPE
from tests.actors.tasks.test_slice import OPENING, READY

POLICY = ParkingPolicy()
SLICE, CROWD, PLACER = Key("slice/j/0"), Key("task/j/0"), Key("placer/1")
PARKED = msgspec.structs.replace(READY, admission=Admission.PARKED, unschedulable=True)


# ---- the times: 4.8 ----


def test_the_attempts_of_a_cycle_take_10_15_and_20_minutes_and_so_again() -> None:
    minutes = [POLICY.attempt_s(attempt) / 60 for attempt in range(9)]
    assert minutes == [10, 15, 20, 10, 15, 20, 10, 15, 20]
    assert POLICY.patience_s == 45 * 60, "after a cycle the allocation goes back"


def test_without_backoff_all_attempts_take_the_same() -> None:
    assert ParkingPolicy(attempts=4, timeout_s=60, backoff_s=0).patience_s == 240


# ---- a slice ----


def the_slice() -> Slice:
    rows, _ = spec_rows(0, OPENING)
    return Slice(Key("job/j"), 0, 10, rows)


def tasks(**groups: Bits) -> Crowd:
    states = {"ready": READY, "parked": PARKED}
    found = Crowd(TASK, CROWD)
    for name, members in groups.items():
        found.classes[states[name]] = members.raw
        found.columns.add(members.raw)
        found.columns.write("spec", members.raw, value=0)
    return found


def at(crowd: Crowd, now: float, notes: WishNotes | None = None, **rest: Any) -> At:
    return At(now=now, key=SLICE, index=crowd, notes=notes, **rest)


PURSUE, RECALL = pursue_with(POLICY), recall_with(POLICY)


def kept(notes: WishNotes, now: float) -> WishNotes:
    """The notes once a placer keeps all that is wished."""
    return msgspec.structs.replace(
        notes, wished=Bits(), kept=notes.wished | notes.kept, kept_at=now, placer=PLACER
    )


def wished(crowd: Crowd, now: float, notes: WishNotes | None = None, **rest: Any) -> WishNotes:
    step = PURSUE(the_slice(), at(crowd, now, notes, **rest))
    assert isinstance(step, Decision), step
    return kept(step.notes, now)


def parks(step: Any) -> list[tuple[str, list[int]]]:
    if not isinstance(step, Decision):
        return []
    told = [send for send in step.sends if isinstance(send.message, m.MarkUnschedulable)]
    return [(send.message.parked, [*send.members]) for send in told]  # type: ignore[union-attr]


def test_who_waits_longer_than_a_cycle_gives_its_allocation_back() -> None:
    crowd = tasks(ready=Bits.of(1, 2))
    notes = wished(crowd, 1000.0)
    (since, members), *_ = notes.unplaced_since
    assert members == Bits.of(1, 2) and 0 <= since - 1000.0 < POLICY.patience_s / STEPS
    until = since + POLICY.patience_s
    notes = msgspec.structs.replace(notes, kept_at=until)
    assert RECALL(notes) == until
    assert PURSUE(the_slice(), at(crowd, until - 1, notes)) is WAITING
    step = PURSUE(the_slice(), at(crowd, until, notes))
    text = "no host for 2700 s: the pool has its allocation back until there is one"
    assert parks(step) == [(text, [1, 2])]
    assert isinstance(step, Decision) and step.notes.unplaced_since == ()
    assert step.notes.kept == Bits.of(1, 2), "the placer goes on looking"


def test_who_came_later_holds_on() -> None:
    notes = wished(tasks(ready=Bits.of(1)), 0.0)
    notes = wished(tasks(ready=Bits.of(1, 2)), POLICY.patience_s / 2, notes)
    crowd, until = tasks(ready=Bits.of(1, 2)), notes.unplaced_since[0][0] + POLICY.patience_s
    notes = msgspec.structs.replace(notes, kept_at=until)
    assert [each for _, each in parks(PURSUE(the_slice(), at(crowd, until, notes)))] == [[1]]


def test_times_are_few_however_many_come() -> None:
    """Else a stream of new members would fill the notes."""
    notes, crowd = None, Bits()
    for number in range(200):
        crowd = crowd | Bits.of(number)
        notes = wished(tasks(ready=crowd), number * POLICY.patience_s / 200, notes)
        assert len(notes.unplaced_since) <= STEPS + 1


def test_who_found_a_host_is_forgotten_and_counts_anew() -> None:
    notes = wished(tasks(ready=Bits.of(1, 2)), 0.0)
    notes = wished(tasks(ready=Bits.of(2)), 5000.0, notes)  # repeats the wish of the other
    assert [each for _, each in notes.unplaced_since] == [Bits.of(2)]


def test_who_holds_nothing_is_not_told_to_give_back() -> None:
    notes = wished(tasks(parked=Bits.of(1)), 0.0)
    assert notes.kept == Bits.of(1) and notes.unplaced_since == ()


def test_without_a_policy_the_goals_alone_decide() -> None:
    off = slice_kind(ParkingPolicy(enabled=False))
    assert off.recall_s is recall_s and off.recall_s is not RECALL


def test_a_repeated_refusal_of_the_placer_does_not_bring_it_back() -> None:
    """Else it would hold its allocation again after ten seconds, for another cycle."""
    notes = wished(tasks(parked=Bits.of(1)), 0.0)
    message = Unplaced(1, Bits.of(1), (("no_offer", 1),), "no host fits", kept=True)
    turn = take_turn(
        slice_kind(), the_slice(), message=message,
        at=at(tasks(parked=Bits.of(1)), 1.0, notes, sender=PLACER),
    )  # fmt: skip
    assert not [send for send in turn.sends if isinstance(send.message, m.MarkUnschedulable)]


def test_a_proposal_brings_it_back() -> None:
    notes = wished(tasks(parked=Bits.of(1)), 0.0)
    message = Placed(1, Bits.of(1), (Key("host/a"),), 1)
    turn = take_turn(
        slice_kind(), the_slice(), message=message,
        at=at(tasks(parked=Bits.of(1)), 1.0, notes, sender=PLACER),
    )  # fmt: skip
    told = [send.message for send in turn.sends if send.to == CROWD]
    assert told == [m.MarkUnschedulable(False)]
    assert not [send for send in turn.sends if isinstance(send.message, Wish)]


def test_it_says_what_it_waits_for() -> None:
    notes = WishNotes(kept=Bits.of(1), shortfall="no host fits: 1 of 1 hosts lacks cpu")
    code, text = why(PARKED, at(tasks(parked=Bits.of(1)), 1.0, notes))
    assert (code, text) == (
        "HOST",
        "no host fits: 1 of 1 hosts lacks cpu; its pool has the allocation back until there is one",
    )


# ---- a task ----

TASK_AT = At(now=1.0, key=CROWD, sender=Key("lot/j/0/0"))


def receive(task: Task, message: Message) -> TurnOutcome:
    return take_turn(TASK, task, message=message, at=TASK_AT)


def said(turn: TurnOutcome) -> list[Message]:
    return [send.message for send in turn.sends]


def test_it_asks_for_nothing_until_there_is_a_host() -> None:
    turn = receive(READY, m.MarkUnschedulable(True, "no host"))
    assert said(turn) == [ParkTicket(1)] and turn.state.admission == Admission.PARKING
    assert [send.message for send in owed(turn.state)] == [ParkTicket(1)]
    after = receive(turn.state, m.TicketParked(1))
    assert after.state.admission == Admission.PARKED and not after.sends
    assert owed(after.state) == ()
    back = receive(after.state, m.MarkUnschedulable(False))
    assert said(back) == [Enqueue(2)] and back.state.admission == Admission.REQUESTED


@pytest.mark.parametrize("admission", [Admission.PARKING, Admission.PARKED])
def test_a_late_admission_does_not_give_its_place_away(admission: Admission) -> None:
    task = msgspec.structs.replace(PARKED, admission=admission)
    turn = receive(task, m.Admitted(1))
    assert not turn.facts and not turn.sends


@pytest.mark.parametrize("admission", [Admission.PARKING, Admission.PARKED])
@pytest.mark.parametrize("goal", [TaskGoals.KILLED, TaskGoals.DELETED])
def test_who_is_stopped_gives_up_its_place(admission: Admission, goal: TaskGoals) -> None:
    task = msgspec.structs.replace(PARKED, admission=admission)
    turn = receive(task, m.SetTaskGoal(2, goal, Policy(), 0, Key("lot/j/0/0")))
    assert said(turn) == [ReleaseTicket(1)] and turn.state.admission == Admission.RELEASING


@pytest.mark.parametrize(
    ("state", "admission"),
    [
        (TaskStates.RUNNING, Admission.ADMITTED),
        (TaskStates.LAUNCHING, Admission.ADMITTED),
        (TaskStates.WAITING, Admission.QUEUED),
        (TaskStates.SUCCEEDED, Admission.NONE),
    ],
)
def test_who_does_not_wait_for_a_host_keeps_what_it_has(
    state: TaskStates, admission: Admission
) -> None:
    task = Task(TaskGoals.SUCCEEDED, state, Policy(), 1, 1, admission)
    assert not receive(task, m.MarkUnschedulable(True, "no host")).facts


@pytest.mark.parametrize(
    ("state", "seconds"), [(TaskStates.LAUNCHING, 1200.0), (TaskStates.LAUNCHED, 10_800.0)]
)
def test_a_host_has_20_minutes_to_answer_and_three_hours_to_start(
    state: TaskStates, seconds: float
) -> None:
    task = Task(TaskGoals.SUCCEEDED, state, Policy(), 1, 1, Admission.ADMITTED)
    assert deadline(task) == ("start", seconds)
    turn = receive(task, Due("start"))
    assert turn.state.state == TaskStates.KILLING and said(turn) == [KillRun(1, 30.0)]
    assert turn.state.because == f"did not start within {seconds:g} s"
    ended = receive(turn.state, m.Ended(1, m.RunOutcome(m.End.KILLED)))
    assert RunNotStarted() in said(ended) and Enqueue(2) in said(ended)
    assert (ended.state.run, ended.state.failures, ended.state.system_failures) == (2, 0, 1)
    gone = receive(turn.state, m.RunGone(1))
    assert RunNotStarted() in said(gone) and gone.state.run == 2


def test_a_run_that_was_stopped_says_nothing_of_its_host() -> None:
    task = Task(TaskGoals.KILLED, TaskStates.KILLING, Policy(), 1, 1, Admission.ADMITTED)
    assert RunNotStarted() not in said(receive(task, m.RunGone(1)))


def test_the_next_wishes_name_the_host_for_a_while() -> None:
    crowd = tasks(ready=Bits.of(1))
    crowd.columns.write("runs", 2, value=(m.PastRun(1, "host/a", None, 9.0, None),))
    turn = take_turn(
        slice_kind(), the_slice(), message=RunNotStarted(),
        at=at(crowd, 10.0, sender=CROWD, members=Bits.of(1)),
    )  # fmt: skip
    (wish,) = [send.message for send in turn.sends if isinstance(send.message, Wish)]
    assert wish.avoid == (Key("host/a"),)
    later = PURSUE(the_slice(), at(crowd, 10.0 + AVOIDED_S, turn.notes))
    assert isinstance(later, Decision)
    (wish,) = [send.message for send in later.sends if isinstance(send.message, Wish)]
    assert wish.avoid == ()


# ---- a lot ----


def lot_turn(lot: Lot | None, message: Message, *members: int, now: float = 1.0) -> TurnOutcome:
    where = At(now=now, key=Key("lot/j/0/0"), sender=CROWD, members=Bits.of(*members))
    return take_turn(LOT, lot, message=message, at=where)


def admitted(*members: int) -> Lot:
    lot = lot_turn(None, Enqueue(1, SHAPE), *members, now=5.0).state
    found: Lot = lot_turn(lot, Admit(Bits.of(*members))).state
    return found


def test_the_pool_has_the_allocation_back_and_the_lot_stays() -> None:
    turn = lot_turn(admitted(3), ParkTicket(1), 3, now=60.0)
    assert said(turn) == [m.TicketParked(1)]
    assert (turn.state.admitted, turn.state.waiting, turn.state.parked) == (
        Bits(), Bits(), Bits.of(3),
    )  # fmt: skip
    again = lot_turn(turn.state, ParkTicket(1), 3, now=61.0)
    assert not again.facts and said(again) == [m.TicketParked(1)]


def test_a_late_repeat_of_a_ticket_that_is_parked_is_answered_so() -> None:
    """Answered as released, a task that gives up its place would not release it."""
    lot = lot_turn(admitted(3, 4), ParkTicket(1), 3, now=60.0).state
    turn = lot_turn(lot, Enqueue(1, SHAPE), 3, 4, now=61.0)
    assert not turn.facts
    assert [(send.message, send.members) for send in turn.sends] == [
        (m.Admitted(1), Bits.of(4)),
        (m.TicketParked(1), Bits.of(3)),
    ]


def test_it_comes_back_to_the_place_that_it_had() -> None:
    lot = lot_turn(admitted(3), ParkTicket(1), 3, now=60.0).state
    turn = lot_turn(lot, Enqueue(2, SHAPE), 3, now=900.0)
    assert [fact.at for fact in turn.facts if isinstance(fact, LotEnqueued)] == [5.0]
    assert (turn.state.arrived, turn.state.parked) == (5.0, Bits())


def test_another_member_of_the_lot_does_not_get_that_place() -> None:
    lot = lot_turn(admitted(3, 4), ParkTicket(1), 3, now=60.0).state
    assert lot_turn(lot, Enqueue(2, SHAPE), 4, now=900.0).state.arrived == 900.0


def test_whoever_gives_up_its_place_ends_the_lot() -> None:
    lot = lot_turn(admitted(3), ParkTicket(1), 3).state
    assert lot_turn(lot, ReleaseTicket(1), 3).state is None


def test_a_late_parking_does_not_touch_a_newer_ticket() -> None:
    lot = lot_turn(admitted(3), Enqueue(2, SHAPE), 3, now=9.0).state
    turn = lot_turn(lot, ParkTicket(1), 3)
    assert not turn.facts and turn.state.waiting == Bits.of(3)


def test_a_lot_that_is_gone_parks_nobody() -> None:
    where = At(now=0.0, key=Key("lot/j/0/0"), sender=CROWD, members=Bits.of(0))
    decision = LOT_ABSENT[ParkTicket](ParkTicket(1), where)
    assert not decision.facts and [s.message for s in decision.sends] == [m.TicketParked(1)]
