"""What the shards of a daemon are told of goals."""

from __future__ import annotations

from typing import Any

from peloton.runtime.core.sharding import Sharding
from peloton.runtime.ports import ShardId
from peloton.runtime.shells.goals import Goals
from peloton.runtime.shells.routing import RoutingTable
from peloton.runtime.shells.shell_messages import GoalsRest


class Told:
    """A shard as who sends to it sees it."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def tell(self, message: Any) -> None:
        self.heard.append(message)


def test_who_heard_it_already_is_told_nothing() -> None:
    """Each change of another lock says again that goals are pursued: work for everybody."""
    routes, shard = RoutingTable({}, Sharding({}, {})), Told()
    routes.shards[ShardId("jobmgr", 0)] = shard  # type: ignore[assignment]
    goals = Goals(routes)
    goals.rest()
    goals.go_on()
    goals.rest()
    for _ in range(3):
        goals.go_on()
    assert shard.heard == [GoalsRest(True), GoalsRest(False)] * 2
