"""Plans of hosts: the answers of a placer that no slice receives."""

from __future__ import annotations

from peloton.actors.resources import UNIT, Resources
from peloton.placement.messages import GangPart, GangWish, HostSummary, Label, Shape, Wish
from peloton.placement.placer import Placer
from peloton.placement.planning import plan_hosts
from peloton.runtime.vocabulary import Bits, Key, key

SLICE = key("slice", "plan", 0)


def cpus(count: int) -> Resources:
    return Resources(count * UNIT)


def host(name: str, free: int, **more: object) -> HostSummary:
    return HostSummary(key("host", name), 1, cpus(4), cpus(free), **more)  # type: ignore[arg-type]


def test_some_fit_and_others_say_why() -> None:
    hosts = [host("a", 2), host("b", 1), host("c", 4, up=False)]
    wish = Wish(SLICE, 1, Bits.span(0, 5), Shape(cpus(1)))
    found = plan_hosts(hosts, [wish], scarce_gpu=False, now=1.0)
    assert found.hosts == [(Key("host/a"), 2), (Key("host/b"), 1)] and found.placed == 3
    ((_, rest),) = found.unplaced
    assert len(rest.members) == 2 and not rest.never
    assert dict(rest.reasons) == {"mismatch_status": 1, "insufficient_offer_resources": 2} or (
        sum(count for _, count in rest.reasons) == 3
    )


def test_a_later_wish_does_not_get_what_an_earlier_one_has() -> None:
    wishes = [Wish(SLICE, at, Bits.span(0, 2), Shape(cpus(1))) for at in (1, 2)]
    found = plan_hosts([host("a", 3)], wishes, scarce_gpu=False, now=1.0)
    assert found.placed == 3 and len(found.unplaced[0][1].members) == 1


def test_a_gang_gets_hosts_for_all_or_for_none() -> None:
    def gang(count: int) -> GangWish:
        return GangWish(SLICE, 1, (GangPart(Bits.span(0, count), Shape(cpus(1))),))

    hosts = [host("a", 2), host("b", 2)]
    assert plan_hosts(hosts, [gang(4)], scarce_gpu=False, now=1.0).placed == 4
    none = plan_hosts(hosts, [gang(5)], scarce_gpu=False, now=1.0)
    assert none.placed == 0 and len(none.unplaced[0][1].members) == 5


def test_hosts_with_gpus_are_kept_where_they_are() -> None:
    with_gpu = HostSummary(
        key("host", "g"), 1, Resources(UNIT, gpu=UNIT), Resources(UNIT, gpu=UNIT)
    )
    wish = Wish(SLICE, 1, Bits.span(0, 1), Shape(cpus(1)))
    kept = [plan_hosts([with_gpu], [wish], scarce_gpu=kept, now=1.0) for kept in (False, True)]
    assert [each.placed for each in kept] == [1, 0] and kept[1].unplaced[0][1].never


def test_what_never_fits_is_proven() -> None:
    wish = Wish(SLICE, 1, Bits.span(0, 1), Shape(cpus(9)))
    assert plan_hosts([host("a", 4)], [wish], scarce_gpu=False, now=1.0).unplaced[0][1].never
    assert Placer.__module__ == "peloton.placement.placer", "the very one that proposes in earnest"


def test_what_a_strategy_gives_one_host_of_a_wish_is_no_limit_of_the_host() -> None:
    hosts = [host(name, 2) for name in "abc"]
    wish = Wish(SLICE, 1, Bits.span(0, 7), Shape(cpus(1), strategy="spread"))
    found = plan_hosts(hosts, [wish], scarce_gpu=False, now=1.0)
    assert [count for _, count in found.hosts] == [2, 2, 2] and found.placed == 6
    ((_, rest),) = found.unplaced
    assert len(rest.members) == 1


def test_tasks_that_keep_apart_are_planned_where_the_labels_are_known() -> None:
    label = Label("job", "j")
    shape = Shape(cpus(1), labels=(label,), apart=label)
    wish = Wish(SLICE, 1, Bits.span(0, 3), shape)
    known = [host("a", 4, running=()), host("b", 4, running=((label, 1),))]
    found = plan_hosts(known, [wish], scarce_gpu=False, now=1.0)
    assert found.hosts == [(Key("host/a"), 2), (Key("host/b"), 1)] and not found.unplaced
