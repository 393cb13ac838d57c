"""Bytes of requests in flight, counted over all calls.

Turns the beginning, the arrival and the end of requests into refusals. gRPC's core does not say how
long a message is before it holds all of it. So a read that takes longer than a moment is counted as
the longest message there may be, and one that finds no room is refused while its bytes are still
coming. It must not know a call: a call is whatever the caller keeps it by.

Small messages are not counted: the number of calls bounds them, and a budget that is used up by
large ones must not stop health checks.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import NamedTuple

SMALL_BYTES_MAX = 16 * 1024
"""A message up to this size is not counted."""
HELD_TWICE = 2
"""A message is held as bytes and as what is parsed of them, and then as what is made of that."""
QUICK_S = 0.05
"""A read within this time is counted by its true size only."""
READ_S_MAX = 60.0
"""A request that has not arrived after so long is refused."""


class RefusedRead(NamedTuple):
    """A read that must not go on, and why."""

    call: Hashable
    text: str


class Intake:
    """The reads under way and the bytes that are held. Its methods may be called on any thread."""

    def __init__(self, *, message_bytes_max: int, bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._bytes_max = bytes_max
        self._quick: dict[Hashable, float] = {}  # reads and when they began, in this order
        self._slow: dict[Hashable, float] = {}  # the same, counted as the longest message
        self._held: dict[Hashable, int] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def bytes_counted(self) -> int:
        """All that is held or expected now."""
        return self._bytes

    @property
    def refusal(self) -> str:
        """The text for a request that finds no room."""
        return f"requests in flight hold {self._bytes_max} bytes already, over all calls: try again"

    def begin(self, call: Hashable, now_s: float) -> None:
        """A read has begun; a call has one at a time."""
        with self._lock:
            self._quick[call] = now_s

    def arrived(self, call: Hashable, size: int) -> bool:
        """A read has ended with so many bytes; whether there is room for them."""
        with self._lock:
            self._quick.pop(call, None)
            if self._slow.pop(call, None) is not None:
                self._bytes -= self._message_bytes_max
            if size <= SMALL_BYTES_MAX:
                return True
            cost = HELD_TWICE * size
            if self._bytes + cost > self._bytes_max:
                return False
            self._held[call] = self._held.get(call, 0) + cost
            self._bytes += cost
            return True

    def release(self, call: Hashable) -> None:
        """Nothing of the call is held any more."""
        with self._lock:
            self._bytes -= self._held.pop(call, 0)

    def next_look_s(self) -> float | None:
        """When `refused` may find something; None where no read is under way."""
        with self._lock:
            for begun_s in self._quick.values():
                return begun_s + QUICK_S
            for begun_s in self._slow.values():
                return begun_s + READ_S_MAX
            return None

    def refused(self, now_s: float) -> list[RefusedRead]:
        """Reads that are not quick and find no room, and those that last too long."""
        found = []
        with self._lock:
            for call, begun_s in [*self._quick.items()]:
                if begun_s + QUICK_S > now_s:
                    break
                del self._quick[call]
                if self._bytes + self._message_bytes_max > self._bytes_max:
                    found.append(RefusedRead(call, self.refusal))
                else:
                    self._slow[call] = begun_s
                    self._bytes += self._message_bytes_max
            for call, begun_s in [*self._slow.items()]:
                if begun_s + READ_S_MAX > now_s:
                    break
                del self._slow[call]
                self._bytes -= self._message_bytes_max
                found.append(RefusedRead(call, f"no request came within {READ_S_MAX:g} s"))
        return found
