"""Hosts that are held for tasks, and hosts that move to another pool.

Orders to the backend are checked, reports are made by hand.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from peloton.actors.host import facts as f
from peloton.actors.host import machine_messages as mm
from peloton.actors.host import messages as m
from peloton.actors.host.decide import owed
from peloton.actors.host.goals import recall_s
from peloton.actors.host.granting import HELD
from peloton.actors.host.holds import hold_messages as hm
from peloton.actors.host.holds.foreign_names import foreign_crowd, held_task
from peloton.actors.host.holds.task_holds import next_over
from peloton.actors.host.inventory.decide import ABSENT, DECIDE
from peloton.actors.host.inventory.messages import (
    POOLS_OWNER,
    WRONG_SOURCE,
    MoveHostPool,
)
from peloton.actors.host.inventory.state import EVOLVE, Inventory
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.host.stages import Maintenance
from peloton.actors.host.state import Host
from peloton.actors.resources import UNIT, Resources
from peloton.placement import filters
from peloton.runtime.vocabulary import At, Key, Message, Pursue, Refused
from tests.actors.hosts import test_host as h
from tests.actors.hosts.test_host_holds import HOLD, SPEC, launch, receive, refusal, run_of

HOLD_S = 180.0
ROOM = h.up().capacity


def wait_for(member: int, crowd: Key = h.CROWD, **more: Any) -> hm.HoldForTask:
    return hm.HoldForTask(f"t-{member}", crowd, member, "zoe", HOLD_S, **more)


def waiting(*members: int, host: Host | None = None, **more: Any) -> Host:
    """A host that is held for these members."""
    found = h.up() if host is None else host
    for member in members:
        found = receive(found, wait_for(member, **more)).state
    return found


def granted_to(turn: Any) -> tuple[list[int], list[str]]:
    """Which members got room, and why the others did not."""
    some = [[*one.members] for one in turn.facts if isinstance(one, f.RunsAccepted)]
    why = [one.reason for one in turn.facts if isinstance(one, f.RunsRefused)]
    return [member for members in some for member in members], why


# ---- holds for tasks ----


def test_a_host_that_waits_for_a_task_gives_nobody_else_room() -> None:
    turn = receive(h.up(), wait_for(3))
    assert turn.reply.until == 9.0 + HOLD_S
    host = turn.state
    summary = host.summary(h.HOST)
    assert summary.free == Resources() and summary.ports == 0
    assert summary.reserved.tasks == ((h.CROWD, 3),) and summary.reserved.room == ROOM
    assert granted_to(receive(host, m.Launch(1, SPEC), 0)) == ([], [HELD])
    assert refusal(receive(host, HOLD))[0] == filters.NOT_READY
    turn = receive(host, m.Launch(1, SPEC), 0, 3)
    assert granted_to(turn) == ([3], [HELD])
    assert not turn.state.task_holds and turn.state.summary(h.HOST).reserved is None


def test_room_that_is_prepared_for_a_gang_is_not_kept_twice() -> None:
    turn = receive(waiting(3), m.Launch(1, SPEC, prepare=True), 3)
    assert [type(fact) for fact in turn.facts] == [f.RunsAccepted, f.TaskHoldsEnded]
    assert not turn.state.task_holds and turn.state.free == ROOM - SPEC.resources


def test_a_repeat_begins_the_time_anew_and_a_release_ends_it() -> None:
    host = receive(waiting(0, 1), wait_for(0), now=50.0).state
    assert [(one.task, one.until) for one in host.task_holds] == [("t-1", 189.0), ("t-0", 230.0)]
    turn = receive(host, hm.ReleaseTaskHolds(("t-0", "t-7")))
    assert turn.reply == hm.TaskHoldsReleased(("t-0",))
    assert [one.task for one in turn.state.task_holds] == ["t-1"]
    again = receive(turn.state, hm.ReleaseTaskHolds(("t-0",)))
    assert not again.facts and again.reply == hm.TaskHoldsReleased(())
    assert receive(None, hm.ReleaseTaskHolds(("t-0",))).reply == hm.TaskHoldsReleased(())


def test_the_host_wakes_when_the_first_hold_is_over() -> None:
    host = receive(waiting(0), wait_for(1), now=50.0).state
    turn = receive(host, Pursue(), now=60.0)
    assert recall_s(turn.notes) == next_over(host) == 189.0
    turn = receive(host, Pursue(), now=189.0)
    (fact,) = (one for one in turn.facts if isinstance(one, f.TaskHoldsEnded))
    assert (fact.tasks, fact.reason) == (("t-0",), "expired")
    late = receive(host, m.Launch(1, SPEC), 0, 7, now=500.0)
    assert granted_to(late) == ([0, 7], []), "whatever is over binds nobody"


def test_what_a_reservation_needs_is_not_given_to_other_tasks_that_are_awaited() -> None:
    host = waiting(0, need=ROOM, reserve=True)
    assert refusal(receive(host, wait_for(1, reserve=True)))[0] == filters.NOT_READY
    host = waiting(1, host=host)
    got, (why,) = granted_to(receive(host, m.Launch(1, SPEC), 1))
    assert not got and why.startswith("insufficient resources")
    whole = RunSpec(ROOM, "true")
    assert granted_to(receive(host, m.Launch(1, whole), 0))[0] == [0]


def test_a_hold_keeps_what_the_run_has_that_is_to_be_killed() -> None:
    host = receive(h.up(), m.Launch(1, SPEC), 0).state
    host = waiting(0, 1, host=host)
    assert [one.need for one in host.task_holds] == [SPEC.resources, Resources()]
    left = RunSpec(ROOM - SPEC.resources, "true")
    assert granted_to(receive(host, m.Launch(1, left), 1))[0] == [1], "it has its room still"


def test_what_cannot_be_held_is_said() -> None:
    huge = wait_for(0, need=ROOM + Resources(UNIT))
    assert refusal(receive(h.up(), huge))[0] == filters.TOO_SMALL
    assert refusal(receive(None, wait_for(0)))[0] == m.NO_HOST
    down = receive(waiting(0), m.StartMaintenance()).state
    assert not down.task_holds
    assert refusal(receive(down, wait_for(0)))[0] == filters.NOT_READY
    full = waiting(*range(hm.TASK_HOLDS_MAX))
    assert refusal(receive(full, wait_for(500)))[0] == filters.NOT_READY
    assert len(waiting(0, host=full).task_holds) == hm.TASK_HOLDS_MAX


def test_a_caller_comes_for_a_task_by_its_name() -> None:
    message = hm.HoldForTask("task-0", foreign_crowd("task-0"), 0, "zoe", HOLD_S)
    host = receive(h.up(), message).state
    assert host.summary(h.HOST).reserved.tasks == (), "placers have no such task"
    for hint, held in ((("task-1",), False), (("task-0",), True), (("",), True)):
        turn = receive(host, hm.HoldHost("one", "zoe", 300.0, hint=hint))
        assert isinstance(turn.reply, hm.HostHeld) is held
    turn = receive(turn.state, launch("task-0-2"))
    assert turn.reply == hm.ForeignLaunched((run_of("task-0-2"),))
    assert not turn.state.task_holds and turn.state.hold is None


def test_the_name_of_a_task_is_that_of_its_run_without_the_run() -> None:
    names = ("a-b-0-12", "task-0-1", "plain", "x-1")
    assert [*map(held_task, names)] == ["a-b-0", "task-0", "plain", "x-1"]


steps = st.one_of(
    st.builds(wait_for, st.integers(0, 3), reserve=st.booleans(),
              need=st.sampled_from((Resources(), Resources(2 * UNIT)))),
    st.builds(hm.ReleaseTaskHolds, st.tuples(st.sampled_from(("t-0", "t-1", "t-2", "t-3")))),
    st.builds(lambda run: m.Launch(run, SPEC), st.integers(1, 3)),
    st.builds(lambda run: m.KillRun(run, 1.0), st.integers(1, 3)),
    st.just(HOLD),
    st.just(hm.ReleaseHold("one")),
    st.just(Pursue()),
)  # fmt: skip


@given(st.lists(st.tuples(steps, st.sets(st.integers(0, 5), min_size=1), st.floats(0.0, 100.0))))
def test_nobody_takes_room_that_is_held_and_no_hold_outlives_its_time(
    script: list[tuple[Message, set[int], float]],
) -> None:
    host, now = h.up(), 9.0
    for message, members, wait_s in script:
        now += wait_s
        run = isinstance(message, m.Launch | m.KillRun)
        before = host
        turn = receive(host, message, *(sorted(members) if run else ()), now=now)
        host = turn.state
        alive = {one.member for one in before.task_holds if now < one.until}
        for fact in turn.facts:
            if isinstance(fact, f.RunsAccepted) and alive:
                assert {*fact.members} <= alive and before.hold is None
        assert host.unused.within(ROOM) and Resources().within(host.unused)
        host = receive(host, Pursue(), now=now).state
        assert all(now < one.until for one in host.task_holds)
        assert len({one.task for one in host.task_holds}) == len(host.task_holds)
        assert (host.free == Resources()) if host.held else (host.free == host.unused)


# ---- moves ----

MOVE = mm.MoveToPool("default", "x")


def down() -> Host:
    """A host that has drained in order to move."""
    turn = receive(h.up(), MOVE)
    host = turn.state
    assert host.maintenance == Maintenance.DOWN and host.moving == "x"
    assert [one.message for one in turn.sends] == [MoveHostPool("default", "x")]
    return host  # type: ignore[no-any-return]


def test_a_host_drains_moves_and_comes_back() -> None:
    host = down()
    (owes,) = owed(host)
    assert (owes.to, owes.message) == (POOLS_OWNER, MoveHostPool("default", "x"))
    turn = receive(host, m.SetHostPool("x", 1))
    moved = turn.state
    assert (moved.pool, moved.moving, moved.maintenance) == ("x", "", Maintenance.NONE)
    assert moved.grants and not owed(moved)
    again = receive(moved, m.SetHostPool("x", 1))
    assert not again.facts
    back = receive(moved, mm.MoveToPool("x", "default")).state
    back = receive(back, m.SetHostPool("default", 1)).state
    assert back.maintenance == Maintenance.DOWN, "an old order is none"


def test_a_host_that_moves_waits_for_its_runs() -> None:
    host = receive(receive(h.up(), m.Launch(1, SPEC), 0).state, MOVE)
    assert host.state.maintenance == Maintenance.DRAINING and h.orders(host)
    assert not owed(host.state)


def test_a_move_that_is_refused_ends_where_it_began() -> None:
    for message in (mm.PoolMoveRefused("y", "no"), mm.PoolMoveRefused("x", "no")):
        host = receive(down(), message).state
        assert (host.maintenance == Maintenance.NONE) is (message.destination == "x")
    assert not host.moving and not host.pool and host.grants
    assert not receive(host, mm.PoolMoveRefused("x", "no")).facts


def test_the_order_of_an_operator_outlives_a_move() -> None:
    host = receive(down(), m.StartMaintenance()).state
    assert not host.moving and not owed(host) and host.maintenance == Maintenance.DOWN
    host = receive(down(), m.CompleteMaintenance()).state
    assert not host.moving and host.grants


def test_moves_that_cannot_be_are_refused() -> None:
    assert refusal(receive(h.up(), mm.MoveToPool("y", "x")))[0] == WRONG_SOURCE
    assert refusal(receive(None, MOVE))[0] == m.NO_HOST
    host = receive(h.up(), m.StartMaintenance()).state
    assert refusal(receive(host, MOVE))[0] == mm.IN_MAINTENANCE
    moving = receive(h.up(), MOVE).state
    assert not receive(moving, MOVE).facts


def asked(inventory: Inventory, message: MoveHostPool) -> tuple[Inventory, list[Message]]:
    at = At(now=1.0, key=POOLS_OWNER, sender=h.HOST)
    found = DECIDE[MoveHostPool](inventory, message, at)
    for fact in found.facts:
        inventory = EVOLVE[type(fact)](inventory, fact)
    return inventory, [one.message for one in found.sends]


def test_the_owner_of_the_pools_answers_each_request() -> None:
    inventory = Inventory(pools=("x",))
    for _ in range(2):
        inventory, told = asked(inventory, MoveHostPool("default", "x"))
        assert told == [m.SetHostPool("x", 1)] and inventory.pool_of(h.HOST) == "x"
    _, told = asked(inventory, MoveHostPool("default", "y"))
    assert isinstance(told[0], mm.PoolMoveRefused) and "mismatch" in told[0].text
    _, told = asked(inventory, MoveHostPool("x", "y"))
    assert isinstance(told[0], mm.PoolMoveRefused) and "invalid dest pool" in told[0].text
    absent = ABSENT[MoveHostPool](MoveHostPool("x", "y"), At(now=1.0, key=POOLS_OWNER))
    assert isinstance(absent.reply, Refused)
