"""Bytes of requests in flight, counted over all calls.

Turns the beginning, the arrival and the end of requests into starts and refusals of reads. gRPC's
core does not say how much of a message has come before it holds all of it. So a read that has
started is counted as the longest message there may be, and the others wait unstarted: the core
holds no more of those than its window. A small request comes whole with its headers, and ends its
read at once; one that comes later is there once its turn comes.

Reads that find no room in the budget take turns in the *lane*: a few places besides it, which a
read must leave after a moment if others wait. So small requests pass while large ones, or such as
never come, take all the room. It must not know a call: a call is whatever the caller keeps it by.

Small messages that have arrived are not counted: the number of calls bounds them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import NamedTuple

SMALL_BYTES_MAX = 16 * 1024
"""A message up to this size is not counted."""
HELD_TWICE = 2
"""A message is held as bytes and as what is parsed of them, and then as what is made of that."""


class IntakePace(NamedTuple):
    """How many reads there may be besides the budget, and how long reads may take."""

    lane: int = 1
    lane_s: float = 0.5
    """After so long a read in the lane is refused if others wait."""
    read_s_max: float = 60.0
    """A request that has not arrived after so long is refused."""
    waiting: int = 1000
    """Of more reads that wait the oldest are refused: the core holds up to its window of each."""


PACE = IntakePace()
OPEN_PACE = IntakePace(lane=2, lane_s=0.05, read_s_max=1.0, waiting=100)
"""For calls that everybody may make, of which only small requests are taken."""


class RefusedRead(NamedTuple):
    """A read that must not go on, and why."""

    call: Hashable
    text: str


class _Waiting(NamedTuple):
    start: Callable[[], bool]
    begun_s: float


class Intake:
    """The reads under way and the bytes that are held. Its methods may be called on any thread."""

    def __init__(self, *, message_bytes_max: int, bytes_max: int, pace: IntakePace = PACE) -> None:
        self._message_bytes_max = message_bytes_max
        self._bytes_max = bytes_max
        # A message that came by the lane finds room though all of the budget is expected to come.
        self._arrived_max = bytes_max + message_bytes_max if bytes_max else 0
        self._pace = pace
        # Reads and when they began. Only of those that wait there may be many: oldest first.
        self._counted: dict[Hashable, float] = {}  # as the longest message, in the budget
        self._lane: dict[Hashable, float] = {}
        self._waiting: dict[Hashable, _Waiting] = {}
        self._held: dict[Hashable, int] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def for_open_calls(self) -> Intake:
        """Another one, without a budget: its reads take turns in its lane."""
        return Intake(message_bytes_max=self._message_bytes_max, bytes_max=0, pace=OPEN_PACE)

    @property
    def bytes_counted(self) -> int:
        """All that is held or expected now, but for the lane."""
        return self._bytes

    @property
    def refusal(self) -> str:
        """The text for a request that finds no room."""
        if not self._bytes_max:
            return f"requests in flight take all places, or hold more than {SMALL_BYTES_MAX} bytes"
        return f"requests in flight hold {self._bytes_max} bytes already, over all calls: try again"

    def begin(self, call: Hashable, start: Callable[[], bool], *, now_s: float) -> None:
        """A call wants to read; it has one read at a time.

        `start` starts it, now or on another thread when there is room; False if the call is over.
        """
        with self._lock:
            others = self._waiting or self._lane
            at_once = not others and self._has_room()  # the usual case
            if at_once:
                self._count(call, now_s)
            else:
                self._waiting[call] = _Waiting(start, now_s)
        if not at_once:
            self._start_waiting(now_s)
        elif not start():
            with self._lock:
                self._forget_read(call)

    def arrived(self, call: Hashable, size: int, *, now_s: float) -> bool:
        """A read has ended with so many bytes; whether there is room for them."""
        with self._lock:
            self._forget_read(call)
            fits = size <= SMALL_BYTES_MAX
            if not fits:
                cost = HELD_TWICE * size
                fits = self._bytes + cost <= self._arrived_max
                if fits:
                    self._held[call] = self._held.get(call, 0) + cost
                    self._bytes += cost
            others = bool(self._waiting or self._lane)
        if others:
            self._start_waiting(now_s)
        return fits

    def leave(self, call: Hashable) -> bool:
        """The call is over; whether its read was not started, and never will be."""
        with self._lock:
            return self._waiting.pop(call, None) is not None

    def release(self, call: Hashable, now_s: float) -> None:
        """Nothing of the call is held any more."""
        with self._lock:
            held = self._held.pop(call, 0)
            self._bytes -= held
        if held:
            self._start_waiting(now_s)

    def next_look_s(self) -> float | None:
        """When `refused` may find something; None where no read is under way."""
        # Asked for each event. Without the lock: a read may begin right after in any case.
        if not self._counted and not self._waiting and not self._lane:
            return None
        with self._lock:
            if not self._waiting and not self._lane:  # the usual case
                begun = min(self._counted.values(), default=None)
                return None if begun is None else begun + self._pace.read_s_max
            if len(self._waiting) > self._pace.waiting:
                return 0.0
            begun_s = [*self._counted.values(), *self._lane.values()]
            for waiting in self._waiting.values():
                begun_s.append(waiting.begun_s)
                break
            look_s = min(begun_s, default=None)
            if look_s is None:
                return None
            look_s += self._pace.read_s_max
            if self._lane and self._waiting:
                look_s = min(look_s, min(self._lane.values()) + self._pace.lane_s)
            return look_s

    def refused(self, now_s: float) -> list[RefusedRead]:
        """Reads that last too long, those that have to leave the lane, and too many that wait."""
        late_s = now_s - self._pace.read_s_max
        none_came = f"no request came within {self._pace.read_s_max:g} s"
        with self._lock:
            too_many, waited = len(self._waiting) - self._pace.waiting, list[Hashable]()
            for call, one in self._waiting.items():
                if one.begun_s > late_s and len(waited) >= too_many:
                    break
                waited.append(call)
            late = [*_begun_until(self._counted, late_s), *_begun_until(self._lane, late_s)]
            for call in waited:
                del self._waiting[call]
            for call in late:
                self._forget_read(call)
            leaving = _begun_until(self._lane, now_s - self._pace.lane_s)[: len(self._waiting)]
            for call in leaving:
                self._forget_read(call)
        self._start_waiting(now_s)
        found = [RefusedRead(call, none_came) for call in late]
        return found + [RefusedRead(call, self.refusal) for call in (*waited, *leaving)]

    # ---- inside ----

    def _start_waiting(self, now_s: float) -> None:
        """Start what there is room for, the newest first: its client is the likeliest to wait."""
        while True:
            with self._lock:
                self._fill_budget()
                has_room = self._has_room()
                if not self._waiting or not (has_room or len(self._lane) < self._pace.lane):
                    return
                call, waiting = self._waiting.popitem()
                if has_room:
                    self._count(call, now_s)
                else:
                    self._lane[call] = now_s
            if not waiting.start():
                with self._lock:
                    self._forget_read(call)

    def _fill_budget(self) -> None:
        """Reads of the lane move to where there is room for them by now."""
        while self._lane and self._has_room():
            call = next(iter(self._lane))
            self._count(call, self._lane.pop(call))

    def _count(self, call: Hashable, begun_s: float) -> None:
        """In the budget, until the read ends."""
        self._counted[call] = begun_s
        self._bytes += self._message_bytes_max

    def _has_room(self) -> bool:
        return self._bytes + self._message_bytes_max <= self._bytes_max

    def _forget_read(self, call: Hashable) -> None:
        self._lane.pop(call, None)
        if self._counted.pop(call, None) is not None:
            self._bytes -= self._message_bytes_max


def _begun_until(reads: dict[Hashable, float], until_s: float) -> list[Hashable]:
    """Those of a few reads that began by then."""
    return [call for call, begun_s in reads.items() if begun_s <= until_s]
