"""A task: its attempts, its throttle, late and repeated messages, what it owes.

Pools and hosts answer in the simulated world.
"""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from peloton.actors.host.live.live_messages import LimitRun
from peloton.actors.host.messages import KillRun, Launch, RunSeen
from peloton.actors.respool.lot.messages import Enqueue, ReleaseTicket
from peloton.actors.task import facts as f
from peloton.actors.task import messages as m
from peloton.actors.task.decide import ABSENT, deadline, owed
from peloton.actors.task.kind import KIND
from peloton.actors.task.messages import End, Policy, RunOutcome, TaskGoals
from peloton.actors.task.run_messages import ContainerEnd, RetryRules
from peloton.actors.task.state import ON_HOST, THROTTLE, Admission, Task, TaskStates
from peloton.runtime.core.turning.turn import TurnOutcome as Turn
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Due, Key, Message

AT = At(now=100.0, key=Key("task/j/0"), sender=Key("host/h"))
FAILED = RunOutcome(End.FAILED, 1)
SYSTEM = RunOutcome(End.FAILED, reason="launch failed", system=True)
LOST = RunOutcome(End.LOST, system=True)
KILLED = RunOutcome(End.KILLED)
SUCCEEDED = RunOutcome(End.SUCCEEDED, 0)


def receive(task: Task, message: Message) -> Turn:
    """One turn of a task."""
    return take_turn(KIND, task, message=message, at=AT)


def replies(turn: Turn) -> list[Message]:
    """What leaves."""
    return [send.message for send in turn.sends]


def running(goal: TaskGoals = TaskGoals.SUCCEEDED, **fields: Any) -> Task:
    """A task whose run 1 is running under ticket 1."""
    policy = fields.pop("policy", None) or Policy(max_failures=fields.pop("max_failures", 0))
    given = {"run": 1, "ticket": 1, "admission": Admission.ADMITTED, **fields}
    return Task(goal, TaskStates.RUNNING, policy, **given)


def run_again(task: Task) -> Task:
    """The next run of a retried task runs."""
    fields = {"state": TaskStates.RUNNING, "admission": Admission.ADMITTED}
    return Task(**{**{f: getattr(task, f) for f in task.__struct_fields__}, **fields})


def tries(outcome: RunOutcome, max_failures: int) -> int:
    """How many runs a batch task has when all end so."""
    task = running(max_failures=max_failures)
    for count in range(1, 1000):
        task = receive(task, m.Ended(task.run, outcome)).state
        if task.state != TaskStates.WAITING:
            return count
        assert task.run == count + 1 and task.ticket == count + 1
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
    outcome: RunOutcome, max_failures: int, runs: int
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
    goal: TaskGoals, outcome: RunOutcome, failures: int, system_failures: int
) -> None:
    after = KIND.evolve[type(_run_ended(outcome))](running(goal), _run_ended(outcome))
    assert (after.failures, after.system_failures) == (failures, system_failures)


@pytest.mark.parametrize("state", [TaskStates.LAUNCHING, TaskStates.LAUNCHED])
def test_a_run_whose_end_overtook_its_start_has_started(state: TaskStates) -> None:
    task = msgspec.structs.replace(running(), state=state)
    ended = receive(task, m.Ended(1, SUCCEEDED, 7.0))
    assert [type(fact) for fact in ended.facts[:2]] == [f.TaskStarted, f.RunEnded]
    assert KIND.crowd is not None
    assert KIND.crowd.write[f.TaskStarted](ended.facts[0], 9.0) == {"started_at": 7.0}
    lost = receive(task, m.Ended(1, LOST))
    assert f.TaskStarted not in [type(fact) for fact in lost.facts], "nobody knows whether it did"


@pytest.mark.parametrize(("started_at", "has"), [(0.0, False), (5.0, True)])
def test_init_containers_alone_are_no_start(started_at: float, has: bool) -> None:
    task = msgspec.structs.replace(running(TaskGoals.RUNNING), state=TaskStates.LAUNCHED)
    containers = ContainerEnd("i", True, 1.0, 2.0, 3), ContainerEnd("a", False, started_at)
    ended = receive(task, m.Ended(1, msgspec.structs.replace(FAILED, containers=containers)))
    assert (f.TaskStarted in [type(fact) for fact in ended.facts]) == has


def _run_ended(outcome: RunOutcome) -> Any:
    return receive(running(), m.Ended(1, outcome)).facts[0]


def test_the_throttle_doubles_to_an_hour() -> None:
    assert [THROTTLE.after(n) for n in range(9)] == [0, 30, 60, 120, 240, 480, 960, 1920, 3600]
    assert THROTTLE.after(10_000) == 3600


def test_a_service_rests_before_its_next_run() -> None:
    turn = receive(running(TaskGoals.RUNNING, failures=2), m.Ended(1, FAILED))
    assert turn.state.state == TaskStates.THROTTLED
    assert deadline(turn.state) == ("throttle", 120.0)
    after = receive(turn.state, Due("throttle"))
    assert (after.state.state, after.state.run, after.state.ticket) == (TaskStates.WAITING, 2, 2)
    assert replies(after) == [Enqueue(2)]


@pytest.mark.parametrize(
    ("failed", "after_s"),
    [({"failures": 8}, 600.0), ({"system_failures": 1}, 600.0), ({}, None)],
)
def test_a_service_that_has_run_for_a_while_rests_shortly_again(
    failed: dict[str, int], after_s: float | None
) -> None:
    service = msgspec.structs.replace(running(TaskGoals.RUNNING), **failed)
    if after_s is None:
        assert deadline(service) is None
        return
    assert deadline(service) == ("healthy", after_s)
    well = receive(service, Due("healthy")).state
    assert (well.state, well.run, deadline(well)) == (TaskStates.RUNNING, 1, None)
    ended = receive(well, m.Ended(1, FAILED)).state
    assert deadline(ended) == ("throttle", 30.0), "as after its first failure"


def test_a_batch_task_keeps_its_count_of_attempts_however_long_it_runs() -> None:
    assert deadline(running(failures=2)) is None


def test_a_start_that_takes_too_long_is_a_system_failure() -> None:
    launched = run_again(running())
    launched = Task(launched.goal, TaskStates.LAUNCHED, launched.policy, 1, 1, Admission.ADMITTED)
    assert deadline(launched) == ("start", 180 * 60.0)
    killing = receive(launched, Due("start"))
    assert killing.state.state == TaskStates.KILLING and replies(killing) == [KillRun(1, 30.0)]
    assert killing.state.run == 1, "no new run before the last one is known to be over"
    gone = receive(killing.state, m.RunGone(1))
    assert (gone.state.state, gone.state.run) == (TaskStates.WAITING, 2)
    assert (gone.state.failures, gone.state.system_failures) == (0, 1)


def test_a_refused_launch_is_a_new_run_under_the_same_ask() -> None:
    task = Task(TaskGoals.SUCCEEDED, TaskStates.LAUNCHING, Policy(), 1, 1, Admission.ADMITTED)
    turn = receive(task, m.RunRefused(1, "insufficient resources"))
    told = m.RunRefused(1, "insufficient resources", host=Key("host/h"))
    assert (turn.state.state, turn.state.run) == (TaskStates.WAITING, 2)
    assert (turn.state.ticket, turn.state.admission, turn.state.failures) == (
        1,
        Admission.ADMITTED,
        0,
    )
    assert replies(turn) == [RunSeen(1), told]


@pytest.mark.parametrize("goal", [TaskGoals.KILLED, TaskGoals.DELETED])
def test_a_refusal_ends_a_task_that_is_stopped(goal: TaskGoals) -> None:
    task = Task(goal, TaskStates.KILLING, Policy(), 1, 1, Admission.ADMITTED)
    turn = receive(task, m.RunRefused(1, "insufficient resources"))
    assert turn.state.state == TaskStates.KILLED and ReleaseTicket(1) in replies(turn)


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
    task = Task(TaskGoals.SUCCEEDED, state, Policy(), run=2, ticket=2, admission=Admission.QUEUED)
    decision = KIND.decide[type(message)](task, message, AT)
    assert not decision.facts
    assert [send.message for send in decision.sends] == [answer]


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (m.Accepted(1), KillRun(1, 30.0)),
        (m.Started(1), KillRun(1, 30.0)),
        (m.RunRefused(1, "full"), RunSeen(1)),
        (m.Ended(1, SUCCEEDED), RunSeen(1)),
        (m.RunGone(1), None),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("state", sorted(ON_HOST))
def test_what_is_said_of_an_earlier_run_does_not_touch_the_present_one(
    state: TaskStates, message: Message, answer: Message | None
) -> None:
    task = msgspec.structs.replace(running(run=2), state=state)
    turn = receive(task, message)
    assert turn.state == task and not turn.facts
    assert [type(reply) for reply in replies(turn)] == ([type(answer)] if answer else [])
    assert all(reply.run == 1 for reply in replies(turn))  # type: ignore[attr-defined]


@pytest.mark.parametrize("state", sorted(ON_HOST))
def test_only_a_run_that_is_being_killed_may_turn_out_never_to_have_begun(
    state: TaskStates,
) -> None:
    turn = receive(msgspec.structs.replace(running(), state=state), m.RunGone(1))
    assert (turn.state.state != state) == (state == TaskStates.KILLING)


def test_a_host_is_taken_by_an_admitted_task_that_waits_for_one_and_by_no_other() -> None:
    """Without a host, by one alone that is prepared."""
    placed = msgspec.structs.replace(AT, values=(Key("host/h"),))
    for goal, state, admission in itertools.product(TaskGoals, TaskStates, Admission):
        task = Task(goal, state, Policy(), run=1, ticket=1, admission=admission)
        wanted = goal in (TaskGoals.SUCCEEDED, TaskGoals.RUNNING)
        waits = wanted and state == TaskStates.WAITING and admission == Admission.ADMITTED
        holds = wanted and state == TaskStates.PREPARED
        for at, launches in ((placed, waits), (AT, holds)):
            turn = take_turn(KIND, task, message=m.PlaceTasks(), at=at)
            assert (Launch(1) in replies(turn)) == launches, (goal, state, admission)


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (m.Accepted(3), [KillRun(3, 0.0)]),
        (m.Started(3), [KillRun(3, 0.0)]),
        (m.Ended(3, FAILED), [RunSeen(3)]),
        (m.RunRefused(3, "no"), [RunSeen(3)]),
        (m.Admitted(2), [ReleaseTicket(2)]),
    ],
)
def test_what_nobody_is_told_is_answered(message: Message, answer: list[Message]) -> None:
    decision = ABSENT[type(message)](message, AT)
    assert not decision.facts and [send.message for send in decision.sends] == answer


@pytest.mark.parametrize(
    ("ticket", "admission", "answer"),
    [
        (1, Admission.REQUESTED, []),
        (1, Admission.QUEUED, []),
        (1, Admission.ADMITTED, []),
        (1, Admission.RELEASING, [ReleaseTicket(1)]),
        (1, Admission.NONE, [ReleaseTicket(1)]),
        (2, Admission.QUEUED, [ReleaseTicket(1)]),
    ],
)
def test_room_that_is_not_wanted_is_given_back(
    ticket: int, admission: Admission, answer: list[Message]
) -> None:
    task = Task(TaskGoals.SUCCEEDED, TaskStates.WAITING, Policy(), 1, ticket, admission)
    decision = KIND.decide[m.Admitted](task, m.Admitted(1), AT)
    assert [send.message for send in decision.sends] == answer
    assert bool(decision.facts) == (not answer and admission != Admission.ADMITTED)


@pytest.mark.parametrize(
    ("state", "admission", "sends"),
    [
        (TaskStates.WAITING, Admission.QUEUED, [Enqueue(4)]),
        (TaskStates.WAITING, Admission.ADMITTED, []),
        (TaskStates.LAUNCHING, Admission.ADMITTED, [Launch(3)]),
        (TaskStates.LAUNCHED, Admission.ADMITTED, [Launch(3)]),
        (TaskStates.RUNNING, Admission.ADMITTED, []),
        (TaskStates.KILLING, Admission.ADMITTED, [KillRun(3, 30.0)]),
        (TaskStates.SUCCEEDED, Admission.RELEASING, [ReleaseTicket(4)]),
        (TaskStates.SUCCEEDED, Admission.NONE, []),
    ],
)
def test_what_is_owed_follows_from_the_state(
    state: TaskStates, admission: Admission, sends: list[Message]
) -> None:
    task = Task(TaskGoals.SUCCEEDED, state, Policy(), 3, 4, admission)
    assert [send.message for send in owed(task)] == sends


def test_deletion_is_never_taken_back() -> None:
    task = running(TaskGoals.DELETED)
    goal = m.SetTaskGoal(9, TaskGoals.SUCCEEDED, Policy(), 0, Key("lot/j/0/0"))
    assert not KIND.decide[m.SetTaskGoal](task, goal, AT).facts


def test_a_deleted_task_leaves_its_lot_first() -> None:
    task = Task(TaskGoals.SUCCEEDED, TaskStates.WAITING, Policy(), 1, 1, Admission.ADMITTED)
    goal = m.SetTaskGoal(2, TaskGoals.DELETED, Policy(), 0, Key("lot/j/0/0"))
    turn = receive(task, goal)
    assert turn.state.admission == Admission.RELEASING and replies(turn) == [ReleaseTicket(1)]
    assert receive(turn.state, m.TicketReleased(1)).state is None


# ---- no host could ever run it ----


def waiting(**fields: Any) -> Task:
    given = {"run": 1, "ticket": 1, "admission": Admission.ADMITTED, **fields}
    return Task(given.pop("goal", TaskGoals.SUCCEEDED), TaskStates.WAITING, Policy(), **given)


def test_what_is_shelved_leaves_its_pool_and_asks_for_nothing() -> None:
    turn = receive(waiting(), m.MarkUnschedulable(True))
    assert replies(turn) == [ReleaseTicket(1)] and turn.state.unschedulable
    assert [send.message for send in owed(turn.state)] == [ReleaseTicket(1)]
    after = receive(turn.state, m.TicketReleased(1))
    assert after.state.admission == Admission.NONE and replies(after) == []
    assert replies(receive(after.state, m.MarkUnschedulable(True))) == []


def test_it_asks_anew_when_a_host_could_run_it() -> None:
    turn = receive(
        waiting(admission=Admission.NONE, unschedulable=True), m.MarkUnschedulable(False)
    )
    assert replies(turn) == [Enqueue(2)]
    assert (
        turn.state.ticket == 2
        and turn.state.admission == Admission.REQUESTED
        and not turn.state.unschedulable
    )


def test_a_late_admission_of_what_is_shelved_is_given_back() -> None:
    assert replies(
        receive(waiting(admission=Admission.RELEASING, unschedulable=True), m.Admitted(1))
    ) == [ReleaseTicket(1)]


@pytest.mark.parametrize(
    "task",
    [
        running(),
        waiting(admission=Admission.QUEUED),
        waiting(goal=TaskGoals.KILLED, admission=Admission.NONE),
    ],
)
def test_only_who_waits_for_a_host_is_shelved(task: Task) -> None:
    assert not receive(task, m.MarkUnschedulable(True)).state.unschedulable


def test_what_is_shelved_can_be_stopped() -> None:
    unschedulable = waiting(admission=Admission.NONE, unschedulable=True)
    turn = receive(unschedulable, m.SetTaskGoal(2, TaskGoals.KILLED, Policy(), 0, Key("")))
    assert turn.state.state == TaskStates.KILLED and replies(turn) == []


def limited(**fields: Any) -> Task:
    """A task whose runs may take 60 s."""
    policy = Policy(max_failures=5, max_running_s=60.0)
    return msgspec.structs.replace(running(**fields), policy=policy)


def killed_for_its_time() -> Task:
    turn = receive(limited(), Due("run_limit"))
    assert turn.state.state == TaskStates.KILLING and replies(turn) == [KillRun(1, 30.0)]
    assert turn.because == "Deadline exceeded: ran longer than 60 s"
    state: Task = turn.state
    return state


def test_only_a_run_with_a_limit_has_a_deadline() -> None:
    assert deadline(running()) is None
    assert deadline(limited()) == ("run_limit", 60.0)
    waits = msgspec.structs.replace(limited(), state=TaskStates.LAUNCHED)
    assert deadline(waits) == ("start", 180 * 60.0), "the limit begins with the process"


@pytest.mark.parametrize(
    ("outcome", "state", "failures"),
    [
        (RunOutcome(End.KILLED, None, "SIGKILL", "killed"), TaskStates.KILLED, 0),
        (RunOutcome(End.FAILED, 143), TaskStates.KILLED, 0),
        (LOST, TaskStates.KILLED, 0),
        (SUCCEEDED, TaskStates.SUCCEEDED, 0),  # it ended by itself before the kill
    ],
)
def test_a_run_that_takes_too_long_ends_its_instance(
    outcome: RunOutcome, state: TaskStates, failures: int
) -> None:
    containers = (ContainerEnd("a", exit_code=outcome.exit_code),)
    outcome = msgspec.structs.replace(outcome, containers=containers)
    ended = receive(killed_for_its_time(), m.Ended(1, outcome))
    assert (ended.state.state, ended.state.run) == (state, 1), "it does not run again"
    assert ended.state.failures == failures and ended.state.admission == Admission.RELEASING
    (fact,) = [fact for fact in ended.facts if isinstance(fact, f.RunEnded)]
    if state == TaskStates.KILLED:
        told = fact.outcome
        assert (told.end, told.reason) == (End.KILLED, "Deadline exceeded")
        assert (told.exit_code, told.signal) == (outcome.exit_code, outcome.signal)
        assert told.containers == containers and not told.system


LATE = RunOutcome(End.KILLED, 0, "", m.DEADLINE_EXCEEDED, "Deadline exceeded: ran longer than 60 s")


@pytest.mark.parametrize("state", [TaskStates.RUNNING, TaskStates.LAUNCHED])
def test_a_run_that_its_host_ended_for_its_time_ends_its_instance(state: TaskStates) -> None:
    """As one that was ended by order; also where nobody was there to be told of its start."""
    task = msgspec.structs.replace(limited(), state=state)
    turn = receive(task, m.Ended(1, LATE))
    assert (turn.state.state, turn.state.run) == (TaskStates.KILLED, 1), "it does not run again"
    assert turn.state.failures == 0 and turn.state.admission == Admission.RELEASING
    (fact,) = [fact for fact in turn.facts if isinstance(fact, f.RunEnded)]
    assert fact.outcome == LATE


def test_a_limit_that_was_taken_away_and_held_all_the_same_costs_no_attempt() -> None:
    turn = receive(running(), m.Ended(1, LATE))
    assert (turn.state.state, turn.state.run) == (TaskStates.WAITING, 2), "it runs again"
    assert turn.state.failures == 0


def test_the_host_is_told_another_limit_of_a_run_that_it_has() -> None:
    turn = receive(running(), m.SetRunLimit(90.0))
    assert replies(turn) == [LimitRun(1, 90.0)]
    turn = receive(turn.state, m.SetRunLimit(None))
    assert replies(turn) == [LimitRun(1, 0.0)]
    waits = msgspec.structs.replace(running(), state=TaskStates.WAITING)
    assert replies(receive(waits, m.SetRunLimit(90.0))) == []


@pytest.mark.parametrize("outcome", [KILLED, LOST])
def test_a_preempted_run_is_free(outcome: RunOutcome) -> None:
    fact = f.TaskKilling("preempted", m.KillCause.PREEMPTED)
    exhausted = running(system_failures=9, failures=2, max_failures=2)
    task = KIND.evolve[f.TaskKilling](exhausted, fact)
    ended = receive(task, m.Ended(1, outcome)).state
    assert (ended.state, ended.run, ended.cause) == (TaskStates.WAITING, 2, m.KillCause.NONE)
    assert (ended.failures, ended.system_failures) == (2, 9)


GONE = RunOutcome(End.KILLED, reason=m.SECRET_NOT_FOUND)
UNREAD = RunOutcome(End.KILLED, reason=m.SECRETS_UNAVAILABLE, system=True)


def test_an_instance_whose_secret_is_gone_ends_whatever_attempts_are_left() -> None:
    ended = receive(running(max_failures=5), m.Ended(1, GONE)).state
    assert (ended.state, ended.run) == (TaskStates.KILLED, 1)
    assert ended.admission == Admission.RELEASING


def test_a_service_whose_secret_is_gone_tries_again_after_a_pause() -> None:
    ended = receive(running(TaskGoals.RUNNING), m.Ended(1, GONE)).state
    assert (ended.state, ended.failures) == (TaskStates.THROTTLED, 1)


@pytest.mark.parametrize("goal", [TaskGoals.SUCCEEDED, TaskGoals.RUNNING])
def test_a_store_of_secrets_that_does_not_answer_is_no_fault_of_the_task(goal: TaskGoals) -> None:
    ended = receive(running(goal, system_failures=9, max_failures=0), m.Ended(1, UNREAD)).state
    assert (ended.state, ended.run) == (TaskStates.WAITING, 2)
    assert (ended.failures, ended.system_failures) == (0, 9)


def test_a_task_keeps_the_time_at_which_its_run_started() -> None:
    launched = msgspec.structs.replace(running(), state=TaskStates.LAUNCHED)
    assert receive(launched, m.Started(1, 7.0)).facts == (f.TaskStarted(7.0),)
    ended = receive(launched, m.Ended(1, SUCCEEDED, 9.0, 7.0))
    assert ended.facts[:2] == (f.TaskStarted(7.0), f.RunEnded(SUCCEEDED, 9.0))


def test_the_seconds_of_all_runs_are_kept_though_the_runs_are_not() -> None:
    assert KIND.crowd is not None
    columns: dict[str, Any] = {"host": "host/h", "started_at": 10.0, "ended_at": 12.5}
    for run in range(1, 31):
        task = msgspec.structs.replace(running(), run=run, state=TaskStates.FAILED)
        columns |= KIND.crowd.archive[f.TaskRetried](task, f.TaskRetried(), read=columns.get)
    assert columns["ran_s"] == 75.0
    assert [past.run for past in columns["runs"]] == [*range(21, 31)]


# ---- restarts ----


def ordered(number: int, goal: TaskGoals = TaskGoals.SUCCEEDED) -> m.SetTaskGoal:
    return m.SetTaskGoal(number, goal, Policy(), 0, Key(""), "", number)


@pytest.mark.parametrize("end", ["SUCCEEDED", "FAILED", "LOST", "KILLED"])
def test_an_ended_task_begins_a_new_run_with_fresh_attempts(end: str) -> None:
    task = running(failures=3, system_failures=2, admission=Admission.NONE)
    task = msgspec.structs.replace(task, state=TaskStates[end])
    turn = receive(task, ordered(2))
    after = turn.state
    assert (after.state, after.run, after.ticket) == (TaskStates.WAITING, 2, 2)
    assert (after.failures, after.system_failures, after.again) == (0, 0, False)
    assert replies(turn) == [Enqueue(2)]
    assert not receive(after, ordered(2)).facts, "it is obeyed once"
    assert not receive(after, ordered(1)).facts, "an older one is late"


def test_a_running_task_is_killed_and_runs_again_however_it_ends() -> None:
    for outcome in (KILLED, FAILED, SUCCEEDED, LOST):
        turn = receive(running(failures=1), ordered(2))
        assert turn.state.state == TaskStates.KILLING and replies(turn) == [KillRun(1, 30.0)]
        after = receive(turn.state, m.Ended(1, outcome)).state
        assert (after.state, after.run, after.failures) == (TaskStates.WAITING, 2, 0)


def test_a_stop_after_a_restart_is_the_last_goal_and_the_other_way_round() -> None:
    task = receive(running(), ordered(2)).state
    task = receive(task, ordered(3, TaskGoals.KILLED)).state
    assert receive(task, m.Ended(1, KILLED)).state.state == TaskStates.KILLED
    task = receive(task, ordered(4)).state
    assert receive(task, m.Ended(1, KILLED)).state.state == TaskStates.WAITING


def test_a_task_that_waits_gets_fresh_attempts_under_its_ticket() -> None:
    task = running(failures=2, restart=1)
    task = msgspec.structs.replace(task, state=TaskStates.WAITING)
    turn = receive(task, ordered(2))
    assert not replies(turn)
    assert (turn.state.run, turn.state.failures, turn.state.again) == (1, 0, False)


def test_a_run_that_is_refused_while_it_is_restarted_is_followed_by_one_run() -> None:
    task = msgspec.structs.replace(running(failures=1), state=TaskStates.LAUNCHING)
    task = receive(task, ordered(2)).state
    after = receive(task, m.RunRefused(1, "full")).state
    assert (after.state, after.run, after.failures, after.again) == (
        TaskStates.WAITING, 2, 0, False,
    )  # fmt: skip


@pytest.mark.parametrize("end", [m.End.SUCCEEDED, m.End.FAILED, m.End.KILLED])
@pytest.mark.parametrize("cause", [m.KillCause.MAINTENANCE, m.KillCause.SPARED_RESTART])
def test_a_service_that_gives_way_has_not_failed(cause: m.KillCause, end: m.End) -> None:
    """However it ends then: its next run begins at once, and a restart counts anew."""
    task = msgspec.structs.replace(running(m.TaskGoals.RUNNING), failures=0)
    at = At(now=1.0, key=Key("task/j/0"), sender=Key("host/h"), members=Bits.of(0))
    turn = take_turn(KIND, task, message=m.GiveWay(cause, "why", task.run), at=at)
    assert turn.state.state == TaskStates.KILLING and len(turn.sends) == 1
    again = take_turn(KIND, turn.state, message=m.GiveWay(cause, "why", task.run), at=at)
    assert not again.facts and not again.sends
    ended = take_turn(KIND, turn.state, message=m.Ended(task.run, m.RunOutcome(end)), at=at)
    assert (ended.state.run, ended.state.failures) == (task.run + 1, 0)
    late = take_turn(KIND, ended.state, message=m.GiveWay(cause, "why", task.run), at=at)
    assert not late.facts, "it says nothing of the next run"


def batch(rules: RetryRules | None, **fields: Any) -> Task:
    """A batch task with these rules, whose run 1 is running."""
    return running(policy=Policy(max_failures=5, retry=rules), **fields)


@pytest.mark.parametrize(("failures", "pause_s"), [(0, 1.0), (1, 2.0), (3, 8.0), (4, 10.0)])
def test_a_batch_task_pauses_longer_after_each_failure(failures: int, pause_s: float) -> None:
    rules = RetryRules(1.0, 10.0)
    task = batch(rules, failures=failures)
    task = msgspec.structs.replace(task, policy=Policy(max_failures=9, retry=rules))
    paused = receive(task, m.Ended(1, FAILED)).state
    assert (paused.state, deadline(paused)) == (TaskStates.THROTTLED, ("throttle", pause_s))
    again = receive(paused, Due("throttle"))
    assert (again.state.state, again.state.run) == (TaskStates.WAITING, 2)
    assert replies(again) == [Enqueue(2)]


@pytest.mark.parametrize(
    ("rules", "outcome"), [(None, FAILED), (RetryRules(0.0), FAILED), (RetryRules(), SYSTEM)]
)
def test_there_is_no_pause_without_a_rule_or_a_fault_of_the_program(
    rules: RetryRules | None, outcome: RunOutcome
) -> None:
    assert receive(batch(rules), m.Ended(1, outcome)).state.state == TaskStates.WAITING


@pytest.mark.parametrize(
    ("rules", "outcome", "again"),
    [
        (RetryRules(0.0, never=("2", "3")), RunOutcome(End.FAILED, 2), False),
        (RetryRules(0.0, never=("2", "3")), RunOutcome(End.FAILED, 1), True),
        (RetryRules(0.0, on=("75",)), RunOutcome(End.FAILED, 75), True),
        (RetryRules(0.0, on=("75",)), RunOutcome(End.FAILED, 1), False),
        (RetryRules(0.0, never=("137", "SIGKILL")), RunOutcome(End.FAILED, None, "SIGKILL"), False),
        (RetryRules(0.0, on=("75",)), RunOutcome(End.FAILED, None, "SIGSEGV"), False),
        (RetryRules(0.0, on=("75",)), SYSTEM, True),
        (RetryRules(0.0, on=("75",)), RunOutcome(End.FAILED, reason="could not start"), True),
    ],
)
def test_the_exit_code_says_whether_there_is_another_attempt(
    rules: RetryRules, outcome: RunOutcome, again: bool
) -> None:
    ended = receive(batch(rules), m.Ended(1, outcome)).state
    assert (ended.state == TaskStates.WAITING) is again
    if not again:
        assert ended.failures == 1, "those that it did not have are not counted"
        order = m.SetTaskGoal(1, TaskGoals.SUCCEEDED, ended.policy, 0, Key(""), restart=1)
        fresh = receive(ended, order).state
        assert fresh.state == TaskStates.WAITING, "a person may order another run"
