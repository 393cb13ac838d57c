"""Which members of a service a slice takes down, and who has to wait: turn by turn.

The crowd is made by hand, and learns of nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from peloton.actors.host import messages as hm
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.host.stages import Maintenance, RunPhase
from peloton.actors.job.slice import facts as f
from peloton.actors.job.slice.availability import down_tally
from peloton.actors.job.slice.evicting import DISRUPTION_WANTED_S
from peloton.actors.job.slice.goals import pursue
from peloton.actors.job.slice.kind import kind as slice_kind
from peloton.actors.job.slice.messages import Evict, SetSliceGoal, SliceOpening
from peloton.actors.job.slice.rollout_messages import (
    AskToEnd,
    DownBudget,
    DownTally,
    MemberRestarted,
    RestartIfSpared,
    SpareAsked,
    SparedFor,
    WantDisruption,
)
from peloton.actors.job.slice.sparing import ends_step
from peloton.actors.job.slice.state import Slice
from peloton.actors.job.slice.task_config import TaskConfig
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.lot.messages import Yielded
from peloton.actors.task.kind import KIND as TASK
from peloton.actors.task.messages import GiveWay, KillCause, Policy, TaskGoals
from peloton.actors.task.state import Admission, Task, TaskStates
from peloton.runtime.core.entities.crowd import Crowd
from peloton.runtime.core.turning.turn import TurnOutcome, take_turn
from peloton.runtime.vocabulary import At, Bits, Decision, Key, Message, Pursue, Refused
from tests.actors.hosts import test_host as h

KIND = slice_kind()

JOB, SLICE, CROWD = Key("job/j"), Key("slice/j/0"), Key("task/j/0")
HOST, OTHER = Key("host/a"), Key("host/b")
COUNT = 4
OPENING = SliceOpening(
    "j", "s", Key("respool/p"), COUNT, TaskConfig(resources=Resources(UNIT)), service=True
)
UP = Task(TaskGoals.RUNNING, TaskStates.RUNNING, Policy(), 3, 1, Admission.ADMITTED)
DOWN = Task(TaskGoals.RUNNING, TaskStates.LAUNCHED, Policy(), 3, 1, Admission.ADMITTED)


def crowd(up: Bits, down: Bits = Bits()) -> Crowd:  # noqa: B008
    found = Crowd(TASK, CROWD)
    for state, members in ((UP, up), (DOWN, down)):
        if members:
            found.classes[state] = members.raw
            found.columns.add(members.raw)
            found.columns.write("spec", members.raw, value=0)
            found.columns.write("lot", members.raw, value="lot/j/0/0")
            found.columns.write("host", members.raw, value=HOST)
    return found


ALL = Bits.span(0, COUNT)


def turn(
    slice_: Slice | None,
    message: Message,
    tasks: Crowd,
    sender: Key = HOST,
    *,
    notes: object = None,
    now: float = 9.0,
) -> TurnOutcome:
    at = At(now=now, key=SLICE, sender=sender, index=tasks, notes=notes)
    return take_turn(KIND, slice_, message=message, at=at)


def told(budget: DownBudget | None) -> Slice:
    goal = SetSliceGoal(1, JOB, 0, TaskGoals.RUNNING, opening=OPENING, budget=budget)
    return turn(None, goal, Crowd(TASK, CROWD)).state  # type: ignore[no-any-return]


def given_way(found: TurnOutcome | Decision) -> list[int]:
    sends = [send for send in found.sends if isinstance(send.message, GiveWay)]
    return sorted(one for send in sends for one in send.members or ())


def test_two_orders_before_the_tasks_learn_of_any_know_of_each_other() -> None:
    tasks = crowd(ALL)
    first = turn(told(DownBudget(1)), RestartIfSpared(0), tasks)
    assert first.reply == MemberRestarted(wanted=True) and given_way(first) == [0]
    second = turn(first.state, RestartIfSpared(1), tasks)
    assert isinstance(second.reply, Refused) and not second.facts and not second.sends
    ask = turn(first.state, AskToEnd(((3, ALL),)), tasks)
    assert not given_way(ask) and ask.facts == (f.EndsAsked(HOST, ((3, ALL - Bits.of(0)),)),)


def test_who_is_down_gives_way_at_once_and_the_others_wait_their_turn() -> None:
    tasks = crowd(Bits.of(0, 1, 2), Bits.of(3))
    found = turn(told(DownBudget(2)), AskToEnd(((3, ALL),)), tasks)
    assert given_way(found) == [0, 3]
    assert found.facts == (
        f.MembersSpared(((3, Bits.of(0)),), SparedFor.MAINTENANCE),
        f.EndsAsked(HOST, ((3, Bits.of(1, 2)),)),
    )
    again = turn(found.state, AskToEnd(((3, Bits.of(1, 2)),)), tasks)
    assert not again.facts and not again.sends, "a repeat changes nothing"
    # The two are back, under another run: the next ones go.
    later = crowd(Bits.of(1, 2))
    later.classes[msgspec.structs.replace(UP, run=4)] = Bits.of(0, 3).raw
    later.columns.add(Bits.of(0, 3).raw)
    step = pursue(found.state, At(now=9.0, key=SLICE, index=later))
    assert isinstance(step, Decision) and given_way(step) == [1, 2]


def test_runs_of_another_number_and_unknown_ones_are_no_affair_of_the_slice() -> None:
    found = turn(told(DownBudget(1)), AskToEnd(((2, ALL), (4, ALL))), crowd(ALL))
    assert not found.facts and not found.sends


def test_without_a_bound_all_give_way_and_nothing_is_noted() -> None:
    found = turn(told(None), AskToEnd(((3, ALL),)), crowd(ALL))
    assert given_way(found) == [0, 1, 2, 3] and not found.facts
    order = next(s.message for s in found.sends)
    assert order == GiveWay(KillCause.MAINTENANCE, "host maintenance", 3)


def test_a_slice_that_shares_a_budget_asks_its_job_until_it_is_heard() -> None:
    tasks = crowd(ALL)
    found = turn(told(DownBudget(0, 5)), AskToEnd(((3, Bits.of(0, 1)),)), tasks)
    asked = SpareAsked(0, 1)
    assert [send.message for send in found.sends] == [asked]
    assert [send.message for send in KIND.owed(found.state)] == [asked]
    assert down_tally(found.state, tasks) == DownTally(0, 2)
    heard = SetSliceGoal(2, JOB, 0, TaskGoals.RUNNING, opening=OPENING, budget=DownBudget(0, 5, 1))
    assert not KIND.owed(turn(found.state, heard, tasks).state)
    more = SetSliceGoal(3, JOB, 0, TaskGoals.RUNNING, opening=OPENING, budget=DownBudget(1, 5, 1))
    assert given_way(turn(found.state, more, tasks)) == [0]


def test_a_restart_asks_the_job_for_a_time_and_gives_it_back() -> None:
    tasks = crowd(ALL)
    refused = turn(told(DownBudget(0, 5)), RestartIfSpared(2), tasks)
    assert isinstance(refused.reply, Refused) and refused.reply.code == "ASKED_JOB"
    assert not refused.facts and [send.message for send in refused.sends] == [WantDisruption(1)]
    wanting = turn(refused.state, WantDisruption(1), tasks, SLICE)
    assert KIND.recall_s(wanting.notes) == 9.0 + DISRUPTION_WANTED_S
    assert down_tally(wanting.state, tasks) == DownTally(0, 1)
    over = turn(wanting.state, Pursue(), tasks, notes=wanting.notes, now=9.0 + DISRUPTION_WANTED_S)
    assert down_tally(over.state, tasks) == DownTally(0, 0)
    more = SetSliceGoal(2, JOB, 0, TaskGoals.RUNNING, opening=OPENING, budget=DownBudget(1, 5, 1))
    spared = turn(turn(wanting.state, more, tasks).state, RestartIfSpared(2), tasks)
    assert spared.reply == MemberRestarted(wanted=True) and not spared.state.disruption_wanted


def test_an_order_to_give_back_waits_for_the_job_and_is_answered_in_any_case() -> None:
    tasks, lot = crowd(ALL), Key("lot/j/0/0")
    order = Evict(1, 3, Resources(), "for others")
    waits = turn(told(DownBudget(0, 5)), order, tasks, lot)
    assert not any(isinstance(send.message, Yielded) for send in waits.sends)
    over = turn(waits.state, Pursue(), tasks, notes=waits.notes, now=9.0 + DISRUPTION_WANTED_S)
    (answer,) = [s.message for s in over.sends if isinstance(s.message, Yielded)]
    assert not answer.going and "no more of its instances may be down" in answer.because
    more = SetSliceGoal(2, JOB, 0, TaskGoals.RUNNING, opening=OPENING, budget=DownBudget(2, 5, 1))
    given = turn(waits.state, more, tasks, notes=waits.notes)
    (answer,) = [s.message for s in given.sends if isinstance(s.message, Yielded)]
    assert sum(len(some) for _, some in answer.going) == 2


def test_two_orders_that_wait_for_the_job_are_both_answered_by_what_it_gives() -> None:
    tasks, lots = crowd(ALL), (Key("lot/j/0/0"), Key("lot/j/0/1"))
    tasks.columns.write("lot", Bits.of(2, 3).raw, value=lots[1])
    state, notes = told(DownBudget(0, 5)), None
    for lot in lots:
        waits = turn(state, Evict(1, 1, Resources(), "for others"), tasks, lot, notes=notes)
        assert not any(isinstance(send.message, Yielded) for send in waits.sends)
        state, notes = waits.state, waits.notes
    more = SetSliceGoal(2, JOB, 0, TaskGoals.RUNNING, opening=OPENING, budget=DownBudget(2, 5, 1))
    given = turn(state, more, tasks, notes=notes)
    answered = [send.to for send in given.sends if isinstance(send.message, Yielded)]
    assert answered == [*lots], "neither waits for its lot to ask again"
    assert not given.state.disruption_wanted


def test_a_restart_that_was_spared_leaves_an_order_what_it_wants() -> None:
    tasks, lot = crowd(ALL), Key("lot/j/0/0")
    waits = turn(told(DownBudget(0, 5)), Evict(1, 2, Resources(), "for others"), tasks, lot)
    down = crowd(Bits.of(0, 1), Bits.of(2, 3))
    found = turn(waits.state, RestartIfSpared(2), down, notes=waits.notes)
    assert found.reply == MemberRestarted(wanted=True) and found.state.disruption_wanted == 2
    over = turn(
        found.state, Pursue(), down, notes=found.notes or waits.notes, now=9.0 + DISRUPTION_WANTED_S
    )
    assert [send.to for send in over.sends if isinstance(send.message, Yielded)] == [lot]


def test_a_want_that_is_over_is_over_though_members_look_for_hosts_in_the_same_turn() -> None:
    wanting = turn(told(DownBudget(0, 5)), WantDisruption(1), crowd(ALL), SLICE)
    looks = Task(TaskGoals.RUNNING, TaskStates.WAITING, Policy(), 3, 1, Admission.ADMITTED)
    tasks = crowd(Bits.of(0, 1, 2))
    tasks.classes[looks] = Bits.of(3).raw
    tasks.columns.add(Bits.of(3).raw)
    tasks.columns.write("spec", Bits.of(3).raw, value=0)
    now = 9.0 + DISRUPTION_WANTED_S
    over = turn(wanting.state, Pursue(), tasks, notes=wanting.notes, now=now)
    assert not over.state.disruption_wanted and over.notes.wished == Bits.of(3)
    assert (KIND.recall_s(over.notes) or 0.0) > now, "it is not woken for what is over"


def test_a_host_asks_until_the_runs_are_ending() -> None:
    spec = RunSpec(Resources(UNIT), "x", asks=True)
    host = h.up()
    for message, members in (
        (hm.Launch(1, spec), Bits.of(0, 1)),
        (hm.RunsStarted((h.pod(0), h.pod(1))), None),
        (hm.StartMaintenance(), None),
    ):
        at = At(now=9.0, key=h.HOST, sender=h.CROWD, members=members, epoch=h.EPOCH)
        found = take_turn(h.KIND, host, message=message, at=at)
        host = found.state
    assert host.maintenance == Maintenance.DRAINING
    assert {run.phase for _, run in host.runs.items()} == {RunPhase.STARTED}
    (ask,) = [send for send in found.sends if isinstance(send.message, AskToEnd)]
    assert ask.message == AskToEnd(((1, Bits.of(0, 1)),)) and ask in h.KIND.owed(host)
    at = At(now=9.0, key=h.HOST, sender=h.CROWD, members=Bits.of(0), epoch=h.EPOCH)
    host = take_turn(h.KIND, host, message=hm.KillRun(1, 3.0), at=at).state
    (left,) = [s.message for s in h.KIND.owed(host) if isinstance(s.message, AskToEnd)]
    assert left == AskToEnd(((1, Bits.of(1)),))


class CountedCrowd(Crowd):
    """Counts how often its members are looked through."""

    looked = 0

    def where(self, test: Callable[[Any], object]) -> int:
        self.looked += 1
        return super().where(test)


def looked_through(hosts: int) -> int:
    """How often that is, in a turn while so many hosts go down, none of whose runs are spared."""
    tasks = crowd(ALL)
    slice_ = turn(told(DownBudget(1)), RestartIfSpared(0), tasks).state
    for number in range(hosts):
        slice_ = turn(slice_, AskToEnd(((3, ALL),)), tasks, sender=Key(f"host/{number}")).state
    assert len(slice_.ends) == hosts
    counted = CountedCrowd(TASK, CROWD)
    counted.classes, counted.columns = tasks.classes, tasks.columns
    at = At(now=9.0, key=SLICE, index=counted)
    assert ends_step(slice_, at) is None
    return counted.looked


def test_who_is_available_is_found_once_in_a_turn_however_many_hosts_go_down() -> None:
    assert looked_through(21) - looked_through(1) == 20, "only which of its runs are still there"
