"""When a host is quarantined: by failures of several jobs at their start, and by nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.facts import HostQuarantined
from peloton.actors.host.holds.hold_messages import HoldHost, ReleaseHold
from peloton.actors.host.kind import kind
from peloton.actors.host.machine_messages import UseSet
from peloton.actors.host.quarantine import HOST_FAULTS, QUARANTINE_S, QUICK_S, WINDOW_S
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.host.state import Host
from peloton.actors.resources import Resources
from peloton.actors.task.messages import End, RunOutcome, pod_id
from peloton.backends.keeper import kinds as keeper
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Due, Key, Message, Pursue
from tests.actors.hosts import test_host as h

AFTER = 4
KIND = kind(1, quarantine_after=AFTER)
SPEC = RunSpec(Resources(), "true")
FAILED = RunOutcome(End.FAILED, 1, reason="exited")
FAULT = RunOutcome(End.FAILED, reason="could not be started")
LOST = RunOutcome(End.LOST, system=True)
GOOD = RunOutcome(End.SUCCEEDED, 0)
KILLED = RunOutcome(End.KILLED)


class Tried:
    """A host on which runs are tried, one after the other."""

    def __init__(self, after: int = AFTER) -> None:
        self.kind = kind(1, quarantine_after=after)
        self.host: Host = h.up()
        self.now, self.runs = 100.0, 0

    def turn(self, message: Message, crowd: Key | None = None, members: Bits | None = None) -> Any:
        at = At(now=self.now, key=h.HOST, sender=crowd, members=members, epoch=3)
        found = take_turn(self.kind, self.host, message=message, at=at)
        self.host = found.state
        return found

    def run(self, job: int, outcome: RunOutcome, *, lasts: float = 1.0) -> Any:
        """A run of a job begins and ends."""
        crowd = Key(f"task/{job:036}/0")
        self.runs += 1
        self.turn(m.Launch(self.runs, SPEC), crowd, Bits.of(0))
        self.now += lasts
        return self.turn(m.RunsEnded((m.RunEnd(pod_id(crowd, 0, run=self.runs), outcome),)))

    def is_out(self) -> bool:
        return self.host.quarantine is not None


@pytest.mark.parametrize("outcome", [FAULT, LOST])
def test_failures_of_the_host_count_fully(outcome: RunOutcome) -> None:
    tried = Tried()
    for job in (1, 2, 3):
        tried.run(job, outcome)
        assert not tried.is_out()
    found = tried.run(1, outcome)
    assert tried.is_out() and tried.host.summary(h.HOST).quarantined
    assert tried.host.summary(h.HOST).up, "placers decide what it means"
    text = "quarantined: 4 failures of 3 jobs at their start within 10 minutes"
    assert [fact.text for fact in found.facts if isinstance(fact, HostQuarantined)] == [text]


def test_one_job_or_two_never_quarantine_a_host() -> None:
    tried = Tried()
    for _ in range(50):
        tried.run(1, FAULT)
        tried.run(2, FAILED)
    assert not tried.is_out()


def test_failures_of_programs_count_half_and_once_for_each_job() -> None:
    tried = Tried()
    for _ in range(10):
        for job in range(2 * AFTER - 1):
            tried.run(job, FAILED)
    assert not tried.is_out()
    tried.run(99, FAILED)
    assert tried.is_out()


def test_a_success_between_clears_it() -> None:
    tried = Tried()
    for job in range(20):
        tried.run(job, FAULT)
        if job % 3 == 2:
            tried.run(50, GOOD)
            assert not tried.host.trouble
    assert not tried.is_out()
    tried.run(50, GOOD)
    assert not tried.run(50, GOOD).facts[1:], "nothing more is journaled for a host that is well"


@pytest.mark.parametrize(
    ("outcome", "lasts"), [(KILLED, 1.0), (FAILED, QUICK_S), (LOST, QUICK_S + 1.0)]
)
def test_what_was_killed_or_ran_for_a_while_says_nothing(outcome: RunOutcome, lasts: float) -> None:
    tried = Tried()
    for job in range(20):
        tried.run(job, outcome, lasts=lasts)
    assert not tried.is_out() and not tried.host.trouble


def test_signs_are_forgotten_after_the_window() -> None:
    tried = Tried()
    for job in range(20):
        tried.run(job, FAULT)
        tried.now += WINDOW_S / 3
    assert not tried.is_out() and len(tried.host.trouble) <= 4


def test_many_runs_lost_at_once_are_one_sign_for_each_job() -> None:
    """Such as those of a machine that was restarted."""
    tried = Tried()
    ends = []
    for job in (1, 2, 3):
        crowd = Key(f"task/{job:036}/0")
        tried.turn(m.Launch(1, SPEC), crowd, Bits.span(0, 50))
        ends += [m.RunEnd(pod_id(crowd, member, run=1), LOST) for member in range(50)]
    tried.turn(m.RunsEnded(tuple(ends)))
    assert len(tried.host.trouble) == 3 and not tried.is_out()


def quarantined() -> Tried:
    tried = Tried()
    for job in range(AFTER):
        tried.run(job, FAULT)
    assert tried.is_out()
    return tried


def test_it_ends_by_its_deadline_and_begins_anew() -> None:
    tried = quarantined()
    name, seconds = KIND.deadline(tried.host) or ("", 0.0)
    assert (name, seconds) == ("quarantine", QUARANTINE_S)
    version = tried.host.version
    tried.now += seconds
    tried.turn(Due(name))
    assert not tried.is_out() and not tried.host.trouble and tried.host.version > version
    assert KIND.deadline(tried.host) is None
    for job in range(AFTER):
        tried.run(job, FAULT)
    assert tried.is_out()


def test_an_unreachable_host_in_quarantine_is_lost_in_time() -> None:
    tried = quarantined()
    tried.turn(m.BackendDown("away"))
    assert (KIND.deadline(tried.host) or ("",))[0] == "unreachable"


def test_holds_do_not_prolong_it() -> None:
    """The runtime counts its deadline anew after each of them."""
    tried = quarantined()
    over = tried.now + QUARANTINE_S
    tried.now = over - 1.0
    tried.turn(HoldHost("one", "zoe", 300.0))
    tried.turn(ReleaseHold("one"))
    assert tried.is_out()
    tried.now = over
    tried.turn(HoldHost("two", "zoe", 300.0))
    tried.turn(Pursue())
    assert not tried.is_out()


def test_maintenance_ends_it() -> None:
    tried = quarantined()
    for crowd, run in [(Key(f"task/{job:036}/0"), job + 1) for job in range(AFTER)]:
        tried.turn(m.RunSeen(run), crowd, Bits.of(0))
    tried.turn(m.StartMaintenance())
    tried.turn(UseSet(tried.host.use.number, ""))
    tried.turn(m.CompleteMaintenance())
    assert not tried.is_out() and tried.host.summary(h.HOST).up


def test_where_it_is_off_nothing_is_noted() -> None:
    tried = Tried(after=0)
    for job in range(50):
        tried.run(job, FAULT)
    assert not tried.is_out() and not tried.host.trouble


def test_the_reasons_are_those_of_the_keeper() -> None:
    assert {keeper.NOT_STARTED, keeper.NO_LIMITS} == HOST_FAULTS
