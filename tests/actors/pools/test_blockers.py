"""All that keeps a ticket waiting: every limit on its way, its place, and the estimate.

States are put into the tree by hand.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.blockers import ExplainedTree
from peloton.actors.respool.lot.messages import GangTerms, LotShape, LotWaits, PoolBlocker
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.releases import MEMORY_S, Releases
from peloton.actors.respool.state import Pool
from peloton.runtime.vocabulary import Bits, Key
from tests.actors.pools.test_pool import A1, A, admit, config, cpus, lot, put, root, too_big, tree


def waits(of: ExplainedTree, name: str, now: float = 0.0) -> LotWaits:
    return of.waits(Key(f"lot/{name}"), now)


def rules(found: LotWaits) -> list[tuple[str, str]]:
    return [(each.rule, each.pool) for each in found.blockers]


def numbers(each: PoolBlocker) -> tuple[float, ...]:
    amounts = each.limit, each.used, each.wanted, each.missing, each.in_all
    return tuple(one / UNIT for one in amounts)


def test_every_limit_on_the_way_is_named_with_its_numbers() -> None:
    found = tree(a=config("a", limit=4), a1=config("a1", A, limit=3))
    put(found, "holds/0/0", lot(A1, 3))
    assert admit(found) == [("holds/0/0", 3)]
    put(found, "w/0/0", lot(A1, 3, size=2, arrived=1.0))
    assert admit(found) == []
    answer = waits(found, "w/0/0")
    assert rules(answer)[:2] == [("limit", "/a/a1"), ("limit", "/a")]
    assert numbers(answer.blockers[0]) == (3, 3, 2, 2, 6)
    assert numbers(answer.blockers[1]) == (4, 3, 2, 1, 6)
    assert answer.because.startswith("limit of <pool /a/a1> reached"), "it stays first"
    assert not any(each.never for each in answer.blockers) and answer.place is None


def test_two_kinds_are_two_blockers() -> None:
    most = Resources(2 * UNIT, 100 * UNIT)
    wide = msgspec.structs.replace(config("a"), limit=most)
    found = tree(a=wide)
    found.put(ROOT, old=found.pools[ROOT], new=root(100))
    need = LotShape(A, Resources(3 * UNIT, 200 * UNIT))
    whole = msgspec.structs.replace(lot(A, 1), shape=need)
    put(found, "x/0/0", whole)
    admit(found)
    answer = waits(found, "x/0/0")
    known = [(each.rule, each.kind, each.never) for each in answer.blockers]
    assert known[:2] == [("limit", "cpu", True), ("limit", "memory", True)]
    assert ("capacity", "memory", False) in known, "hosts may come: no proof of never"
    assert answer.never and answer.outlook is None


def test_the_cluster_and_the_entitlement_are_named() -> None:
    b = Key("respool/b")
    found = tree(a=config("a", limit=100, reserved=5), b=config("b", limit=100, reserved=5))
    found.put(ROOT, old=found.pools[ROOT], new=root(10))
    put(found, "x/0/0", lot(A, 20))
    put(found, "y/0/0", lot(b, 20, arrived=1.0))
    admit(found)
    answer = waits(found, "x/0/0")
    assert rules(answer) == [("capacity", "/"), ("entitlement", "/a")]
    assert numbers(answer.blockers[1])[:4] == (5, 5, 1, 1)


def test_the_place_in_the_queue_says_who_is_before_it() -> None:
    found = tree(a=config("a", limit=5))
    put(found, "holds/0/0", lot(A, 5))
    admit(found)
    put(found, "high/0/0", lot(A, 4, priority=7, arrived=5.0))
    put(found, "old/0/0", lot(A, 3, arrived=1.0))
    put(found, "w/0/0", lot(A, 2, arrived=2.0))
    place = waits(found, "w/0/0").place
    assert place is not None
    assert (place.tasks, place.higher, place.gangs, place.looked_at) == (7, 4, 0, 2)
    assert (place.head, place.head_priority) == ("high", 7)
    assert waits(found, "high/0/0").place is None
    assert rules(waits(found, "w/0/0"))[-1] == ("queue", "/a")


def test_a_gang_before_it_is_counted_and_an_incomplete_one_says_who_is_missing() -> None:
    found = tree(a=config("a", limit=5))
    put(found, "holds/0/0", lot(A, 5))
    admit(found)
    terms = GangTerms(1, 1, 1, Bits.span(0, 3))
    part = msgspec.structs.replace(lot(A, 2, arrived=1.0), gang=terms, joined=Bits.span(0, 2))
    put(found, "g/0/0", part)
    (missing,) = waits(found, "g/0/0").blockers
    assert (missing.rule, missing.used, missing.wanted, missing.missing) == ("gang", 2, 3, 1)
    whole = msgspec.structs.replace(lot(A, 3, arrived=1.0), gang=terms, joined=Bits.span(0, 3))
    put(found, "g/0/0", whole)
    put(found, "w/0/0", lot(A, 1, arrived=2.0))
    place = waits(found, "w/0/0").place
    assert place is not None and (place.tasks, place.gangs, place.head) == (3, 1, "g")
    first = waits(found, "g/0/0").blockers[0]
    assert (first.rule, first.wanted) == ("limit", 3 * UNIT), "a gang wants all at once"


def test_there_is_no_estimate_before_anything_ended_and_one_after() -> None:
    found = tree(a=config("a", limit=4))
    found.releases.note(0.0, up=found.up)
    put(found, "holds/0/0", lot(A, 4))
    admit(found)
    put(found, "w/0/0", lot(A, 10, arrived=1.0))
    admit(found)
    outlook = waits(found, "w/0/0", 100.0).outlook
    assert outlook is not None and outlook.after_s is None
    assert outlook.basis == "no task in <pool /a> has released cpu lately"
    put(found, "holds/0/0", lot(A, 0, 2))
    admit(found)
    found.releases.note(100.0, up=found.up)
    outlook = waits(found, "w/0/0", 100.0).outlook
    assert outlook is not None and outlook.after_s == pytest.approx(42.5, rel=0.05)
    assert "1 cpu has to be released in <pool /a>" in outlook.basis
    put(found, "next/0/0", lot(A, 1, arrived=2.0))
    later = waits(found, "next/0/0", 100.0).outlook
    assert later is not None and later.after_s == pytest.approx(9 * outlook.after_s)
    assert "and the 8 before it" in later.basis


def test_nothing_is_foreseen_for_what_all_hosts_together_have_no_room_for() -> None:
    found = tree(a=config("a", limit=100))
    found.put(ROOT, old=found.pools[ROOT], new=root(4))
    found.releases.note(0.0, up=found.up)
    put(found, "holds/0/0", lot(A, 4))
    admit(found)
    put(found, "w/0/0", lot(A, 1, arrived=1.0))
    put(found, "holds/0/0", lot(A, 1, 3))
    found.releases.note(100.0, up=found.up)
    put(found, "holds/0/0", lot(A, 4, 3))
    found.put(ROOT, old=found.pools[ROOT], new=root(0))
    outlook = waits(found, "w/0/0", 100.0).outlook
    assert outlook is not None and outlook.after_s is None
    assert outlook.basis == "the hosts that are up have 0 cpu in all: others have to come"


def test_a_steady_rate_is_found_whatever_its_age_and_forgotten_in_the_end() -> None:
    releases = Releases()
    above = [A, ROOT]
    rates = []
    for second in range(2000):
        releases.note(float(second), up=lambda pool: above)
        releases.add(A, cpus(2), tasks=1)
        found = releases.rate(ROOT, 0, now=float(second), up=lambda pool: above)
        rates.append(found.per_s / UNIT if found is not None else 0.0)
    assert all(rate == pytest.approx(2.0, rel=0.2) for rate in rates[10:])
    releases.note(2000.0, up=lambda pool: above)
    lower = [releases.rate(A, 0, now=2000 + n * MEMORY_S, up=lambda pool: above) for n in range(4)]
    values = [each.per_s for each in lower if each is not None]
    assert len(values) == 4 and all(after < before for before, after in pairwise(values))
    assert releases.rate(A, 0, now=2000 + 40 * MEMORY_S, up=lambda pool: above) is None
    assert releases.rate(A, 3, now=2000.0, up=lambda pool: above) is None, "of no other kind"


def test_what_a_pool_released_is_forgotten_with_it() -> None:
    found = tree(a=config("a", limit=4))
    put(found, "x/0/0", lot(A, 0, 2))
    put(found, "x/0/0", None)
    found.releases.note(5.0, up=found.up)
    assert found.releases.rate(A, 0, now=5.0, up=found.up) is not None
    found.put(A, old=Pool(config("a", limit=4)), new=None)
    assert found.releases.rate(A, 0, now=5.0, up=found.up) is None


def test_an_answer_costs_the_first_of_a_queue_and_not_all_of_it() -> None:
    found = tree(a=config("a", limit=1))
    put(found, "holds/0/0", lot(A, 1))
    admit(found)
    for number in range(500):
        put(found, f"q{number:03}/0/0", lot(A, 2, arrived=float(number)))
    place = waits(found, "q499/0/0").place
    assert place is not None and (place.tasks, place.looked_at) == (998, 64)


def test_what_can_never_be_admitted_has_no_place() -> None:
    found = tree(a=config("a", limit=5))
    put(found, "first/0/0", lot(A, 1))
    put(found, "k/0/0", too_big())
    admit(found)
    answer = waits(found, "k/0/0")
    assert answer.never and answer.blockers[0].never and answer.place is None


def test_who_wants_no_cpu_is_not_kept_by_those_that_hold_too_much_of_it() -> None:
    b = Key("respool/b")
    found = tree(a=config("a", limit=100, reserved=5), b=config("b", limit=100, reserved=5))
    found.put(ROOT, old=found.pools[ROOT], new=root(10))
    put(found, "holds/0/0", lot(A, 10))
    admit(found)
    put(found, "asks/0/0", lot(b, 5, arrived=1.0))
    shape = LotShape(A, Resources(slack=UNIT), revocable=True)
    put(found, "slack/0/0", msgspec.structs.replace(lot(A, 1, arrived=2.0), shape=shape))
    admit(found)
    assert found.use(A).cpu > found.entitlement(A).cpu
    assert {each.kind for each in waits(found, "slack/0/0").blockers} == {"slack"}


def test_who_is_entitled_to_all_of_the_cluster_is_not_told_to_have_its_share_raised() -> None:
    found = tree(a=config("a", limit=100))
    found.put(ROOT, old=found.pools[ROOT], new=root(10))
    put(found, "x/0/0", lot(A, 12))
    admit(found)
    assert rules(waits(found, "x/0/0")) == [("capacity", "/")]
