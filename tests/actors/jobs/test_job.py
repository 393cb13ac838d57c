"""A job: its state from tallies, its rules, the config of its instances, its commands.

Answers of slices are made by hand.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from peloton.actors.host.run_spec import Port
from peloton.actors.job import messages as m
from peloton.actors.job.decide import PIECES_TIMEOUT_S
from peloton.actors.job.kind import KIND
from peloton.actors.job.messages import JobCreated, JobDeleted, JobStopped
from peloton.actors.job.slice.configs import spec_rows
from peloton.actors.job.slice.messages import SetSliceGoal, SliceGone, SliceOpen, SliceTally, Tally
from peloton.actors.job.slice.task_config import Command, Override, TaskConfig, effective
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobGoals, JobStates
from peloton.actors.job.state import Job
from peloton.actors.job.totals import Ending, has_begun, job_state_of
from peloton.actors.resources import Resources
from peloton.actors.task.messages import TaskGoals
from peloton.runtime.core.turning.turn import TurnOutcome, take_turn
from peloton.runtime.vocabulary import At, Bits, Due, Key, Message, Refused

ID = "0" * 36
JOB = Key(f"job/{ID}")
AT = At(now=5.0, key=JOB)
POOL = Key("respool/p")
DEFAULT = TaskConfig(resources=Resources(1, 1), command=Command("true"))


def receive(job: Job | None, message: Message, who: str = AT.who) -> TurnOutcome:
    """One turn of a job."""
    return take_turn(KIND, job, message=message, at=msgspec.structs.replace(AT, who=who))


def made(instances: int = 2500, **fields: Any) -> Job:
    """A job of so many alike instances."""
    spec = JobSpec("j", "me", POOL, instances, DEFAULT, **fields)
    turn = receive(None, m.CreateJob(spec))
    assert turn.reply == JobCreated(JOB), turn.reply
    job: Job = turn.state
    return job


def goals(turn: TurnOutcome) -> list[tuple[int, int, TaskGoals, Bits]]:
    """(slice, version, goal, stopped) of every goal sent."""
    sends = [send.message for send in turn.sends]
    return [(w.number, w.version, w.goal, w.stopped) for w in sends if isinstance(w, SetSliceGoal)]


N3 = [
    ({"SUCCEEDED": 3}, JobStates.SUCCEEDED),
    ({"SUCCEEDED": 2, "FAILED": 1}, JobStates.FAILED),
    ({"SUCCEEDED": 2, "LOST": 1}, JobStates.FAILED),
    ({"SUCCEEDED": 2, "KILLED": 1}, JobStates.KILLED),
    ({"FAILED": 2, "KILLED": 1}, JobStates.KILLED),
    ({"KILLED": 3}, JobStates.KILLED),
    ({"RUNNING": 1, "SUCCEEDED": 2}, JobStates.RUNNING),
    ({"RUNNING": 1, "PENDING": 2}, JobStates.RUNNING),
    ({"PENDING": 3}, JobStates.PENDING),
    ({"LAUNCHED": 1, "PENDING": 2}, JobStates.PENDING),
    ({"THROTTLED": 3}, JobStates.PENDING),
    ({"PENDING": 2}, JobStates.INITIALIZED),
    ({}, JobStates.INITIALIZED),
]


@pytest.mark.parametrize(("counts", "state"), N3)
def test_the_state_of_a_job_of_three(counts: dict[str, int], state: JobStates) -> None:
    assert job_state_of(counts, 3, known=JobStates.PENDING) == state


@pytest.mark.parametrize(("counts", "state"), N3)
def test_killing_stays_until_the_end(counts: dict[str, int], state: JobStates) -> None:
    over = state in (JobStates.SUCCEEDED, JobStates.FAILED, JobStates.KILLED)
    expected = state if over else JobStates.KILLING
    assert job_state_of(counts, 3, known=JobStates.KILLING) == expected


@pytest.mark.parametrize(("counts", "state"), N3)
def test_a_service_that_was_stopped_ends_as_killed(
    counts: dict[str, int], state: JobStates
) -> None:
    """Its runs may end by themselves just before they are killed."""
    over = state in (JobStates.SUCCEEDED, JobStates.FAILED, JobStates.KILLED)
    expected = JobStates.KILLED if over else JobStates.KILLING
    found = job_state_of(counts, 3, known=JobStates.KILLING, ends=Ending.KILLED)
    assert found == expected
    again = job_state_of(counts, 3, known=JobStates.RUNNING, ends=Ending.NEVER)
    assert again == (JobStates.RUNNING if counts.get("RUNNING") else JobStates.PENDING)


@pytest.mark.parametrize(
    ("controller", "state"),
    [
        ("SUCCEEDED", JobStates.SUCCEEDED),
        ("FAILED", JobStates.FAILED),
        ("LOST", JobStates.FAILED),
        ("KILLED", JobStates.KILLED),
    ],
)
def test_the_controller_decides_the_end(controller: str, state: JobStates) -> None:
    counts = {controller: 1, "KILLED": 3 if controller == "KILLED" else 2}
    known = JobStates.RUNNING
    assert job_state_of(counts, 3, known=known, controller=controller) == state


def test_the_controller_decides_nothing_before_the_end() -> None:
    counts = {"SUCCEEDED": 1, "RUNNING": 2}
    state = job_state_of(counts, 3, known=JobStates.RUNNING, controller="SUCCEEDED")
    assert state == JobStates.RUNNING


@pytest.mark.parametrize("name", ["STARTING", "RUNNING", "SUCCEEDED", "FAILED", "LOST"])
def test_a_job_has_begun(name: str) -> None:
    assert has_begun({name: 1})
    assert not has_begun({"PENDING": 1, name: 0})


def test_a_config_wins_field_by_field() -> None:
    default = TaskConfig("d", Resources(1), Command("d"), labels=(("a", "1"),), max_failures=3)
    own = TaskConfig(command=Command("o"), labels=(("b", "2"),))
    found = effective(default, own)
    assert (found.name, found.resources, found.command) == ("d", Resources(1), Command("o"))
    assert found.labels == (("b", "2"),), "no deep merge"
    assert found.max_failures == 3
    assert effective(default, None) is default


def test_variables_of_the_default_are_those_of_every_command() -> None:
    default = TaskConfig(command=Command("d"), environment=(("A", "1"), ("B", "1")))
    own = TaskConfig(command=Command("o", environment=(("B", "2"), ("C", "2"))))
    assert effective(default, own).variables == (("A", "1"), ("B", "2"), ("C", "2"))
    assert effective(default, TaskConfig(environment=(("D", "3"),))).variables == (("D", "3"),)


def test_flags_that_are_always_given_come_from_the_instance() -> None:
    default = TaskConfig(controller=True, revocable=True)
    assert not effective(default, TaskConfig()).controller
    assert not effective(default, TaskConfig()).revocable


def test_zero_failures_of_an_instance_count_as_given() -> None:
    default = TaskConfig(max_failures=3, kill_grace_s=9.0)
    found = effective(default, TaskConfig(max_failures=0, kill_grace_s=0.0))
    assert (found.max_failures, found.kill_grace_s) == (0, 0.0)


def test_alike_instances_share_a_row() -> None:
    own = TaskConfig(resources=Resources(5))
    overrides = tuple(Override(n, own) for n in (1001, 1003))
    turn = made(2000)
    opening = _opening(receive(None, m.CreateJob(turn.spec, ((1, overrides),))), number=1)  # type: ignore[arg-type]
    rows, members = spec_rows(1, opening)
    assert len(rows) == 2
    assert [len(some) for some in members] == [2, 998]
    assert members[0] == Bits.of(1, 3)
    assert rows[0].lot != rows[1].lot, "other resources, another lot"


def test_a_run_has_the_user_and_the_caller_of_its_command() -> None:
    command = Command("x", user="ann", caller="bob")
    default = TaskConfig(resources=Resources(1), command=command)
    turn = receive(None, m.CreateJob(JobSpec("j", "me", POOL, 1, default)))
    rows, _ = spec_rows(0, _opening(turn, number=0))
    assert (rows[0].run.user, rows[0].run.caller) == ("ann", "bob")


def test_more_tries_than_a_hundred_are_not_had() -> None:
    spec = made(1, has_default=True).spec
    assert spec is not None
    config = TaskConfig(resources=Resources(1), command=Command("x"), max_failures=1000)
    turn = receive(None, m.CreateJob(JobSpec("j", "me", POOL, 1, config)))
    rows, _ = spec_rows(0, _opening(turn, number=0))
    assert rows[0].policy.max_failures == 100


def _opening(turn: TurnOutcome, *, number: int) -> Any:
    sends = [send.message for send in turn.sends]
    return next(w.opening for w in sends if isinstance(w, SetSliceGoal) and w.number == number)


OVER = "Requested tasks: 100001 for job is greater than supported: 100000 tasks/job"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"job_type": "DAEMON"}, "must be 0 for a daemon job: its hosts are counted"),
        (
            {"job_type": "SERVICE", "maximum_running": 1},
            "MaximumRunningInstances should be 0 for stateless job",
        ),
        (
            {"job_type": "SERVICE", "minimum_running": 1},
            "MinimumRunningInstances should be 0 for stateless job",
        ),
        (
            {"job_type": "SERVICE", "max_running_time_s": 1.0},
            "MaxRunningTime should be 0 for stateless job",
        ),
        (
            {"job_type": "SERVICE", "revocable": True, "preemptible": False},
            "revocable job must be preemptible",
        ),
        ({"instances": 0}, "a job needs at least one instance"),
        ({"instances": 100_001}, OVER),
        ({"maximum_running": 4}, "Job specified MaximumRunningInstances > InstanceCount"),
        ({"minimum_running": 4}, "Job specified MinimumRunningInstances > MaximumRunningInstances"),
        (
            {"default": TaskConfig()},
            "missing command info for instance 1: the default config has none",
        ),
        ({"has_default": False}, "missing task config for instance 0"),
    ],
)
def test_a_job_that_breaks_a_rule_is_refused(fields: dict[str, Any], text: str) -> None:
    given = {"instances": 3, "default": DEFAULT, **fields}
    turn = receive(None, m.CreateJob(JobSpec("j", "me", POOL, **given)))
    assert isinstance(turn.reply, Refused) and turn.reply.text == text
    assert turn.state is None and not turn.facts and not turn.sends


@pytest.mark.parametrize(
    ("instance", "config", "text"),
    [
        (3, TaskConfig(), "instance 3 is not below 3"),
        (1, TaskConfig(controller=True), "only task 0 can be controller task"),
        (1, TaskConfig(ports=(Port(""),)), "Port name is missing"),
        (1, TaskConfig(ports=(Port("p"),)), "Env name is missing for dynamic port"),
        (1, TaskConfig(health_check=True), "Batch job task should not set health check"),
        (1, TaskConfig(executor=True), "Batch job task should not include executor config"),
    ],
)
def test_an_instance_that_breaks_a_rule_is_refused(
    instance: int, config: TaskConfig, text: str
) -> None:
    spec = JobSpec("j", "me", POOL, 3, DEFAULT)
    turn = receive(None, m.CreateJob(spec, ((0, (Override(instance, config),)),)))
    assert isinstance(turn.reply, Refused) and text in turn.reply.text


def test_a_job_is_created_once() -> None:
    job = made(1)
    for message in (m.CreateJob(job.spec), m.AddOverrides(0, ())):  # type: ignore[arg-type]
        turn = receive(job, message)
        assert isinstance(turn.reply, Refused) and turn.reply.code == "ALREADY_EXISTS"
        assert not turn.facts


def test_a_job_in_pieces_counts_them() -> None:
    own = (Override(1500, TaskConfig(resources=Resources(9))),)
    first = receive(None, m.AddOverrides(1, own))
    again = receive(first.state, m.AddOverrides(1, own))
    spec = JobSpec("j", "me", POOL, 2000, DEFAULT)
    short = receive(again.state, m.CreateJob(spec, pieces=2))
    assert isinstance(short.reply, Refused) and short.reply.code == "INCOMPLETE"
    assert not short.facts, "an answer with a fact would be remembered, and stick"
    assert [send.message for send in short.sends] == [m.DropPieces()]
    assert receive(short.state, m.DropPieces()).state is None
    whole = receive(again.state, m.CreateJob(spec, pieces=1))
    assert whole.reply == JobCreated(JOB)
    assert _opening(whole, number=1).overrides == own
    confirmed = receive(whole.state, SliceOpen(1, 1)).state
    assert not confirmed.overrides, "the slice has them"


def test_the_pieces_of_a_job_are_those_of_one_client() -> None:
    """Who may submit elsewhere must not change, drop or complete the create of another."""
    mine, theirs = (Override(1500, TaskConfig(resources=Resources(9))),), ()
    spec = JobSpec("j", "me", POOL, 2000, DEFAULT)
    first = receive(None, m.AddOverrides(1, mine), who="basic:ann@10.0.0.7/cli")
    for message in (m.AddOverrides(1, theirs), m.CreateJob(spec), m.CreateJob(spec, pieces=1)):
        for other in ("basic:bob@10.0.0.7/cli", "unverified:ann@10.0.0.7/cli", "basic:anna", ""):
            turn = receive(first.state, message, who=other)
            assert isinstance(turn.reply, Refused) and turn.reply.code == "ALREADY_EXISTS"
            assert "by another client" in turn.reply.text
            assert not turn.facts and not turn.sends and turn.state == first.state
    again = receive(first.state, m.AddOverrides(1, mine), who="basic:ann@10.0.0.8")
    whole = receive(again.state, m.CreateJob(spec, pieces=1), who="basic:ann@10.0.0.9")
    assert whole.reply == JobCreated(JOB)
    assert whole.state.created_by == "basic:ann@10.0.0.9"
    assert _opening(whole, number=1).overrides == mine


def test_pieces_that_nobody_completes_are_forgotten_in_time() -> None:
    first = receive(None, m.AddOverrides(1, ()))
    assert KIND.deadline(first.state) == ("pieces", PIECES_TIMEOUT_S)
    assert receive(first.state, Due("pieces")).state is None
    whole = receive(first.state, m.CreateJob(JobSpec("j", "me", POOL, 2000, DEFAULT), pieces=1))
    assert KIND.deadline(whole.state) is None
    assert not receive(whole.state, m.DropPieces()).facts, "a job is not forgotten by that"


def test_stopping_some_touches_their_slices_only() -> None:
    job = made(2500)
    for number in range(3):
        job = receive(job, SliceOpen(number, 1)).state
    turn = receive(job, m.StopJob(((990, 1002), (5, 7))))
    assert turn.reply == JobStopped(((5, 7), (990, 1002)))
    stopped = Bits.span(990, 1000) | Bits.of(5, 6)
    assert goals(turn) == [
        (0, 3, TaskGoals.SUCCEEDED, stopped),
        (1, 3, TaskGoals.SUCCEEDED, Bits.of(0, 1)),
    ]
    assert turn.state.confirmed == Bits.of(2)
    assert [send.message.number for send in KIND.owed(turn.state)] == [0, 1]


def test_stopping_all_is_a_goal_of_its_own() -> None:
    turn = receive(made(1500), m.StopJob())
    assert (turn.state.goal, turn.state.state) == (JobGoals.KILLED, JobStates.KILLING)
    assert [goal for _, _, goal, _ in goals(turn)] == [TaskGoals.KILLED] * 2
    assert not receive(turn.state, m.StopJob()).facts, "a repeat changes nothing"


def test_a_job_that_runs_is_not_deleted_without_force() -> None:
    job = made(1)
    refused = receive(job, m.DeleteJob())
    assert isinstance(refused.reply, Refused) and refused.reply.code == "NOT_TERMINAL"
    turn = receive(job, m.DeleteJob(force=True))
    assert turn.reply == JobDeleted() and goals(turn)[0][2] == TaskGoals.DELETED
    gone = receive(turn.state, SliceGone(0))
    assert gone.state is None


def test_a_deletion_is_told_to_each_slice_until_it_is_gone() -> None:
    job = receive(made(1500), m.DeleteJob(force=True)).state
    job = receive(job, SliceOpen(0, job.version)).state
    assert [send.message.number for send in KIND.owed(job)] == [0, 1]
    job = receive(job, SliceGone(1)).state
    assert [send.message.number for send in KIND.owed(job)] == [0]


def test_an_old_tally_is_not_taken() -> None:
    job = made(3)
    new, old = Tally((("RUNNING", 3),)), Tally((("PENDING", 3),))
    job = receive(job, SliceTally(7, 0, new)).state
    assert job.state == JobStates.RUNNING
    assert not receive(job, SliceTally(6, 0, old)).facts
    assert not receive(job, SliceTally(7, 0, old)).facts


def test_an_older_confirmation_confirms_nothing() -> None:
    job = receive(made(1), m.StopJob()).state
    assert not receive(job, SliceOpen(0, 1)).facts
    assert receive(job, SliceOpen(0, 2)).state.confirmed == Bits.of(0)


def test_the_first_tally_says_that_the_first_slice_is_open() -> None:
    tally = SliceTally(7, 0, Tally((("PENDING", 3),)))
    assert receive(made(3), tally).state.confirmed == Bits.of(0)
    assert not receive(made(3), SliceTally(7, 1, tally.tally)).state.confirmed
    stopped = receive(made(3), m.StopJob()).state
    assert not receive(stopped, tally).state.confirmed, "it may not know of the stop yet"


@pytest.mark.parametrize("message", [m.StopJob(), m.DeleteJob()])
def test_nobody_is_not_found(message: Message) -> None:
    turn = receive(None, message)
    assert isinstance(turn.reply, Refused) and turn.reply.code == "NOT_FOUND"
