"""The order of turns in a shard, and how many of them go into one frame.

Takes from three queues: the inbox, local messages (between entities of this shard), and parents
whose children changed. No queue may starve the others: one thread pumps all shards of a daemon, and
an entity may send messages to itself without end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.core.turning.turns import Turns
from peloton.runtime.vocabulary import Key

TURNS_PER_FRAME_MAX = 4096
LOCAL_TURNS_MAX = 4096
"""Turns beyond `TURNS_PER_FRAME_MAX`, for local messages only."""
LEFT_TURNS_MAX = 512
OTHERS_TURNS_MAX = 256
"""When the last frame left local messages over: turns on those, and before them, turns on the inbox
and on parents, each. So an entity that never stops sending to itself gets a share of each frame,
and everybody else does too."""
FRAME_BYTES_SOFT = 4 * 1024 * 1024
LOCAL_BYTES_MAX = 7 * 1024 * 1024
"""Bytes of a frame up to which local messages are still delivered; the turn that passes this bound
still fits the journal's limit. Local messages must be delivered in the frame of their sender: one
that is left over is lost for ever if the shard dies between the two frames, as nobody owes it."""


class Budget(NamedTuple):
    """The share of one frame. With a smaller budget the same turns take more frames."""

    turns: int = TURNS_PER_FRAME_MAX
    local: int = LOCAL_TURNS_MAX
    left: int = LEFT_TURNS_MAX
    others: int = OTHERS_TURNS_MAX
    bytes_soft: int = FRAME_BYTES_SOFT
    local_bytes: int = LOCAL_BYTES_MAX


class Pump:
    """The queues of one shard."""

    def __init__(
        self,
        turns: Turns,
        budget: Budget,
        *,
        local: deque[Envelope],
        deliver: Callable[[Envelope], None],
        pursue: Callable[[Key], None],
    ) -> None:
        self.budget = budget
        self.counts = dict.fromkeys(("full", "spent", "left", "left again", "waited"), 0)
        self.inbox: deque[Envelope] = deque()
        self._local = local
        self._turns = turns
        self._population = turns.population
        self._deliver = deliver
        self._pursue = pursue
        self._left = False  # the last frame left local messages over

    def run(self) -> None:
        """Take turns until nothing is left or the frame is full."""
        budget, beyond = self.budget.turns, -self.budget.local
        if self._left:
            self._others()
            budget, beyond = self.budget.left, 0
        while budget > beyond:
            budget -= 1
            # Local messages are delivered before the frame is closed, even beyond the budget and
            # the soft limit of bytes: sender and receiver commit together, so nobody owes them.
            # Those that do not fit even so, because an entity never stops sending to itself, wait
            # for the next frame; a crash between the two loses them.
            if self._local:
                if self._turns.bytes >= self.budget.local_bytes:
                    break
                self._deliver(self._local.popleft())
            elif budget < 0 or not self._fits():
                break
            elif self.inbox:
                self._deliver(self.inbox.popleft())
            elif self._population.dirty:
                # Last, so that a parent is pursued once, however many of its children changed.
                self._next_parent()
            else:
                break

    def closed(self) -> None:
        """Reset the counts: the frame is complete."""
        left = bool(self._local)
        self.counts["left again"] += left and self._left
        self.counts["left"] += left
        self._left = left
        if left or self.inbox or self._population.dirty:
            self.counts["spent" if self._fits() else "full"] += 1

    def _others(self) -> None:
        for _ in range(self.budget.others):
            if self.inbox and self._fits():
                self._deliver(self.inbox.popleft())
        for _ in range(self.budget.others):
            if self._population.dirty and self._fits():
                self._next_parent()
        self.counts["waited"] += bool(self.inbox or self._population.dirty)

    def _next_parent(self) -> None:
        key = next(iter(self._population.dirty))
        del self._population.dirty[key]
        self._pursue(key)

    def _fits(self) -> bool:
        return self._turns.bytes < self.budget.bytes_soft
