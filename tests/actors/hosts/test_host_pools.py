"""Pools of hosts: what their owner decides, what hosts are told, and what they grant then."""

from __future__ import annotations

import pytest

from peloton.actors.host import messages as h
from peloton.actors.host.inventory import messages as m
from peloton.actors.host.inventory.kind import KIND
from peloton.actors.host.inventory.pools import UNTOLD_MAX, get_host_pools
from peloton.actors.host.inventory.state import Inventory
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.resources import UNIT, Resources
from peloton.placement.conditions import HOST_POOL
from peloton.placement.messages import Constraint, Label
from peloton.runtime.core.turning.turn import TurnOutcome as Turn
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Key, Message, Refused
from tests.actors.hosts import test_host as host_tests

A, B = Key("host/a"), Key("host/b")


def receive(
    inventory: Inventory | None,
    message: Message,
    *,
    sender: Key | None = None,
) -> Turn:
    at = At(now=9.0, key=m.POOLS_OWNER, sender=sender)
    return take_turn(KIND, inventory, message=message, at=at)


def after(*messages: Message) -> Inventory:
    inventory = Inventory()
    for message in messages:
        turn = receive(inventory, message)
        assert not isinstance(turn.reply, Refused), turn.reply
        inventory = turn.state
    return inventory


def pools(inventory: Inventory) -> m.HostPools:
    return get_host_pools(inventory, m.GetHostPools(), At(now=0.0, key=m.POOLS_OWNER))


def refusal(inventory: Inventory, message: Message) -> str:
    turn = receive(inventory, message)
    assert isinstance(turn.reply, Refused) and not turn.facts
    return turn.reply.code


def test_a_host_is_told_its_pool_until_it_has_answered() -> None:
    inventory = after(m.MakeHostPool("gpu"), m.AssignHost(A, "default", "gpu"))
    assert pools(inventory) == m.HostPools(("default", "gpu"), ((A, "gpu"),))
    (send,) = KIND.owed(inventory)
    assert (send.to, send.message) == (A, h.SetHostPool("gpu", 1))
    made = receive(Inventory(), m.MakeHostPool("gpu")).state
    assert receive(made, m.AssignHost(A, "default", "gpu")).sends == (send,), "at once, too"
    late = receive(inventory, m.HostPoolSeen(7), sender=A)
    assert not late.facts
    told = receive(inventory, m.HostPoolSeen(1), sender=A).state
    assert KIND.owed(told) == () and pools(told) == pools(inventory)


def test_only_the_newest_order_is_owed() -> None:
    inventory = after(
        m.MakeHostPool("x"),
        m.MakeHostPool("y"),
        m.AssignHost(A, "default", "x"),
        m.AssignHost(A, "x", "y"),
    )
    (send,) = KIND.owed(inventory)
    assert send.message == h.SetHostPool("y", 2)
    assert KIND.owed(receive(inventory, m.HostPoolSeen(1), sender=A).state) == (send,)


def test_what_cannot_be_is_refused() -> None:
    inventory = after(m.MakeHostPool("x"), m.AssignHost(A, "default", "x"))
    assert refusal(inventory, m.AssignHost(A, "default", "x")) == m.WRONG_SOURCE
    assert refusal(inventory, m.AssignHost(A, "x", "nowhere")) == m.NO_POOL
    assert refusal(inventory, m.MakeHostPool("x")) == m.POOL_EXISTS
    assert refusal(inventory, m.MakeHostPool("default")) == m.POOL_EXISTS
    assert refusal(inventory, m.DropHostPool("default")) == m.BAD_POOL
    assert refusal(inventory, m.DropHostPool("nowhere")) == m.NO_POOL
    same = receive(inventory, m.AssignHost(A, "x", "x"))
    assert same.reply == m.HostPoolChanged() and not same.facts
    assert isinstance(receive(None, m.MakeHostPool("x")).reply, Refused)


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", "ä", "a" * 64, "a\n"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    assert refusal(Inventory(), m.MakeHostPool(name)) == m.BAD_POOL


def test_there_are_only_so_many() -> None:
    made = (m.MakeHostPool(f"pool-{at}") for at in range(m.HOST_POOLS_MAX))
    assert refusal(after(*made), m.MakeHostPool("more")) == m.BAD_POOL


def test_hosts_of_a_deleted_pool_are_the_default_ones_at_once_and_told_little_by_little() -> None:
    hosts = [Key(f"host/{at:04}") for at in range(UNTOLD_MAX + UNTOLD_MAX // 2)]
    inventory = after(m.MakeHostPool("x"), m.MakeHostPool("y"))
    for host in (*hosts, B):
        assign = m.AssignHost(host, "default", "y" if host == B else "x")
        inventory = receive(inventory, assign).state
        version = inventory.version
        inventory = receive(inventory, m.HostPoolSeen(version), sender=host).state
    turn = receive(inventory, m.DropHostPool("x"))
    inventory = turn.state
    assert turn.sends == KIND.owed(inventory) and len(turn.sends) == UNTOLD_MAX
    assert pools(inventory) == m.HostPools(("default", "y"), ((B, "y"),))
    assert refusal(inventory, m.MakeHostPool("x")) == m.POOL_EXISTS, "not before all have left"
    assert refusal(inventory, m.AssignHost(B, "y", "x")) == m.NO_POOL
    told: list[Key] = []
    while KIND.owed(inventory):
        assert len(KIND.owed(inventory)) <= UNTOLD_MAX
        send = KIND.owed(inventory)[0]
        assert isinstance(send.message, h.SetHostPool) and send.message.pool == "default"
        told.append(send.to)
        seen = m.HostPoolSeen(send.message.version)
        inventory = receive(inventory, seen, sender=send.to).state
    assert told == hosts
    assert inventory.dropped == () and [*inventory.members] == [B]
    assert receive(inventory, m.MakeHostPool("x")).reply == m.HostPoolChanged()


# ---- the host ----


def at_host(*members: int, sender: Key = m.POOLS_OWNER) -> At:
    some = Bits.of(*members) if members else None
    return At(
        now=9.0, key=host_tests.HOST, sender=sender, members=some, epoch=1
    )  # fmt: skip


def in_pool(pool: str, version: int = 1) -> Turn:
    order = h.SetHostPool(pool, version)
    return take_turn(host_tests.KIND, host_tests.up(), message=order, at=at_host())


def test_a_host_obeys_the_newest_order_and_answers_each() -> None:
    turn = in_pool("gpu", 5)
    assert [send.message for send in turn.sends] == [m.HostPoolSeen(5)]
    summary = turn.state.summary(host_tests.HOST)
    assert summary.labels[-1] == Label(HOST_POOL, "gpu")
    assert summary.position > host_tests.up().version
    late = take_turn(
        host_tests.KIND, turn.state, message=h.SetHostPool("other", 4), at=at_host()
    )  # fmt: skip
    assert not late.facts and [send.message for send in late.sends] == [m.HostPoolSeen(4)]
    nobody = take_turn(host_tests.KIND, None, message=h.SetHostPool("x", 1), at=at_host())
    assert [send.message for send in nobody.sends] == [m.HostPoolSeen(1)]


@pytest.mark.parametrize(
    ("pool", "wanted", "granted"),
    [
        ("gpu", "", False),
        ("gpu", "gpu", True),
        ("gpu", "default", False),
        ("shared", "", True),
        ("batch_reserved", "", True),
        ("default", "default", True),
        ("", "default", True),
        ("", "gpu", False),
    ],
)
def test_what_a_host_of_a_pool_grants(pool: str, wanted: str, granted: bool) -> None:
    host = in_pool(pool).state if pool else host_tests.up()
    label = Label(HOST_POOL, wanted)
    only = Constraint("label", "host", label, "equal", 1) if wanted else None
    launch = h.Launch(1, RunSpec(Resources(UNIT), "true", constraint=only))
    turn = take_turn(
        host_tests.KIND, host, message=launch, at=at_host(0, sender=host_tests.CROWD)
    )  # fmt: skip
    assert bool(turn.state.used.cpu) == granted, turn.because
