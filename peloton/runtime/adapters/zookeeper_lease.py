"""For how long a ZooKeeper session surely lives: arithmetic over the times requests were sent.

Turns "a write sent then was committed" into the moment up to which no other member can be told
that the session is over. It must not count what proves nothing. An answer to a ping does not:

1. A member speaks to server F, which follows leader L. Only L ends sessions.
2. F is cut off from L, and finds out only after `syncLimit` ticks.
3. Until then F goes on answering pings, and reads, by itself.
4. L hears of the member no more and ends its session; another member takes its shards.
5. The member, whose last ping was answered a moment ago, still calls its session alive.

A write is committed by L and a majority, so when it was, F and L were not apart. Yet what keeps a
session alive at L is not the write: it is F's report of whom it heard, every half tick. ZooKeeper
demands a session of two ticks at least, so what F had heard a quarter of a session before the
write is known to L; of what it heard later nothing is sure.
"""

from __future__ import annotations

import time
from collections import deque

REPORTED_SHARE = 1 / 4
"""Of a session: within this time a server has reported to its leader whom it heard."""
SURE_SHARE = 2 / 3
BEATS_PER_SESSION = 12
"""A write so often: the last one reported is then a third of a session old at most."""


def now_s() -> float:
    """Seconds of a clock that never falls, and that runs on while the machine is suspended."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Lease:
    """Of one session that lasts `session_s` from when its leader heard of it last."""

    def __init__(self) -> None:
        self.until_s = 0.0
        self._heard_s: deque[float] = deque()

    def reopened(self, sent_s: float) -> None:
        """The leader itself made or confirmed the session, as asked then."""
        self._heard_s.clear()
        self._heard_s.append(sent_s)

    def committed(self, sent_s: float, session_s: float) -> None:
        """A write that was sent then is done."""
        heard = self._heard_s
        while len(heard) > 1 and heard[1] <= sent_s - session_s * REPORTED_SHARE:
            heard.popleft()
        if heard:
            self.until_s = min(sent_s + session_s * SURE_SHARE, heard[0] + session_s)
        heard.append(sent_s)

    def end(self) -> None:
        """Nothing is sure any more."""
        self._heard_s.clear()
        self.until_s = 0.0
