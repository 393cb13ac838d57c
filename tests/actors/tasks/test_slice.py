"""A slice: whom it wishes hosts for and when again, what it makes of a placer's answer.

The placer's answers and the crowd are made by hand.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from peloton.actors.host.holds.hold_messages import HoldForTask
from peloton.actors.host.messages import Launch
from peloton.actors.host.run_spec import Port
from peloton.actors.job.slice import messages as m
from peloton.actors.job.slice.configs import spec_rows
from peloton.actors.job.slice.counts import client_state, tally
from peloton.actors.job.slice.goals import pursue, recall_s
from peloton.actors.job.slice.home_wishes import HOLD_RENEWED_S, HOLD_S
from peloton.actors.job.slice.kind import kind as slice_kind
from peloton.actors.job.slice.looks import (
    KEPT_REPEAT_S,
    PLACE_RETRY_S,
    REFUSED_REST_S,
    WISH_TIMEOUT_S,
)
from peloton.actors.job.slice.state import Slice, WishNotes
from peloton.actors.job.slice.tally import list_instances, why
from peloton.actors.job.slice.task_config import Command, Override, TaskConfig
from peloton.actors.resources import Resources
from peloton.actors.task.kind import KIND as TASK
from peloton.actors.task.kind import RESOLVE
from peloton.actors.task.messages import (
    MarkUnschedulable,
    PlaceTasks,
    Policy,
    RunRefused,
    SetTaskGoal,
    TaskGoals,
)
from peloton.actors.task.state import Admission, Task, TaskStates
from peloton.placement.messages import (
    Declined,
    HostSummary,
    Label,
    Placed,
    Unplaced,
    Wish,
    port_label,
)
from peloton.runtime.core.entities.crowd import Crowd
from peloton.runtime.core.turning.turn import TurnOutcome, take_turn
from peloton.runtime.vocabulary import WAITING, At, Bits, Decision, Key, Pursue, counted

KIND = slice_kind()

JOB, SLICE, CROWD, PLACER = Key("job/j"), Key("slice/j/0"), Key("task/j/0"), Key("placer/1")
DEFAULT = TaskConfig(resources=Resources(1), command=Command("x"))
OPENING = m.SliceOpening("j", "name", Key("respool/p"), 10, DEFAULT)
READY = Task(TaskGoals.SUCCEEDED, TaskStates.WAITING, Policy(), 1, 1, Admission.ADMITTED)
ENDED = Task(TaskGoals.SUCCEEDED, TaskStates.SUCCEEDED, Policy(), 1, 1, Admission.NONE)


def crowd(**classes: Bits) -> Crowd:
    """Tasks that are `ready` for a host, `ended` or `running`."""
    states = {
        "ready": READY,
        "ended": ENDED,
        "running": Task(
            TaskGoals.SUCCEEDED, TaskStates.RUNNING, Policy(), 1, 1, Admission.ADMITTED
        ),
    }
    found = Crowd(TASK, CROWD)
    for name, members in classes.items():
        found.classes[states[name]] = members.raw
        found.columns.add(members.raw)
        found.columns.write("spec", members.raw, value=0)
    return found


def at(
    tasks: Crowd,
    now: float = 0.0,
    notes: Any = None,
    members: Bits | None = None,
    *,
    sender: Key | None = None,
) -> At:
    return At(now=now, key=SLICE, index=tasks, notes=notes, members=members, sender=sender)


def opened(goal: TaskGoals = TaskGoals.SUCCEEDED, stopped: Bits = Bits()) -> TurnOutcome:  # noqa: B008
    message = m.SetSliceGoal(1, JOB, 0, goal, stopped, OPENING)
    return take_turn(KIND, None, message=message, at=at(crowd()))


SOME: Slice = opened().state


def wishes(found: Any) -> list[tuple[int, list[int]]]:
    assert isinstance(found, Decision | TurnOutcome)
    sends = [send.message for send in found.sends]
    return [(wish.number, [*wish.members]) for wish in sends if isinstance(wish, Wish)]


def test_a_slice_opens_with_its_tasks() -> None:
    turn = opened(stopped=Bits.of(3))
    sent = [(s.message.goal, [*s.members]) for s in turn.sends if s.to == CROWD]
    assert sent == [
        (TaskGoals.SUCCEEDED, [0, 1, 2, 4, 5, 6, 7, 8, 9]),
        (TaskGoals.KILLED, [3]),
    ]
    assert not [send for send in turn.sends if isinstance(send.message, m.SliceOpen)]


@pytest.mark.parametrize(
    ("number", "version", "grant"), [(1, 1, None), (0, 2, None), (0, 1, 0), (0, 1, 5)]
)
def test_a_slice_confirms_that_it_is_open_unless_its_first_tally_will(
    number: int, version: int, grant: int | None
) -> None:
    """Without a member that may begin there is no tally, and a tally names no goal."""
    opening = m.SliceOpening(
        job="j", name="j", pool=Key("respool/p"), count=3, default=TaskConfig()
    )
    goal = m.SetSliceGoal(version, JOB, number, TaskGoals.SUCCEEDED, opening=opening, grant=grant)
    turn = take_turn(KIND, None, message=goal, at=at(crowd()))
    assert turn.sends[0].message == m.SliceOpen(number, version)


def test_a_slice_that_never_was_is_gone_at_once() -> None:
    message = m.SetSliceGoal(2, JOB, 0, TaskGoals.DELETED)
    turn = take_turn(KIND, None, message=message, at=at(crowd()))
    assert turn.state is None and [s.message for s in turn.sends] == [m.SliceGone(0)]


def test_a_known_goal_is_confirmed_once_more() -> None:
    message = m.SetSliceGoal(1, JOB, 0, TaskGoals.KILLED)
    turn = take_turn(KIND, SOME, message=message, at=at(crowd()))
    assert not turn.facts and [s.message for s in turn.sends] == [m.SliceOpen(0, 1)]


def test_a_newer_goal_says_nothing_of_what_tasks_are() -> None:
    message = m.SetSliceGoal(2, JOB, 0, TaskGoals.KILLED)
    turn = take_turn(KIND, SOME, message=message, at=at(crowd()))
    goals = [s.message for s in turn.sends if isinstance(s.message, SetTaskGoal)]
    assert [(goal.goal, goal.version) for goal in goals] == [(TaskGoals.KILLED, 2)]


def test_everybody_ready_is_wished_for_once() -> None:
    tasks = crowd(ready=Bits.of(1, 2))
    first = pursue(SOME, at(tasks))
    assert wishes(first) == [(1, [1, 2])]
    assert pursue(SOME, at(tasks, 1.0, first.notes)) == WAITING  # type: ignore[union-attr]


def test_a_wish_without_an_answer_is_wished_again() -> None:
    tasks = crowd(ready=Bits.of(1))
    notes = pursue(SOME, at(tasks)).notes  # type: ignore[union-attr]
    assert recall_s(notes) == WISH_TIMEOUT_S
    assert wishes(pursue(SOME, at(tasks, WISH_TIMEOUT_S, notes))) == [(2, [1])]


def test_a_stream_of_fresh_members_does_not_keep_a_lost_wish_waiting() -> None:
    notes = pursue(SOME, at(crowd(ready=Bits.of(1)))).notes  # type: ignore[union-attr]
    for second in range(1, 5):
        ready = Bits.span(1, second + 2)
        notes = pursue(SOME, at(crowd(ready=ready), float(second), notes)).notes  # type: ignore[union-attr]
    found = pursue(SOME, at(crowd(ready=Bits.span(1, 6)), WISH_TIMEOUT_S, notes))
    assert 1 in wishes(found)[0][1]


def test_who_found_no_host_rests_and_then_wishes_again() -> None:
    tasks = crowd(ready=Bits.of(1, 2))
    notes = pursue(SOME, at(tasks)).notes  # type: ignore[union-attr]
    reasons = (("insufficient: cpu", 3),)
    turn = take_turn(KIND, SOME, message=Unplaced(1, Bits.of(2), reasons), at=at(tasks, 0.5, notes))
    assert turn.notes.resting == Bits.of(2) and not turn.sends
    assert turn.because == "no host: insufficient: cpu on 3"
    assert recall_s(turn.notes) == 0.5 + PLACE_RETRY_S
    assert wishes(pursue(SOME, at(tasks, 1.5, turn.notes))) == [(2, [2])]


def test_a_time_that_nobody_needed_does_not_hide_the_next_one() -> None:
    """Found in a simulated world: the retry came first, and the lost wish was never repeated."""
    notes = WishNotes(Bits.of(1), 0.0, 1, resting=Bits.of(2), retry_at=1.0)
    found = pursue(SOME, at(crowd(ready=Bits.of(1)), 1.0, notes))
    assert isinstance(found, Decision) and not found.sends
    assert recall_s(found.notes) == WISH_TIMEOUT_S


def test_the_first_answer_wins() -> None:
    tasks = crowd(ready=Bits.of(1, 2), running=Bits.of(3))
    notes = WishNotes(Bits.of(1, 3), 0.0, 1)
    hosts = tuple(Key(f"host/{n}") for n in range(3))
    turn = take_turn(
        KIND, SOME, message=Placed(1, Bits.of(1, 2, 3), hosts), at=at(tasks, 0.1, notes)
    )
    places = [s for s in turn.sends if isinstance(s.message, PlaceTasks)]
    assert [(s.members, s.values) for s in places] == [(Bits.of(1), (hosts[0],))]
    declined = [s.message for s in turn.sends if isinstance(s.message, Declined)]
    assert declined == [Declined(SLICE, Bits.of(1, 2), hosts[1:])], "else the placer counts them"


def test_how_many_share_a_host_is_launched_with() -> None:
    """From the placer's answer to the launch, which is the only one to say so."""
    notes = WishNotes(Bits.of(1), 0.0, 1)
    answer = Placed(1, Bits.of(1), (Key("host/a"),), shares=2)
    turn = take_turn(KIND, SOME, message=answer, at=at(crowd(ready=Bits.of(1)), 0.1, notes))
    (assigned,) = [s.message for s in turn.sends if isinstance(s.message, PlaceTasks)]
    assert assigned == PlaceTasks(2)
    unborn = Launch(4, shares=2)
    row = SOME.specs[0]
    assert RESOLVE[Launch](SOME, unborn, 0) == Launch(4, row.run, 2)


def test_a_spread_job_is_told_apart_by_its_id() -> None:
    config = TaskConfig(labels=(("app", "x"),), ports=(Port("web", 80), Port("rpc")))
    opening = m.SliceOpening("j", "n", Key("respool/p"), 1, config, spread=True)
    ((row,), _) = spec_rows(3, opening)
    mine = Label("peloton.job_id", "j")
    assert row.shape.apart == row.run.apart == mine
    assert row.shape.labels == row.run.labels == (Label("app", "x"), mine)
    assert (row.shape.strategy, row.shape.ports, row.shape.fixed_ports) == ("spread", 1, (80,))
    assert row.shape.all_labels == row.run.all_labels == (*row.run.labels, port_label(80))
    ((packed,), _) = spec_rows(3, msgspec.structs.replace(opening, spread=False))
    assert (packed.shape.apart, packed.run.apart, packed.shape.strategy) == (None, None, "pack")
    assert packed.run.labels == (Label("app", "x"),)


def test_a_refusal_travels_with_the_next_wish() -> None:
    tasks = crowd(ready=Bits.of(1))
    summary = HostSummary(Key("host/a"), 7, Resources(1), Resources())
    message = RunRefused(1, "insufficient resources", summary)
    notes = WishNotes(Bits.of(1), 0.0, 1)
    turn = take_turn(KIND, SOME, message=message, at=at(tasks, 0.1, notes, Bits.of(1)))
    (wish,) = [send.message for send in turn.sends if isinstance(send.message, Wish)]
    assert wish.refused == (summary,), "at once"
    launched = pursue(SOME, at(crowd(running=Bits.of(1)), 1.0, turn.notes))
    assert isinstance(launched, Decision) and launched.notes.refused == ()


def test_who_refuses_again_without_news_is_not_asked_again_at_once() -> None:
    tasks = crowd(ready=Bits.of(1))
    summary = HostSummary(Key("host/a"), 7, Resources(1), Resources())
    notes = WishNotes(Bits.of(1), 0.0, 1, refused=(summary,))

    def refused(by: HostSummary | None) -> TurnOutcome:
        message = RunRefused(1, "insufficient resources", by)
        return take_turn(KIND, SOME, message=message, at=at(tasks, 0.1, notes, Bits.of(1)))

    again = msgspec.structs.replace(summary, position=8)
    turn = refused(again)
    assert not wishes(turn) and turn.notes.resting == Bits.of(1)
    assert recall_s(turn.notes) == 0.1 + REFUSED_REST_S
    assert wishes(pursue(SOME, at(tasks, 0.1 + REFUSED_REST_S, turn.notes)))
    more = msgspec.structs.replace(again, free=Resources(1))
    assert wishes(refused(more)), "it has more free than when it refused"
    assert not wishes(refused(None)), "it does not say what it has"


def test_a_wish_that_is_kept_is_repeated_only_in_case_the_placer_was_lost() -> None:
    tasks = crowd(ready=Bits.of(1, 2))
    notes = pursue(SOME, at(tasks)).notes  # type: ignore[union-attr]
    full = Unplaced(1, Bits.of(1, 2), (("insufficient resources", 3),), kept=True)
    turn = take_turn(KIND, SOME, message=full, at=at(tasks, 0.5, notes, sender=PLACER))
    assert (turn.notes.kept, turn.notes.wished) == (Bits.of(1, 2), Bits()) and not turn.sends
    assert recall_s(turn.notes) == 0.5 + KEPT_REPEAT_S
    assert pursue(SOME, at(tasks, 5.0, turn.notes)) is WAITING
    room = Placed(1, Bits.of(1), (Key("host/a"),), 3)
    placed = take_turn(KIND, SOME, message=room, at=at(tasks, 6.0, turn.notes, sender=PLACER))
    (launch,) = placed.sends
    assert isinstance(launch.message, PlaceTasks) and launch.members == Bits.of(1)
    left = pursue(SOME, at(crowd(ready=Bits.of(2)), 7.0, placed.notes))
    assert isinstance(left, Decision) and left.notes.kept == Bits.of(2)
    assert wishes(pursue(SOME, at(crowd(ready=Bits.of(2)), 10.5, left.notes))) == [(2, [2])]


def test_a_host_is_held_for_one_that_waited_long_and_for_two_minutes_at_a_time() -> None:
    tasks, host = crowd(ready=Bits.of(1, 2)), Key("host/a")
    notes = pursue(SOME, at(tasks)).notes  # type: ignore[union-attr]
    full = Unplaced(1, Bits.of(1, 2), (), kept=True, reserve=((1, host),))
    ordered = []
    for now in (100.0, 110.0, 100.0 + HOLD_RENEWED_S):
        turn = take_turn(KIND, SOME, message=full, at=at(tasks, now, notes, sender=PLACER))
        notes = turn.notes
        holds = [one for one in turn.sends if isinstance(one.message, HoldForTask)]
        ordered.append([(one.to, one.message.member, one.message.until) for one in holds])
    again = 100.0 + HOLD_RENEWED_S + HOLD_S
    assert ordered == [[(host, 1, 100.0 + HOLD_S)], [], [(host, 1, again)]]
    room = Placed(1, Bits.of(1), (host,), 3)
    placed = take_turn(KIND, SOME, message=room, at=at(tasks, 170.0, notes, sender=PLACER))
    assert not placed.notes.held_at, "nothing is kept of it"


def test_only_one_placer_keeps_a_wish() -> None:
    notes = WishNotes(Bits.of(1), 0.0, 2, kept=Bits.of(2, 3), placer=PLACER)
    full = Unplaced(2, Bits.of(1), (), kept=True)
    tasks = crowd(ready=Bits.of(1, 2, 3))
    turn = take_turn(KIND, SOME, message=full, at=at(tasks, 0.5, notes, sender=Key("placer/2")))
    (declined,) = turn.sends
    others = Declined(SLICE, Bits.of(2, 3))
    assert (declined.to, declined.message) == (PLACER, others), "the first goes on keeping those"


def limited(grant: int, goal: TaskGoals = TaskGoals.SUCCEEDED, *stopped: int) -> TurnOutcome:
    message = m.SetSliceGoal(1, JOB, 0, goal, Bits.of(*stopped), OPENING, grant)
    return take_turn(KIND, None, message=message, at=at(crowd()))


def begun(turn: Any) -> list[tuple[TaskGoals, list[int]]]:
    """The tasks that are made to exist, by their goal."""
    sent = [s for s in turn.sends if isinstance(s.message, SetTaskGoal)]
    return [(s.message.goal, [*s.members]) for s in sent]


def test_of_a_limited_slice_only_as_many_begin_as_it_is_granted() -> None:
    turn = limited(3, TaskGoals.SUCCEEDED, 1)
    assert begun(turn) == [(TaskGoals.KILLED, [1]), (TaskGoals.SUCCEEDED, [0, 2, 3])]
    after = turn.state
    assert after.waiting == Bits.span(4, 10)
    again = take_turn(KIND, after, message=Pursue(), at=at(crowd(ended=Bits.of(1))))
    assert not begun(again), "their tasks are on their way"
    tasks = crowd(ended=Bits.of(1, 2), running=Bits.of(0, 3))
    assert begun(pursue(after, at(tasks))) == [(TaskGoals.SUCCEEDED, [4])]
    higher = m.SetSliceGoal(2, JOB, 0, TaskGoals.SUCCEEDED, Bits.of(1), None, 5)
    turn = take_turn(KIND, after, message=higher, at=at(tasks))
    assert turn.state.grant == 5 and turn.state.waiting == Bits.span(7, 10)


def test_members_that_never_began_are_seen_to_end_with_the_job() -> None:
    some = limited(2).state
    tasks = crowd(running=Bits.of(0, 1))
    part = m.SetSliceGoal(2, JOB, 0, TaskGoals.SUCCEEDED, Bits.of(5), None, 2)
    turn = take_turn(KIND, some, message=part, at=at(tasks))
    assert (TaskGoals.KILLED, [5]) in begun(turn) and 5 not in turn.state.waiting
    whole = m.SetSliceGoal(3, JOB, 0, TaskGoals.KILLED, Bits(), None, 2)
    turn = take_turn(KIND, turn.state, message=whole, at=at(tasks))
    assert (TaskGoals.KILLED, [2, 3, 4, 6, 7, 8, 9]) in begun(turn)
    assert not turn.state.closed
    gone = m.SetSliceGoal(4, JOB, 0, TaskGoals.DELETED)
    turn = take_turn(KIND, some, message=gone, at=at(tasks))
    assert begun(turn) == [(TaskGoals.DELETED, [0, 1])], "who never began cannot vanish"


def test_members_that_wait_for_others_are_counted_and_say_so() -> None:
    some = limited(2).state
    tasks = crowd(running=Bits.of(0, 1))
    assert tally(some, at(tasks)).counts == (("INITIALIZED", 8), ("RUNNING", 2))
    views = list_instances(some, m.ListInstances(1, 4), at(tasks))
    assert [(view.instance, view.state, view.code) for view in views] == [
        (1, "RUNNING", ""), (2, "INITIALIZED", "LIMIT"), (3, "INITIALIZED", "LIMIT"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "admission", "shown"),
    [
        (TaskStates.WAITING, Admission.NONE, "INITIALIZED"),
        (TaskStates.WAITING, Admission.QUEUED, "PENDING"),
        (TaskStates.WAITING, Admission.ADMITTED, "PENDING"),
        (TaskStates.LAUNCHING, Admission.ADMITTED, "LAUNCHED"),
        (TaskStates.RUNNING, Admission.ADMITTED, "RUNNING"),
        (TaskStates.THROTTLED, Admission.NONE, "FAILED"),
        (TaskStates.LOST, Admission.NONE, "LOST"),
    ],
)
def test_states_have_the_names_clients_know(
    state: TaskStates, admission: Admission, shown: str
) -> None:
    assert client_state(Task(TaskGoals.SUCCEEDED, state, Policy(), admission=admission)) == shown


@pytest.mark.parametrize(
    ("state", "admission", "code"),
    [
        (TaskStates.WAITING, Admission.NONE, "NEW"),
        (TaskStates.WAITING, Admission.QUEUED, "POOL"),
        (TaskStates.WAITING, Admission.ADMITTED, "HOST"),
        (TaskStates.LAUNCHED, Admission.ADMITTED, "LAUNCH"),
        (TaskStates.KILLING, Admission.ADMITTED, "LAUNCH"),
        (TaskStates.RUNNING, Admission.ADMITTED, ""),
        (TaskStates.FAILED, Admission.NONE, ""),
        (TaskStates.THROTTLED, Admission.NONE, "RETRY"),
    ],
)
def test_every_waiting_state_has_a_reason(
    state: TaskStates, admission: Admission, code: str
) -> None:
    found, because = why(
        Task(TaskGoals.SUCCEEDED, state, Policy(), admission=admission), at(crowd())
    )
    assert found == code and bool(because) == bool(code)


# ---- members that no host could ever run ----

SHELVED = Task(
    TaskGoals.SUCCEEDED, TaskStates.WAITING, Policy(), 1, 1, Admission.NONE, unschedulable=True
)


def shelf(*members: int) -> Crowd:
    """Tasks that hold no ticket because no host could run them."""
    found = Crowd(TASK, CROWD)
    found.classes[SHELVED] = Bits.of(*members).raw
    found.columns.add(Bits.of(*members).raw)
    found.columns.write("spec", Bits.of(*members).raw, value=0)
    return found


def shelves(turn: TurnOutcome) -> list[tuple[bool, list[int]]]:
    return [
        (send.message.unschedulable, [*send.members])
        for send in turn.sends
        if isinstance(send.message, MarkUnschedulable) and send.members is not None
    ]


def never(members: Bits) -> Unplaced:
    return Unplaced(1, members, (("insufficient resources", 3),), "no host fits", True)


def test_a_member_that_can_never_run_releases_its_ticket() -> None:
    tasks = crowd(ready=Bits.of(1, 2))
    notes = pursue(SOME, at(tasks)).notes  # type: ignore[union-attr]
    turn = take_turn(KIND, SOME, message=never(Bits.of(2)), at=at(tasks, 0.5, notes))
    assert shelves(turn) == [(True, [2])]


def test_who_holds_no_room_goes_on_looking_for_a_host() -> None:
    tasks = shelf(3)
    first = pursue(SOME, at(tasks))
    assert wishes(first) == [(1, [3])]
    notes = first.notes  # type: ignore[union-attr]
    turn = take_turn(KIND, SOME, message=never(Bits.of(3)), at=at(tasks, 0.1, notes))
    assert shelves(turn) == []
    assert wishes(pursue(SOME, at(tasks, 0.1 + PLACE_RETRY_S, turn.notes))) == [(2, [3])]


@pytest.mark.parametrize(
    "answer",
    [
        Placed(1, Bits.of(3), (Key("host/a"),)),
        Unplaced(1, Bits.of(3), (("insufficient resources", 3),), "no host fits", False),
    ],
)
def test_when_a_host_could_run_it_it_asks_for_room_and_is_not_launched(answer: Any) -> None:
    notes = WishNotes(Bits.of(3), 0.0, 1)
    turn = take_turn(KIND, SOME, message=answer, at=at(shelf(3), 0.5, notes))
    assert shelves(turn) == [(False, [3])]
    assert not [send for send in turn.sends if isinstance(send.message, PlaceTasks)]


def test_an_answer_for_both_launches_the_one_and_brings_the_other_back() -> None:
    tasks = crowd(ready=Bits.of(1))
    tasks.classes[SHELVED] = Bits.of(3).raw
    tasks.columns.add(Bits.of(3).raw)
    tasks.columns.write("spec", Bits.of(3).raw, value=0)
    notes = WishNotes(Bits.of(1, 3), 0.0, 1)
    answer = Placed(1, Bits.of(1, 3), (Key("host/a"), Key("host/b")))
    turn = take_turn(KIND, SOME, message=answer, at=at(tasks, 0.5, notes))
    assert shelves(turn) == [(False, [3])]
    places = [send for send in turn.sends if isinstance(send.message, PlaceTasks)]
    assert [(send.members, send.values) for send in places] == [(Bits.of(1), (Key("host/a"),))]
    assert 1 in (turn.notes or notes).wished, "else it were wished for twice"


def test_it_is_pending_and_says_that_it_can_never_run() -> None:
    assert client_state(SHELVED) == "PENDING"
    notes = WishNotes(
        reasons=(("insufficient resources", 3),), shortfall="no host fits", never=True
    )
    assert why(SHELVED, at(shelf(3), notes=notes)) == ("NEVER", "no host fits")
    assert why(SHELVED, at(shelf(3)))[0] == "NEVER", "a daemon that has just started knows it too"


def test_who_stops_before_any_instance_has_begun_tells_no_task_but_those_that_begin() -> None:
    """An empty set of members is nobody: without any it would be a message to a single cell."""
    message = m.SetSliceGoal(1, JOB, 0, TaskGoals.SUCCEEDED, Bits(), OPENING, 0)
    limited = take_turn(KIND, None, message=message, at=at(crowd())).state
    assert len(limited.waiting) == 10
    stop = m.SetSliceGoal(2, JOB, 0, TaskGoals.KILLED, grant=0)
    turn = take_turn(KIND, limited, message=stop, at=at(crowd()))
    sent = [(s.message.spec, [*s.members]) for s in turn.sends if s.to == CROWD]
    assert sent == [(0, [*range(10)])]
    delete = m.SetSliceGoal(2, JOB, 0, TaskGoals.DELETED, grant=0)
    turn = take_turn(KIND, limited, message=delete, at=at(crowd()))
    assert not [s for s in turn.sends if s.to == CROWD]


def test_a_reason_counts_one_as_one() -> None:
    assert counted(1, "instance waits", many="instances wait") == "1 instance waits"
    assert counted(2, "instance waits", many="instances wait") == "2 instances wait"
    assert counted(0, "instance waits", many="instances wait") == "0 instances wait"


# ---- restarts, growth ----


def again(version: int, *members: int, grant: int | None = None, **rest: Any) -> m.SetSliceGoal:
    order = ((version, Bits.of(*members)),)
    return m.SetSliceGoal(
        version, JOB, 0, TaskGoals.SUCCEEDED, grant=grant, restarts=order, tallied=True, **rest
    )


def restarted(turn: Any) -> list[tuple[int, list[int]]]:
    """The members that are told of their restart, by its number."""
    sent = [s for s in turn.sends if isinstance(s.message, SetTaskGoal) and s.message.restart]
    return [(s.message.restart, [*s.members]) for s in sent]


def confirmed(turn: Any) -> m.Tally:
    (found,) = [s.message.tally for s in turn.sends if isinstance(s.message, m.SliceOpen)]
    assert found is not None
    return found


def test_restarted_members_are_told_once() -> None:
    tasks = crowd(ended=Bits.of(0, 1), running=Bits.span(2, 10))
    turn = take_turn(KIND, SOME, message=again(2, 1, 2), at=at(tasks))
    assert restarted(turn) == [(2, [1, 2])]
    assert confirmed(turn).counts == (("INITIALIZED", 1), ("RUNNING", 8), ("SUCCEEDED", 1))
    # The same order in a later goal: the slice has obeyed it.
    later = msgspec.structs.replace(again(2, 1, 2), version=3)
    assert not restarted(take_turn(KIND, turn.state, message=later, at=at(tasks)))
    repeat = take_turn(KIND, turn.state, message=again(2, 1, 2), at=at(tasks))
    assert not restarted(repeat) and confirmed(repeat) == confirmed(turn), "they do not know yet"


def test_ended_members_of_a_limited_slice_are_restarted_within_the_grant() -> None:
    some = limited(3).state
    tasks = crowd(ended=Bits.of(0, 1), running=Bits.of(2))
    some = take_turn(KIND, some, message=Pursue(), at=at(tasks)).state
    assert some.waiting == Bits.span(5, 10), "3 and 4 have taken their places"
    tasks = crowd(ended=Bits.of(0, 1), running=Bits.of(2, 3, 4))
    turn = take_turn(KIND, some, message=again(2, 0, 1, 2, grant=3), at=at(tasks))
    assert restarted(turn) == [(2, [2])], "who is active already makes no more active"
    assert turn.state.awaiting_restart == Bits.of(0, 1)
    counts = confirmed(turn)
    assert counts.counts == (("INITIALIZED", 7), ("RUNNING", 3)) and counts.active == 3
    views = list_instances(turn.state, m.ListInstances(0, 2), at(tasks))
    assert {(view.state, view.code) for view in views} == {("INITIALIZED", "LIMIT")}
    fewer = crowd(ended=Bits.of(0, 1, 3), running=Bits.of(2, 4))
    fewer_turn = take_turn(KIND, turn.state, message=Pursue(), at=at(fewer))
    assert restarted(fewer_turn) == [(2, [0])] and fewer_turn.state.awaiting_restart == Bits.of(1)
    same_frame = take_turn(KIND, fewer_turn.state, message=Pursue(), at=at(fewer))
    assert not restarted(same_frame) and not begun(same_frame), "its task does not know yet"
    stop = m.SetSliceGoal(3, JOB, 0, TaskGoals.SUCCEEDED, Bits.of(1), None, 3)
    assert not take_turn(KIND, fewer_turn.state, message=stop, at=at(fewer)).state.awaiting_restart


def test_a_slice_gets_more_members_and_the_others_keep_their_configs() -> None:
    own = Override(11, TaskConfig(command=Command("own"), resources=Resources(1)))
    old = Override(3, TaskConfig(command=Command("late"), resources=Resources(1)))
    more = msgspec.structs.replace(OPENING, count=12, overrides=(old, own), config_version=2)
    goal = m.SetSliceGoal(2, JOB, 0, TaskGoals.SUCCEEDED, opening=more, tallied=True)
    tasks = crowd(running=Bits.span(0, 10))
    turn = take_turn(KIND, SOME, message=goal, at=at(tasks))
    made = [(s.message.spec, [*s.members]) for s in turn.sends
            if isinstance(s.message, SetTaskGoal) and s.message.lot]  # fmt: skip
    after = turn.state
    assert sorted(made, key=lambda each: each[1]) == [(2, [10]), (1, [11])] or made == [
        (1, [11]), (2, [10]),
    ]  # fmt: skip
    assert [row.config_version for row in after.specs] == [1, 2, 2] and not after.closed
    assert {row.lot for row in after.specs} == {SOME.specs[0].lot}, "alike to their pool"
    assert confirmed(turn).counts == (("INITIALIZED", 2), ("RUNNING", 10))
    assert confirmed(turn).versions == ((1, 10), (2, 2))


def test_an_ended_member_that_still_holds_its_ticket_is_none_that_the_job_counts() -> None:
    """Nobody reports its release: what it freed is granted to other slices by its end."""
    some = limited(3).state
    ticket = msgspec.structs.replace(ENDED, admission=Admission.RELEASING)
    tasks = crowd(running=Bits.of(0, 1))
    tasks.classes[ticket] = Bits.of(2).raw
    tasks.columns.add(Bits.of(2).raw)
    tasks.columns.write("spec", Bits.of(2).raw, value=0)
    assert tally(some, at(tasks)).active == 2
    turn = take_turn(KIND, some, message=again(2, 2, grant=2), at=at(tasks))
    assert not restarted(turn) and turn.state.awaiting_restart == Bits.of(2)
