"""A host: what it grants, how long the ledger keeps a run, what a backend's list repairs.

Orders to the backend are checked, reports are made by hand.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.decide import deadline, owed
from peloton.actors.host.goals import POLL_EVERY_S, HostNotes
from peloton.actors.host.kind import kind
from peloton.actors.host.ledger import RUN_TABLE, RunEvent, RunStep
from peloton.actors.host.live.live_messages import LimitRun, LimitRuns
from peloton.actors.host.run_spec import Port, RunSpec
from peloton.actors.host.stages import OCCUPYING, HostStates, RunPhase
from peloton.actors.host.state import Host
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task import messages as t
from peloton.actors.task.messages import End, RunOutcome
from peloton.runtime.core.turning.turn import TurnOutcome as Turn
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Due, Key, Message, Pursue, Refused

KIND = kind(8)
HOST, BACKEND, JOB = Key("host/h"), Key("backend/b"), "0" * 36
CROWD = Key(f"task/{JOB}/0")
SPEC = RunSpec(Resources(UNIT), "true")
ROOM = Resources(4 * UNIT, 0, 0, 0)
DONE = RunOutcome(End.SUCCEEDED, 0)
EPOCH = 3


def receive(host: Host | None, message: Message, *members: int, now: float = 9.0) -> Turn:
    """One turn of a host, on a message of these members or of its backend."""
    some = Bits.of(*members) if members else None
    at = At(now=now, key=HOST, sender=CROWD, members=some, epoch=EPOCH)
    return take_turn(KIND, host, message=message, at=at)


def replies(turn: Turn) -> list[tuple[Message, list[int]]]:
    """What is sent to tasks, with the members."""
    return [(s.message, [*s.members]) for s in turn.sends if s.members is not None]


def orders(turn: Turn) -> list[Message]:
    """What is sent to the backend."""
    return [send.message for send in turn.sends if send.to == BACKEND]


def pod(member: int, run: int = 1) -> str:
    return t.pod_id(CROWD, member, run=run)


def up(ports: tuple[int, int] = (31000, 31003)) -> Host:
    """A host of four cpus that is up."""
    host = receive(None, m.ConfigureHost(ROOM, (), BACKEND, ports)).state
    host = receive(host, m.BackendUp()).state
    host = receive(host, m.RunsListed(())).state
    assert host.state == HostStates.UP
    return host  # type: ignore[no-any-return]


def with_run(phase: RunPhase, member: int = 0) -> Host:
    """A host that holds one run in this phase."""
    host = up()
    spec = SPEC if phase != RunPhase.REFUSED else RunSpec(ROOM + ROOM, "big")
    prepare = phase == RunPhase.PREPARED
    host = receive(host, m.Launch(1, spec, prepare=prepare), member).state
    if phase in (RunPhase.STARTED, RunPhase.ENDED):
        host = receive(host, m.RunsStarted((pod(member),))).state
    if phase == RunPhase.KILLING:
        host = receive(host, m.KillRun(1, 5.0), member).state
    if phase == RunPhase.ENDED:
        host = receive(host, m.RunsEnded((m.RunEnd(pod(member), DONE),))).state
    assert host.runs[pod(member)].phase == phase
    return host


def test_a_host_is_up_once_its_backend_was_compared() -> None:
    turn = receive(None, m.ConfigureHost(ROOM, (), BACKEND))
    assert turn.state.state == HostStates.UNREACHABLE
    turn = receive(turn.state, m.BackendUp())
    assert orders(turn) == [m.ListRuns(HOST, EPOCH, 9.0)]
    assert turn.state.state == HostStates.RECONCILING
    assert receive(turn.state, m.RunsListed(())).state.state == HostStates.UP


def test_the_lowest_members_are_granted_first_and_the_rest_refused() -> None:
    turn = receive(up(), m.Launch(1, SPEC), *range(6))
    replied = replies(turn)
    ((refusal, members),) = replied
    assert isinstance(refusal, t.RunRefused) and members == [4, 5]
    assert refusal.reason == "insufficient resources on the host: cpu"
    assert turn.state.free == Resources() and len(turn.facts) == 2
    starts = orders(turn)[0]
    assert isinstance(starts, m.StartRuns) and starts.epoch == EPOCH
    assert [run.run for run in starts.runs] == [pod(n) for n in range(4)]


def test_a_run_gets_its_ids() -> None:
    turn = receive(up(), m.Launch(1, RunSpec(Resources(1), "x", environment=(("A", "1"),))), 7)
    start = orders(turn)[0].runs[0]  # type: ignore[attr-defined]
    assert dict(start.environment) == {
        "A": "1",
        "PELOTON_JOB_ID": JOB,
        "PELOTON_INSTANCE_ID": "7",
        "PELOTON_TASK_ID": f"{JOB}-7",
        "PELOTON_POD_ID": f"{JOB}-7-1",
    }


def test_a_run_of_a_real_job_gets_the_ids_of_its_parts() -> None:
    job = "6f1c9d0e-0000-4000-8000-00000000abcd"
    environment = dict(m.StartRun(f"{job}-12-3", SPEC).environment)
    assert environment["PELOTON_JOB_ID"] == job and environment["PELOTON_INSTANCE_ID"] == "12"
    assert environment["PELOTON_TASK_ID"] == f"{job}-12"


def test_runs_that_are_alike_are_one_record_in_the_ledger() -> None:
    """A hundred bytes a run, and as many in each checkpoint, if each had its own."""
    host = receive(up(), m.Launch(1, SPEC), 0, 1).state
    (some,) = [some for _, some in host.runs.sets()]
    assert [*some.members] == [0, 1] and [*host.runs] == [pod(0), pod(1)]
    host = receive(host, m.RunsStarted((pod(1),))).state
    phases = [(some.phase, [*some.members]) for _, some in host.runs.sets()]
    assert phases == [(RunPhase.ACCEPTED, [0]), (RunPhase.STARTED, [1])]
    host = receive(host, m.RunsStarted((pod(0),))).state
    assert [[*some.members] for _, some in host.runs.sets()] == [[0, 1]]


@pytest.mark.parametrize(
    ("phase", "answer"),
    [
        (RunPhase.ACCEPTED, t.Accepted(1)),
        (RunPhase.STARTED, t.Started(1)),
        (RunPhase.KILLING, t.Accepted(1)),
        (RunPhase.ENDED, t.Ended(1, DONE)),
        (
            RunPhase.REFUSED,
            t.RunRefused(1, "insufficient resources on the host: cpu", None, Bits()),
        ),
    ],
)
def test_a_repeated_launch_is_answered_from_the_ledger(phase: RunPhase, answer: Message) -> None:
    turn = receive(with_run(phase), m.Launch(1, SPEC), 0)
    assert not turn.facts and not orders(turn) and replies(turn) == [(answer, [0])]


@pytest.mark.parametrize(
    ("phase", "after", "expected", "stops"),
    [
        (RunPhase.ACCEPTED, RunPhase.KILLING, [], True),
        (RunPhase.STARTED, RunPhase.KILLING, [], True),
        (RunPhase.KILLING, RunPhase.KILLING, [], True),
        (RunPhase.ENDED, RunPhase.ENDED, [(t.Ended(1, DONE), [0])], False),
        (RunPhase.REFUSED, RunPhase.REFUSED,
         [(t.RunRefused(1, "insufficient resources on the host: cpu", None, Bits()), [0])], False),
    ],
)  # fmt: skip
def test_a_kill_is_answered_from_every_phase(
    phase: RunPhase, after: RunPhase, expected: Any, stops: bool
) -> None:
    turn = receive(with_run(phase), m.KillRun(1, 5.0), 0)
    assert turn.state.runs[pod(0)].phase == after and replies(turn) == expected
    expected: list[Message] = [m.StopRuns(HOST, EPOCH, (pod(0),), 5.0)] if stops else []
    assert orders(turn) == expected


@pytest.mark.parametrize(
    ("phase", "passed"),
    [
        (RunPhase.ACCEPTED, True),
        (RunPhase.STARTED, True),
        (RunPhase.KILLING, True),
        (RunPhase.ENDED, False),
        (RunPhase.REFUSED, False),
        (RunPhase.PREPARED, False),  # it is told with the launch that is still to come
    ],
)
def test_another_limit_is_told_to_who_has_the_run(phase: RunPhase, passed: bool) -> None:
    turn = receive(with_run(phase), LimitRun(1, 90.0), 0, 3)
    told: list[Message] = [LimitRuns(HOST, EPOCH, (pod(0),), 90.0)] if passed else []
    assert not turn.facts and not replies(turn) and orders(turn) == told


def test_what_is_killed_and_unknown_is_gone() -> None:
    assert replies(receive(up(), m.KillRun(4, 5.0), 0, 2)) == [(t.RunGone(4), [0, 2])]


@pytest.mark.parametrize("phase", [RunPhase.ENDED, RunPhase.REFUSED])
def test_what_is_over_is_remembered_until_it_was_seen(phase: RunPhase) -> None:
    host = with_run(phase)
    assert len(owed(host)) == 1 and host.free == ROOM
    assert not receive(host, m.RunSeen(2), 0).facts, "another run was seen"
    assert not receive(host, m.RunSeen(1), 0).state.runs


@pytest.mark.parametrize("phase", [RunPhase.ACCEPTED, RunPhase.STARTED, RunPhase.KILLING])
def test_what_is_not_over_is_not_forgotten(phase: RunPhase) -> None:
    host = with_run(phase)
    assert not receive(host, m.RunSeen(1), 0).facts and not owed(host)


def test_a_killed_run_that_fails_was_killed() -> None:
    end = m.RunEnd(pod(0), RunOutcome(End.FAILED, signal="SIGTERM"))
    turn = receive(with_run(RunPhase.KILLING), m.RunsEnded((end,)))
    assert replies(turn)[0][0].outcome.end == End.KILLED  # type: ignore[attr-defined]
    well = receive(with_run(RunPhase.KILLING), m.RunsEnded((m.RunEnd(pod(0), DONE),)))
    assert replies(well)[0][0].outcome.end == End.SUCCEEDED, "it was faster"  # type: ignore[attr-defined]


def test_ports_are_picked_and_never_given_twice() -> None:
    dynamic, fixed = Port("http", 0, "PORT"), Port("fixed", 31000)
    both = RunSpec(Resources(1), "x", ports=(dynamic, fixed))
    turn = receive(up(), m.Launch(1, both), 0, 1)
    ((refusal, refused),) = replies(turn)
    assert refusal.reason == "port 31000 is taken on the host" and refused == [1]  # type: ignore[attr-defined]
    start = orders(turn)[0].runs[0]  # type: ignore[attr-defined]
    assert dict(start.environment)["PORT"] == "31001", "31000 is the fixed one"
    one = RunSpec(Resources(1), "x", ports=(dynamic,))
    again = receive(turn.state, m.Launch(1, one), 2, 3)
    assert [members for _, members in replies(again)] == [[3]]
    ports = [run.ports for _, run in again.state.runs.items() if run.phase == RunPhase.ACCEPTED]
    assert sorted(ports) == [(31001, 31000), (31002,)]


def test_a_run_whose_fixed_ports_are_one_number_is_refused() -> None:
    twice = RunSpec(Resources(1), "x", ports=(Port("a", 31000), Port("b", 31000)))
    turn = receive(up(), m.Launch(1, twice), 0)
    ((refusal, refused),) = replies(turn)
    assert refusal.reason == "no free port on the host" and refused == [0]  # type: ignore[attr-defined]


@pytest.mark.parametrize("state", [HostStates.RECONCILING, HostStates.UNREACHABLE, HostStates.LOST])
def test_a_host_that_is_not_up_grants_nothing(state: HostStates) -> None:
    host = up()
    if state == HostStates.RECONCILING:
        host = receive(host, m.BackendUp()).state
    else:
        host = receive(host, m.BackendDown("gone")).state
    if state == HostStates.LOST:
        host = receive(host, Due("unreachable")).state
    turn = receive(host, m.Launch(1, SPEC), 0)
    assert turn.state.state == state
    assert replies(turn)[0][0].reason == f"host is {state.name.lower()}"  # type: ignore[attr-defined]


def test_a_silent_backend_loses_the_runs_in_time() -> None:
    host = receive(with_run(RunPhase.STARTED), m.BackendDown("gone")).state
    assert deadline(host) == ("unreachable", 60.0) and host.used == Resources(UNIT)
    turn = receive(host, Due("unreachable"))
    assert turn.state.state == HostStates.LOST and turn.state.used == Resources()
    outcome = replies(turn)[0][0].outcome  # type: ignore[attr-defined]
    assert (outcome.end, outcome.system) == (End.LOST, True)
    assert len(owed(turn.state)) == 1


RECONCILE = [
    # phase, what the backend lists of it, phase afterwards, orders, messages
    (RunPhase.ACCEPTED, None, RunPhase.ACCEPTED, ["StartRuns"], []),
    (RunPhase.ACCEPTED, "running", RunPhase.STARTED, [], ["Started"]),
    (RunPhase.ACCEPTED, "ended", RunPhase.ENDED, ["ForgetRuns"], ["Ended"]),
    (RunPhase.STARTED, None, RunPhase.ENDED, [], ["Ended"]),
    (RunPhase.STARTED, "running", RunPhase.STARTED, [], []),
    (RunPhase.STARTED, "ended", RunPhase.ENDED, ["ForgetRuns"], ["Ended"]),
    (RunPhase.KILLING, None, RunPhase.ENDED, [], ["Ended"]),
    (RunPhase.KILLING, "running", RunPhase.KILLING, ["StopRuns"], []),
    (RunPhase.KILLING, "ended", RunPhase.ENDED, ["ForgetRuns"], ["Ended"]),
    (RunPhase.ENDED, None, RunPhase.ENDED, [], []),
    (RunPhase.ENDED, "ended", RunPhase.ENDED, ["ForgetRuns"], []),
    (RunPhase.REFUSED, None, RunPhase.REFUSED, [], []),
]


@pytest.mark.parametrize(("phase", "listed", "after", "ordered", "expected"), RECONCILE)
def test_the_ledger_is_compared_row_by_row(
    phase: RunPhase, listed: str | None, after: RunPhase, ordered: list[str], expected: list[str]
) -> None:
    host = receive(with_run(phase), m.BackendUp()).state
    running = (pod(0),) if listed == "running" else ()
    ends = (m.RunEnd(pod(0), DONE),) if listed == "ended" else ()
    turn = receive(host, m.RunsListed(running, ends))
    assert turn.state.state == HostStates.UP
    assert turn.state.runs[pod(0)].phase == after
    assert [type(order).__name__ for order in orders(turn)] == ordered
    assert [type(message).__name__ for message, _ in replies(turn)] == expected


@pytest.mark.parametrize(
    ("phase", "after"),
    [(RunPhase.ACCEPTED, RunPhase.ACCEPTED), (RunPhase.KILLING, RunPhase.KILLING)],
)
def test_a_listed_run_that_has_not_started_is_not_told_as_started(
    phase: RunPhase, after: RunPhase
) -> None:
    """Such as a pod of which the init containers run; it is there, so it is not ordered again."""
    host = receive(with_run(phase), m.BackendUp()).state
    turn = receive(host, m.RunsListed((pod(0),), started=(0.0,)))
    assert turn.state.state == HostStates.UP and turn.state.runs[pod(0)].phase == after
    assert [type(order).__name__ for order in orders(turn)] == (
        ["StopRuns"] if phase == RunPhase.KILLING else []
    )
    assert not replies(turn)


@pytest.mark.parametrize("phase", [None, RunPhase.ENDED, RunPhase.REFUSED])
def test_an_old_run_is_gone_before_the_host_is_up(phase: RunPhase | None) -> None:
    host = up() if phase is None else with_run(phase)
    host = receive(host, m.BackendUp()).state
    turn = receive(host, m.RunsListed((pod(0),)))
    assert turn.state.state == HostStates.RECONCILING
    assert orders(turn) == [m.StopRuns(HOST, EPOCH, (pod(0),), 30.0)]
    end = m.RunsEnded((m.RunEnd(pod(0), RunOutcome(End.KILLED)),))
    look = receive(turn.state, end)
    assert [type(order).__name__ for order in orders(look)] == ["ForgetRuns", "ListRuns"]
    assert receive(look.state, m.RunsListed(())).state.state == HostStates.UP


def test_a_list_from_before_an_outage_is_not_believed() -> None:
    host = receive(up(), m.BackendUp()).state
    for message in (m.BackendDown("gone"), m.HostGone()):
        gone = receive(host, message).state
        assert not receive(gone, m.RunsListed(())).facts


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (m.Launch(1, SPEC), [t.RunRefused(1, "no such host")]),
        (m.KillRun(1, 5.0), [t.RunGone(1)]),
        (m.RunSeen(1), []),
        (LimitRun(1, 90.0), []),
    ],
)
def test_a_host_that_is_not_there(message: Message, answer: list[Message]) -> None:
    turn = receive(None, message, 0)
    assert turn.state is None and [message for message, _ in replies(turn)] == answer


def test_the_version_rises_with_every_change_of_resources() -> None:
    host = up()
    granted = receive(host, m.Launch(1, SPEC), 0).state
    started = receive(granted, m.RunsStarted((pod(0),))).state
    ended = receive(started, m.RunsEnded((m.RunEnd(pod(0), DONE),))).state
    assert host.version < granted.version == started.version < ended.version


def gone(host: Host) -> Host:
    """The host, after it was removed from the cluster."""
    return receive(host, m.HostGone()).state  # type: ignore[no-any-return]


@pytest.mark.parametrize("state", HostStates)
def test_a_recheck_does_not_assume_that_the_backend_is_up(state: HostStates) -> None:
    """An unreachable host pings its backend; only the answer makes it reconcile."""
    host = up() if state != HostStates.RECONCILING else receive(up(), m.BackendUp()).state
    if state in (HostStates.UNREACHABLE, HostStates.LOST):
        host = receive(host, m.BackendDown("gone")).state
    if state == HostStates.LOST:
        host = receive(host, Due("unreachable")).state
    turn = receive(host, m.RecheckBackend())
    if state in (HostStates.UP, HostStates.RECONCILING):
        assert turn.state.state == HostStates.RECONCILING
        assert orders(turn) == [m.ListRuns(HOST, EPOCH, 9.0)]
        return
    assert turn.state == host and orders(turn) == [m.PingBackend(HOST)]
    asked = receive(turn.state, m.BackendUp())
    assert receive(asked.state, m.RunsListed(())).state.state == HostStates.UP


@pytest.mark.parametrize("phase", [None, RunPhase.ENDED, RunPhase.REFUSED])
def test_a_start_that_nobody_owns_is_killed(phase: RunPhase | None) -> None:
    host = up() if phase is None else with_run(phase)
    turn = receive(host, m.RunsStarted((pod(0),)))
    assert orders(turn) == [m.StopRuns(HOST, EPOCH, (pod(0),), 30.0)] and not turn.facts


def test_an_end_that_is_reported_late_has_its_own_time() -> None:
    """A run ended while its host was away: its task gets the time, now and at every repeat."""
    host = with_run(RunPhase.STARTED)
    end = m.RunsEnded((m.RunEnd(pod(0), DONE, 50.03),))
    assert replies(receive(host, end, now=51.0)) == [(t.Ended(1, DONE), [0])], "just now"
    late = receive(host, end, now=90.0)
    assert replies(late) == [(t.Ended(1, DONE, 50.1), [0])]
    assert [send.message for send in owed(late.state)] == [t.Ended(1, DONE, 50.1)]
    listed = m.RunsListed((), (m.RunEnd(pod(0), DONE, 50.03),))
    assert replies(receive(host, listed, now=90.0)) == [(t.Ended(1, DONE, 50.1), [0])]
    early = m.RunsEnded((m.RunEnd(pod(0), DONE, 1.0),))
    assert replies(receive(host, early, now=90.0)) == [(t.Ended(1, DONE, 9.0), [0])], (
        "clock set back"
    )


@pytest.mark.parametrize("phase", [RunPhase.ACCEPTED, RunPhase.STARTED, RunPhase.KILLING])
def test_a_host_that_is_no_more_loses_and_kills_its_runs(phase: RunPhase) -> None:
    turn = receive(with_run(phase), m.HostGone())
    assert turn.state.removed and turn.state.free == ROOM
    assert replies(turn)[0][0].outcome.end == End.LOST  # type: ignore[attr-defined]
    assert orders(turn) == [m.StopRuns(HOST, EPOCH, (pod(0),), 30.0)]
    assert not receive(turn.state, m.HostGone()).facts
    assert len(owed(turn.state)) == 1, "the end is owed until its tasks have seen it"


@pytest.mark.parametrize("phase", [RunPhase.ACCEPTED, RunPhase.STARTED, RunPhase.KILLING])
def test_whether_runs_may_be_lost_is_decided_where_they_are_granted(phase: RunPhase) -> None:
    """An operator who checked the host before removing it may have missed a launch."""
    host = with_run(phase)
    turn = receive(host, m.HostGone(lose_runs=False))
    assert isinstance(turn.reply, Refused) and "h holds 1 runs" in turn.reply.text
    assert (turn.state, turn.facts, turn.sends) == (host, (), ())
    assert turn.reply.again, "the runs may have ended when it is repeated"
    assert receive(host, m.HostGone()).reply == 1


@pytest.mark.parametrize("phase", [RunPhase.ENDED, RunPhase.REFUSED])
def test_a_host_whose_runs_are_over_is_forgotten_without_asking(phase: RunPhase) -> None:
    turn = receive(with_run(phase), m.HostGone(lose_runs=False))
    assert turn.state.removed and turn.reply == 0
    assert receive(turn.state, m.HostGone(lose_runs=False)).reply == 0


def test_a_host_that_is_no_more_never_comes_up_but_buries_its_dead() -> None:
    host = gone(with_run(RunPhase.STARTED))
    for message in (m.BackendUp(), m.RecheckBackend()):
        turn = receive(host, message)
        assert turn.state == host and orders(turn) == [m.ListRuns(HOST, EPOCH, 9.0)]
    ends = (m.RunEnd(pod(1), DONE),)
    turn = receive(host, m.RunsListed((pod(0),), ends))
    assert turn.state == host, "no list makes it part of the cluster"
    assert orders(turn) == [
        m.StopRuns(HOST, EPOCH, (pod(0),), 30.0),
        m.ForgetRuns(HOST, (pod(1),)),
    ]
    assert isinstance(replies(receive(host, m.Launch(2, SPEC), 0))[0][0], t.RunRefused)


def test_a_host_that_is_no_more_may_come_back() -> None:
    host = gone(up())
    back = receive(host, m.ConfigureHost(ROOM, (), BACKEND, (31000, 31003)))
    assert back.facts and not back.state.removed, "though nothing else of it changed"
    host = receive(back.state, m.BackendUp()).state
    assert receive(host, m.RunsListed(())).state.state == HostStates.UP


def test_what_is_so_of_many_is_written_as_a_set_and_folds_the_same() -> None:
    """Each step for four members at once, and for one after another: the ledgers are equal."""
    pods = tuple(pod(member) for member in range(4))
    ends = tuple(m.RunEnd(name, DONE) for name in pods)
    together = receive(up(), m.Launch(1, SPEC), 0, 1, 2, 3).state
    alone = together
    steps: list[tuple[Message, list[Message], list[int]]] = [
        (m.RunsStarted(pods), [m.RunsStarted((name,)) for name in pods], []),
        (m.RunsEnded(ends), [m.RunsEnded((end,)) for end in ends], []),
        (m.RunSeen(1), [m.RunSeen(1)] * 4, [0, 1, 2, 3]),
    ]
    for whole, parts, members in steps:
        turn = receive(together, whole, *members)
        assert [type(fact).__name__[:3] for fact in turn.facts] == ["Set"]
        together = turn.state
        for number, part in enumerate(parts):
            one = receive(alone, part, *members[number : number + 1])
            assert [type(fact).__name__[:3] for fact in one.facts] != ["Set"]
            alone = one.state
        assert together.runs == alone.runs and together.used == alone.used
    assert not together.runs


def test_ends_of_several_ways_are_several_sets() -> None:
    """What differs in outcome or time is not lumped together; what is alone goes by name."""
    host = receive(up(), m.Launch(1, SPEC), 0, 1, 2, 3).state
    failed = RunOutcome(End.FAILED, 1)
    ways = (DONE, failed, DONE, RunOutcome(End.FAILED, 2))
    ends = tuple(m.RunEnd(pod(member), way) for member, way in enumerate(ways))
    turn = receive(host, m.RunsEnded(ends))
    assert [type(fact).__name__ for fact in turn.facts] == ["SetEnded", "ProcessesEnded"]
    assert [turn.state.runs[pod(member)].outcome for member in range(4)] == [*ways]
    assert sorted(members for _, members in replies(turn)) == [[0, 2], [1], [3]]


# ---- looking by itself ----


def polls(host: Host, notes: Any, now: float) -> Turn:
    """One look of a host at its goal, with this soft memory."""
    at = At(now=now, key=HOST, epoch=EPOCH, notes=notes)
    return take_turn(KIND, host, message=Pursue(), at=at)


def test_a_host_that_holds_runs_polls_its_backend_at_intervals():
    """The report of an end may be lost, and the backend would not repeat it."""
    host = receive(up(), t_launch(), 0).state
    first = polls(host, None, 100.0)
    assert not orders(first) and KIND.recall_s(first.notes) == 100.0 + POLL_EVERY_S[HostStates.UP]
    early = polls(host, first.notes, 399.0)
    assert not orders(early) and early.notes is None
    due = polls(host, first.notes, 400.0)
    assert [type(order) for order in orders(due)] == [m.ListRuns]
    assert KIND.recall_s(due.notes) == 700.0


def test_a_host_that_became_idle_polls_once_more_and_then_stops():
    """The backend may keep runs whose "forget" was lost."""
    turn = polls(up(), HostNotes(HostStates.UP, 400.0), 500.0)
    assert [type(order) for order in orders(turn)] == [m.ListRuns]
    assert KIND.recall_s(turn.notes) is None
    rest = polls(up(), turn.notes, 9000.0)
    assert not orders(rest) and rest.notes is None


@pytest.mark.parametrize(
    ("message", "expected"), [(m.BackendDown("gone"), m.PingBackend), (m.BackendUp(), m.ListRuns)]
)
def test_a_host_that_waits_for_a_report_polls_its_backend(message: Message, expected: type):
    host = receive(receive(up(), m.BackendDown("away")).state, message).state
    begun = polls(host, HostNotes(HostStates.UP, 1.0), 100.0)
    assert not orders(begun), "another state: its time begins anew"
    due = polls(host, begun.notes, 100.0 + POLL_EVERY_S[host.state])
    assert [type(order) for order in orders(due)] == [expected]


def t_launch() -> Message:
    return m.Launch(1, SPEC)


def test_a_list_does_not_judge_what_was_accepted_after_it_was_asked_for():
    """Its resources would be granted again while the process is still ending."""
    host = receive(up(), t_launch(), 0, now=20.0).state
    killed = receive(host, m.KillRun(1, 30.0), 0, now=21.0).state
    turn = receive(killed, m.RunsListed((), (), 19.0), now=22.0)
    assert not turn.facts and turn.state.used == killed.used
    later = receive(killed, m.RunsListed((), (), 23.0), now=24.0)
    assert later.state.used == Resources(), "requested after it was accepted: it is lost"


def test_a_host_is_up_only_when_a_list_has_judged_every_run() -> None:
    """The owner died in the instant it accepted the run, and its order to start with it."""
    host = receive(up(), t_launch(), 0, now=20.0).state
    reconciling = receive(host, m.BackendUp(), now=20.0).state
    turn = receive(reconciling, m.RunsListed((), (), 20.0), now=20.0)
    assert turn.state.state == HostStates.RECONCILING, "the list may be older than the run"
    later = receive(turn.state, m.RunsListed((), (), 25.0), now=25.0)
    assert later.state.state == HostStates.UP
    assert any(isinstance(send.message, m.StartRuns) for send in later.sends)


def met(keeper: str = "x1", at: str = "/x") -> Host:
    """A host of four cpus that is up, holds one started run, and knows its keeper."""
    host = receive(None, m.ConfigureHost(ROOM, (), BACKEND)).state
    host = receive(host, m.BackendUp()).state
    host = receive(host, m.RunsListed((), keeper=keeper, keeper_at=at)).state
    host = receive(host, m.Launch(1, SPEC), 0).state
    return receive(host, m.RunsStarted((pod(0),))).state  # type: ignore[no-any-return]


OTHER_LIST = m.RunsListed((), keeper="y2", keeper_at="/y")


def test_a_host_knows_the_first_keeper_it_was_compared_with() -> None:
    host = met()
    assert (host.state, host.keeper, host.keeper_at) == (HostStates.UP, "x1", "/x")
    start = orders(receive(host, m.Launch(1, SPEC), 1))[0]
    assert isinstance(start, m.StartRuns) and start.keeper == "x1"


def test_the_list_of_another_keeper_loses_no_run_and_launches_nothing() -> None:
    turn = receive(met(), OTHER_LIST)
    host = turn.state
    assert host.state == HostStates.RECONCILING and deadline(host) is None
    assert host.runs[pod(0)].phase == RunPhase.STARTED and replies(turn) == [] == orders(turn)
    for name in ("x1", "/x", "y2", "/y", "peloton host forget h --lose-runs"):
        assert name in host.because
    refusal, _ = replies(receive(host, m.Launch(1, SPEC), 1))[0]
    assert isinstance(refusal, t.RunRefused)
    assert not receive(host, OTHER_LIST).facts, "said again it is written down once"
    strangers = m.RunsListed((pod(0), "somebody-0-1"), keeper="y2", keeper_at="/y")
    assert orders(receive(host, strangers)) == [], "it kills nothing there either"


def test_a_host_goes_on_when_its_own_keeper_answers_again() -> None:
    waiting = receive(met(), OTHER_LIST).state
    back = receive(waiting, m.RunsListed((pod(0),), keeper="x1", keeper_at="/moved")).state
    assert (back.state, back.because, back.keeper_at) == (HostStates.UP, "", "/moved")
    assert back.runs[pod(0)].phase == RunPhase.STARTED


def test_a_host_takes_the_first_keeper_it_meets() -> None:
    host = receive(with_run(RunPhase.STARTED), m.RunsListed((pod(0),), keeper="x1")).state
    assert host.keeper == "x1" and host.state == HostStates.UP
    assert not receive(host, m.RunsListed((pod(0),), keeper="x1")).facts, "once is enough"


def test_a_backend_without_a_keeper_is_believed() -> None:
    assert receive(met(), m.RunsListed((pod(0),))).state.state == HostStates.UP


def test_a_person_gives_the_runs_up_and_the_next_keeper_is_taken() -> None:
    gone = receive(receive(met(), OTHER_LIST).state, m.HostGone()).state
    back = receive(gone, m.ConfigureHost(ROOM, (), BACKEND)).state
    back = receive(receive(back, m.BackendUp()).state, OTHER_LIST).state
    assert (back.state, back.keeper) == (HostStates.UP, "y2")


def test_a_summary_has_the_free_ports() -> None:
    """Placers place by it what wants ports; a port outside of the range takes none from it."""
    spec = RunSpec(Resources(UNIT), "true", ports=(Port("a"), Port("b", 8080)))
    host = up()
    assert host.summary(HOST).ports == 3
    granted = receive(host, m.Launch(1, spec), 0).state
    assert granted.runs[pod(0)].ports == (31000, 8080)
    assert granted.summary(HOST).ports == 2
    refusal = replies(receive(granted, m.Launch(1, spec), 1))[0][0]
    assert isinstance(refusal, t.RunRefused) and refusal.summary is not None
    assert refusal.reason == "port 8080 is taken on the host" and refusal.summary.ports == 2
    ended = receive(granted, m.RunsEnded((m.RunEnd(pod(0), DONE),))).state
    assert ended.summary(HOST).ports == 3
    gone = receive(granted, m.HostGone()).state
    assert gone.summary(HOST).ports == 3


def test_free_ports_are_counted_anew_for_another_range() -> None:
    spec = RunSpec(Resources(UNIT), "true", ports=(Port("a"), Port("b")))
    host = receive(up(), m.Launch(1, spec), 0).state
    other = receive(host, m.ConfigureHost(ROOM, (), BACKEND, (31001, 31011))).state
    assert other.summary(HOST).ports == 9, "one of the two is of the new range"
    ended = m.RunsEnded((m.RunEnd(pod(0), DONE),))
    assert receive(other, ended).state.summary(HOST).ports == 10


def test_a_summary_counts_the_launches_that_were_decided() -> None:
    """A placer knows by it that what it proposed has arrived; a repeat is nothing new."""
    turn = receive(up(), m.Launch(1, SPEC), *range(6))
    assert turn.state.summary(HOST).launches == 6, "the refused ones too"
    ((refusal, _),) = replies(turn)
    assert isinstance(refusal, t.RunRefused) and refusal.summary is not None
    assert refusal.summary.launches == 6 and refusal.summary.free == Resources()
    assert receive(turn.state, m.Launch(1, SPEC), *range(6)).state.launches == 6
    ended = receive(turn.state, m.RunsEnded((m.RunEnd(pod(0), DONE),))).state
    assert receive(ended, m.Launch(1, SPEC), 7).state.launches == 7


def test_a_machine_that_appears_begins_to_exist_and_is_up_once_it_was_compared() -> None:
    turn = receive(None, m.HostAppeared(ROOM, (), BACKEND, (31000, 31003)))
    assert turn.state.state == HostStates.RECONCILING and turn.state.capacity == ROOM
    assert orders(turn) == [m.ListRuns(HOST, EPOCH, 9.0)]
    up_now = receive(turn.state, m.RunsListed(())).state
    assert up_now == msgspec.structs.replace(up(), version=up_now.version)


@pytest.mark.parametrize("state", HostStates)
def test_a_machine_that_appears_again_is_compared(state: HostStates) -> None:
    """Also where nothing has changed: by the answer its backend knows that it was received."""
    host = up() if state != HostStates.RECONCILING else receive(up(), m.BackendUp()).state
    if state in (HostStates.UNREACHABLE, HostStates.LOST):
        host = receive(host, m.BackendDown("unplugged")).state
        assert (host.state, host.because) == (HostStates.UNREACHABLE, "unplugged")
    if state == HostStates.LOST:
        host = receive(host, Due("unreachable")).state
    assert host.state == state
    turn = receive(host, m.HostAppeared(ROOM, (), BACKEND, (31000, 31003)))
    assert orders(turn) == [m.ListRuns(HOST, EPOCH, 9.0)]
    still = HostStates.UP if state == HostStates.UP else HostStates.RECONCILING
    assert turn.state.state == still and bool(turn.facts) == (state > HostStates.UP)
    assert receive(turn.state, m.RunsListed(())).state.state == HostStates.UP


def test_a_machine_comes_back_with_another_capacity_and_keeps_its_runs() -> None:
    host = receive(with_run(RunPhase.STARTED), m.BackendDown("it has left")).state
    assert (host.state, host.because) == (HostStates.UNREACHABLE, "it has left")
    host = receive(host, m.HostAppeared(ROOM + ROOM, (), BACKEND, (31000, 31003))).state
    back = receive(host, m.RunsListed((pod(0),))).state
    assert back.state == HostStates.UP and back.runs[pod(0)].phase == RunPhase.STARTED
    assert back.capacity == ROOM + ROOM and back.used == SPEC.resources


def test_a_machine_that_was_removed_is_part_of_the_cluster_again_when_it_appears() -> None:
    host = receive(up(), m.HostGone()).state
    turn = receive(host, m.HostAppeared(ROOM, (), BACKEND))
    assert not turn.state.removed and turn.state.state == HostStates.RECONCILING
    assert orders(turn) == [m.ListRuns(HOST, EPOCH, 9.0)]


OTHER_BACKEND = Key("backend/other")


def from_other(host: Host, message: Message) -> Turn:
    """One turn on a report of another backend than the host's own."""
    at = At(now=9.0, key=HOST, sender=OTHER_BACKEND, epoch=EPOCH)
    return take_turn(KIND, host, message=message, at=at)


BRINGS_ANOTHER = [
    m.ConfigureHost(ROOM, (), OTHER_BACKEND),
    m.HostAppeared(ROOM, (), OTHER_BACKEND),
]


@pytest.mark.parametrize("message", BRINGS_ANOTHER, ids=lambda message: type(message).__name__)
@pytest.mark.parametrize("phase", sorted(OCCUPYING - {RunPhase.PREPARED}))
@pytest.mark.parametrize("state", [HostStates.UP, HostStates.UNREACHABLE])
def test_a_host_that_holds_runs_refuses_another_backend(
    message: Message, phase: RunPhase, state: HostStates
) -> None:
    """The other one would not know the runs, or would adopt them and end them as it likes."""
    host = with_run(phase)
    if state == HostStates.UNREACHABLE:
        host = receive(host, m.BackendDown("gone")).state
    turn = receive(host, message)
    waiting = turn.state
    assert (waiting.state, waiting.backend) == (HostStates.RECONCILING, BACKEND)
    assert deadline(waiting) is None and waiting.runs == host.runs
    assert replies(turn) == [] == orders(turn) and not turn.sends
    assert isinstance(turn.reply, Refused) and turn.reply.text == waiting.because
    for name in (BACKEND, OTHER_BACKEND, "peloton host forget h --lose-runs"):
        assert name in waiting.because
    again = receive(waiting, message)
    assert not again.facts and not again.sends, "a repeat is journaled once"
    refusal, _ = replies(receive(waiting, m.Launch(1, SPEC), 3))[0]
    assert isinstance(refusal, t.RunRefused)
    back = receive(receive(waiting, m.ConfigureHost(ROOM, (), BACKEND)).state, m.BackendUp())
    assert [type(order) for order in orders(back)] == [m.ListRuns]
    up_again = receive(back.state, m.RunsListed((pod(0),))).state
    assert (up_again.state, up_again.because) == (HostStates.UP, "")


@pytest.mark.parametrize("message", BRINGS_ANOTHER, ids=lambda message: type(message).__name__)
@pytest.mark.parametrize("phase", [None, RunPhase.ENDED, RunPhase.REFUSED])
def test_a_host_that_holds_no_run_takes_another_backend(
    message: Message, phase: RunPhase | None
) -> None:
    host = up() if phase is None else with_run(phase)
    assert receive(host, message).state.backend == OTHER_BACKEND


@pytest.mark.parametrize("message", BRINGS_ANOTHER, ids=lambda message: type(message).__name__)
def test_the_next_backend_is_taken_once_the_runs_are_given_up(message: Message) -> None:
    refused = receive(with_run(RunPhase.STARTED), message).state
    assert receive(gone(refused), message).state.backend == OTHER_BACKEND


@pytest.mark.parametrize(
    "report",
    [
        m.BackendUp(),
        m.BackendDown("gone"),
        m.RunsStarted((pod(0),)),
        m.RunsEnded((m.RunEnd(pod(0), DONE),)),
        m.RunsListed((), (m.RunEnd(pod(0), DONE),)),
        m.RunsListed(()),
    ],
    ids=lambda report: type(report).__name__,
)
def test_a_report_of_another_backend_changes_nothing(report: Message) -> None:
    host = receive(with_run(RunPhase.STARTED), m.ConfigureHost(ROOM, (), OTHER_BACKEND)).state
    turn = from_other(host, report)
    assert turn.state == host and not turn.facts and not turn.sends


EVENTS: dict[RunEvent, tuple[Message, tuple[int, ...]]] = {
    RunEvent.LAUNCH: (m.Launch(1, SPEC), (0,)),
    RunEvent.KILL: (m.KillRun(1, 5.0), (0,)),
    RunEvent.SEEN: (m.RunSeen(1), (0,)),
    RunEvent.STARTED: (m.RunsStarted((pod(0),)), ()),
    RunEvent.ENDED: (m.RunsEnded((m.RunEnd(pod(0), DONE),)), ()),
    RunEvent.LISTED: (m.RunsListed((pod(0),)), ()),
    RunEvent.UNLISTED: (m.RunsListed(()), ()),
    RunEvent.PREPARE: (m.Launch(1, SPEC, prepare=True), (0,)),
}


def taken(before: Host, turn: Turn) -> RunStep:
    """The step that a host has taken with the run of member 0, by what can be seen of it."""
    old, new = before.runs.get(pod(0)), turn.state.runs.get(pod(0))
    assert old is not None
    if new is None:
        return RunStep.RELEASE if old.phase == RunPhase.PREPARED else RunStep.FORGET
    if new.phase != old.phase:
        if new.phase == RunPhase.ENDED:
            return RunStep.LOST if new.outcome is not None and new.outcome.system else RunStep.ENDED
        if old.phase == RunPhase.PREPARED:
            return RunStep.START_PREPARED
        return RunStep.KILL if new.phase == RunPhase.KILLING else RunStep.STARTED
    ordered = {type(order) for order in orders(turn)}
    if m.StopRuns in ordered:
        occupying = old.phase in OCCUPYING - {RunPhase.PREPARED}
        return RunStep.KILL_AGAIN if occupying else RunStep.KILL_UNOWNED
    if m.StartRuns in ordered:
        return RunStep.START_AGAIN
    return RunStep.ANSWER if replies(turn) else RunStep.NOTHING


@pytest.mark.parametrize("event", RunEvent, ids=lambda event: event.name)
@pytest.mark.parametrize("phase", RUN_TABLE, ids=lambda phase: phase.name)
def test_a_host_follows_the_run_table(phase: RunPhase, event: RunEvent) -> None:
    host = with_run(phase)
    message, members = EVENTS[event]
    assert taken(host, receive(host, message, *members)) == RUN_TABLE[phase][event]


@pytest.mark.parametrize("event", RunEvent, ids=lambda event: event.name)
def test_what_is_told_of_a_run_that_the_ledger_has_not(event: RunEvent) -> None:
    message, members = EVENTS[event]
    turn = receive(up(), message, *members)
    granted = {RunEvent.LAUNCH: RunPhase.ACCEPTED, RunEvent.PREPARE: RunPhase.PREPARED}.get(event)
    run = turn.state.runs.get(pod(0))
    assert (None if run is None else run.phase) == granted
    runs = event in (RunEvent.STARTED, RunEvent.LISTED)
    assert any(isinstance(order, m.StopRuns) for order in orders(turn)) == runs
    assert (t.RunGone(1) in [sent for sent, _ in replies(turn)]) == (event == RunEvent.KILL)


def test_a_start_that_is_reported_late_has_its_own_time() -> None:
    host = receive(up(), m.Launch(1, SPEC), *range(3), now=20.0).state
    runs = tuple(pod(n) for n in range(3))
    late = receive(host, m.RunsStarted(runs, (10.0, 50.06, 89.0)), now=90.0)
    assert replies(late) == [
        (t.Started(1, 20.0), [0]),  # never before it was accepted
        (t.Started(1, 50.0), [1]),
        (t.Started(1), [2]),
    ]
    again = receive(late.state, m.Launch(1, SPEC), *range(3), now=91.0)
    assert {start.at for start, _ in replies(again)} == {20.0, 50.0, None}  # type: ignore[attr-defined]


def test_starts_in_the_same_tenth_of_a_second_share_one_message() -> None:
    host = receive(up(), m.Launch(1, SPEC), *range(4)).state
    runs = tuple(pod(n) for n in range(4))
    times = tuple(50.0 + n / 100 for n in range(4))
    late = receive(host, m.RunsStarted(runs, times), now=90.0)
    assert replies(late) == [(t.Started(1, 50.0), [0, 1, 2, 3])] and len(late.facts) == 1
    listed = receive(host, m.RunsListed(runs, started=times), now=90.0)
    assert replies(listed) == [(t.Started(1, 50.0), [0, 1, 2, 3])] and len(listed.facts) == 1
    soon = receive(host, m.RunsStarted(runs, times), now=51.0)
    assert replies(soon) == [(t.Started(1), [0, 1, 2, 3])]


def test_a_run_that_began_and_ended_unseen_has_both_times() -> None:
    host = receive(up(), m.Launch(1, SPEC), 0, now=20.0).state
    end = m.RunEnd(pod(0), DONE, 50.04, 40.05)
    late = receive(host, m.RunsListed((), (end,)), now=90.0)
    assert replies(late) == [(t.Ended(1, DONE, 50.1, 40.0), [0])]
    assert [send.message for send in owed(late.state)] == [t.Ended(1, DONE, 50.1, 40.0)]
    seen = receive(host, m.RunsStarted((pod(0),)), now=41.0).state
    late = receive(seen, m.RunsEnded((end,)), now=90.0)
    assert replies(late) == [(t.Ended(1, DONE, 50.1), [0])], "its start was told"


def test_a_list_requested_before_a_start_was_noted_does_not_prove_the_run_lost() -> None:
    # Still reconciling: the list is requested at 20, a late order starts the run, and the report
    # of the start overtakes the list.
    host = receive(up(), m.Launch(1, SPEC), 0, now=10.0).state
    host = receive(host, m.BackendDown("gone"), now=11.0).state
    host = receive(host, m.BackendUp(), now=20.0).state
    host = receive(host, m.RunsStarted((pod(0),)), now=21.0).state
    turn = receive(host, m.RunsListed((), asked_at=20.0), now=22.0)
    assert not replies(turn)
    assert turn.state.state == HostStates.RECONCILING
    assert turn.state.used == SPEC.resources
    # A list requested in the instant of the note may be older, too; a later one is proof.
    turn = receive(turn.state, m.RunsListed((), asked_at=21.0), now=23.0)
    assert not replies(turn)
    turn = receive(turn.state, m.RunsListed((), asked_at=24.0), now=25.0)
    (ended, members), *_ = replies(turn)
    assert isinstance(ended, t.Ended) and ended.outcome.end == End.LOST and members == [0]
    assert turn.state.state == HostStates.UP


def test_a_list_from_before_a_start_proves_nothing_while_the_host_is_up() -> None:
    host = receive(up(), m.Launch(1, SPEC), 0, 1, now=10.0).state
    host = receive(host, m.RunsStarted((pod(0), pod(1))), now=21.0).state
    assert not replies(receive(host, m.RunsListed((), asked_at=20.0), now=22.0))
    assert replies(receive(host, m.RunsListed((), asked_at=22.0), now=23.0))
