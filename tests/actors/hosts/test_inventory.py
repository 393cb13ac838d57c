"""An inventory: sums and deltas follow the hosts; a new index makes hosts look again.

Placers and hosts place and grant; here their messages are made by hand.
"""

from __future__ import annotations

import immutables
import msgspec
import pytest

from peloton.actors.host.holds.hold_messages import TaskHold
from peloton.actors.host.inventory.decide import list_hosts, report, snapshot
from peloton.actors.host.inventory.facts import FollowerNoted
from peloton.actors.host.inventory.messages import PLACERS_ALL, FollowTerms, ListHosts, is_troubled
from peloton.actors.host.inventory.state import Hosts, Inventory
from peloton.actors.host.machine_messages import HostVolume, VolumeConfig
from peloton.actors.host.messages import RecheckBackend
from peloton.actors.host.stages import HostStates, Maintenance
from peloton.actors.host.state import Host
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.messages import ROOT, Capacity
from peloton.placement.inventory_feeds import InventoryFeeds
from peloton.placement.messages import Constraint, HostDeltas, Label, SnapshotWanted
from peloton.runtime.vocabulary import At, Key, Message

ME = Key("inventory/0")


def host(state: HostStates = HostStates.UP, cpus: int = 4, version: int = 1) -> Host:
    free = Resources(cpus * UNIT)
    return Host(state, free, (), Key("backend/b"), (1, 2), 60.0, version=version)


def removed() -> Host:
    return msgspec.structs.replace(host(HostStates.LOST, version=2), removed=True)


def reports(index: Hosts, position: int = 1) -> list[tuple[Key, Message]]:
    at = At(now=0.0, key=ME, index=index, position=position)
    return [(send.to, send.message) for send in report(Inventory(), at)]


def hosts(**states: Host) -> Hosts:
    index = Hosts()
    for name, state in states.items():
        index.put(Key(f"host/{name}"), old=None, new=state)
    return index


def test_the_sum_leaves_out_what_is_lost() -> None:
    index = hosts(a=host(), b=host(HostStates.UNREACHABLE), c=host(HostStates.LOST))
    assert index.capacity == Resources(8 * UNIT)
    index.put(Key("host/a"), old=host(), new=host(HostStates.LOST, version=2))
    assert index.capacity == Resources(4 * UNIT)


@pytest.mark.parametrize("maintenance", [m for m in Maintenance if m != Maintenance.NONE])
def test_a_host_in_maintenance_adds_what_its_runs_hold(maintenance: Maintenance) -> None:
    """They are charged to pools until they end, and are no reason for others to wait."""
    volume = HostVolume(Key("slice/a/0"), 0, VolumeConfig("data", 7), 1.0)
    used = Resources(3 * UNIT) + volume.config.room
    drains = msgspec.structs.replace(
        host(version=2),
        maintenance=maintenance,
        used=used,
        volumes=immutables.Map({"v": volume}),
    )
    index = hosts(a=host(), b=host())
    index.put(Key("host/a"), old=host(), new=drains)
    assert index.capacity == Resources(7 * UNIT)
    ended = msgspec.structs.replace(drains, used=volume.config.room, version=3)
    index.put(Key("host/a"), old=drains, new=ended)
    assert index.capacity == Resources(4 * UNIT)


def test_only_what_changed_is_reported_and_numbered() -> None:
    index = hosts(a=host(HostStates.UNREACHABLE), b=host(HostStates.LOST))
    found = [each for each in reports(index) if each[1] != RecheckBackend()]
    assert [to for to, _ in found] == [PLACERS_ALL, ROOT]
    first = found[0][1]
    assert isinstance(first, HostDeltas) and first.snapshot and first.sequence == 1
    assert reports(index) == []
    index.put(Key("host/b"), old=host(HostStates.LOST), new=host(cpus=4, version=2))
    (_, second), (_, sums) = reports(index, position=9)
    assert isinstance(second, HostDeltas) and not second.snapshot and second.sequence == 2
    assert [summary.host for summary in second.hosts] == ["host/b"]
    assert sums == Capacity(9, ME, Resources(8 * UNIT))


def test_a_report_that_fails_is_made_again_and_loses_nothing() -> None:
    """The order to look again is given once, and the sum only when it changes."""
    index, at = hosts(a=host()), At(now=0.0, key=ME, position=1)
    fails = FollowTerms(Constraint("label", "host", Label("a", "b"), "greater", None))  # type: ignore[arg-type]
    follower = Key("slice/j/0")
    followers = immutables.Map({follower: FollowerNoted(follower, 1, fails)})
    with pytest.raises(TypeError):
        report(Inventory(followers=followers), msgspec.structs.replace(at, index=index))
    assert reports(index) == reports(hosts(a=host()))


def test_a_snapshot_for_one_placer_is_no_gap_for_the_others() -> None:
    """With a number of its own each snapshot made all other placers request one, too, for ever."""
    index, other = hosts(a=host()), InventoryFeeds()
    for version in range(2, 12):
        for _, deltas in reports(index):
            if isinstance(deltas, HostDeltas):
                other.receive(ME, deltas.sequence, snapshot=deltas.snapshot, now=0.0)
        index.put(Key("host/a"), old=host(version=version - 1), new=host(version=version))
        answer = index.snapshot(ME)
        assert [summary.position for summary in answer.hosts] == [version]
    assert other.due(0.0) == []
    (_, pending) = next(each for each in reports(index) if isinstance(each[1], HostDeltas))
    assert isinstance(pending, HostDeltas) and pending.sequence == answer.sequence + 1
    assert [summary.host for summary in pending.hosts] == ["host/a"], "the others need it still"


def test_a_change_without_a_version_is_nobodys_business() -> None:
    index = hosts(a=host())
    reports(index)
    index.put(Key("host/a"), old=host(), new=host())
    assert reports(index) == []


def test_after_a_recovery_every_host_rechecks_its_backend_once() -> None:
    """Also a lost one: its `BackendUp` may have been lost with the shard."""
    states = {state.name.lower(): host(state) for state in HostStates}
    index = hosts(**states, removed=removed())
    rechecked = [to for to, message in reports(index) if message == RecheckBackend()]
    assert rechecked == [f"host/{name}" for name in (*states, "removed")]
    assert not [to for to, message in reports(index) if message == RecheckBackend()]


def test_a_host_that_is_no_more_is_counted_nowhere() -> None:
    index = hosts(a=host(), b=host())
    reports(index)
    index.put(Key("host/b"), old=host(), new=removed())
    (_, deltas), (_, sums) = reports(index, position=5)
    assert isinstance(deltas, HostDeltas) and not deltas.snapshot
    assert deltas.hosts == () and deltas.gone == ("host/b",), "the others are not sent"
    assert sums == Capacity(5, ME, Resources(4 * UNIT))
    views = list_hosts(Inventory(), ListHosts(), At(now=0.0, key=ME, index=index))
    assert [view.summary.host for view in views] == ["host/a"]
    index.put(Key("host/b"), old=removed(), new=host(HostStates.UNREACHABLE, version=3))
    (_, back), _ = reports(index, position=6)
    assert [summary.host for summary in back.hosts] == ["host/b"]  # type: ignore[attr-defined]
    assert back.gone == ()  # type: ignore[attr-defined]


def test_a_host_that_went_and_came_back_between_two_reports_is_there() -> None:
    index = hosts(a=host(), b=host())
    reports(index)
    index.put(Key("host/b"), old=host(), new=removed())
    index.put(Key("host/b"), old=removed(), new=host(version=3))
    (_, deltas), *_ = reports(index, position=5)
    assert isinstance(deltas, HostDeltas) and deltas.gone == ()
    assert [summary.host for summary in deltas.hosts] == ["host/b"]


def test_labels_of_tasks_are_told() -> None:
    x = Label("app", "x")
    index = hosts(a=msgspec.structs.replace(host(), running=immutables.Map({x: 2})))
    at = At(now=0.0, key=ME, index=index)
    wanted = ((x, 2),)
    first = next(s.message for s in report(Inventory(), at) if isinstance(s.message, HostDeltas))
    (send,) = snapshot(Inventory(), SnapshotWanted(Key("placer/1")), at).sends
    assert isinstance(send.message, HostDeltas)
    assert [each.running for each in (*first.hosts, *send.message.hosts)] == [wanted, wanted]


def test_a_snapshot_names_no_host_that_is_gone() -> None:
    index = hosts(a=host(), b=host())
    reports(index)
    index.put(Key("host/b"), old=host(), new=removed())
    whole = index.snapshot(ME)
    assert whole.snapshot and [summary.host for summary in whole.hosts] == ["host/a"]
    (_, deltas), sums = reports(index)
    assert isinstance(deltas, HostDeltas) and deltas.gone == ("host/b",), "the others need it still"
    assert sums == (ROOT, Capacity(1, ME, Resources(4 * UNIT)))


def test_hosts_are_listed_by_name() -> None:
    index = hosts(b=host(), a=host(HostStates.LOST))
    views = list_hosts(Inventory(), ListHosts(), At(now=0.0, key=ME, index=index))
    assert [(view.summary.host, view.state.name) for view in views] == [
        ("host/a", "LOST"),
        ("host/b", "UP"),
    ]


def test_hosts_in_trouble_are_told_apart() -> None:
    drains = msgspec.structs.replace(host(), maintenance=Maintenance.DRAINING)
    states = {state.name.lower(): host(state) for state in HostStates}
    index = hosts(drains=drains, **states)
    asked = ListHosts(troubled=True)
    views = list_hosts(Inventory(), asked, At(now=0.0, key=ME, index=index))
    assert [view.summary.host for view in views] == ["host/drains", "host/lost", "host/unreachable"]
    assert all(is_troubled(view) for view in views)


def test_hosts_held_for_tasks_are_found_by_the_tasks() -> None:
    def for_tasks(*tasks: str) -> Host:
        crowd = Key("slice/a/0")
        holds = tuple(TaskHold(one, crowd, 0, "ann", Resources(), 9.0) for one in tasks)
        return msgspec.structs.replace(host(), task_holds=holds)

    def held_for(*tasks: str) -> list[str]:
        at = At(now=0.0, key=ME, index=index)
        return [view.summary.host for view in list_hosts(Inventory(), ListHosts(tasks), at)]

    states = {"a": for_tasks("t", "u"), "b": for_tasks("u"), "c": host()}
    index = hosts(**states)
    assert held_for("u") == held_for("t", "u") == ["host/a", "host/b"]
    assert held_for("t") == ["host/a"] and held_for("v") == []
    assert len(held_for()) == 3, "no name: every host"
    index.put(Key("host/a"), old=states["a"], new=for_tasks("t"))
    index.put(Key("host/b"), old=states["b"], new=removed())
    assert held_for("u") == [] and held_for("t") == ["host/a"]
    index.put(Key("host/a"), old=for_tasks("t"), new=host())
    assert held_for("t") == []
