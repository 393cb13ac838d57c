"""Instances of one job are kept apart while there are hosts without one; fixed ports are, too."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.placement.messages import (
    Constraint,
    Declined,
    HostSummary,
    Label,
    Placed,
    Shape,
    SnapshotWanted,
    Unplaced,
    Wish,
    port_label,
)
from peloton.placement.placer import Placer, PlacerSettings
from peloton.runtime.vocabulary import Bits, Key, Send

from .hosts import INVENTORY, SLICE, host, label, place, placer_of, report, res

MINE = Label("peloton.job_id", "j")
APART = Shape(res(1), strategy="spread", labels=(MINE,), apart=MINE)
OTHER = Key("slice/j/1")
WANTED = [Send(INVENTORY, SnapshotWanted(Key("placer/0")))]


def proposals(
    placer: Placer, members: int, slice_: Key = SLICE, shape: Shape = APART
) -> list[tuple[str, int]]:
    """A host for each member, ascending, and how many of the job it may have already."""
    wish = Wish(slice_, 1, Bits.span(0, members), shape)
    found: dict[int, tuple[str, int]] = {}
    for send in placer.receive([(slice_, wish)], 0.0):
        answer = send.message
        if isinstance(answer, Placed):
            for member, name in zip(answer.members, answer.hosts, strict=True):
                found[member] = name.removeprefix("host/"), answer.shares
    assert [*found] == [*range(len(found))]
    return [found[member] for member in sorted(found)]


def test_each_host_gets_one_before_any_gets_another() -> None:
    placer = placer_of(
        [host(name, res(room), running=()) for name, room in zip("abc", (9, 7, 8), strict=True)]
    )
    assert proposals(placer, 7) == [
        ("a", 0), ("c", 0), ("b", 0), ("a", 1), ("c", 1), ("b", 1), ("a", 2),
    ]  # fmt: skip


def test_slices_of_one_job_know_of_each_other() -> None:
    placer = placer_of([host(name, res(9), running=()) for name in "abc"])
    assert proposals(placer, 2) == [("a", 0), ("b", 0)]
    assert proposals(placer, 2, OTHER) == [("c", 0), ("a", 1)]


def test_what_runs_there_already_counts() -> None:
    there = ((MINE, 1),)
    placer = placer_of([host("a", res(9), running=there), host("b", res(2), running=())])
    assert proposals(placer, 3) == [("b", 0), ("a", 1), ("b", 1)]


def test_hosts_that_tell_no_labels_are_no_candidates() -> None:
    """It has more of them than it tells: whether others of the job run there, nobody knows."""
    placer = placer_of([host("old", res(99)), host("new", res(2), running=())])
    assert proposals(placer, 3) == [("new", 0), ("new", 1)]
    placer = placer_of([host("old", res(99))])
    assert place(placer, APART) == ([], {"unknown_task_labels": 1})


def test_one_wish_is_answered_by_few_messages() -> None:
    """One for each number of instances that share a host, however many instances there are."""
    placer = placer_of([host(f"h{at}", res(9), running=()) for at in range(100)])
    sends = placer.receive([(SLICE, Wish(SLICE, 1, Bits.span(0, 250), APART))], 0.0)
    answers = [send.message for send in sends if isinstance(send.message, Placed)]
    assert [(len(each.members), each.shares) for each in answers] == [(100, 0), (100, 1), (50, 2)]


def test_a_declined_proposal_leaves_its_host_free() -> None:
    placer = placer_of([host(name, res(9), running=()) for name in "ab"])
    wish = Wish(SLICE, 1, Bits.of(0), APART)
    (answer,) = (send.message for send in placer.receive([(SLICE, wish)], 0.0))
    assert isinstance(answer, Placed) and answer.hosts == (Key("host/a"),)
    placer.receive([(SLICE, Declined(SLICE, Bits(), answer.hosts, answer.shape))], 0.0)
    assert proposals(placer, 2) == [("a", 0), ("b", 0)]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=6),
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
    st.sampled_from([None, label("host", "side", "a"), label("task", "k", "v", "less", 1)]),
)
def test_it_is_as_if_each_member_chose_for_itself(
    rooms: list[tuple[int, int]], wishes: list[int], constraint: object
) -> None:
    """The reference: of the hosts that fit that with the fewest of the job, then the emptiest."""
    hosts: list[HostSummary] = []
    for at, (room, there) in enumerate(rooms):
        running = ((Label("k", "v"), 1),) if at % 3 == 2 else ()
        running += ((MINE, there),) if there else ()
        side = (Label("side", "ab"[at % 2]),)
        hosts.append(host(f"h{at}", res(room), labels=side, running=running, capacity=res(9)))
    shape = Shape(res(1), constraint=constraint, strategy="spread", labels=(MINE,), apart=MINE)
    placer = placer_of(hosts)
    free = {at: room for at, (room, _) in enumerate(rooms)}
    mine = {at: there for at, (_, there) in enumerate(rooms)}

    def is_open(at: int) -> bool:
        if constraint is None:
            return True
        return at % 2 == 0 if constraint.kind == "host" else at % 3 != 2  # type: ignore[attr-defined]

    for number, count in enumerate(wishes):
        expected = []
        level: list[int] = []
        for _ in range(count):
            fitting = [at for at in free if free[at] >= 1 and is_open(at)]
            if not fitting:
                break
            fewest = min(mine[at] for at in fitting)
            if not level or fewest != level[-1]:
                ranks = {at: (-free[at], at) for at in free}  # of a level at its beginning
            at = min((at for at in fitting if mine[at] == fewest), key=ranks.__getitem__)
            level.append(fewest)
            expected.append((f"h{at}", fewest))
            free[at] -= 1
            mine[at] += 1
        assert proposals(placer, count, Key(f"slice/j/{number}"), shape) == expected


# ---- fixed ports ----

WEB = Shape(res(1), fixed_ports=(8080,))
TAKEN = ((port_label(8080), 1),)


def test_a_host_whose_port_is_taken_is_no_candidate() -> None:
    hosts = [host("a", res(2), running=TAKEN), host("b", res(9), running=())]
    placer = placer_of(hosts)
    assert place(placer, WEB, 2) == (["b"], {"port_taken": 2})
    assert place(placer, Shape(res(1), fixed_ports=(80, 8080))) == ([], {"port_taken": 2})
    assert place(placer, Shape(res(1), fixed_ports=(80,)))[0] == ["a"]


def test_a_port_is_free_again_once_its_host_says_so() -> None:
    placer = placer_of([host("a", res(9), running=TAKEN)], PlacerSettings())
    wish = Wish(SLICE, 1, Bits.of(0), WEB)
    (answer,) = (send.message for send in placer.receive([(SLICE, wish)], 0.0))
    assert isinstance(answer, Unplaced) and answer.kept and not answer.never
    assert answer.text == "no host fits: port 8080 is taken on 1 of 1 hosts"
    (send,) = report(placer, [host("a", res(9), 2, running=())], 2)
    assert isinstance(send.message, Placed)


def test_fixed_ports_need_no_host_that_tells_labels() -> None:
    """The host itself settles whether one is free."""
    assert place(placer_of([host("old", res(9))]), WEB, 2) == (["old"], {"port_taken": 1})


# ---- the reasons ----


def why(hosts: list[HostSummary], shape: Shape) -> Unplaced:
    placer = placer_of(hosts)
    (answer,) = (
        s.message for s in placer.receive([(SLICE, Wish(SLICE, 1, Bits.of(0), shape))], 0.0)
    )
    assert isinstance(answer, Unplaced)
    return answer


def of_tasks(key: str, value: str, condition: str, n: int) -> Shape:
    return Shape(res(1), constraint=label("task", key, value, condition, n))


def test_reasons_name_the_condition_on_tasks_and_count_hosts() -> None:
    x = Label("app", "x")
    hosts = [host(name, res(9), running=((x, 2),)) for name in "abc"]
    text = "no host fits: 3 of 3 hosts have "
    assert why(hosts, of_tasks("app", "x", "less", 1)).text == text + "a task with app=x"
    assert why(hosts, of_tasks("app", "y", "greater", 0)).text == text + "no task with app=y"
    assert why(hosts, of_tasks("app", "x", "less", 2)).text == (
        text + "not fewer than 2 tasks with app=x"
    )
    rack = label("host", "rack", "r9")
    alone = label("task", "app", "x", "less", 1)
    whole = Constraint("and", members=(rack, alone))
    racked = [host("r", res(9), labels=(Label("rack", "r9"),), running=((x, 1),))]
    answer = why([*hosts, *racked], Shape(res(1), constraint=whole))
    assert answer.text == (
        "no host fits: 3 of 4 hosts do not meet the constraint (requires rack=r9), "
        "1 of 4 hosts has a task with app=x"
    )
    assert not answer.never


def test_conditions_on_tasks_never_prove_that_none_could_run_it_but_those_on_hosts_do() -> None:
    alone = label("task", "app", "x", "less", 1)
    hosts = [host("a", res(9), running=((Label("app", "x"), 1),))]
    assert not why(hosts, Shape(res(1), constraint=alone)).never
    assert not why(hosts, of_tasks("app", "y", "greater", 3)).never
    nowhere = label("host", "rack", "z")
    both = Constraint("and", members=(nowhere, alone))
    assert why(hosts, Shape(res(1), constraint=both)).never
    either = Constraint("or", members=(nowhere, alone))
    assert not why(hosts, Shape(res(1), constraint=either)).never
