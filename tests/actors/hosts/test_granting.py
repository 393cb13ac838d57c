"""What a host settles though placers proposed it: labels of its tasks, spreading, ports.

Two placers may propose one host at the same time, so each of these must hold whatever is launched.
"""

from __future__ import annotations

import immutables
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from peloton.actors.host import messages as m
from peloton.actors.host.facts import PortsGiven, PortsNoted
from peloton.actors.host.kind import kind
from peloton.actors.host.machine_messages import PortsInUse
from peloton.actors.host.run_spec import Port, RunSpec
from peloton.actors.host.stages import OCCUPYING, RunPhase
from peloton.actors.host.state import Host
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task import messages as t
from peloton.actors.task.messages import End, RunOutcome
from peloton.placement.messages import Constraint, Label, port_label
from peloton.runtime.core.turning.turn import TurnOutcome as Turn
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Key, Message
from tests.actors.hosts import test_host as h
from tests.actors.hosts import test_host_holds as holds

KIND = kind(8)
HOST, BACKEND, JOB = Key("host/h"), Key("backend/b"), "0" * 36
ONE, TWO = Key(f"task/{JOB}/0"), Key(f"task/{JOB}/1")
ROOM = Resources(9 * UNIT, 0, 0, 0)
DONE = RunOutcome(End.SUCCEEDED, 0)
MINE, APP = Label("peloton.job_id", JOB), Label("app", "x")
LESS = Constraint("label", "task", APP, "less", 1)
SPREAD = RunSpec(Resources(UNIT), "true", labels=(MINE,), apart=MINE)
ALONE = RunSpec(Resources(UNIT), "true", labels=(APP,), constraint=LESS)
PLAIN = RunSpec(Resources(UNIT), "true", labels=(APP,))


def receive(host: Host | None, message: Message, *members: int, crowd: Key = ONE) -> Turn:
    some = Bits.of(*members) if members else None
    at = At(now=9.0, key=HOST, sender=crowd, members=some, epoch=3)
    return take_turn(KIND, host, message=message, at=at)


def up(*labels: Label) -> Host:
    host = receive(None, m.ConfigureHost(ROOM, labels, BACKEND, (31000, 31003))).state
    host = receive(host, m.BackendUp()).state
    return receive(host, m.RunsListed(())).state  # type: ignore[no-any-return]


def refusals(turn: Turn) -> list[tuple[list[int], str]]:
    return [
        ([*send.members], send.message.reason)
        for send in turn.sends
        if isinstance(send.message, t.RunRefused) and send.members is not None
    ]


def ended(host: Host, member: int, crowd: Key = ONE) -> Host:
    end = m.RunEnd(t.pod_id(crowd, member, run=1), DONE)
    return receive(host, m.RunsEnded((end,))).state  # type: ignore[no-any-return]


def counted(host: Host) -> dict[Label, int]:
    """The labels of all runs that hold resources, one by one."""
    found: dict[Label, int] = {}
    for _, run in host.runs.items():
        for label in run.labels if run.phase in OCCUPYING else ():
            found[label] = found.get(label, 0) + 1
    return found


def test_a_second_run_of_a_spread_job_is_refused_whichever_slice_it_is_of() -> None:
    host = receive(up(), m.Launch(1, SPREAD), 0).state
    turn = receive(host, m.Launch(1, SPREAD), 0, crowd=TWO)
    assert refusals(turn) == [([0], "spread: 1 of the job's instances are on the host")]
    (refusal,) = (s.message for s in turn.sends if isinstance(s.message, t.RunRefused))
    assert refusal.summary is not None and refusal.summary.running == ((MINE, 1),)


def test_two_of_a_spread_job_in_one_launch_are_one_too_many() -> None:
    turn = receive(up(), m.Launch(1, SPREAD), 0, 1)
    held = [pod for pod, run in turn.state.runs.items() if run.phase in OCCUPYING]
    assert held == [t.pod_id(ONE, 0, run=1)]
    assert refusals(turn) == [([1], "spread: 1 of the job's instances are on the host")]


def test_as_many_share_a_host_as_the_launch_allows() -> None:
    host = receive(up(), m.Launch(1, SPREAD), 0).state
    host = receive(host, m.Launch(1, SPREAD, 1), 1).state
    assert host.running[MINE] == 2
    assert refusals(receive(host, m.Launch(1, SPREAD, 1), 2))
    assert not refusals(receive(ended(host, 0), m.Launch(1, SPREAD, 1), 2))


def test_a_repeat_of_a_granted_launch_is_answered_though_it_does_not_say_so() -> None:
    """Only the first launch knows how many may share; its run is known from then on."""
    host = receive(up(), m.Launch(1, SPREAD), 0).state
    host = receive(host, m.Launch(1, SPREAD, 1), 1).state
    assert not refusals(receive(host, m.Launch(1, SPREAD), 1))


def test_a_constraint_on_tasks_is_checked_when_the_run_is_granted() -> None:
    host = receive(up(), m.Launch(1, PLAIN), 0, crowd=TWO).state
    reason = "the host does not meet the constraint: requires no task with app=x"
    assert refusals(receive(host, m.Launch(1, ALONE), 0)) == [([0], reason)]
    assert not refusals(receive(ended(host, 0, TWO), m.Launch(1, ALONE), 0))


def test_the_runs_of_one_launch_count_for_each_other() -> None:
    three = replace(ALONE, constraint=replace(LESS, requirement=3))
    turn = receive(up(), m.Launch(1, three), 0, 1, 2, 3)
    assert [members for members, _ in refusals(turn)] == [[3]]


def test_conditions_on_the_host_are_checked_too() -> None:
    """The placer may have known other labels."""
    rack = Constraint("label", "host", Label("rack", "r"), "greater", 0)
    spec = replace(PLAIN, constraint=rack)
    assert refusals(receive(up(), m.Launch(1, spec), 0))
    assert not refusals(receive(up(Label("rack", "r")), m.Launch(1, spec), 0))


def test_a_killed_run_counts_until_it_has_ended() -> None:
    host = receive(up(), m.Launch(1, ALONE), 0).state
    host = receive(host, m.KillRun(1, 9.0), 0).state
    assert refusals(receive(host, m.Launch(1, ALONE), 1))
    assert not refusals(receive(ended(host, 0), m.Launch(1, ALONE), 1))


def test_fixed_ports_are_told_as_labels() -> None:
    spec = RunSpec(Resources(UNIT), "x", ports=(Port("a", 8080), Port("b", 0, "B")))
    host = receive(up(), m.Launch(1, spec), 0).state
    assert host.summary(HOST).running == ((port_label(8080), 1),)
    assert refusals(receive(host, m.Launch(1, spec), 1)) == [
        ([1], "port 8080 is taken on the host")
    ]
    assert ended(host, 0).running == immutables.Map()


def test_a_host_with_too_many_labels_tells_none() -> None:
    labels = tuple(Label("k", str(at)) for at in range(m.RUNNING_LABELS_MAX + 1))
    few = receive(up(), m.Launch(1, replace(PLAIN, labels=labels[1:])), 0).state
    assert few.summary(HOST).running == tuple((each, 1) for each in sorted(labels[1:]))
    many = receive(up(), m.Launch(1, replace(PLAIN, labels=labels)), 0).state
    assert many.summary(HOST).running is None
    assert refusals(receive(many, m.Launch(1, replace(ALONE, constraint=replace(
        LESS, label=labels[0])), 0), 1)), "the host itself knows all of them"  # fmt: skip


step = st.one_of(
    st.tuples(
        st.just("launch"),
        st.sampled_from([SPREAD, ALONE, PLAIN, replace(PLAIN, labels=(APP, APP, MINE))]),
        st.sampled_from([ONE, TWO]),
        st.sets(st.integers(0, 5), min_size=1, max_size=3),
        st.integers(0, 2),
    ),
    st.tuples(st.just("end"), st.sampled_from([ONE, TWO]), st.integers(0, 5)),
    st.tuples(st.just("kill"), st.sampled_from([ONE, TWO]), st.integers(0, 5)),
    st.just(("lost",)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(step, max_size=14))
def test_the_counts_are_those_of_the_runs_whatever_happens(steps: list) -> None:
    host = up()
    for what, *rest in steps:
        if what == "launch":
            spec, crowd, members, shares = rest
            before, held = dict(host.running), {*host.runs}
            host = receive(host, m.Launch(1, spec, shares), *members, crowd=crowd).state
            fresh = [run for pod, run in host.runs.items() if pod not in held]
            granted = sum(1 for run in fresh if run.phase in OCCUPYING)
            if granted and spec is SPREAD:
                assert before.get(MINE, 0) + granted <= shares + 1
            if granted and spec is ALONE:
                assert before.get(APP, 0) == 0 and granted == 1
        elif what == "end":
            host = ended(host, rest[1], rest[0])
        elif what == "kill":
            host = receive(host, m.KillRun(1, 1.0), rest[1], crowd=rest[0]).state
        else:
            host = receive(host, m.HostGone()).state
            host = receive(host, m.ConfigureHost(ROOM, (), BACKEND, (31000, 31003))).state
            host = receive(receive(host, m.BackendUp()).state, m.RunsListed(())).state
        assert dict(host.running) == counted(host)


@pytest.mark.parametrize("tasks", [False, True])
def test_labels_are_told_only_if_they_are_to_be_known(tasks: bool) -> None:
    host = receive(up(), m.Launch(1, PLAIN), 0).state
    assert host.summary(HOST, tasks=tasks).running == (((APP, 1),) if tasks else None)


# ---- ports that others on the machine use, as its backend has found ----

PICKED = RunSpec(Resources(UNIT), "x", ports=(Port("http", 0, "PORT"),))
FIXED = RunSpec(Resources(UNIT), "x", ports=(Port("http", 31000, "PORT"),))


def heard(host: Host, message: Message, *members: int) -> Turn:
    sender = host.backend if isinstance(message, PortsInUse) else h.CROWD
    some = Bits.of(*members) if members else None
    at = At(now=9.0, key=h.HOST, sender=sender, members=some, epoch=h.EPOCH)
    return take_turn(h.KIND, host, message=message, at=at)


def with_run(spec: RunSpec) -> Host:
    return heard(h.up(), m.Launch(1, spec), 0).state  # type: ignore[no-any-return]


def started(turn: Turn) -> list[tuple[str, str]]:
    """The runs of a turn's orders, and the port that each is told."""
    orders = [one for one in h.orders(turn) if isinstance(one, m.StartRuns)]
    return [(run.run, dict(run.environment)["PORT"]) for one in orders for run in one.runs]


def test_a_run_whose_picked_port_is_in_use_begins_with_another_as_the_same_attempt() -> None:
    turn = heard(with_run(PICKED), PortsInUse((31000,), (h.pod(0),)))
    assert started(turn) == [(h.pod(0), "31001")] and h.replies(turn) == []
    assert {type(fact) for fact in turn.facts} == {PortsNoted, PortsGiven}
    summary = turn.state.summary(h.HOST)
    assert (summary.ports, summary.running) == (1, ((port_label(31000), 1),))
    again = heard(turn.state, PortsInUse((31000,), (h.pod(0),)))
    assert not again.facts and not again.sends, "a repeat finds that it has another by now"
    other = heard(turn.state, m.Launch(1, PICKED), 1)
    assert started(other) == [(h.pod(1), "31002")]


@pytest.mark.parametrize(
    "spec, used, reason",
    [
        (FIXED, (31000,), "port 31000 is in use on the machine by another program"),
        (PICKED, (31000, 31001, 31002), "no free port on the host"),
    ],
)
def test_a_run_without_another_port_is_refused(
    spec: RunSpec, used: tuple[int, ...], reason: str
) -> None:
    before = with_run(spec)
    turn = heard(before, PortsInUse(used, (h.pod(0),)))
    ((refusal, members),) = h.replies(turn)
    assert isinstance(refusal, t.RunRefused) and members == [0]
    assert (refusal.run, refusal.reason) == (1, reason)
    assert refusal.summary is not None and refusal.summary.running is not None
    assert dict(refusal.summary.running)[port_label(31000)] == 1, "so it is not proposed again"
    assert turn.state.unused == h.up().unused and not started(turn)
    assert turn.state.runs[h.pod(0)].phase == RunPhase.REFUSED
    forgotten = heard(turn.state, m.RunSeen(1), 0).state
    free = heard(forgotten, PortsInUse(())).state
    assert started(heard(free, m.Launch(2, spec), 0)) == [(h.pod(0, run=2), "31000")]


def test_what_is_in_use_is_not_granted() -> None:
    host = heard(h.up(), PortsInUse((31000,))).state
    assert host.version > h.up().version, "placers hear of it"
    ((refusal, _),) = h.replies(heard(host, m.Launch(1, FIXED), 0))
    assert refusal.reason == "port 31000 is taken on the host"  # type: ignore[attr-defined]
    assert started(heard(host, m.Launch(1, PICKED), 0)) == [(h.pod(0), "31001")]
    assert not heard(host, PortsInUse((31000,))).facts, "nothing has changed"


def test_a_run_that_has_begun_goes_on() -> None:
    host = heard(with_run(PICKED), m.RunsStarted((h.pod(0),))).state
    turn = heard(host, PortsInUse((31000,), (h.pod(0),)))
    assert not turn.sends and turn.state.runs[h.pod(0)].ports == (31000,)
    assert not turn.facts, "the port in use is its own, which counts once"
    assert turn.state.free_ports == h.up().free_ports - 1


def test_many_ports_in_use_do_not_hide_the_labels_of_tasks() -> None:
    host = heard(h.up(), m.Launch(1, PLAIN), 0).state
    host = heard(host, PortsInUse(tuple(range(40000, 40000 + 2 * m.RUNNING_LABELS_MAX)))).state
    told = host.summary(h.HOST).running
    assert told is not None and len(told) == m.RUNNING_LABELS_MAX
    assert dict(told)[APP] == 1


@pytest.mark.parametrize("spec, left", [(PICKED, 1), (FIXED, 0)])
def test_a_run_of_no_task_begins_with_another_port_or_is_over(spec: RunSpec, left: int) -> None:
    host = heard(holds.held(), holds.launch("t-0", spec=spec)).state
    turn = heard(host, PortsInUse((31000,), (holds.run_of("t-0"),)))
    assert len(turn.state.runs) == len(started(turn)) == turn.state.foreign == left
