"""What every `Membership` keeps to: sessions, owner nodes, views, and what is told of them.

An adapter joins by a rig in `RIGS`. Only what the port says is tested: how soon a view comes, or
how a break is noticed, differs by service.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peloton.runtime.ports import NodeOutcome, Session, SessionState, ShardId
from tests.contracts.memberships import RIGS, SHARD, Daemon, Rig, node

HELD, TAKEN, GONE, UNKNOWN = NodeOutcome
CONNECTED, SUSPENDED, LOST = SessionState
OTHER = ShardId("a-b", 17)


@pytest.fixture(params=RIGS, ids=lambda rig: rig.__name__)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    made: Rig = request.param()
    yield made
    made.close()


def test_the_first_news_is_that_the_node_stands_and_a_view_follows(rig: Rig):
    a = Daemon(rig, "a")
    assert a.client.sure_for_s() <= 0
    a.join()
    first, view = a.news[0], a.view()
    assert isinstance(first, Session) and first.state is CONNECTED and first.version > 0
    assert view is not None and view.version >= first.version
    assert view.members == {"a.1": node("a")} and view.owners == {}
    assert 0 < a.client.sure_for_s() <= rig.session_s


def test_members_see_each_other_come_change_and_go(rig: Rig):
    a, b = Daemon(rig, "a").join(), Daemon(rig, "b").join()
    rig.wait(lambda: a.members() == {"a.1": node("a"), "b.1": node("b")})
    for leaving in (True, False, True):
        b.client.announce(node("b", leaving=leaving))
    rig.wait(lambda: a.members().get("b.1") == node("b", leaving=True))
    rig.wait(lambda: b.members().get("b.1") == node("b", leaving=True))
    b.client.leave()
    rig.wait(lambda: a.members() == {"a.1": node("a")})


def test_what_is_announced_before_the_node_stands_is_what_stands(rig: Rig):
    a = Daemon(rig, "a")
    a.member = "a.1"
    a.client.join("a.1", node("a"))
    a.client.announce(node("a", leaving=True))
    rig.wait(lambda: a.members() == {"a.1": node("a", leaving=True)})


def test_of_two_that_ask_for_a_node_one_holds_it_and_the_other_is_told_who(rig: Rig):
    a, b = Daemon(rig, "a").join(), Daemon(rig, "b").join()
    first, again = a.create(), a.create()
    assert first.outcome is HELD and again.outcome is HELD and again.version >= first.version
    taken = b.create()
    assert taken.outcome is TAKEN and taken.owner == "a.1" and taken.version >= first.version
    rig.wait(lambda: a.owners() == b.owners() == {SHARD: "a.1"})
    assert b.create(OTHER).outcome is HELD
    rig.wait(lambda: a.owners() == b.owners() == {SHARD: "a.1", OTHER: "b.1"})


def test_only_the_owner_removes_its_node(rig: Rig):
    a, b = Daemon(rig, "a").join(), Daemon(rig, "b").join()
    held = a.create()
    not_mine = b.remove()
    assert not_mine.outcome is GONE and not_mine.owner == "a.1"
    gone, nothing = a.remove(), a.remove()
    assert gone.outcome is GONE and gone.owner == "" and gone.version > held.version
    assert nothing.outcome is GONE and nothing.owner == ""
    taken_over = b.create()
    assert taken_over.outcome is HELD and taken_over.version > gone.version
    rig.wait(lambda: a.owners() == {SHARD: "b.1"})


def test_every_operation_is_answered_once_and_in_order(rig: Rig):
    a, b = Daemon(rig, "a").join(), Daemon(rig, "b").join()
    shards = [ShardId("a", number) for number in range(40)]
    for shard in shards:
        for daemon in (a, b):
            daemon.client.create_owner(shard)
            daemon.client.remove_owner(shard)
            daemon.client.create_owner(shard)
    rig.wait(lambda: all(len(d.answers(s)) >= 3 for d in (a, b) for s in shards))
    rig.rest(rig.moment_s)
    for shard in shards:
        ends = []
        for daemon in (a, b):
            first, removed, last = daemon.outcomes(shard)
            assert first in (HELD, TAKEN) and removed is GONE and last in (HELD, TAKEN)
            ends.append(last)
        assert HELD in ends
    truth = {s: next(d.member for d in (a, b) if d.outcomes(s)[-1] is HELD) for s in shards}
    rig.wait(lambda: a.owners() == b.owners() == truth)


def test_views_grow_no_older_and_one_as_new_as_an_answer_shows_what_it_says(rig: Rig):
    a, b = Daemon(rig, "a").join(), Daemon(rig, "b").join()
    shards = [ShardId("a", number) for number in range(200)]
    for shard in shards:
        b.client.create_owner(shard)
    rig.wait(lambda: all(b.answers(shard) for shard in shards))
    rig.wait(lambda: len(a.owners()) == len(b.owners()) == len(shards))
    known = len(a.views())
    a.client.request_view()
    rig.wait(lambda: len(a.views()) > known)
    since = {shard: b.answers(shard)[0].version for shard in shards}
    for daemon in (a, b):
        versions = [view.version for view in daemon.views()]
        assert versions == sorted(versions)
        for view in daemon.views():
            # Nobody removes any: what is as old as the view, or older, is in it.
            told = {shard for shard in shards if since[shard] <= view.version}
            assert told <= set(view.owners)


def test_views_of_the_same_have_the_same_version_whenever_they_were_read(rig: Rig):
    a, b = Daemon(rig, "a").join(), Daemon(rig, "b").join()
    a.create()
    rig.wait(lambda: len(b.members()) == len(a.members()) == 2)
    rig.wait(lambda: a.owners() == b.owners() == {SHARD: "a.1"})
    rig.rest(rig.moment_s)
    rig.elsewhere()
    # Nothing changed for b, which reads no more; a reads again, later in the service's history.
    known = len(a.views())
    a.client.request_view()
    rig.wait(lambda: len(a.views()) > known)
    assert a.view().version == b.view().version  # type: ignore[union-attr]
    b.create(OTHER)
    rig.wait(lambda: OTHER in a.owners() and OTHER in b.owners())
    rig.wait(lambda: a.view().version == b.view().version)  # type: ignore[union-attr]
    assert a.view().version > a.views()[known].version  # type: ignore[union-attr]


def test_who_leaves_takes_all_nodes_along_and_hears_no_more(rig: Rig):
    a, b = Daemon(rig, "a").join(), Daemon(rig, "b").join()
    b.create()
    rig.wait(lambda: a.owners() == {SHARD: "b.1"})
    b.client.leave()
    heard = len(b.news)
    b.client.create_owner(SHARD)
    b.client.request_view()
    assert b.client.sure_for_s() <= 0
    rig.wait(lambda: a.members() == {"a.1": node("a")} and a.owners() == {})
    rig.rest(rig.moment_s)
    assert len(b.news) == heard


def test_joining_anew_lets_go_of_what_the_older_session_made(rig: Rig):
    a, b = Daemon(rig, "a").join(), Daemon(rig, "b").join()
    b.create()
    b.create(OTHER)
    b.join(2)
    assert b.create(OTHER).outcome in (HELD, TAKEN), "the older session's node may still stand"
    rig.wait(lambda: b.create(OTHER).outcome is HELD)
    rig.wait(lambda: sorted(a.members()) == ["a.1", "b.2"] and a.owners() == {OTHER: "b.2"})


def test_a_session_that_the_service_ended_is_lost_with_its_last_word(rig: Rig):
    a, b = Daemon(rig, "a").join(), Daemon(rig, "b").join()
    b.create()
    rig.expire(b.client)
    rig.wait(lambda: LOST in b.states())
    assert b.client.sure_for_s() <= 0
    rig.wait(lambda: sorted(a.members()) == ["a.1"] and a.owners() == {})
    b.client.create_owner(SHARD)
    b.client.request_view()
    rig.rest(rig.moment_s)
    assert b.states()[-2:] == [SUSPENDED, LOST] and isinstance(b.of_session()[-1], Session)
    assert a.owners() == {}, "nothing is made under a session that nobody knows of"
    b.join(2)
    assert b.create().outcome is HELD


def test_a_short_cut_suspends_and_ends_nothing(rig: Rig):
    a, b = Daemon(rig, "a").join(), Daemon(rig, "b").join()
    b.create()
    rig.cut(b.client)
    rig.rest(rig.moment_s)
    a.create(OTHER)
    rig.mend(b.client)
    rig.wait(lambda: b.owners() == {SHARD: "b.1", OTHER: "a.1"})
    assert b.states() in ([CONNECTED], [CONNECTED, SUSPENDED, CONNECTED])
    rig.wait(lambda: b.client.sure_for_s() > 0)
    assert b.create().outcome is HELD and b.member in a.members()


def test_what_is_asked_while_cut_is_answered_once_and_never_wrongly(rig: Rig):
    a, b = Daemon(rig, "a").join(), Daemon(rig, "b").join()
    shards = [ShardId("a", number) for number in range(20)]
    for at, shard in enumerate(shards):
        if at == 10:
            rig.cut(b.client)
        b.client.create_owner(shard)
    rig.rest(rig.moment_s)
    rig.mend(b.client)
    rig.wait(lambda: all(b.answers(shard) for shard in shards))
    rig.wait(lambda: b.states()[-1] is CONNECTED)
    held = [shard for shard in shards if b.outcomes(shard)[0] is HELD]
    assert all(b.outcomes(shard)[0] in (HELD, UNKNOWN) for shard in shards)
    rig.wait(lambda: all(a.owners().get(shard) == "b.1" for shard in held))
    for shard in shards:
        assert len(b.answers(shard)) == 1
        assert a.create(shard).outcome in (HELD, TAKEN), "and both agree whose it is"
        assert b.create(shard).outcome is not a.outcomes(shard)[-1]


def test_a_long_cut_ends_the_session_and_nobody_was_sure_until_then(rig: Rig):
    a, b = Daemon(rig, "a").join(), Daemon(rig, "b").join()
    b.create()
    rig.wait(lambda: a.owners() == {SHARD: "b.1"})
    rig.cut(b.client)
    sure = []

    def gone() -> bool:
        sure.append(b.client.sure_for_s())
        return a.owners() == {}

    rig.wait(gone)
    assert sure[0] > 0 and sure[-1] <= 0, "before another could own what is ours"
    assert LOST not in b.states(), "how could it know?"
    rig.mend(b.client)
    rig.wait(lambda: b.states() == [CONNECTED, SUSPENDED, LOST])
    b.join(2)
    assert b.create().outcome is HELD


def test_a_service_out_of_reach_is_tried_until_the_session_stands(rig: Rig):
    a = Daemon(rig, "a")
    rig.cut(a.client)
    a.member = "a.1"
    a.client.join("a.1", node("a"))
    rig.rest(rig.moment_s)
    assert a.news == [] and a.client.sure_for_s() <= 0
    rig.mend(a.client)
    rig.wait(lambda: a.states() == [CONNECTED] and "a.1" in a.members())
