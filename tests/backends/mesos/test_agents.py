"""Which hosts the agents of a cluster are."""

from __future__ import annotations

from typing import Any

from peloton.actors.resources import UNIT, Resources
from peloton.backends.mesos.agents import CLUSTER_LABEL, Agents
from peloton.backends.mesos.runs.groups import ContainerTaskId
from peloton.backends.mesos.runs.statuses import RunAt
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import Key
from tests.backends.mesos.words import ROLE, agent, allocated, ports, reserved, scalar

HOST = Key("host/east.h0")


def agents(*listed: dict[str, Any]) -> Agents:
    made = Agents("east", ROLE)
    made.told(listed)
    return made


def capacity(**more: Any) -> Resources:
    return agents(agent(**more)).by_host[HOST].capacity


def test_an_agent_is_the_host_of_its_machine() -> None:
    made = Agents("east", ROLE)
    (found,), left = made.told([agent("S0", "h0")])
    assert (found.host, found.agent_id, left) == (HOST, "S0", [])
    assert made.of("S0") is found and made.by_host == {HOST: found} and made.is_here(found)
    assert found.capacity == Resources(4 * UNIT, 4096 * UNIT)
    assert found.ports == (31000, 32001)
    assert made.told([agent("S0", "h0")]) == ([], []), "nothing is new"


def test_a_new_id_on_the_same_machine_is_the_same_host_and_asks_for_what_went_on() -> None:
    made = agents(agent("S0"))
    old = made.by_host[HOST]
    old.epoch, old.confirmed = 3, True
    old.runs.found(ContainerTaskId("r"))
    (new,), left = made.told([agent("S1")])
    assert left == [old] and made.by_host == {HOST: new} and made.of("S0") is None
    assert (new.agent_id, new.epoch, new.confirmed) == ("S1", 3, False)
    (run,) = new.runs.launched()
    assert (run.name, run.at, run.phase) == ("r", "S0", RunAt.COMING)
    assert made.is_here(new) and not made.is_here(old)


def test_of_two_agents_on_one_machine_one_is_the_host_and_stays_it() -> None:
    made = agents(agent("S0"), agent("S1"))
    for listed in ([agent("S1"), agent("S0")], [agent("S0"), agent("S1")]):
        assert made.told(listed) == ([], [])
        assert made.by_host[HOST].agent_id == "S0"
    changed, _ = made.told([agent("S1")])
    assert [each.agent_id for each in changed] == ["S1"]


def test_an_agent_that_left_is_forgotten() -> None:
    made = agents(agent("S0", "h0"), agent("S1", "h1"))
    changed, left = made.told([agent("S1", "h1")])
    assert changed == [] and [each.host for each in left] == [HOST]
    assert made.of("S0") is None and HOST not in made.by_host
    (back,), _ = made.told([agent("S0", "h0"), agent("S1", "h1")])
    assert back.agent_id == "S0" and made.by_host[HOST] is back


def test_one_that_is_not_connected_has_left_and_one_that_is_deactivated_has_not() -> None:
    made = agents(agent("S0"))
    assert made.told([agent("S0", active=False, deactivated=True)]) == ([], [])
    _, left = made.told([agent("S0", active=False)])
    assert [each.agent_id for each in left] == ["S0"]


def test_capacity_is_what_no_other_role_has_reserved_or_got() -> None:
    total = [
        scalar("cpus", 4.0), scalar("cpus", 2.0, **reserved(ROLE)),
        scalar("cpus", 8.0, **reserved("ads")), scalar("mem", 100.0),
    ]  # fmt: skip
    assert capacity(total_resources=total) == Resources(6 * UNIT, 100 * UNIT)
    got = [
        scalar("cpus", 1.0, **allocated("ads")),
        scalar("cpus", 3.0, **reserved("ads"), **allocated("ads")),  # of what was not ours before
        scalar("cpus", 1.5, **allocated(ROLE)),
    ]
    found = capacity(total_resources=total, allocated_resources=got)
    assert found == Resources(5 * UNIT, 100 * UNIT)


def test_another_capacity_is_told_of_the_same_agent() -> None:
    made = agents(agent("S0"))
    before = made.by_host[HOST]
    (changed,), _ = made.told([agent("S0", total_resources=[scalar("cpus", 9.0)])])
    assert changed is before and changed.capacity == Resources(9 * UNIT)


def test_resources_and_ports_may_be_missing() -> None:
    bare = agent("S0", total_resources=[], info={"resources": [scalar("cpus", 1.0)]})
    found = agents(bare).by_host[HOST]
    assert (found.capacity, found.ports) == (Resources(UNIT), (0, 0))


def test_the_widest_range_is_for_ports_that_hosts_pick() -> None:
    listed = agent("S0", total_resources=[ports((10, 12), (20, 29))])
    assert agents(listed).by_host[HOST].ports == (20, 30)


def test_attributes_of_text_and_numbers_are_labels() -> None:
    attributes = [
        {"name": "rack", "type": "TEXT", "text": {"value": "r7"}},
        {"name": "cores", "type": "SCALAR", "scalar": {"value": 16.0}},
        {"name": "load", "type": "SCALAR", "scalar": {"value": 0.25}},
        {"name": "vlans", "type": "RANGES", "ranges": {"range": []}},
    ]
    found = agents(agent("S0", info={"attributes": attributes})).by_host[HOST]
    assert found.labels == (
        Label("rack", "r7"), Label("cores", "16"), Label("load", "0.25"),
        Label(CLUSTER_LABEL, "east"),
    )  # fmt: skip
    assert found.appeared(Key("backend/east")).labels == found.labels


def test_the_address_of_an_agent_is_a_label_that_follows_it() -> None:
    here, there = ("slave(1)@10.0.0.7:5051", "10.0.0.7"), ("slave(1)@[::7]:5051", "::7")
    found = agents(agent("S0", pid=here[0]))
    for pid, ip in (here, there):
        found.told([agent("S0", pid=pid)])
        host = found.by_host[HOST]
        assert host.labels == (Label(CLUSTER_LABEL, "east"), Label("host_ip", ip))
        assert found.machine_of(HOST)[1] == ip
