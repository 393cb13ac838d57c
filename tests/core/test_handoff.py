"""One daemon's part in handing shards over, told news by news; and the table behind it."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from peloton.runtime.core.owning import handoff as rules
from peloton.runtime.core.owning.handoff import Handoff, UnexpectedAnswer
from peloton.runtime.core.owning.ownership import (
    TABLE,
    ActionKind,
    Assignment,
    OwnershipEvent,
    OwnershipState,
    ShardAction,
    Transition,
    ranked,
)
from peloton.runtime.core.reach.contacts import ContactReport
from peloton.runtime.ports import (
    MemberNode,
    MembershipView,
    NodeAnswer,
    NodeOutcome,
    Session,
    SessionState,
    ShardId,
)

ME, OTHER = "me.1", "zz.1"
NODE = MemberNode("me:1", ("a",))
A = ShardId("a", 0)


class Bench:
    """A daemon's rules with the hands that obey them; it keeps the orders not looked at yet."""

    def __init__(self, shards: int = 1, *, judged: bool = False) -> None:
        self.handoff = Handoff("me", NODE, sizes={"a": shards}, judged=judged)
        self.now = 1000.0
        self.version = 0
        self.orders: list[ShardAction] = self.handoff.begin(self.now)

    def new(self) -> list[ShardAction]:
        orders, self.orders = self.orders, []
        return orders

    def hear(self, news) -> Bench:
        self.orders += self.handoff.receive(news, self.now)
        return self

    def connected(self) -> Bench:
        return self.hear(Session(self.handoff.member, SessionState.CONNECTED, self.version))

    def view(self, owners=None, *, others=(), version: int | None = None, **nodes) -> Bench:
        """Of me and `others`, who have the same role; `nodes` replaces what members say."""
        self.version = self.version + 1 if version is None else version
        members = dict.fromkeys(others, NODE) | {self.handoff.member: self.handoff.node} | nodes
        return self.hear(MembershipView(self.handoff.member, self.version, members, owners or {}))

    def answer(self, outcome: NodeOutcome, shard: ShardId = A, owner: str = "") -> Bench:
        self.version += 1
        version = 0 if outcome is NodeOutcome.UNKNOWN else self.version
        return self.hear(NodeAnswer(self.handoff.member, shard, outcome, version, owner))

    def tick(self, seconds: float) -> Bench:
        self.now += seconds
        self.orders += self.handoff.tick(self.now)
        return self

    def lost(self, shard: ShardId = A, **more) -> Bench:
        self.orders += self.handoff.lost(shard, self.now, **more)
        return self

    def opened(self, shard: ShardId = A) -> Bench:
        self.orders += self.handoff.opened(shard, self.now)
        return self

    def closed(self, shard: ShardId = A) -> Bench:
        self.orders += self.handoff.closed(shard, self.now)
        return self

    def open(self) -> Bench:
        """Joined, and the one shard works here."""
        self.connected().view().answer(NodeOutcome.OURS).opened()
        self.view({A: ME})
        self.new()
        return self

    def state(self, shard: ShardId = A) -> OwnershipState:
        return self.handoff.shards[shard].state


def order(verb: ActionKind, shard: ShardId | None = A) -> ShardAction:
    return ShardAction(verb, shard)


def rival(shard: ShardId = A, *, wins: bool) -> str:
    """A member's id that ranks before us for the shard, or behind us."""
    for at in range(1000):
        name = f"r{at}"
        if (ranked(shard, {ME: NODE, name: NODE})[0] == name) is wins:
            return name
    raise AssertionError


def test_who_has_a_role_alone_has_its_shards_though_it_never_reaches_another() -> None:
    """The daemons of other roles stay, and it stands aside as long as they are apart."""
    bench, other = Bench(judged=True), MemberNode("zz:1", ("b",))
    cut = replace(other, unreached={ME: "refused"})
    bench.connected().view(**{OTHER: other}).new()
    bench.orders += bench.handoff.contacts(ContactReport(), bench.now)
    bench.view(**{OTHER: cut})
    assert bench.state() is OwnershipState.OUT, "it may reach the other in a moment"
    report = ContactReport({OTHER: "refused"}, frozenset())
    bench.orders += bench.handoff.contacts(report, bench.now)
    assert order(ActionKind.CREATE) in bench.new() and bench.handoff.standing.aside


# ---- the table ----


@pytest.mark.parametrize("state", OwnershipState)
@pytest.mark.parametrize("what", [*OwnershipEvent, *Assignment], ids=lambda what: what.name)
def test_every_pair_is_named(state: OwnershipState, what: OwnershipEvent | Assignment):
    assert TABLE[state][what] is not None


def test_the_table_names_nothing_else():
    assert set(TABLE) == set(OwnershipState)
    assert all(set(row) == {*OwnershipEvent, *Assignment} for row in TABLE.values())


def steps_of(state: OwnershipState) -> list[Transition]:
    return [step for step in TABLE[state].values() if isinstance(step, Transition)]


def test_no_state_is_a_dead_end_and_each_is_reached():
    for state in OwnershipState:
        assert any(step.state is not state for step in steps_of(state)), state
    assert {step.state for state in OwnershipState for step in steps_of(state)} == set(
        OwnershipState
    )


def test_a_shard_is_begun_only_while_the_node_is_ours_and_ended_wherever_it_runs():
    beginning = [
        s for s in OwnershipState if any(step.action is ActionKind.OWN for step in steps_of(s))
    ]
    assert beginning == [OwnershipState.ACQUIRED]
    for state in (OwnershipState.OPENING, OwnershipState.OPEN):
        for end in (OwnershipEvent.SESSION_LOST, OwnershipEvent.NOT_OURS):
            assert TABLE[state][end] == Transition(OwnershipState.DROPPING, ActionKind.DROP)


# ---- ranking ----


def crowd(count: int, **more) -> dict[str, MemberNode]:
    return {f"m{at}": MemberNode(f"m{at}:1", ("a",), **more) for at in range(count)}


def test_ranks_do_not_change_with_the_version():
    """Daemons of two versions would otherwise fight over every shard."""
    members = crowd(5)
    firsts = [ranked(ShardId("a", at), members)[0] for at in range(8)]
    assert firsts == ["m2", "m0", "m3", "m3", "m3", "m4", "m4", "m2"]


def test_shares_are_even_and_a_leaver_s_share_goes_to_all():
    members, shards = crowd(5), [ShardId("a", at) for at in range(500)]
    before = {shard: ranked(shard, members)[0] for shard in shards}
    assert all(60 < count < 140 for count in Counter(before.values()).values())
    del members["m2"]
    after = {shard: ranked(shard, members)[0] for shard in shards}
    assert all(after[s] == before[s] for s in shards if before[s] != "m2")
    assert len({after[s] for s in shards if before[s] == "m2"}) == 4


def test_the_order_of_the_members_does_not_matter():
    members = crowd(9)
    assert ranked(A, members) == ranked(A, dict(reversed(members.items())))


def test_only_members_with_the_role_count_and_none_that_leave():
    members = (
        crowd(3) | {"x": MemberNode("x:1", ("b",))} | {"y": MemberNode("y:1", ("a",), (), True)}
    )
    assert sorted(ranked(A, members)) == ["m0", "m1", "m2"]
    assert ranked(ShardId("c", 0), members) == []


def test_the_unfit_count_only_where_nobody_is_fit():
    members = crowd(3, unfit=("a",)) | {"fit": NODE}
    assert ranked(A, members) == ["fit"]
    assert len(ranked(A, crowd(3, unfit=("a",)))) == 3
    assert len(ranked(A, crowd(3, unfit=("b",)))) == 3


def test_who_found_a_shard_damaged_does_not_count_for_it_even_where_nobody_else_is():
    members = {"bad": replace(NODE, damaged=(A,)), OTHER: NODE}
    assert ranked(A, members) == [OTHER]
    assert ranked(A, {"bad": members["bad"]}) == []
    assert sorted(ranked(ShardId("a", 1), members)) == sorted(members)


# ---- taking ----


def test_joins_looks_makes_the_node_and_only_then_owns():
    bench = Bench()
    assert bench.new() == [order(ActionKind.JOIN, None)]
    assert bench.connected().new() == []
    assert bench.view().new() == [order(ActionKind.CREATE)]
    assert bench.view().tick(100).new() == [], "one order, one answer"
    assert bench.answer(NodeOutcome.OURS).new() == [order(ActionKind.OWN)]
    assert bench.opened().view({A: ME}).tick(100).new() == []
    assert bench.state() is OwnershipState.OPEN


def test_waits_for_another_s_node_to_vanish():
    bench = Bench()
    bench.connected().view({A: "gone.1"}).tick(100)
    assert bench.new() == [order(ActionKind.JOIN, None)]
    assert bench.view().new() == [order(ActionKind.CREATE)]


def test_leaves_alone_what_another_should_own():
    bench = Bench()
    bench.connected().view(others=[rival(wins=True)])
    assert bench.new() == [order(ActionKind.JOIN, None)]


def test_a_node_that_turned_out_taken_is_asked_for_again_only_when_a_newer_view_is_without():
    bench = Bench()
    bench.connected().view().new()
    bench.answer(NodeOutcome.TAKEN, owner=OTHER)
    assert bench.tick(100).new() == []
    assert bench.view(version=1).new() == [], "older than the answer"
    assert bench.view(version=bench.version + 2).new() == [order(ActionKind.CREATE)]


def test_a_view_that_was_ahead_of_the_answer_counts():
    bench = Bench()
    bench.connected().view(version=5).new()
    bench.view(version=9)
    bench.hear(NodeAnswer(ME, A, NodeOutcome.TAKEN, 7, OTHER))
    assert bench.new() == [order(ActionKind.CREATE)], "it was gone by version 9"


def test_a_creation_of_unknown_outcome_is_repeated_after_a_pause_and_undone_if_unwanted():
    bench = Bench()
    bench.connected().view().new()
    bench.answer(NodeOutcome.UNKNOWN)
    assert bench.new() == [] and bench.handoff.wake_at_s(bench.now) == bench.now + 1.0
    assert bench.tick(1.0).new() == [order(ActionKind.CREATE)]
    bench.answer(NodeOutcome.UNKNOWN)
    winner = rival(wins=True)
    assert bench.view(others=[winner]).new() == []
    assert bench.view({A: ME}, others=[winner]).tick(1.0).new() == [order(ActionKind.REMOVE)]
    assert bench.answer(NodeOutcome.GONE).state() is OwnershipState.OUT


def test_claims_so_many_at_once_and_the_next_when_one_is_done():
    bench = Bench(shards=20)
    bench.connected().view()
    made = [one.shard for one in bench.new() if one.action is ActionKind.CREATE]
    assert len(made) == rules.CLAIMS_IN_FLIGHT_MAX
    bench.answer(NodeOutcome.OURS, made[0])
    assert [one.action for one in bench.new()] == [ActionKind.OWN], "opening counts as well"
    bench.opened(made[0])
    assert [one.action for one in bench.new()] == [ActionKind.CREATE]
    bench.answer(NodeOutcome.TAKEN, made[1], owner=OTHER)
    assert [one.action for one in bench.new()] == [ActionKind.CREATE]


# ---- giving ----


def test_drains_and_only_then_removes_the_node():
    bench = Bench().open()
    winner = rival(wins=True)
    assert bench.view({A: ME}, others=[winner]).new() == [order(ActionKind.DRAIN)]
    assert bench.view({A: ME}, others=[winner]).tick(100).new() == []
    assert bench.closed().new() == [order(ActionKind.REMOVE)]
    assert bench.answer(NodeOutcome.GONE).view({A: winner}, others=[winner]).new() == []


def test_a_shard_wanted_back_while_it_drains_is_drained_first():
    bench = Bench().open()
    bench.view({A: ME}, others=[rival(wins=True)]).new()
    assert bench.view({A: ME}).new() == []
    assert bench.closed().new() == [order(ActionKind.CREATE)], "the service says whose it is"
    assert bench.answer(NodeOutcome.OURS).new() == [order(ActionKind.OWN)]


def test_hands_over_so_many_at_once_unless_in_a_hurry():
    bench = Bench(shards=40)
    shards = list(bench.handoff.shards)
    bench.connected().view()
    for shard in shards:
        bench.answer(NodeOutcome.OURS, shard).opened(shard)
    bench.new()
    owners = dict.fromkeys(shards, ME)
    bench.view(owners, others=[f"r{at}" for at in range(200)])
    assert [one.action for one in bench.new()] == [ActionKind.DRAIN] * rules.DRAINS_IN_FLIGHT_MAX
    bench.orders += bench.handoff.drain_all(bench.now)
    rest = len(shards) - rules.DRAINS_IN_FLIGHT_MAX
    assert [one.action for one in bench.new()] == [ActionKind.ANNOUNCE] + [ActionKind.DRAIN] * rest


def test_leaving_is_announced_first_and_the_session_ends_last():
    bench = Bench().open()
    bench.orders += bench.handoff.drain_all(bench.now)
    assert bench.new() == [order(ActionKind.ANNOUNCE, None), order(ActionKind.DRAIN)]
    assert bench.handoff.node.leaving
    assert bench.closed().new() == [order(ActionKind.REMOVE)]
    assert bench.answer(NodeOutcome.UNKNOWN).new() == []
    assert bench.tick(1.0).new() == [order(ActionKind.REMOVE)]
    assert bench.answer(NodeOutcome.GONE).new() == [order(ActionKind.LEAVE, None)]
    assert bench.view().tick(100).new() == [] and not bench.handoff.current


def test_leaving_while_a_creation_is_under_way_removes_what_comes_of_it():
    bench = Bench()
    bench.connected().view().new()
    bench.orders += bench.handoff.drain_all(bench.now)
    assert bench.new() == [order(ActionKind.ANNOUNCE, None)]
    assert bench.answer(NodeOutcome.OURS).new() == [order(ActionKind.REMOVE)]


def test_one_that_leaves_does_not_join_anew():
    bench = Bench().open()
    bench.orders += bench.handoff.drain_all(bench.now)
    bench.hear(Session(ME, SessionState.LOST)).new()
    assert bench.closed().new() == [order(ActionKind.LEAVE, None)]


# ---- failing ----


def test_a_fenced_shard_looks_pauses_asks_whose_the_node_is_and_owns_again():
    bench = Bench().open()
    assert bench.lost().new() == [order(ActionKind.READ_VIEW, None)]
    assert bench.tick(0.4).new() == []
    assert bench.tick(0.1).new() == [order(ActionKind.CREATE)]
    assert bench.answer(NodeOutcome.TAKEN, owner=OTHER).tick(100).new() == []


def test_pauses_grow_and_the_third_failure_in_a_row_makes_unfit():
    bench = Bench().open()
    bench.view({A: ME}, others=[OTHER]).new()
    assert ranked(A, {ME: NODE, OTHER: NODE})[0] == ME
    for pause_s in (0.5, 1.0):
        bench.lost().new()
        assert bench.handoff.wake_at_s(bench.now) == bench.now + pause_s
        assert bench.tick(pause_s).new() == [order(ActionKind.CREATE)]
        assert bench.answer(NodeOutcome.OURS).new() == [order(ActionKind.OWN)]
    bench.lost()
    assert set(bench.new()) == {
        order(ActionKind.READ_VIEW, None),
        order(ActionKind.ANNOUNCE, None),
        order(ActionKind.REMOVE),
    }
    assert bench.handoff.node.unfit == ("a",)


def test_a_shard_that_was_open_for_long_did_not_fail_in_a_row():
    bench = Bench().open()
    for _ in range(5):
        bench.now += rules.FAILS_FORGOTTEN_S
        bench.lost()
        bench.tick(0.5).answer(NodeOutcome.OURS).opened()
    assert bench.state() is OwnershipState.OPEN and bench.handoff.node.unfit == ()


def test_giving_up_makes_unfit_at_once_and_for_a_while():
    bench = Bench().open()
    bench.view({A: ME}, others=[OTHER]).new()
    bench.lost(gave_up=True)
    verbs = [one.action for one in bench.new()]
    assert sorted(verb.name for verb in verbs) == ["ANNOUNCE", "READ_VIEW", "REMOVE"]
    bench.answer(NodeOutcome.GONE).view({A: OTHER}, others=[OTHER])
    assert bench.handoff.wake_at_s(bench.now) is not None
    bench.tick(rules.UNFIT_S)
    assert bench.new() == [order(ActionKind.ANNOUNCE, None)] and bench.handoff.node.unfit == ()
    assert bench.view(others=[OTHER]).new() == [order(ActionKind.CREATE)]


def test_the_only_one_keeps_its_node_and_goes_on_trying():
    bench = Bench().open()
    bench.lost(gave_up=True)
    assert {one.action for one in bench.new()} == {ActionKind.READ_VIEW, ActionKind.ANNOUNCE}
    assert bench.tick(0.5).new() == [order(ActionKind.CREATE)]


def test_a_damaged_shard_is_not_touched_for_long_not_even_in_a_new_session():
    bench = Bench().open()
    bench.lost(damaged="chain broken")
    assert bench.new() == [
        order(ActionKind.READ_VIEW, None),
        order(ActionKind.ANNOUNCE, None),
        order(ActionKind.REMOVE),
    ]
    assert bench.handoff.node.damaged == (A,), "another, of a later version perhaps, may read it"
    bench.answer(NodeOutcome.GONE).view().tick(10)
    bench.hear(Session(ME, SessionState.LOST)).connected().view().tick(rules.DAMAGED_S - 11)
    assert bench.new() == [order(ActionKind.JOIN, None)]
    assert bench.handoff.damaged == {A: "chain broken"}
    bench.tick(1)
    assert bench.new() == [order(ActionKind.ANNOUNCE, None), order(ActionKind.CREATE)], (
        "it may be mended"
    )
    assert not bench.handoff.damaged and not bench.handoff.node.damaged


# ---- sessions ----


def test_a_damaged_shard_does_not_make_unfit_however_often_it_is_tried():
    """Else the healthy shards of its group would move at every third attempt."""
    bench = Bench().open()
    for _ in range(2 * rules.FAILS_MAX):
        bench.lost(damaged="chain broken").view()
        bench.answer(NodeOutcome.GONE)
        bench.tick(rules.DAMAGED_S).view()
        bench.answer(NodeOutcome.OURS)
        assert bench.handoff.shards[A].state is OwnershipState.OPENING, "it is tried again"
        assert not bench.handoff.node.unfit
    bench.lost().view({A: ME})
    assert bench.handoff.shards[A].fails == 1 and not bench.handoff.node.unfit


def test_a_shard_that_was_lost_with_another_one_is_claimed_at_once_and_does_not_make_unfit():
    """Else one fenced shard would move all that shared its round."""
    bench = Bench().open()
    for _ in range(2 * rules.FAILS_MAX):
        orders = bench.lost(by_another=True).new()
        assert orders == [order(ActionKind.READ_VIEW, None), order(ActionKind.CREATE)]
        bench.answer(NodeOutcome.OURS).opened().new()
        assert not bench.handoff.shards[A].fails and not bench.handoff.node.unfit


def test_suspended_nothing_stops_nothing_begins_and_nothing_is_current():
    bench = Bench().open()
    assert bench.handoff.current
    bench.hear(Session(ME, SessionState.SUSPENDED))
    assert not bench.handoff.current and bench.state() is OwnershipState.OPEN
    bench.lost().tick(100)
    assert bench.new() == [order(ActionKind.READ_VIEW, None)], "no takeover by itself"
    assert bench.connected().new() == [order(ActionKind.CREATE)]


def test_suspended_between_node_and_claim_the_claim_waits():
    bench = Bench()
    bench.connected().view().new()
    bench.hear(Session(ME, SessionState.SUSPENDED))
    assert bench.answer(NodeOutcome.OURS).tick(100).new() == []
    assert bench.connected().new() == [order(ActionKind.OWN)]


def test_a_lost_session_drops_all_at_once_and_joins_under_a_new_name():
    bench = Bench().open()
    bench.hear(Session(ME, SessionState.LOST))
    assert bench.new() == [order(ActionKind.DROP), order(ActionKind.JOIN, None)]
    assert bench.handoff.member == "me.2" and not bench.handoff.current
    bench.connected().view({A: ME})
    assert bench.new() == [], "the old session's node is another's now"
    assert bench.view().new() == [], "the old life is not over"
    assert bench.closed().new() == [order(ActionKind.CREATE)]


def test_news_of_an_older_session_are_none():
    bench = Bench()
    bench.connected().view().new()
    bench.hear(Session(ME, SessionState.LOST)).new()
    bench.hear(NodeAnswer(ME, A, NodeOutcome.OURS, 9))
    bench.hear(MembershipView(ME, 10, {ME: NODE}, {A: ME}))
    bench.hear(Session(ME, SessionState.CONNECTED, 10))
    assert bench.new() == [] and bench.state() is OwnershipState.OUT and not bench.handoff.current


def test_older_views_are_none():
    bench = Bench().open()
    assert bench.view(others=[rival(wins=True)], version=1).new() == []


def test_a_node_that_vanished_under_a_shard_ends_it():
    bench = Bench().open()
    assert bench.view({A: OTHER}).new() == [order(ActionKind.DROP)]
    assert bench.closed().new() == [] and bench.state() is OwnershipState.OUT


def test_one_that_is_missing_in_the_view_joins_anew():
    bench = Bench().open()
    bench.version += 1
    bench.hear(MembershipView(ME, bench.version, {OTHER: NODE}, {}))
    assert bench.new() == [order(ActionKind.DROP), order(ActionKind.JOIN, None)]


def test_an_answer_to_nothing_is_a_broken_belief():
    with pytest.raises(UnexpectedAnswer, match="the node is ours"):
        Bench().open().answer(NodeOutcome.OURS)
