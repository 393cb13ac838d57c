"""What is taken next, and how much of it fits one frame.

Turns mail, what entities of a shard say to each other, and parents that have to look, into an
order of turns. It must not know what a turn does; nor let anybody take the others' share, for one
thread pumps all shards of a daemon and an entity may be made to talk to itself for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from peloton.runtime.core.envelope import Envelope
from peloton.runtime.core.turns import Turns
from peloton.runtime.vocabulary import Key

TURNS_PER_FRAME_MAX = 4096
LOCAL_TURNS_MAX = 4096
"""Beyond that, on what entities of one shard say to each other."""
LEFT_TURNS_MAX = 512
OTHERS_TURNS_MAX = 256
"""Where local mail was left by the last frame: on that, and before it on mail and on parents. Who
never stops talking to itself has its share of each frame, and so has everybody else."""
FRAME_BYTES_SOFT = 4 * 1024 * 1024
LOCAL_BYTES_MAX = 7 * 1024 * 1024
"""Beyond that, likewise on what entities of one shard say to each other; the turn that passes this
bound still fits what the journal takes. A parent that tells its children something in another
frame than it wrote it down in has lost it for ever if the shard dies between the two."""


class Budget(NamedTuple):
    """How much one frame takes; a shard that is given less makes more frames of the same turns."""

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
        look: Callable[[Key], None],
    ) -> None:
        self.budget = budget
        self.counts = dict.fromkeys(("full", "spent", "left", "left again", "waited"), 0)
        self.inbox: deque[Envelope] = deque()
        self._local = local
        self._turns = turns
        self._population = turns.population
        self._deliver = deliver
        self._look = look
        self._left = False

    def run(self) -> None:
        """Turns, until nothing is left or the frame is full."""
        budget, beyond = self.budget.turns, -self.budget.local
        if self._left:
            self._others()
            budget, beyond = self.budget.left, 0
        while budget > beyond:
            budget -= 1
            # What entities of this shard say to each other is heard before the frame is closed,
            # beyond the budget and the bytes too: sender and receiver commit together, so nobody
            # owes it. What does not fit even so, because somebody never stops talking to itself,
            # waits for the next frame, and a death between the two loses what nobody owes.
            if self._local:
                if self._turns.bytes >= self.budget.local_bytes:
                    break
                self._deliver(self._local.popleft())
            elif budget < 0 or not self._fits():
                break
            elif self.inbox:
                self._deliver(self.inbox.popleft())
            elif self._population.dirty:
                # Parents look once all mail is done, however many children changed.
                self._next_parent()
            else:
                break

    def closed(self) -> None:
        """The frame is complete."""
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
        self._look(key)

    def _fits(self) -> bool:
        return self._turns.bytes < self.budget.bytes_soft
