"""Which daemons stand aside if some do not reach each other, and when one comes back."""

from __future__ import annotations

import itertools
import random

import pytest

from peloton.runtime.core.reach.contacts import NOT_DIALLED, Contact, ContactReport, Contacts
from peloton.runtime.core.reach.standing import (
    BACK,
    SURE_S,
    Standing,
    set_aside,
    why_aside,
)
from peloton.runtime.ports import MemberNode


def members(names: str, *cuts: str, aside: str = "") -> dict[str, MemberNode]:
    """`cuts`: "xab" means that x says it reaches neither a nor b."""
    lists = {cut[0]: dict.fromkeys(cut[1:], "no answer") for cut in cuts}
    return {
        name: MemberNode(
            f"{name}:1",
            ("g",),
            unreached=lists.get(name, {}),
            aside=name in aside,
        )
        for name in names
    }


@pytest.mark.parametrize(
    ("found", "gone"),
    [
        pytest.param(members("abc"), "", id="nothing is cut"),
        pytest.param(members("a"), "", id="alone"),
        pytest.param(members("a", "aa"), "", id="alone, and its own address is wrong"),
        pytest.param(members("abc", "abc"), "a", id="one reaches nobody"),
        pytest.param(members("abc", "ba", "ca"), "a", id="one is reached by nobody"),
        pytest.param(members("abc", "ab", "ca"), "a", id="half of it said by each side"),
        pytest.param(members("ab", "ab"), "b", id="of two the higher id goes"),
        pytest.param(members("ab", "ba", "aa"), "a", id="but before it whose own address is wrong"),
        pytest.param(members("ab", "ba", aside="a"), "a", id="and who is aside already"),
        pytest.param(members("ab", "bab", aside="a"), "b", id="an own address counts more"),
        pytest.param(members("abcde", "acde", "bcde"), "ab", id="two of five"),
        pytest.param(members("abcde", "cab", "dab", "eab"), "ab", id="told by the others"),
        pytest.param(members("abcd", "acd", "bcd"), "cd", id="two halves"),
        pytest.param(members("abc", "abc", "bc"), "bc", id="nobody reaches anybody"),
        pytest.param(members("abc", "bc"), "c", id="a pair, while all others reach both"),
        pytest.param(members("abc", "bc", aside="b"), "b", id="nothing moves without need"),
        pytest.param(members("abc", "az"), "", id="of who is no member nothing follows"),
    ],
)
def test_who_goes(found: dict[str, MemberNode], gone: str) -> None:
    assert set_aside(found) == {*gone}


def test_those_who_stay_all_reach_each_other_and_there_is_one() -> None:
    draw = random.Random(7)
    for _ in range(300):
        names = "abcdefg"[: draw.randint(1, 7)]
        cuts = [name + "".join(other for other in names if draw.random() < 0.3) for name in names]
        found = members(names, *cuts)
        stay = [name for name in names if name not in set_aside(found)]
        assert stay
        for one, other in itertools.permutations(stay, 2):
            assert other not in found[one].unreached


# ---- one daemon, over time ----


class Life:
    """Daemon b, of a, b and c."""

    def __init__(self) -> None:
        self.standing, self.now = Standing(judged=True), 100.0
        self.others = members("ac")

    def judged(self, *unreached: str, met: str = "ac", after_s: float = 0.0) -> bool:
        """Whether it stands aside, so long after the last look."""
        self.now += after_s
        self.standing.report = ContactReport(dict.fromkeys(unreached, "gone"), frozenset(met))
        unreached = dict(self.standing.report.unreached)
        node = MemberNode("b:1", ("g",), unreached=unreached)
        self.standing.judge("b", {**self.others, "b": node}, self.now)
        return self.standing.aside


def test_a_daemon_that_joins_waits_until_it_has_met_all() -> None:
    life = Life()
    assert life.judged(met="") and life.standing.arriving
    assert life.judged(met="a") and life.standing.arriving
    assert not life.judged(met="ac"), "and then for nothing else"


def test_who_knows_whom_it_does_not_reach_has_arrived_and_stands_aside() -> None:
    life = Life()
    assert life.judged("a", met="") and life.standing.arriving, "c may still come"
    assert life.judged("a", met="c") and not life.standing.arriving
    assert life.judged(met="ac", after_s=0.1), "it comes back as any other"
    assert not life.judged(met="ac", after_s=BACK.first_s)


def test_who_stands_aside_comes_back_only_after_it_has_met_all_of_a_new_session() -> None:
    life = Life()
    life.judged("a", "c", met="")
    life.standing.joined()
    for _ in range(3):
        assert life.judged(met="", after_s=BACK.first_s)


def test_who_is_alone_waits_for_nobody() -> None:
    life = Life()
    life.others = {}
    assert not life.judged(met="")


def test_what_others_see_for_a_moment_moves_nothing() -> None:
    life = Life()
    life.judged()
    assert not life.judged("a", "c")
    assert not life.judged("a", "c", after_s=0.9 * SURE_S)
    assert not life.judged(after_s=0.2 * SURE_S)
    assert not life.judged("a", "c", after_s=SURE_S), "it begins anew"
    assert life.judged("a", "c", after_s=SURE_S)


def test_who_comes_back_again_and_again_waits_longer_each_time() -> None:
    life = Life()
    life.judged()
    waits = []
    for _ in range(7):
        life.judged("a", "c")
        assert life.judged("a", "c", after_s=SURE_S)
        life.judged()
        begun = life.now
        while life.judged(after_s=1.0):
            pass
        waits.append(life.now - begun)
    assert waits == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 160.0]
    assert (waits[0], waits[-1]) == (BACK.first_s, BACK.most_s)
    life.judged("a", "c", after_s=3600.0)
    life.judged("a", "c", after_s=SURE_S)
    life.judged()
    assert not life.judged(after_s=BACK.first_s), "long ago does not count"


def test_a_new_session_has_to_meet_the_others_again() -> None:
    life = Life()
    life.judged()
    life.standing.joined()
    assert life.standing.aside and life.standing.arriving
    assert not life.judged()


def test_who_stood_aside_does_not_come_back_by_a_new_session() -> None:
    life = Life()
    life.judged()
    life.judged("a", "c")
    life.judged("a", "c", after_s=SURE_S)
    life.standing.joined()
    assert life.judged() and life.judged(after_s=0.9 * BACK.first_s)
    assert not life.judged(after_s=0.2 * BACK.first_s)


def test_the_reasons_name_addresses_and_both_sides() -> None:
    found = members("abc")
    found["a"].unreached["b"] = "its certificate has expired"
    found["b"].unreached.update(a=NOT_DIALLED, b="its certificate has expired", c="refused")
    assert why_aside("b", found) == (
        "its own address b:1 does not lead to it: its certificate has expired; "
        "no contact with the daemon at a:1 (a): its certificate has expired; "
        "no contact with the daemon at c:1 (c): refused"
    )


# ---- contacts ----


def contact(now: float = 0.0) -> Contact:
    return Contact(now, limit_s=8.0)


def unreached(one: Contact, now: float) -> bool:
    one.look(now)
    return one.unreached


def test_a_peer_is_unreached_once_a_dead_one_would_be_no_member() -> None:
    one = contact()
    one.went_up(0.0)
    one.went_down(10.0, "reset")
    assert one.change_s() == 18.0
    assert not unreached(one, 17.9) and unreached(one, 18.0) and one.told == "reset"
    one.went_down(19.0, "refused")
    assert one.told == "reset", "each change is told to everybody"
    one.went_up(20.0)
    assert one.change_s() == 28.0 and unreached(one, 27.9) and not unreached(one, 28.0)


def test_a_silence_before_the_end_counts() -> None:
    one = contact()
    one.went_up(0.0)
    one.went_down(10.0, "silent", silent_s=5.0)
    assert not unreached(one, 12.9) and unreached(one, 13.0)


@pytest.mark.parametrize(("up_s", "down_s", "gone"), [(3.0, 1.0, False), (1.0, 3.0, True)])
def test_a_link_that_comes_and_goes_counts_as_what_it_mostly_is(
    up_s: float, down_s: float, gone: bool
) -> None:
    one, now, seen = contact(), 0.0, []
    for _ in range(50):
        one.went_up(now)
        now += up_s
        one.went_down(now, "reset")
        now += down_s
        seen.append(unreached(one, now))
    assert seen[-1] is gone and sum(a != b for a, b in itertools.pairwise(seen)) <= 1


def test_peers_that_are_no_members_are_forgotten() -> None:
    contacts = Contacts(6.0)
    contacts.keep({"a": "a:1", "b": "b:1"}, 0.0)
    contacts.of["a"].went_up(0.0)
    assert contacts.report(0.0) == ContactReport({}, frozenset("a"))
    assert contacts.report(8.0) == ContactReport({"b": NOT_DIALLED}, frozenset("a"))
    contacts.keep({"a": "a:1"}, 9.0)
    assert contacts.report(9.0) == ContactReport({}, frozenset("a"))
