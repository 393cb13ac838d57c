"""Gangs: lots that are admitted as one, and a slice that starts none before all are prepared.

Lots are put into the tree by hand, and hosts are drawn events.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import immutables
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.actors.job.slice import messages as m
from peloton.actors.job.slice.facts import GangComplete
from peloton.actors.job.slice.gang import PAUSES, PREPARE_LIMIT_S, backoff_s
from peloton.actors.job.slice.goals import pursue
from peloton.actors.job.slice.kind import kind as slice_kind
from peloton.actors.job.slice.state import Slice, WishNotes
from peloton.actors.job.slice.tally import gang_why
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec, check_spec, updated
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.admission import AdmissionBatch, admissions
from peloton.actors.respool.blockers import ExplainedTree
from peloton.actors.respool.lot.kind import KIND as LOT
from peloton.actors.respool.lot.messages import (
    Admit,
    Enqueue,
    GangTerms,
    LotShape,
    RegroupLot,
    ReleaseTicket,
    Yielded,
)
from peloton.actors.respool.messages import ROOT, PoolConfig, Queueing
from peloton.actors.respool.state import InventorySum, Pool
from peloton.actors.task.kind import KIND as TASK
from peloton.actors.task.messages import (
    End,
    Ended,
    GiveWay,
    KillCause,
    PlaceTasks,
    Prepared,
    RunGone,
    RunOutcome,
    RunRefused,
    SetTaskGoal,
    TaskGoals,
)
from peloton.actors.task.state import Admission, Task, TaskStates
from peloton.placement.messages import Declined, GangPlaced, GangWish, Placed, Unplaced
from peloton.runtime.core.entities.crowd import Crowd
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Decision, Key, Send

KIND = slice_kind()

POOL, CROWD, SLICE, JOB = Key("respool/p"), Key("task/j/0"), Key("slice/j/0"), Key("job/j")
ONE = Resources(UNIT)


# ---- admission ----


class Town:
    """A tree with one pool, and the lots of jobs in it."""

    def __init__(self, cpus: int, queueing: Queueing = Queueing.BEST_EFFORT) -> None:
        self.tree = ExplainedTree()
        sums = immutables.Map({Key("inventory/0"): InventorySum(1, Resources(100 * UNIT))})
        root = Pool(PoolConfig("root", ROOT, Resources(), Resources()), sums)
        self.tree.put(ROOT, old=None, new=root)
        config = PoolConfig("p", ROOT, Resources(), ONE.times(cpus), queueing=queueing)
        self.tree.put(POOL, old=None, new=Pool(config))

    def say(self, lot: str, message: Any, *members: int, now: float = 1.0) -> None:
        """One turn of a lot."""
        key = Key(f"lot/{lot}")
        some = Bits.of(*members) if members else None
        at = At(now=now, key=key, sender=CROWD, members=some)
        before = self.tree.lots.get(key)
        after = take_turn(LOT, before, message=message, at=at).state
        self.tree.put(key, old=before, new=after)

    def ask(
        self, lot: str, *members: int, terms: GangTerms | None, need: int = 1, now: float = 1.0
    ) -> None:
        shape = LotShape(POOL, ONE.times(need), gang=terms is not None)
        self.say(lot, Enqueue(1, shape, terms), *members, now=now)

    def admit(self) -> list[tuple[str, list[int]]]:
        found: list[AdmissionBatch] = admissions(self.tree)
        for lot, members in found:
            self.say(lot[4:], Admit(members))
        return [(lot[4:], [*members]) for lot, members in found]


def terms(*members: int, lots: int = 1, version: int = 1, number: int = 0) -> GangTerms:
    return GangTerms(number, version, lots, Bits.of(*members))


def test_a_gang_of_two_lots_is_admitted_once_all_have_come() -> None:
    town = Town(10)
    town.ask("g/0/0", 0, 1, terms=terms(0, 1, lots=2))
    assert town.admit() == []
    assert "2 of 2 have come" in town.tree.waits(Key("lot/g/0/0")).because
    town.ask("g/0/1", 2, terms=terms(2, 3, lots=2), need=2)
    assert town.admit() == []
    town.ask("g/0/1", 3, terms=terms(2, 3, lots=2), need=2)
    assert town.admit() == [("g/0/0", [0, 1]), ("g/0/1", [2, 3])]
    assert town.tree.use(POOL) == ONE.times(6)


def test_one_that_does_not_fit_is_not_admitted_in_part_and_keeps_its_place() -> None:
    town = Town(5, Queueing.STRICT)
    town.ask("a/0/0", 0, 1, terms=None)
    assert town.admit() == [("a/0/0", [0, 1])]
    town.ask("g/0/0", *range(4), terms=terms(*range(4)))
    town.ask("b/0/0", 0, terms=None, now=2.0)
    assert town.admit() == [], "who comes later waits behind it"
    waits = town.tree.waits(Key("lot/g/0/0"))
    assert waits.because.startswith(
        "a gang of 4: limit of <pool /p> reached: cpu requested 4, 3 of 5"
    )
    town.say("a/0/0", ReleaseTicket(1), 0)
    assert town.admit() == [("g/0/0", [0, 1, 2, 3])]


def test_one_that_is_larger_than_its_pool_blocks_nobody_until_the_pool_grows() -> None:
    town = Town(3)
    town.ask("g/0/0", *range(4), terms=terms(*range(4)))
    town.ask("b/0/0", 0, terms=None)
    assert town.admit() == [("b/0/0", [0])]
    assert town.tree.waits(Key("lot/g/0/0")).never
    larger = Pool(PoolConfig("p", ROOT, Resources(), ONE.times(5)))
    town.tree.put(POOL, old=town.tree.pools[POOL], new=larger)
    assert town.admit() == [("g/0/0", [0, 1, 2, 3])]


def test_members_that_left_are_not_waited_for_once_the_slice_says_so() -> None:
    town = Town(10)
    town.ask("g/0/0", 0, 1, terms=terms(0, 1, 2))
    town.say("g/0/0", RegroupLot(terms(0, 1, version=2)))
    town.say("g/0/0", RegroupLot(terms(0, 1, 2)))
    assert town.admit() == [("g/0/0", [0, 1])], "older terms say nothing"


def test_what_was_admitted_in_part_is_completed() -> None:
    town = Town(5)
    town.ask("g/0/0", 0, terms=terms(0, lots=2))
    town.ask("g/0/1", 1, 2, terms=terms(1, 2, lots=2), need=2)
    assert len(admissions(town.tree)) == 2
    town.say("g/0/0", Admit(Bits.of(0)))  # and then its owner dies
    assert town.admit() == [("g/0/1", [1, 2])]


def test_a_new_round_waits_for_everybody_again() -> None:
    town = Town(10)
    town.ask("g/0/0", 0, 1, terms=terms(0, 1))
    assert town.admit()
    shape = LotShape(POOL, ONE, gang=True)
    town.say("g/0/0", Enqueue(2, shape, terms(0, 1, number=2)), 0)
    assert town.admit() == []
    town.say("g/0/0", Enqueue(2, shape, terms(0, 1, number=2)), 1)
    assert town.admit() == [("g/0/0", [0, 1])]
    closed = GangTerms(3, 1)
    town.say("g/0/0", Enqueue(3, shape, closed), 1)
    assert town.admit() == [("g/0/0", [1])], "once complete, each is retried alone"


@settings(max_examples=80, deadline=None)
@given(st.permutations(range(6)), st.integers(1, 12))
def test_gangs_are_admitted_whole_in_any_order_of_coming(order: list[int], cpus: int) -> None:
    town = Town(cpus)
    for member in order:
        job, mine = ("g", (0, 1, 2)) if member < 3 else ("h", (3, 4, 5))
        town.ask(f"{job}/0/0", member, terms=terms(*mine), need=2)
        for _, members in town.admit():
            assert len(members) == 3
    assert town.tree.use(POOL) == ONE.times(min(cpus // 6, 2) * 6)


# ---- backoff ----


@settings(max_examples=200, deadline=None)
@given(st.uuids(), st.uuids())
def test_two_gangs_are_alone_sooner_or_later(first: Any, second: Any) -> None:
    """However long an attempt takes, pauses differ by more than that from some attempt on."""
    if first == second:
        return
    pairs = ((backoff_s(Key(f"job/{first}"), n), backoff_s(Key(f"job/{second}"), n)) for n in
             range(2, 60))  # fmt: skip
    assert any(abs(one - other) > 2.0 for one, other in pairs)


def test_the_first_attempt_is_repeated_at_once_and_pauses_have_an_end() -> None:
    assert backoff_s(JOB, 1) == 0.0
    assert PAUSES.first_s / 2 <= backoff_s(JOB, 2) <= 1.5 * PAUSES.first_s
    assert backoff_s(JOB, 500) <= 1.5 * PAUSES.most_s


# ---- the spec ----


def spec(**fields: Any) -> JobSpec:
    default = TaskConfig(command=Command("x"))
    return JobSpec("j", "me", POOL, 2000, default, **fields)


def test_what_a_gang_may_be() -> None:
    assert spec(minimum_running=1).gang == 0 == spec(minimum_running=5, revocable=True).gang
    assert spec(minimum_running=5).gang == 5
    refused = check_spec(spec(minimum_running=1001))
    assert refused is not None and "more than 1000" in refused.text
    assert check_spec(spec(gang_together=True)) is not None
    assert updated(spec(minimum_running=5), spec(minimum_running=9)).gang == 5
    assert updated(spec(minimum_running=1), spec(minimum_running=9)).gang == 0


# ---- the slice ----


class Stage:
    """A slice with a gang of three of five, its crowd, and hosts that answer as told."""

    def __init__(self, *, together: bool = False) -> None:
        config = TaskConfig(resources=ONE, max_failures=5 * together)
        opening = m.SliceOpening("j", "n", POOL, 5, config, gang=3, gang_together=together)
        goal = m.SetSliceGoal(1, JOB, 0, TaskGoals.SUCCEEDED, Bits(), opening)
        self.crowd = Crowd(TASK, CROWD)
        self.notes: WishNotes | None = None
        self.now = 1.0
        turn = take_turn(KIND, None, message=goal, at=self.at())
        self.slice: Slice = turn.state
        self.tasks: dict[int, Task] = {}
        self.complete = 0
        self.wished: GangWish | None = None
        self.outbox: list[Send] = [send for send in turn.sends if send.to == CROWD]
        self.settle()

    def at(self, **fields: Any) -> At:
        given = {"index": self.crowd, "notes": self.notes, **fields}
        return At(now=self.now, key=SLICE, **given)

    def tell(self, member: int, message: Any, values: tuple[Any, ...] = ()) -> None:
        """One task hears this."""
        before = self.tasks.get(member)
        at = At(now=self.now, key=CROWD, sender=Key("host/h"), values=values)
        turn = take_turn(TASK, before, message=message, at=at)
        self.tasks[member] = turn.state
        if before is None or self.crowd.state_of(member) != turn.state:
            self.rebuild()
        for send in turn.sends:
            if isinstance(send.message, RunRefused):
                self.hear(send.message, members=Bits.of(member))

    def rebuild(self) -> None:
        self.crowd = Crowd(TASK, CROWD)
        for member, task in self.tasks.items():
            known = self.crowd.classes.get(task, 0)
            self.crowd.classes[task] = known | 1 << member
        raw = Bits.of(*self.tasks).raw
        self.crowd.columns.add(raw)
        self.crowd.columns.write("spec", Bits.of(0, 1, 2).raw, value=0)
        self.crowd.columns.write("spec", raw & ~7, value=1)
        for spec, row in enumerate(self.slice.specs):
            self.crowd.columns.write("lot", raw & (~7 if spec else 7), value=row.lot)

    def hear(self, message: Any, **fields: Any) -> None:
        """The slice hears this."""
        turn = take_turn(KIND, self.slice, message=message, at=self.at(**fields))
        self.slice = turn.state
        self.notes = turn.notes if turn.notes is not None else self.notes
        self.outbox += [send for send in turn.sends if send.to == CROWD]

    def settle(self) -> None:
        """All that is said inside of the slice, until nothing is left."""
        for _ in range(50):
            while self.outbox:
                send = self.outbox.pop(0)
                for member in send.members or Bits():
                    self.tell(member, send.message, send.values)
            step = pursue(self.slice, self.at())
            if not isinstance(step, Decision):
                return
            self.take(step)
        raise AssertionError("it never rests")

    def take(self, step: Decision) -> None:
        for fact in step.facts:
            if isinstance(fact, GangComplete):
                self.complete += 1
                prepared = {n for n, t in self.tasks.items() if t.state == TaskStates.PREPARED}
                assert {*self.slice.forming} <= prepared, "the gang is complete, and not prepared"
            self.slice = KIND.evolve[type(fact)](self.slice, fact)  # type: ignore[assignment]
        self.notes = step.notes if step.notes is not None else self.notes
        for send in step.sends:
            if isinstance(send.message, GangWish):
                self.wished = send.message
            if send.to == CROWD:
                self.outbox.append(send)

    def admit(self) -> None:
        self.tasks = {
            member: msgspec.structs.replace(task, admission=Admission.ADMITTED, ticket=1)
            for member, task in self.tasks.items()
        }
        self.rebuild()
        self.settle()

    def propose(self) -> None:
        """A placer answers the last wish."""
        if self.wished is None:
            return
        wish, self.wished = self.wished, None
        hosts = (Key("host/h"),) * 3
        parts = tuple(Placed(wish.number, part.members, hosts[: len(part.members)]) for part in
                      wish.parts)  # fmt: skip
        self.hear(GangPlaced(wish.number, parts), sender=Key("placer/1"))
        self.settle()

    def states(self) -> list[str]:
        return [self.tasks[member].state.name for member in range(3)]


def test_all_are_admitted_then_prepared_then_started() -> None:
    stage = Stage()
    assert stage.wished is None
    stage.admit()
    assert stage.wished is not None and [*stage.wished.parts[0].members] == [0, 1, 2]
    stage.propose()
    assert stage.states() == ["PREPARING"] * 3
    stage.tell(0, Prepared(1))
    stage.tell(2, Prepared(1))
    stage.settle()
    assert stage.states() == ["PREPARED", "PREPARING", "PREPARED"] and not stage.complete
    stage.tell(1, Prepared(1))
    stage.settle()
    assert stage.states() == ["LAUNCHING"] * 3 and stage.complete == 1
    assert not stage.slice.gang_open and not stage.slice.forming


def with_a_refusal() -> Stage:
    """The first member is prepared, the second refused, the host of the third has not answered."""
    stage = Stage()
    stage.admit()
    stage.propose()
    stage.tell(0, Prepared(1))
    stage.tell(1, RunRefused(1, "full"))
    stage.settle()
    return stage


def test_one_refusal_and_all_give_back() -> None:
    stage = with_a_refusal()
    assert stage.states() == ["KILLING", "WAITING", "KILLING"] and stage.wished is None
    stage.tell(0, RunGone(1))
    stage.tell(2, RunGone(1))
    stage.settle()
    assert stage.states() == ["WAITING"] * 3 and stage.wished is not None
    assert [stage.tasks[member].run for member in range(3)] == [2, 2, 2]


def test_a_gang_that_is_refused_whole_pauses_as_well() -> None:
    """Else it would be refused, and wish again, as quickly as messages go."""
    stage = Stage()
    stage.admit()
    for attempt in range(1, 5):
        stage.propose()
        assert stage.states() == ["PREPARING"] * 3
        at = At(now=stage.now, key=CROWD, sender=Key("host/h"))
        for member in range(3):
            refusal = RunRefused(attempt, "too early")
            stage.tasks[member] = take_turn(TASK, stage.tasks[member], message=refusal, at=at).state
        stage.rebuild()
        turn = take_turn(
            KIND,
            stage.slice,
            message=RunRefused(attempt, "too early"),
            at=stage.at(members=Bits.of(0, 1, 2)),
        )
        stage.notes = turn.notes
        assert stage.notes is not None and stage.notes.gang is not None
        assert stage.notes.gang.attempt == attempt
        pause = backoff_s(JOB, attempt)
        wishes = [send.message for send in turn.sends if isinstance(send.message, GangWish)]
        assert bool(wishes) == (pause == 0.0)
        stage.now += pause
        stage.settle()
        stage.wished = wishes[0] if wishes else stage.wished


def test_after_too_long_all_give_back() -> None:
    stage = Stage()
    stage.admit()
    stage.propose()
    stage.tell(0, Prepared(1))
    stage.settle()
    stage.now += PREPARE_LIMIT_S
    stage.settle()
    assert stage.states() == ["KILLING"] * 3
    assert stage.notes is not None and stage.notes.gang is not None
    assert "not all hosts of the gang answered" in stage.notes.gang.because


def test_who_gives_its_room_back_is_not_said_to_be_stopped() -> None:
    stage = with_a_refusal()
    notes = stage.notes or WishNotes()
    (code, text), _ = gang_why(stage.tasks[0], notes, stage.at())
    assert code == "GANG" and text.startswith("its host has to give back the room")
    assert text.endswith("1 member of the gang has no host: full")


def evicted(stage: Stage, count: int) -> list[int]:
    """Whom the lot of the gang is told of that are to give up what they hold."""
    order = m.Evict(1, count, Resources(), "another pool needs it")
    turn = take_turn(KIND, stage.slice, message=order, at=stage.at(sender=stage.slice.specs[0].lot))
    stage.slice = turn.state
    stage.outbox += [send for send in turn.sends if send.to == CROWD]
    (told,) = (send.message for send in turn.sends if isinstance(send.message, Yielded))
    stage.settle()
    return sorted(member for _, members in told.going for member in members)


def test_of_a_gang_that_waits_for_hosts_no_part_keeps_its_allocation() -> None:
    """Two gangs of one pool that hold a part each would wait for each other for ever."""
    stage = Stage()
    stage.admit()
    assert evicted(stage, 1) == [2]
    assert {stage.tasks[member].admission for member in range(3)} == {Admission.REQUESTED}
    assert {stage.tasks[member].admission for member in (3, 4)} == {Admission.ADMITTED}
    assert stage.slice.forming == Bits.of(0, 1, 2) and stage.slice.gang_round == 1
    stage.admit()
    stage.propose()
    assert stage.states() == ["PREPARING"] * 3


def test_a_gang_of_which_hosts_prepared_some_is_left_to_its_attempt() -> None:
    stage = Stage()
    stage.admit()
    stage.propose()
    stage.tell(0, Prepared(1))
    stage.tell(1, RunRefused(1, "full"))
    assert stage.tasks[1].state == TaskStates.WAITING
    assert evicted(stage, 1) == []
    stage.tell(0, RunGone(1))
    stage.tell(2, RunGone(1))
    stage.settle()
    assert stage.wished is not None


def test_a_gang_that_forms_anew_names_the_host_where_a_run_did_not_start() -> None:
    stage = Stage()
    stage.notes = WishNotes(avoid=((Key("host/slow"), 50.0), (Key("host/past"), 0.5)))
    stage.admit()
    assert stage.wished is not None and stage.wished.avoid == (Key("host/slow"),)


def test_what_was_not_heard_is_said_again() -> None:
    stage = Stage()
    stage.admit()
    stage.propose()
    for member in range(3):
        stage.tell(member, Prepared(1))
    step = pursue(stage.slice, stage.at())
    assert isinstance(step, Decision)
    stage.take(step)
    stage.outbox.clear()  # the word to go is lost
    stage.settle()
    assert stage.states() == ["PREPARED"] * 3 and stage.complete == 1
    stage.now += PREPARE_LIMIT_S
    stage.settle()
    assert stage.states() == ["LAUNCHING"] * 3 and stage.complete == 1


def test_who_is_stopped_is_not_waited_for() -> None:
    stage = Stage()
    stage.admit()
    stage.propose()
    stage.tell(0, Prepared(1))
    stage.tell(1, Prepared(1))
    stage.settle()
    stage.hear(m.SetSliceGoal(2, JOB, 0, TaskGoals.SUCCEEDED, Bits.of(2)))
    stage.settle()
    assert stage.states() == ["LAUNCHING", "LAUNCHING", "KILLING"]


def test_a_restart_does_not_wait_for_members_that_are_to_stop() -> None:
    """One of them ends for as long as its grace lasts, or its host is out of reach."""
    stage = Stage(together=True)
    stage.admit()
    stage.propose()
    for member in range(3):
        stage.tell(member, Prepared(1))
    stage.settle()
    assert stage.complete == 1
    stage.hear(m.SetSliceGoal(2, JOB, 0, TaskGoals.SUCCEEDED, Bits.of(2)))
    stage.settle()
    for member, end in ((0, End.FAILED), (1, End.KILLED)):
        stage.tell(member, Ended(1, RunOutcome(end)))
        stage.settle()
    assert stage.states()[2] == "KILLING"
    assert [*stage.slice.forming] == [0, 1], "the others form anew meanwhile"


def test_once_all_of_it_are_stopped_it_hides_no_time_of_the_others() -> None:
    stage = Stage()
    stage.admit()
    stage.hear(m.SetSliceGoal(2, JOB, 0, TaskGoals.SUCCEEDED, Bits.of(0, 1, 2)))
    stage.settle()
    stage.now += 100.0
    stage.settle()
    assert stage.notes is not None and KIND.recall_s is not None
    again = KIND.recall_s(stage.notes)
    assert again is not None and again > stage.now, "the wish of 3 and 4 may be lost"


def test_a_change_of_the_placer_that_keeps_others_does_not_end_the_wish_of_the_gang() -> None:
    stage = Stage()
    stage.admit()
    assert stage.notes is not None
    others = Bits.of(3, 4)
    for number, placer in enumerate((Key("placer/1"), Key("placer/2"))):
        answer = Unplaced(9 + number, others, (("no_offer", 1),), "full", kept=True)
        turn = take_turn(KIND, stage.slice, message=answer, at=stage.at(sender=placer))
        stage.notes = turn.notes
    (declined,) = (send for send in turn.sends if isinstance(send.message, Declined))
    assert declined.to == Key("placer/1")
    assert [*declined.message.wanted] == [0, 1, 2], "a placer forgets a gang that lacks one"


def test_a_gang_that_can_never_fit_gives_its_tickets_back() -> None:
    stage = Stage()
    stage.admit()
    assert stage.wished is not None
    members = Bits.of(0, 1, 2)
    answer = Unplaced(stage.wished.number, members, (), "never", never=True, kept=True)
    stage.hear(answer, sender=Key("placer/1"))
    stage.settle()
    assert all(stage.tasks[member].unschedulable for member in range(3))
    assert not any(stage.tasks[member].unschedulable for member in (3, 4))


def test_a_repeated_or_late_word_starts_nobody() -> None:
    stage = Stage()
    stage.admit()
    for message in (PlaceTasks(), GiveWay(KillCause.PREPARATION_DROPPED, "late"), Prepared(7)):
        stage.tell(0, message)
    assert stage.states() == ["WAITING"] * 3
    stage.tell(0, PlaceTasks(prepare=True), (Key("host/h"),))
    stage.tell(0, PlaceTasks())
    assert stage.tasks[0].state == TaskStates.PREPARING, "it is not prepared yet"
    stage.tell(0, SetTaskGoal(3, TaskGoals.KILLED, stage.tasks[0].policy, 0, Key("lot/j/0/0")))
    stage.tell(0, Prepared(1))
    stage.tell(0, PlaceTasks())
    assert stage.tasks[0].state == TaskStates.KILLING


def drawn(events: list[tuple[int, int]], stage: Stage) -> Iterator[tuple[Task, int, int]]:
    for kind, member in events:
        yield stage.tasks[member], kind, member


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), max_size=60))
def test_no_part_of_a_gang_starts_whatever_hosts_answer(events: list[tuple[int, int]]) -> None:
    """Answers come in any order, twice, late or never; owners die. `take` asserts the rule."""
    stage = Stage()
    stage.admit()
    for task, kind, member in drawn(events, stage):
        if kind == 0:
            stage.propose()
        elif kind == 1 and task.state in (TaskStates.PREPARING, TaskStates.PREPARED):
            stage.tell(member, Prepared(task.run))
        elif kind == 2 and task.state == TaskStates.PREPARING:
            stage.tell(member, RunRefused(task.run, "full"))
        elif kind == 3 and task.state == TaskStates.KILLING:
            stage.tell(member, RunGone(task.run))
        elif kind == 4:
            stage.tell(member, Prepared(max(task.run - 1, 1)))
        elif kind == 5:
            stage.notes = None  # another owner has taken over
        else:
            stage.now += 7.0
        stage.settle()
        if not stage.complete:
            launched = [name for name in stage.states() if name in ("LAUNCHING", "RUNNING")]
            assert not launched
    for _ in range(40):  # hosts answer from now on: it is prepared, and starts
        if stage.complete:
            break
        stage.now += 60.0
        stage.settle()
        stage.propose()
        for member, task in itertools.product(range(3), (0,)):
            now = stage.tasks[member]
            if now.state == TaskStates.PREPARING:
                stage.tell(member, Prepared(now.run))
            elif now.state == TaskStates.KILLING:
                stage.tell(member, RunGone(now.run))
            assert task == 0
        stage.settle()
    assert stage.complete == 1
    assert all(name == "LAUNCHING" for name in stage.states())


@pytest.mark.parametrize("state", [TaskStates.PREPARING, TaskStates.PREPARED])
def test_a_prepared_run_is_cancelled_by_its_task(state: TaskStates) -> None:
    stage = Stage()
    stage.admit()
    stage.propose()
    if state == TaskStates.PREPARED:
        stage.tell(0, Prepared(1))
    assert stage.tasks[0].state == state
    stage.tell(0, SetTaskGoal(3, TaskGoals.KILLED, stage.tasks[0].policy, 0, Key("lot/j/0/0")))
    assert stage.tasks[0].state == TaskStates.KILLING
    stage.tell(0, RunGone(1))
    assert stage.tasks[0].state == TaskStates.KILLED
