"""The placer, message by message: strategies, reasons, proposals, gaps."""

from __future__ import annotations

import pytest

from peloton.assembly.placer_service import PlacerService
from peloton.placement.flights import PROPOSAL_KEEP_S
from peloton.placement.inventory_feeds import QUIET_S, SNAPSHOT_RETRY_S
from peloton.placement.messages import (
    Constraint,
    HostDeltas,
    Label,
    Placed,
    Shape,
    SnapshotWanted,
    Unplaced,
    Wish,
)
from peloton.placement.needs import PORTS
from peloton.placement.placer import Placer, PlacerSettings
from peloton.placement.strategies import PACK, Strategy
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Bits, Key, Message, Send

from .hosts import INVENTORY, SLICE, host, label, place, placer_of, report, res

ONE = Shape(res(1))
SPREAD = Shape(res(1), strategy="spread")


def test_pack_fills_the_tightest_host_before_the_next() -> None:
    placer = placer_of([host("big", res(8)), host("small", res(2)), host("mid", res(3))])
    assert place(placer, ONE, 6) == (["small"] * 2 + ["mid"] * 3 + ["big"], {})


def test_pack_compares_gpu_then_cpu_then_memory_then_disk() -> None:
    hosts = [
        host("disk9", res(2, 2, 9)),
        host("disk1", res(2, 2, 1)),
        host("memory1", res(2, 1, 9)),
        host("cpu1", res(1, 9, 9)),
        host("gpu2", res(1, 1, 1, 2)),
        host("gpu1", res(9, 9, 9, 1)),
        host("gpu0", res(1, 1, 1, 0), capacity=res(1, 1, 1, 4)),
    ]
    found, _ = place(placer_of(hosts), Shape(res(1)), 21)
    order = ["cpu1", "memory1", "disk1", "disk9", "gpu0", "gpu1", "gpu2"]
    assert list(dict.fromkeys(found)) == order


def test_spread_gives_each_host_one_the_emptiest_first() -> None:
    placer = placer_of([host("a", res(2)), host("b", res(9)), host("c", res(5))])
    assert place(placer, SPREAD, 5) == (["b", "c", "a"], {"mismatch_max_host_limit": 3})
    assert place(placer, SPREAD, 2) == (["b", "c"], {})


def test_members_left_over_are_answered_with_reasons() -> None:
    placer = placer_of([host("a", res(2)), host("b", res(0.5))])
    hosts, reasons = place(placer, ONE, 5)
    assert hosts == ["a", "a"]
    assert reasons == {"no_offer": 1, "insufficient_offer_resources": 1}


def test_the_lowest_members_are_placed_first() -> None:
    placer = placer_of([host("a", res(2))])
    wish = Wish(SLICE, 7, Bits.of(3, 5, 900), ONE)
    placed, unplaced = [send.message for send in placer.receive([(SLICE, wish)], 0.0)]
    assert placed == Placed(7, Bits.of(3, 5), (Key("host/a"), Key("host/a")), placed.shape)
    lacks = "no host fits: 1 of 1 hosts lacks cpu (requested 1, at most 0 free)"
    assert unplaced == Unplaced(7, Bits.of(900), (("no_offer", 1),), lacks)


def test_wishes_of_a_call_are_served_in_order() -> None:
    placer = placer_of([host("a", res(3))])
    wishes: list[tuple[Key | None, Message]] = [
        (None, Wish(Key(f"slice/j/{n}"), n, Bits.span(0, 2), ONE)) for n in range(3)
    ]
    sends = placer.receive(wishes, 0.0)
    placed = {s.to: len(s.message.members) for s in sends if isinstance(s.message, Placed)}
    assert placed == {"slice/j/0": 2, "slice/j/1": 1}


def test_spread_wishes_of_a_call_do_not_share_their_limit() -> None:
    placer = placer_of([host("a", res(3))])
    wishes: list[tuple[Key | None, Message]] = [
        (None, Wish(Key(f"slice/j/{n}"), n, Bits.of(0), SPREAD)) for n in range(2)
    ]
    assert all(isinstance(s.message, Placed) for s in placer.receive(wishes, 0.0))


def test_a_wish_for_nobody_is_not_answered() -> None:
    assert placer_of([]).receive([(SLICE, Wish(SLICE, 1, Bits(), ONE))], 0.0) == []


def test_without_hosts_there_is_nothing_to_count() -> None:
    assert place(placer_of([]), ONE, 2) == ([], {})


GOLD_ONLY = Shape(res(1), constraint=label("host", "peloton/exclusive", "gold"))
EXCLUSIVE = (Label("peloton/exclusive", "gold"),)
POOLED = (Label("host_pool", "mine"),)


@pytest.mark.parametrize(
    ("given", "shape", "reason"),
    [
        (host("h", res(9), up=False), ONE, "mismatch_status"),
        (host("h", res(0), capacity=res(9)), ONE, "no_offer"),
        (host("h", res(0), capacity=res(9)), Shape(res(0)), "no_offer"),
        (host("h", res(0.998)), ONE, "insufficient_offer_resources"),
        (host("h", res(9)), Shape(res(1, gpu=1)), "insufficient_offer_resources"),
        (host("h", res(9), ports=1), Shape(res(1), ports=2), "insufficient_offer_resources"),
        (host("h", res(9, gpu=2)), ONE, "scarce_resources"),
        (
            host("h", res(9)),
            Shape(res(1), constraint=label("host", "k", "v")),
            "mismatch_constraints",
        ),
        (host("h", res(9), labels=EXCLUSIVE), ONE, "mismatch_constraints"),
        (
            host("h", res(9), labels=EXCLUSIVE),
            Shape(res(1), constraint=label("host", "peloton/exclusive", "silver")),
            "mismatch_constraints",
        ),
        (host("h", res(9), labels=POOLED), ONE, "mismatch_constraints"),
        (
            host("h", res(9), labels=POOLED),
            Shape(res(1), constraint=label("host", "host_pool", "default")),
            "mismatch_constraints",
        ),
        (
            host("h", res(9), labels=(*POOLED, *EXCLUSIVE)),
            Shape(res(1), constraint=label("host", "host_pool", "mine")),
            "mismatch_constraints",
        ),
        (
            host("h", res(9)),
            Shape(res(1), constraint=label("task", "k", "v", "less", 1)),
            "unknown_task_labels",
        ),
        (
            host("h", res(9), running=((Label("k", "v"), 1),)),
            Shape(res(1), constraint=label("task", "k", "v", "less", 1)),
            "mismatch_constraints",
        ),
        (host("h", res(9)), Shape(res(1), strategy="dice"), "unknown_strategy"),
        # the first check that fails is the reason
        (host("h", res(0.5, gpu=1), labels=EXCLUSIVE), ONE, "insufficient_offer_resources"),
        (host("h", res(9, gpu=1), labels=EXCLUSIVE), ONE, "scarce_resources"),
    ],
)
def test_reason(given: object, shape: Shape, reason: str) -> None:
    placer = placer_of([given], PlacerSettings(scarce_gpu=True))  # type: ignore[list-item]
    assert place(placer, shape) == ([], {reason: 1})


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        (host("h", res(0.9992)), ONE),  # within the epsilon
        (host("h", res(9, gpu=2)), Shape(res(1, gpu=0.5))),
        (host("h", res(9), ports=2), Shape(res(1), ports=2)),
        (
            host("h", res(9), labels=EXCLUSIVE),
            Shape(res(1), constraint=label("host", "peloton/exclusive", "gold")),
        ),
        (
            host("h", res(9), labels=POOLED),
            Shape(res(1), constraint=label("host", "host_pool", "mine")),
        ),
        (host("h", res(9), labels=(Label("host_pool", "shared"),)), ONE),
        (host("h", res(9)), Shape(res(1), constraint=label("host", "host_pool", "default"))),
        (host("h", res(9)), Shape(res(1), constraint=label("host", "hostname", "h"))),
        (host("h", res(9)), Shape(res(1), constraint=Constraint("and"))),
        (host("h", res(9)), Shape(res(0))),
    ],
)
def test_match(given: object, shape: Shape) -> None:
    placer = placer_of([given], PlacerSettings(scarce_gpu=True))  # type: ignore[list-item]
    assert place(placer, shape) == (["h"], {})


def test_gpu_hosts_serve_all_where_gpus_are_not_scarce() -> None:
    assert place(placer_of([host("h", res(9, gpu=2))]), ONE) == (["h"], {})


def test_at_most_one_per_host_holds_within_a_wish_and_between_wishes() -> None:
    mine = Label("job", "x")
    shape = Shape(res(1), constraint=label("task", "job", "x", "less", 1), labels=(mine,))
    placer = placer_of([host(name, res(9), running=()) for name in "abc"])
    assert place(placer, shape, 2)[0] == ["a", "b"]
    assert place(placer, shape, 2) == (["c"], {"mismatch_constraints": 3})
    again = PROPOSAL_KEEP_S + 1
    assert place(placer, shape, 3, now=again)[0] == ["a", "b", "c"]


def test_labels_of_proposals_end_with_the_next_report_of_their_host() -> None:
    mine = Label("job", "x")
    shape = Shape(res(1), constraint=label("task", "job", "x", "less", 1), labels=(mine,))
    placer = placer_of([host("a", res(9), running=())])
    assert place(placer, shape)[0] == ["a"]
    report(placer, [host("a", res(8), 2, running=((mine, 1),), launches=1)], 2)
    assert placer.index.task_counts(mine)[placer.index.rows[Key("host/a")]] == 1
    assert place(placer, shape)[0] == []
    assert place(placer, shape, now=PROPOSAL_KEEP_S + 1)[0] == []
    assert placer.index.task_counts(mine)[placer.index.rows[Key("host/a")]] == 1


def test_own_proposals_are_subtracted_until_the_host_shows_them() -> None:
    """However much time passes before, and however little."""
    placer = placer_of([host("a", res(3), launches=40)])
    assert place(placer, ONE, 3)[0] == ["a", "a", "a"]
    report(placer, [host("a", res(3), 1, launches=40)], 2)  # the same report again
    assert place(placer, ONE)[0] == []
    report(placer, [host("a", res(4), 2, launches=40)], 3)  # something ended; ours are on their way
    assert place(placer, ONE, 2, now=PROPOSAL_KEEP_S - 0.1)[0] == ["a"]
    report(placer, [host("a", res(2), 3, launches=42)], 4, now=PROPOSAL_KEEP_S - 0.1)
    assert place(placer, ONE, now=PROPOSAL_KEEP_S - 0.1)[0] == [], "two are still on their way"
    report(placer, [host("a", res(2), 4, launches=44)], 5, now=PROPOSAL_KEEP_S - 0.1)
    assert place(placer, ONE, 3, now=PROPOSAL_KEEP_S - 0.1)[0] == ["a", "a"], "all landed"


def test_a_proposal_that_was_refused_is_over() -> None:
    """The host's resources have not changed by it, so its inventory has nothing to report."""
    placer = placer_of([host("a", res(2), launches=1), host("b", res(0))])
    big = Shape(res(2))
    assert place(placer, big)[0] == ["a"]
    assert place(placer, ONE)[0] == []
    refusal = host("a", res(2), 1, launches=2)
    assert place(placer, big, refused=(refusal,))[0] == []
    assert place(placer, ONE, 3)[0] == ["a", "a"]


def test_what_lands_at_a_host_is_what_was_proposed_first() -> None:
    placer = placer_of([host("a", res(10, 10))])
    place(placer, Shape(res(4, 1)))
    place(placer, Shape(res(1, 4)))
    row = placer.index.rows[Key("host/a")]
    report(placer, [host("a", res(6, 9), 2, launches=1)], 2)
    assert placer.index.free[:PORTS, row].tolist() == [*res(5, 5).amounts()]
    report(placer, [host("a", res(5, 5), 3, launches=9)], 3)
    assert placer.index.free[:PORTS, row].tolist() == [*res(5, 5).amounts()]
    report(placer, [host("a", res(5, 5), 4, launches=9)], 4)
    place(placer, ONE)
    assert placer.index.free[:PORTS, row].tolist() == [*res(4, 5).amounts()], "no credit is kept"


def test_own_proposals_are_given_back_once_to_a_silent_host() -> None:
    placer = placer_of([host("a", res(2))])
    assert place(placer, ONE, 2)[0] == ["a", "a"]
    assert place(placer, ONE, now=PROPOSAL_KEEP_S - 0.1)[0] == []
    assert place(placer, ONE, 3, now=PROPOSAL_KEEP_S)[0] == ["a", "a"]
    assert place(placer, ONE, now=PROPOSAL_KEEP_S + 1)[0] == []


def test_a_proposal_to_a_deleted_host_is_not_given_to_the_next_in_its_row() -> None:
    placer = placer_of([host("a", res(2))])
    assert place(placer, ONE, 2)[0] == ["a", "a"]
    report(placer, [host("b", res(1))], 2, gone=(Key("host/a"),))
    assert place(placer, ONE, 3, now=PROPOSAL_KEEP_S)[0] == ["b"]


def test_a_refusal_is_fresher_than_any_delta() -> None:
    placer = placer_of([host("a", res(9), labels=EXCLUSIVE), host("b", res(20))])
    gold = Shape(res(1), constraint=label("host", "peloton/exclusive", "gold"))
    refused = (host("a", res(0), 5, capacity=res(0)),)
    assert place(placer, gold, refused=refused)[0] == []
    report(placer, [host("a", res(9), 4, labels=EXCLUSIVE)], 2)  # sent before the refusal
    assert place(placer, gold)[0] == []
    report(placer, [host("a", res(1), 6, labels=EXCLUSIVE)], 3)
    assert place(placer, ONE, 30)[0] == ["b"] * 20  # "a" is still exclusive
    assert place(placer, gold, 2)[0] == ["a"]


def test_a_host_that_refused_is_not_proposed_again_at_once() -> None:
    placer = placer_of([host("a", res(9)), host("b", res(20))])
    refusal = host("a", res(9), 2)
    assert place(placer, ONE, refused=(refusal,))[0] == ["b"]
    assert place(placer, ONE)[0] == ["a"]  # others may try
    report(placer, [host("a", res(8), 3)], 2)
    assert place(placer, ONE, refused=(refusal,))[0] == ["a"]  # it has reported since


def test_refusals_of_unknown_hosts_are_ignored() -> None:
    placer = placer_of([host("a", res(9))])
    assert place(placer, ONE, refused=(host("z", res(9), 2),))[0] == ["a"]


def test_deltas_change_add_and_remove_hosts() -> None:
    placer = placer_of([host("a", res(1)), host("b", res(2))])
    report(placer, [host("a", res(0), 2), host("c", res(1))], 2, gone=(Key("host/b"),))
    assert place(placer, ONE, 5)[0] == ["c"]
    report(placer, [host("c", res(4), 2)], 3, snapshot=True)
    assert list(placer.index.rows) == ["host/c"]


def test_a_snapshot_drops_hosts_of_its_own_inventory_only() -> None:
    placer = placer_of([host("a", res(1))])
    other = HostDeltas(Key("inventory/1"), 1, (host("b", res(1)),), True)
    placer.receive([(None, other)], 0.0)
    report(placer, [], 2, snapshot=True)
    assert list(placer.index.rows) == ["host/b"]


WANTED = [Send(INVENTORY, SnapshotWanted(Key("placer/0")))]


def test_after_a_gap_a_snapshot_is_requested_until_one_comes() -> None:
    placer = placer_of([host("a", res(1))])
    assert report(placer, [], 2) == []
    assert placer.wake_at is None
    assert report(placer, [host("a", res(3), 2)], 4, now=10.0) == WANTED
    assert place(placer, ONE, 9, now=10.0)[0] == ["a"] * 3  # what was received is used all the same
    assert report(placer, [], 5, now=10.5) == []
    assert placer.wake_at == 10.0 + SNAPSHOT_RETRY_S
    assert placer.receive([], placer.wake_at) == WANTED
    assert report(placer, [], 9, now=13.0, snapshot=True) == []
    assert placer.wake_at is None
    assert report(placer, [], 10, now=14.0) == []


@pytest.mark.parametrize("sequence", [1, 5])
def test_numbers_that_begin_anew_are_a_gap(sequence: int) -> None:
    placer = placer_of([])
    for number in range(2, 6):
        report(placer, [], number)
    assert report(placer, [], sequence, now=1.0) == WANTED


def test_a_snapshot_is_requested_of_an_unknown_inventory() -> None:
    assert report(Placer(Key("placer/0")), [host("a", res(1))], 7) == WANTED


def test_snapshots_of_known_inventories_are_requested_at_the_start() -> None:
    placer = Placer(Key("placer/0"), inventories=(INVENTORY,))
    assert placer.wake_at == 0.0
    assert placer.receive([], 5.0) == WANTED


def test_a_quiet_inventory_is_doubted_while_members_find_no_host() -> None:
    placer = placer_of([])
    wish = (SLICE, Wish(SLICE, 1, Bits.of(0), ONE))
    assert len(placer.receive([wish], QUIET_S - 1)) == 1
    assert placer.receive([wish], QUIET_S)[1:] == WANTED


def test_placers_begin_in_their_own_parts() -> None:
    """Though each received the hosts in another order."""
    hosts = [host(f"h{n}", res(1)) for n in range(30)]
    orders = [hosts, hosts[::-1], hosts[15:] + hosts[:15]]
    chosen = [
        place(placer_of(order, PlacerSettings(part=n, parts=3)), ONE, 30)[0]
        for n, order in enumerate(orders)
    ]
    assert all(sorted(each) == sorted(f"h{n}" for n in range(30)) for each in chosen)
    assert len({name for each in chosen for name in each[:5]}) == 15, "none wants another's first"


@pytest.mark.parametrize("strategy", ["pack", "spread", "mimir"])
def test_hosts_to_avoid_are_used_last(strategy: str) -> None:
    hosts = [host("a", res(2)), host("b", res(1)), host("gpu", res(3, gpu=1))]
    avoid = Key("host/b"), Key("host/gone")
    found, _ = place(placer_of(hosts), Shape(res(1), strategy=strategy), 2, avoid=avoid)
    assert found == (["a", "gpu"] if strategy == "spread" else ["a", "a"])
    found, _ = place(placer_of(hosts), Shape(res(1), strategy=strategy), 6, avoid=avoid)
    every = ["a", "gpu", "b"] if strategy == "spread" else ["a"] * 2 + ["gpu"] * 3 + ["b"]
    assert found == every


def test_another_strategy_can_be_registered() -> None:
    by_disk = Strategy("disk", lambda hosts, need: (-hosts.free[2],), each_max=2)
    placer = Placer(Key("placer/0"), strategies={"pack": PACK, "disk": by_disk})
    report(placer, [host("a", res(9, 1, 1)), host("b", res(9, 1, 2))], 1, snapshot=True)
    assert place(placer, Shape(res(1), strategy="disk"), 4)[0] == ["b", "b", "a", "a"]
    assert place(placer, Shape(res(1), strategy="disk"))[0] == ["b"]


def test_an_unknown_message_is_a_broken_belief() -> None:
    with pytest.raises(TypeError, match="SnapshotWanted"):
        placer_of([]).receive([(None, SnapshotWanted(Key("x/y")))], 0.0)


def test_a_placer_goes_on_in_another_part_with_all_it_knows() -> None:
    hosts = [host(f"h{n}", res(1)) for n in range(30)]
    machine = PlacerService([])
    machine.rename("m1", number=0, count=1)
    machine.receive([Envelope(Key("placer/m1"), HostDeltas(INVENTORY, 1, tuple(hosts), True))], 0.0)
    machine.rename("m1", number=1, count=2)
    (answer,) = machine.receive(
        [Envelope(Key("placer/m1"), Wish(SLICE, 1, Bits.span(0, 9), ONE))], 1
    )
    settings = PlacerSettings(part=1, parts=2)
    placed = answer.message
    assert isinstance(placed, Placed)
    names = [name.partition("/")[2] for name in placed.hosts]
    assert sorted(names) == sorted(place(placer_of(hosts, settings), ONE, 9)[0])
