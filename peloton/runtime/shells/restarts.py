"""The times at which shards that ended by themselves are started again.

Turns ends into times: after a short delay at first, which doubles. A shard that only waits for the
store asks it again soon, and at once when another shard has an answer: no work should wait for a
timer once the store is back. The root starts the shards.
"""

from __future__ import annotations

from peloton.pauses import Pauses
from peloton.runtime.ports import ShardId
from peloton.runtime.shells.shell_messages import ShardLost

RESTART_FIRST_S = 0.2
SHELL_RESTART_S_MAX = 15.0
STORE_AWAY_S_MAX = 2.0
"""The longest delay while the store does not answer. A daemon that is alone has a disk for a store,
and asking that costs nothing; in a fleet shards are claimed by other rules."""


class Restarts:
    """The shards of one daemon that are to be started again."""

    def __init__(self) -> None:
        self._at_s: dict[ShardId, float] = {}
        self._away: dict[ShardId, None] = {}
        self._fails: dict[ShardId, int] = {}

    def lost(self, lost: ShardLost, now: float) -> None:
        """Schedule the start of a shard that has ended."""
        shard = lost.shard
        if lost.by_another:
            self._at_s[shard] = now
            return
        fails = self._fails[shard] = self._fails.get(shard, 0) + 1
        most = SHELL_RESTART_S_MAX
        if lost.away or lost.gave_up:
            self._away[shard], most = None, STORE_AWAY_S_MAX
        self._at_s[shard] = now + Pauses(RESTART_FIRST_S, most).after(fails)

    def opened(self, shard: ShardId, now: float) -> None:
        """Clear a recovered shard's failures: the store answers, so shards that wait are due."""
        self._fails.pop(shard, None)
        away, self._away = self._away, {}
        for waiting in away:
            if waiting in self._at_s:
                self._at_s[waiting] = now

    def forget(self, shard: ShardId) -> None:
        """Remove a shard that is started, or is not to be."""
        self._at_s.pop(shard, None)
        self._away.pop(shard, None)

    def due(self, now: float) -> list[ShardId]:
        """Return the shards whose time has come."""
        return [shard for shard, at_s in self._at_s.items() if at_s <= now]

    @property
    def next_s(self) -> float | None:
        """When the next one is due."""
        return min(self._at_s.values(), default=None)
