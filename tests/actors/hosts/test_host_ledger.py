"""The ledger of a host as sets: the same as one record for each run, whatever happens in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from peloton.actors.host import facts as f
from peloton.actors.host import messages as m
from peloton.actors.host import view
from peloton.actors.host.folds import EVOLVE, folded
from peloton.actors.host.kind import kind
from peloton.actors.host.ledger import Ledger, RunSet
from peloton.actors.host.live.live_messages import KnownSet
from peloton.actors.host.orders import list_runs
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.host.stages import RunPhase
from peloton.actors.host.state import Host
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task import messages as t
from peloton.actors.task.messages import End, RunOutcome, parse_pod, pod_id
from peloton.assembly.kinds import kinds
from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Fact, Key
from peloton.settings.daemon import ALONE_SHARDS

KIND = kind(8)
HOST, BACKEND = Key("host/h"), Key("backend/b")
CROWDS = [Key("task/a-b/0"), Key("task/a-b/1"), Key("task/c/0")]
SPECS = [
    RunSpec(Resources(UNIT), "true"),
    RunSpec(Resources(2 * UNIT), "x", environment=(("A", "1"),)),
]
DONE, FAILED = RunOutcome(End.SUCCEEDED, 0), RunOutcome(End.FAILED, 1)
EMPTY = folded(
    EVOLVE[f.HostConfigured](None, f.HostConfigured(Resources(), (), BACKEND, (1, 9), 60.0)),
    [f.HostReachable(), f.HostReconciled()],
)


@st.composite
def facts(draw: Any) -> Fact:
    """A fact about some runs of a crowd, which need not be possible in the host's state."""
    crowd, run = draw(st.sampled_from(CROWDS)), draw(st.integers(1, 2))
    members = Bits.of(*draw(st.sets(st.integers(0, 3), min_size=1)))
    names = tuple(pod_id(crowd, member, run=run) for member in members)
    outcome, at = draw(st.sampled_from([DONE, FAILED])), draw(st.sampled_from([None, 5.0]))
    return draw(
        st.sampled_from(
            [
                f.RunsAccepted(crowd, members, run, draw(st.sampled_from(SPECS)), 1.0),
                f.RunsRefused(crowd, members, run, "full"),
                f.SetStarted(crowd, members, run),
                f.ProcessesStarted(names),
                f.KillOrdered(names),
                f.SetEnded(crowd, members, run, outcome, at),
                f.ProcessesEnded(tuple(m.RunEnd(name, outcome, at) for name in names)),
                f.SetForgotten(crowd, members, run),
                f.RunsForgotten(names),
            ]
        )
    )


def played(history: list[Fact]) -> Host:
    """A host after those of the facts that name nothing unknown."""
    host = EMPTY
    for fact in history:
        try:
            host = folded(host, [fact])
        except KeyError:
            continue
    return host


def ledger_of(runs: Iterable[tuple[str, RunSet]]) -> Ledger:
    """A ledger of these runs, which are put one by one."""
    ledger = Ledger()
    for pod, some in runs:
        crowd, member, _ = parse_pod(pod)
        ledger = ledger.put(crowd, replace(some, members=Bits.of(member)))
    return ledger


@given(st.lists(facts(), max_size=12))
def test_a_ledger_is_the_same_however_its_runs_came_together(history: list[Fact]) -> None:
    host = played(history)
    runs = dict(host.runs.items())
    assert sorted(runs) == sorted(host.runs) and len(host.runs) == len(runs)
    assert all(host.runs[pod] == run and parse_pod(pod)[2] == run.run for pod, run in runs.items())
    backwards = ledger_of([*runs.items()][::-1])
    assert backwards == host.runs and [*backwards.sets()] == [*host.runs.sets()]


@given(st.lists(facts(), max_size=12), st.lists(facts(), max_size=3))
def test_a_fact_about_a_set_says_what_facts_about_its_runs_say(
    history: list[Fact], more: list[Fact]
) -> None:
    before = played(history)
    for fact in more:
        if not isinstance(fact, f.SetStarted | f.SetForgotten):
            continue
        names = [pod_id(fact.crowd, member, run=fact.run) for member in fact.members]
        single = f.ProcessesStarted if isinstance(fact, f.SetStarted) else f.RunsForgotten
        if all(name in before.runs for name in names):
            assert folded(before, [fact]) == folded(before, [single((name,)) for name in names])


@given(st.lists(facts(), max_size=12))
def test_a_stored_host_is_read_as_it_was(history: list[Fact]) -> None:
    host = played(history)
    codec = Codec(kinds(ALONE_SHARDS))
    body = codec.encode_cell(HOST, host)
    _, (again, _) = codec.decode_entity(body)
    assert again == host and codec.encode_cell(HOST, again) == body


def test_a_thousand_alike_runs_are_stored_in_the_bytes_of_some() -> None:
    accepted = f.RunsAccepted(CROWDS[0], Bits.span(0, 1000), 1, SPECS[0], 1.0)
    host = folded(EMPTY, [accepted, f.SetStarted(CROWDS[0], Bits.span(0, 1000), 1)])
    codec = Codec(kinds(ALONE_SHARDS))
    assert len(codec.encode_cell(HOST, host)) < 500


def test_who_asks_for_a_host_gets_its_runs_by_name() -> None:
    host = played([f.RunsAccepted(CROWDS[1], Bits.of(7), 2, SPECS[0], 1.0, ((5, 6),))])
    answer = view.get_host(host, m.GetHost(), At(now=1.0, key=HOST))
    assert answer.runs["a-b-1007-2"].ports == (5, 6) and answer.used == host.used
    codec = Codec(kinds(ALONE_SHARDS))
    assert codec.decode_answer(HOST, codec.encode_answer(HOST, answer)) == answer


@pytest.mark.parametrize(
    "name", ["", "a", "a-1", "a-01-1", "a-1-01", "a--1-1x", "-1-1", "a/b-1-1", "a-1-" + "9" * 5000]
)
def test_what_is_no_name_of_a_run_is_unknown(name: str) -> None:
    assert parse_pod(name) is None and Ledger().get(name) is None and name not in Ledger()
    with pytest.raises(KeyError):
        folded(EMPTY, [f.ProcessesStarted((name,))])


@given(st.sampled_from(CROWDS), st.integers(0, 999), st.integers(1, 10**6))
def test_names_are_read_as_they_are_written(crowd: Key, member: int, run: int) -> None:
    assert parse_pod(pod_id(crowd, member, run=run)) == (crowd, member, run)


STARTED = [
    f.RunsAccepted(CROWDS[0], Bits.of(0, 1, 2), 1, SPECS[0], 1.0),
    f.SetStarted(CROWDS[0], Bits.of(0, 1), 1),
]


def test_a_backend_is_asked_for_sets() -> None:
    message = list_runs(played(STARTED), At(now=9.0, key=HOST)).message
    assert isinstance(message, m.ListRuns)
    assert message.sets == (KnownSet(CROWDS[0], 1, Bits.of(0, 1), 1.0),)


@given(
    st.lists(facts(), max_size=12),
    st.lists(
        st.tuples(
            st.sampled_from(CROWDS), st.integers(1, 2), st.sets(st.integers(0, 4), min_size=1)
        )
    ),
)
def test_a_list_of_sets_means_what_the_list_of_their_names_means(
    history: list[Fact], listed: list[tuple[Key, int, set[int]]]
) -> None:
    host = played(history)
    sets = tuple(m.RunningSet(crowd, run, Bits.of(*sorted(some))) for crowd, run, some in listed)
    names = tuple(pod_id(s.crowd, member, run=s.run) for s in sets for member in s.members)
    at = At(now=9.0, key=HOST, sender=BACKEND)
    by_name = take_turn(KIND, host, message=m.RunsListed(names, asked_at=8.0), at=at)
    as_sets = take_turn(KIND, host, message=m.RunsListed((), asked_at=8.0, sets=sets), at=at)
    assert (as_sets.facts, as_sets.sends) == (by_name.facts, by_name.sends)


def test_a_lost_run_does_not_hide_an_end_that_is_told_alike() -> None:
    """The backend may end a run with the outcome by which we lose another of the same crowd."""
    host = played([f.RunsAccepted(CROWDS[0], Bits.of(0, 1), 1, SPECS[0], 1.0), *STARTED[1:]])
    at = At(now=9.0, key=HOST, sender=BACKEND)
    lost = take_turn(KIND, host, message=m.RunsListed((), asked_at=8.0), at=at)
    ((_, outcome),) = {
        (send.to, send.message.outcome) for send in lost.sends if isinstance(send.message, t.Ended)
    }
    end = m.RunEnd(pod_id(CROWDS[0], 0, run=1), outcome)
    both = take_turn(KIND, host, message=m.RunsListed((), (end,), 8.0), at=at)
    phases = [(some.phase, [*some.members]) for _, some in both.state.runs.sets()]
    assert phases == [(RunPhase.ENDED, [0, 1])]


def test_sets_of_one_crowd_are_joined_and_split_by_what_differs() -> None:
    one = RunSet(Bits.of(0), 1, RunPhase.STARTED, Resources())
    ledger = Ledger().put(CROWDS[0], one).put(CROWDS[0], replace(one, members=Bits.of(2)))
    assert [some.members for _, some in ledger.sets()] == [Bits.of(0, 2)]
    ledger = ledger.put(CROWDS[0], replace(one, members=Bits.of(2), since=3.0))
    assert [some.members for _, some in ledger.sets()] == [Bits.of(0), Bits.of(2)]
    ledger = ledger.change(CROWDS[0], Bits.of(0, 2), run=1, to=lambda _: None)
    assert not ledger and ledger == Ledger()
