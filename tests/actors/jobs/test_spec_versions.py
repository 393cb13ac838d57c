"""Which earlier specs a job keeps, and what it asks of their owners."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from peloton.actors.job import messages as m
from peloton.actors.job.kind import KIND
from peloton.actors.job.messages import KeptSpec
from peloton.actors.job.slice.messages import SliceGone
from peloton.actors.job.slice.task_config import Command, Override, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.state import Job
from peloton.actors.job.version.kind import KIND as VERSION
from peloton.actors.job.version.messages import (
    OWN_BYTES_KEPT_MAX,
    SPECS_KEPT_MAX,
    DropSpec,
    GetSpec,
    SpecView,
    StoreSpec,
    version_key,
)
from peloton.actors.job.workflow.messages import (
    ControlWorkflow,
    ReplaceJob,
    RestartJob,
    WorkflowOrders,
    WorkflowTypes,
)
from peloton.runtime.core.turning.turn import TurnOutcome, take_turn
from peloton.runtime.vocabulary import SENDER, Key, Message
from tests.actors.jobs.test_job import AT, DEFAULT, JOB, POOL


def spec(command: str = "true", instances: int = 2, **fields: Any) -> JobSpec:
    config = msgspec.structs.replace(DEFAULT, command=Command(command))
    return JobSpec("j", "me", POOL, instances, config, **{"job_type": "SERVICE", **fields})


def own(size: int = 1) -> tuple[tuple[int, tuple[Override, ...]], ...]:
    return ((0, (Override(1, TaskConfig(command=Command("own"), raw=b"x" * size)),)),)


def to_specs(turn: TurnOutcome) -> list[tuple[Any, Message]]:
    """What owners of specs are told."""
    kinds = StoreSpec, DropSpec
    return [(send.to, send.message) for send in turn.sends if isinstance(send.message, kinds)]


class Talk:
    """A job that talks with the owners of its specs."""

    def __init__(self, first: JobSpec, overrides: Any = (), at: Any = AT) -> None:
        self.at = at
        self.job: Job | None = None
        self.kept: dict[Key, Any] = {}
        self.told: list[Message] = []
        self.receive(m.CreateJob(first, overrides, options=m.WorkflowOptions()))

    def receive(self, message: Message, sender: Key | None = None) -> TurnOutcome:
        at = msgspec.structs.replace(self.at, sender=sender)
        turn = take_turn(KIND, self.job, message=message, at=at)
        self.job = turn.state
        for to, order in to_specs(turn):
            self.told.append(order)
            owner = msgspec.structs.replace(self.at, key=to, sender=JOB)
            answer = take_turn(VERSION, self.kept.get(to), message=order, at=owner)
            self.kept[to] = answer.state
            for send in answer.sends:
                assert send.to is SENDER
                self.receive(send.message, sender=to)
        return turn

    @property
    def stored(self) -> list[int]:
        return sorted(int(key.split("/")[2]) for key, state in self.kept.items() if state)

    @property
    def past(self) -> tuple[KeptSpec, ...]:
        assert self.job is not None
        return self.job.versions.past

    def commands(self) -> list[str]:
        return [
            self.kept[version_key(JOB, one.stored)].spec.default.command.value for one in self.past
        ]


def test_a_service_that_was_never_changed_stores_nothing() -> None:
    talk = Talk(spec())
    assert talk.told == [] and talk.past == ()
    talk.receive(m.DeleteJob(force=True))
    assert talk.receive(SliceGone(0)).state is None and talk.told == []


def test_the_spec_before_is_stored_with_the_workflow_that_replaces_it() -> None:
    talk = Talk(spec("one"))
    talk.receive(ReplaceJob(spec("two")))
    assert talk.stored == [1] and talk.past == (KeptSpec(1, 1, 1),)
    assert talk.job is not None and not talk.job.versions.owes
    talk.receive(ReplaceJob(spec("three")))
    assert talk.commands() == ["one", "two"] and talk.past[1] == KeptSpec(2, 2, 2)
    view = KIND.inspect[m.GetJob](talk.job, m.GetJob(), AT)
    assert (view.since, view.past) == (3, talk.past)


def test_a_workflow_of_a_job_that_is_deleted_does_not_go_back_for_lack_of_progress() -> None:
    """Its deletion may take longer than that, as where a host does not answer: the spec that it
    left would be kept for ever."""
    talk = Talk(spec("one", progress_s=60.0))
    back = m.WorkflowOptions(back=True)
    talk.receive(ReplaceJob(spec("two", progress_s=60.0), options=back))
    assert KIND.deadline(talk.job) == ("progress 5.0", 60.0)
    talk.receive(m.DeleteJob(force=True))
    assert KIND.deadline(talk.job) is None
    assert talk.receive(SliceGone(0)).state is None and talk.stored == []


def test_new_runs_are_no_other_spec() -> None:
    talk = Talk(spec("one"))
    for kind in (WorkflowTypes.RESTART, WorkflowTypes.STOP):
        talk.receive(ControlWorkflow(WorkflowOrders.ABORT))
        talk.receive(RestartJob(kind=kind))
    talk.receive(ControlWorkflow(WorkflowOrders.ABORT))
    assert talk.told == [] and talk.job is not None and talk.job.versions.since == 1
    talk.receive(ReplaceJob(spec("two")))
    assert talk.past == (KeptSpec(1, 3, 1),) and talk.stored == [1]


def test_what_goes_back_is_the_spec_before_once_more() -> None:
    talk = Talk(spec("one"))
    talk.receive(ReplaceJob(spec("two")))
    talk.receive(ControlWorkflow(WorkflowOrders.ROLL_BACK))
    talk.receive(ControlWorkflow(WorkflowOrders.ABORT))
    assert talk.job is not None and talk.job.versions.stored == 1
    talk.receive(ReplaceJob(spec("four")))
    assert talk.past == (KeptSpec(1, 1, 1), KeptSpec(2, 2, 2), KeptSpec(3, 3, 1))
    assert talk.commands() == ["one", "two", "one"] and talk.stored == [1, 2]


def test_own_configs_are_stored_with_the_spec_that_has_them() -> None:
    talk = Talk(spec("one", own_configs=1), own())
    assert talk.stored == [1], "only now the job knows them"
    talk.receive(ReplaceJob(spec("two")))
    (kept,) = [state for state in talk.kept.values() if state]
    found = VERSION.inspect[GetSpec](kept, GetSpec(), AT)
    assert found == SpecView(kept.spec, own()[0][1])
    assert talk.past == (KeptSpec(1, 1, 1),)


def test_too_many_own_configs_are_not_kept() -> None:
    talk = Talk(spec("one", own_configs=1), own(OWN_BYTES_KEPT_MAX + 1))
    talk.receive(ReplaceJob(spec("two")))
    assert talk.stored == [] and talk.past == (KeptSpec(1, 1, 0),)
    talk.receive(m.DeleteJob(force=True))
    assert talk.told == []


def test_the_oldest_go_and_a_spec_that_is_used_twice_stays() -> None:
    talk = Talk(spec("0"))
    for number in range(1, SPECS_KEPT_MAX + 3):
        talk.receive(ReplaceJob(spec(str(number))))
    assert len(talk.past) == SPECS_KEPT_MAX and talk.past[0] == KeptSpec(3, 3, 3)
    assert talk.stored == [*range(3, SPECS_KEPT_MAX + 3)]
    talk.receive(ControlWorkflow(WorkflowOrders.ROLL_BACK))
    again = talk.job.versions.stored if talk.job else 0
    assert again == SPECS_KEPT_MAX + 2, "the spec before the newest, once more"
    for number in range(SPECS_KEPT_MAX):
        talk.receive(ControlWorkflow(WorkflowOrders.ABORT))
        talk.receive(ReplaceJob(spec(f"later {number}")))
    assert again in talk.stored and talk.past[0].stored == again
    talk.receive(ReplaceJob(spec("last")))
    assert again not in talk.stored and len(talk.stored) == SPECS_KEPT_MAX


def test_a_deleted_job_stays_until_no_spec_is_left() -> None:
    talk = Talk(spec("0"))
    for number in (1, 2, 3):
        talk.receive(ReplaceJob(spec(str(number))))
    gone = take_turn(KIND, talk.job, message=m.DeleteJob(force=True), at=AT)
    assert to_specs(gone) == [(version_key(JOB, 1), DropSpec(1))], "one after the other"
    waiting = take_turn(KIND, gone.state, message=SliceGone(0), at=AT)
    assert waiting.state is not None
    assert [send.message for send in KIND.owed(waiting.state)] == [DropSpec(1)]
    talk.job = gone.state
    talk.receive(SliceGone(0))
    assert talk.job is not None
    talk.receive(m.SpecDropped(1), sender=version_key(JOB, 1))
    assert talk.job is None and [order for order in talk.told if isinstance(order, DropSpec)] == [
        DropSpec(2),
        DropSpec(3),
    ]


def test_what_was_lost_is_sent_again_and_answered_again() -> None:
    talk = Talk(spec("one"))
    lost = take_turn(KIND, talk.job, message=ReplaceJob(spec("two")), at=AT)
    stores = [one for _, one in to_specs(lost)]
    again = [send.message for send in KIND.owed(lost.state) if isinstance(send.message, StoreSpec)]
    assert stores == again and len(again) == 1
    owner = msgspec.structs.replace(AT, key=version_key(JOB, 1), sender=JOB)
    first = take_turn(VERSION, None, message=again[0], at=owner)
    second = take_turn(VERSION, first.state, message=again[0], at=owner)
    assert second.sends == first.sends and not second.facts
    heard = take_turn(KIND, lost.state, message=m.SpecStored(1), at=AT).state
    assert not heard.versions.owes
    assert not take_turn(KIND, heard, message=m.SpecStored(1), at=AT).facts
    gone = take_turn(VERSION, None, message=DropSpec(1), at=owner)
    assert [send.message for send in gone.sends] == [m.SpecDropped(1)] and not gone.facts


@pytest.mark.parametrize("exists", [True, False])
def test_a_spec_that_nobody_wants_is_told_to_go(exists: bool) -> None:
    owner = msgspec.structs.replace(AT, sender=version_key(JOB, 9))
    job = Talk(spec()).job if exists else None
    turn = take_turn(KIND, job, message=m.SpecStored(9), at=owner)
    assert to_specs(turn) == [(SENDER, DropSpec(9))]


def test_of_a_batch_job_the_spec_before_is_stored_too() -> None:
    batch = {"job_type": "BATCH"}
    talk = Talk(spec("one", **batch))
    talk.receive(m.UpdateJob(spec("one", 3, **batch)))
    assert talk.stored == [1] and len(talk.past) == 1
    assert talk.job is not None and talk.job.versions.since == 2


def test_a_job_that_has_left_memory_is_read_before_it_answers_a_repeat() -> None:
    """Else it would be taken for a job that is deleted, and the spec would have to go."""
    assert m.SpecStored in KIND.lookup
