"""When shards are started again: soon where only the store is away, at once when it answers."""

from __future__ import annotations

from peloton.runtime.ports import ShardId
from peloton.runtime.shells import restarts
from peloton.runtime.shells.restarts import Restarts
from peloton.runtime.shells.shell_messages import ShardLost

ONE, OTHER = ShardId("a", 0), ShardId("a", 1)


def delays(lost: ShardLost, count: int) -> list[float]:
    """How long it waits after each of so many ends."""
    shards, found = Restarts(), []
    for _ in range(count):
        shards.lost(lost, 100.0)
        assert shards.next_s is not None
        found.append(round(shards.next_s - 100.0, 3))
        shards.forget(lost.shard)
    return found


def test_a_shard_that_fails_waits_longer_each_time() -> None:
    assert delays(ShardLost(ONE, "raised", broken=True), 9) == [
        0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15.0, 15.0,
    ]  # fmt: skip


def test_a_shard_that_waits_for_the_store_asks_soon_again_for_ever() -> None:
    for lost in (ShardLost(ONE, "full", away=True), ShardLost(ONE, "unclear", gave_up=True)):
        found = delays(lost, 5000)  # hours of a full disk
        assert max(found) == found[-1] == restarts.STORE_AWAY_S_MAX


def test_the_others_start_at_once_when_one_has_an_answer() -> None:
    shards = Restarts()
    third = ShardId("a", 2)
    for _ in range(6):
        shards.lost(ShardLost(OTHER, "full", away=True), 100.0)
        shards.lost(ShardLost(third, "raised", broken=True), 100.0)
    assert shards.due(100.5) == []
    shards.opened(ONE, 100.5)
    assert shards.due(100.5) == [OTHER], "not those that failed for another reason"
    shards.forget(OTHER)
    shards.lost(ShardLost(OTHER, "its round", by_another=True), 101.0)
    assert shards.due(101.0) == [OTHER]


def test_what_is_forgotten_is_not_started() -> None:
    shards = Restarts()
    shards.lost(ShardLost(ONE, "full", away=True), 1.0)
    shards.forget(ONE)
    shards.opened(OTHER, 2.0)
    assert shards.next_s is None and shards.due(99.0) == []
