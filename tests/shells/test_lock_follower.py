"""The follower of locks, at a region that does not answer for a while."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from peloton.assembly.lockdowns import LockFollower
from peloton.runtime.core.reading.inspection import FollowChanges
from peloton.runtime.vocabulary import Unavailable

ENOUGH_S = 0.5


class DoubtfulRegion:
    """One whose session is in doubt: it answers at once that it is."""

    def __init__(self) -> None:
        self.asked = 0

    def shard_of(self, key: str) -> str:
        return key

    def follow(self, shard: str, query: FollowChanges) -> Future[Any]:
        return self.ask(shard, query)

    def ask(self, key: str, message: object) -> Future[Any]:
        self.asked += 1
        found: Future[Any] = Future()
        found.set_result(Unavailable("in doubt"))
        return found


def test_a_region_in_doubt_is_asked_again_after_pauses_that_grow() -> None:
    region: Any = DoubtfulRegion()
    follower = LockFollower(region)
    follower.start()
    threading.Event().wait(ENOUGH_S)
    follower.stop()
    assert 1 <= region.asked <= 8
