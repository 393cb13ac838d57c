"""Slices of daemon jobs and the hosts that they follow: what inventories tell, and what follows.

Whole clusters are played in `tests/worlds/jobs/test_daemon_jobs.py`.
"""

from __future__ import annotations

import immutables
import msgspec
import pytest

from peloton.actors.host.inventory import facts as inventory_facts
from peloton.actors.host.inventory.following import in_part
from peloton.actors.host.inventory.kind import KIND as INVENTORIES
from peloton.actors.host.inventory.messages import (
    FollowHosts,
    FollowTerms,
    HostsOf,
    HostsTold,
    UnfollowHosts,
)
from peloton.actors.host.inventory.state import Hosts, Inventory
from peloton.actors.host.stages import HostStates
from peloton.actors.host.state import Host
from peloton.actors.job.slice import facts as f
from peloton.actors.job.slice.homes import HOMES_EVOLVE, Homes
from peloton.actors.job.slice.kind import kind as slice_kind
from peloton.actors.job.slice.messages import SetSliceGoal, SliceOpening
from peloton.actors.job.slice.state import Slice, WishNotes
from peloton.actors.job.slice.task_config import TaskConfig
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.kind import KIND as TASKS
from peloton.actors.task.messages import (
    SLICE_SIZE,
    PlaceTasks,
    SetTaskGoal,
    TaskGoals,
)
from peloton.actors.task.state import Admission, Task, TaskStates
from peloton.placement.conditions import EXCLUSIVE, HOST_POOL
from peloton.placement.messages import Constraint, Declined, Label, Placed
from peloton.runtime.core.entities.crowd import Crowd
from peloton.runtime.core.turning.turn import TurnOutcome, take_turn
from peloton.runtime.vocabulary import At, Bits, Key, Message, Send

SLICES = slice_kind()

SLICE, INVENTORY = Key("slice/j/0"), Key("inventory/0")
SSD = Label("disk", "ssd")
ALL = FollowTerms()
A, B, C = (Key(f"host/{name}") for name in "abc")


def host(*labels: Label, pool: str = "") -> Host:
    free = Resources(4 * UNIT)
    return Host(HostStates.UP, free, labels, Key("backend/b"), (1, 2), 60.0, pool=pool)


class Bench:
    """An inventory with hosts, and what it has told one slice."""

    def __init__(self, terms: FollowTerms = ALL, **hosts: Host) -> None:
        self.index, self.version = Hosts(), 0
        self.state = Inventory()
        for name, state in hosts.items():
            self.put(name, state)
        self.follow(1, terms)

    def put(self, name: str, new: Host | None) -> None:
        key = Key(f"host/{name}")
        self.index.put(key, old=self.index.hosts.get(key), new=new)

    def turn(self, message: Message) -> TurnOutcome:
        at = At(0.0, INVENTORY, SLICE, index=self.index)
        outcome = take_turn(INVENTORIES, self.state, message=message, at=at)
        self.state = outcome.state
        return outcome

    def follow(self, asked: int, terms: FollowTerms = ALL) -> TurnOutcome:
        return self.turn(FollowHosts(asked, terms))

    def told(self) -> HostsTold | None:
        self.version += 1
        at = At(0.0, INVENTORY, index=self.index, position=self.version)
        assert INVENTORIES.reporting is not None
        sends = [send for send in INVENTORIES.reporting.make(self.state, at) if send.to == SLICE]
        assert len(sends) < 2
        return sends[0].message if sends else None  # type: ignore[return-value]


def test_all_that_match_are_told_first_and_then_only_changes() -> None:
    bench = Bench(a=host(), b=host())
    assert bench.told() == HostsTold(1, 1, 0, (A, B))
    assert bench.told() is None
    bench.put("c", host())
    bench.put("a", msgspec.structs.replace(host(), removed=True))
    assert bench.told() == HostsTold(3, 1, 1, (C,), (A,))
    bench.put("b", msgspec.structs.replace(bench.index.hosts[B], version=2, state=HostStates.LOST))
    assert bench.told() is None, "a host that is down is one of them"


def test_a_report_that_fails_is_made_again_and_loses_nothing() -> None:
    bench = Bench(a=host(), b=host())
    bench.told()
    bench.put("c", host())
    bench.put("a", None)
    fails = FollowTerms(Constraint("label", "host", SSD, "greater", None))  # type: ignore[arg-type]
    good, last = bench.state, inventory_facts.FollowerNoted(Key("slice/z/0"), 1, fails)
    bench.state = msgspec.structs.replace(good, followers=good.followers.set(last.follower, last))
    for _ in range(2):
        with pytest.raises(TypeError):
            bench.told()
    bench.state = good
    assert bench.told() == HostsTold(4, 1, 1, (C,), (A,))


def test_who_asks_anew_is_told_all_and_a_repeat_nothing() -> None:
    bench = Bench(a=host())
    bench.told()
    assert not bench.follow(1).facts
    assert bench.told() is None
    bench.follow(2)
    assert bench.told() == HostsTold(3, 2, 0, (A,))
    bench.turn(UnfollowHosts(1))
    assert SLICE in bench.state.followers, "it has asked anew since"
    bench.turn(UnfollowHosts(2))
    bench.put("b", host())
    assert bench.told() is None and not bench.state.followers


def test_a_new_index_tells_all_once_more() -> None:
    """After a recovery nobody knows what was told."""
    bench = Bench(a=host())
    bench.told()
    hosts, bench.index = bench.index.hosts, Hosts()
    for key, state in hosts.items():
        bench.index.put(key, old=None, new=state)
    assert bench.told() == HostsTold(2, 1, 0, (A,))


@pytest.mark.parametrize(
    ("constraint", "matches"),
    [
        (None, "plain fast"),
        (Constraint("label", "host", SSD, "greater", 0), "fast"),
        (Constraint("label", "host", Label(EXCLUSIVE, "db"), "greater", 0), "alone"),
        (Constraint("label", "host", Label(HOST_POOL, "web"), "greater", 0), "pooled"),
        (Constraint("label", "host", Label("hostname", "plain"), "greater", 0), "plain"),
    ],
)
def test_labels_pools_and_exclusivity_decide(constraint: Constraint | None, matches: str) -> None:
    bench = Bench(
        FollowTerms(constraint),
        plain=host(),
        fast=host(SSD),
        alone=host(Label(EXCLUSIVE, "db")),
        pooled=host(pool="web"),
    )
    told = bench.told()
    assert told is not None
    assert {key.partition("/")[2] for key in told.joined} == {*matches.split()}


def test_every_host_is_in_one_part_and_all_parts_have_some() -> None:
    names = [Key(f"host/h{number}") for number in range(400)]
    for name in names:
        assert sum(in_part(name, FollowTerms(None, part, 4)) for part in range(4)) == 1
    for part in range(4):
        assert sum(in_part(name, FollowTerms(None, part, 4)) for name in names) > 60


# ---- the slice ----


def at_slice() -> At:
    crowd = Crowd(TASKS, Key("task/j/0"))
    return At(0.0, SLICE, INVENTORY, index=crowd)


def opened(goal: TaskGoals = TaskGoals.RUNNING) -> TurnOutcome:
    config = TaskConfig(resources=Resources(UNIT))
    of = HostsOf(INVENTORY, ALL)
    opening = SliceOpening("j", "n", Key("respool/p"), SLICE_SIZE, config, hosts_of=of)
    message = SetSliceGoal(1, Key("job/j"), 0, goal, opening=opening)
    return take_turn(SLICES, None, message=message, at=at_slice())


def slice_of(homes: Homes) -> Slice:
    found = opened().state
    assert isinstance(found, Slice)
    return msgspec.structs.replace(found, homes=homes)


def told(slice_: Slice, message: HostsTold) -> TurnOutcome:
    at = at_slice()
    return take_turn(SLICES, slice_, message=message, at=at)


def sent_to(outcome: TurnOutcome, key: Key) -> list[Message]:
    return [send.message for send in outcome.sends if send.to == key]


def test_a_slice_asks_once_it_opens_and_owes_that_until_it_is_answered() -> None:
    outcome = opened()
    ask = FollowHosts(1, ALL)
    assert sent_to(outcome, INVENTORY) == [ask]
    assert SLICES.owed(outcome.state) == (Send(INVENTORY, ask),)
    after = told(outcome.state, HostsTold(5, 1, 0))
    assert SLICES.owed(after.state) == ()
    assert not [each for each in outcome.sends if isinstance(each.message, SetTaskGoal)]


def test_one_that_is_not_to_run_does_not_ask() -> None:
    outcome = opened(TaskGoals.KILLED)
    assert SLICES.owed(outcome.state) == ()
    assert not [each for each in outcome.sends if isinstance(each.message, SetTaskGoal)]


def test_each_host_gets_the_lowest_number() -> None:
    outcome = told(opened().state, HostsTold(5, 1, 0, (A, B)))
    assert [type(fact) for fact in outcome.facts] == [f.HostsSeen, f.HomesGiven]
    homes = outcome.state.homes
    assert homes.members == immutables.Map({A: 0, B: 1})
    (goal,) = [each for each in outcome.sends if isinstance(each.message, SetTaskGoal)]
    assert goal.members == Bits.of(0, 1)
    assert not (outcome.state.waiting & Bits.of(0, 1))


def test_a_host_that_left_keeps_its_number_until_its_member_has_ended() -> None:
    first = told(opened().state, HostsTold(5, 1, 0, (A,)))
    left = told(first.state, HostsTold(6, 1, 5, (), (A,)))
    assert left.state.homes.leaving == Bits.of(0)
    (goal,) = [each for each in left.sends if isinstance(each.message, SetTaskGoal)]
    assert (goal.message.goal, goal.members) == (TaskGoals.KILLED, Bits.of(0))
    back = told(left.state, HostsTold(7, 1, 6, (A,)))
    (goal,) = [each for each in back.sends if isinstance(each.message, SetTaskGoal)]
    assert (goal.message.goal, goal.message.fresh) == (TaskGoals.RUNNING, True)
    assert back.state.homes.members == immutables.Map({A: 0})
    other = told(left.state, HostsTold(7, 1, 6, (B,)))
    assert other.state.homes.members[B] == 1


def test_a_change_that_was_missed_makes_it_ask_for_all() -> None:
    first = told(opened().state, HostsTold(5, 1, 0, (A,)))
    late = told(first.state, HostsTold(9, 1, 7, (B,)))
    assert [type(fact) for fact in late.facts] == [f.HostsMissed]
    assert sent_to(late, INVENTORY) == [FollowHosts(2, ALL)]
    old = told(late.state, HostsTold(10, 1, 9, (C,)))
    assert not old.facts, "an answer to the question before"
    whole = told(late.state, HostsTold(11, 2, 0, (B, C)))
    assert set(whole.state.homes.members) == {A, B, C}
    assert whole.state.homes.leaving == Bits.of(whole.state.homes.members[A])


def test_a_repeat_changes_nothing() -> None:
    first = told(opened().state, HostsTold(5, 1, 0, (A,)))
    assert not told(first.state, HostsTold(5, 1, 0, (A,))).facts
    assert not told(first.state, HostsTold(4, 1, 0, (B,))).facts


def test_one_that_was_stopped_says_that_it_does_not_follow() -> None:
    running = told(opened().state, HostsTold(5, 1, 0, (A,))).state
    message = SetSliceGoal(2, Key("job/j"), 0, TaskGoals.KILLED)
    stopped = take_turn(SLICES, running, message=message, at=at_slice())
    assert sent_to(stopped, INVENTORY) == [UnfollowHosts(2)]
    again = told(stopped.state, HostsTold(8, 1, 5, (B,)))
    assert not again.facts and isinstance(again.sends[0].message, UnfollowHosts)


def test_a_host_that_its_member_has_not_any_more_is_declined() -> None:
    """Its number was given to another host while the proposal was on its way."""
    slice_ = told(opened().state, HostsTold(5, 1, 0, (A,))).state
    crowd = Crowd(TASKS, Key("task/j/0"))
    config = slice_.specs[0]
    ready = Task(TaskGoals.RUNNING, TaskStates.WAITING, config.policy, admission=Admission.ADMITTED)
    crowd.classes[ready] = 1
    crowd.columns.add(1)
    crowd.columns.write("spec", 1, value=0)
    notes = WishNotes(wished=Bits.of(0), wished_at=0.0)
    at = At(0.0, SLICE, Key("placer/0"), index=crowd, notes=notes)
    for host, launched in ((B, False), (A, True)):
        outcome = SLICES.decide[Placed](slice_, Placed(1, Bits.of(0), (host,)), at)
        sent = [type(send.message) for send in outcome.sends]
        assert sent == ([PlaceTasks] if launched else [Declined])


def test_hosts_and_members_are_the_same_pairs_whatever_happens() -> None:
    homes = Homes(HostsOf(INVENTORY, ALL))
    steps = [
        f.HostsSeen(1, (A, B, C), ()),
        f.HomesGiven(Bits.of(3, 4), (A, B)),
        f.HostsSeen(2, (), (A, C)),
        f.HomesLeft(Bits.of(3)),
        f.HostsSeen(3, (A,), ()),
        f.HomesGiven(Bits.of(3), (A,)),
    ]
    for fact in steps:
        homes = HOMES_EVOLVE[type(fact)](homes, fact)
        assert {member: key for key, member in homes.members.items()} == dict(homes.hosts)
        assert Bits.of(*homes.hosts) == homes.placed
        assert not homes.leaving - homes.placed
    assert homes.waiting == () and set(homes.members) == {A, B}


def test_the_fact_that_a_slice_follows_is_kept_by_its_inventory() -> None:
    noted = inventory_facts.FollowerNoted(SLICE, 3, ALL)
    assert INVENTORIES.evolve[type(noted)](Inventory(), noted).followers[SLICE] == noted


def test_a_slice_of_the_same_name_is_told_all_though_another_was_told_before() -> None:
    """Its job was deleted, and made again with the same id: it knows no host."""
    bench = Bench(a=host())
    assert bench.told() == HostsTold(1, 1, 0, (A,))
    bench.turn(UnfollowHosts(2))
    assert bench.told() is None
    bench.follow(1)
    assert bench.told() == HostsTold(3, 1, 0, (A,))


def test_while_nobody_follows_nothing_is_kept_of_hosts_that_change() -> None:
    bench = Bench(a=host())
    bench.told()
    bench.turn(UnfollowHosts(1))
    for number in range(3):
        bench.put(f"h{number}", host())
        bench.told()
        bench.put(f"h{number}", None)
        bench.told()
    assert not bench.index.followed.changed
