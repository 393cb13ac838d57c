"""Bytes of requests in flight, counted over all calls.

gRPC's core does not say how much of a message has come before it holds all of it. So a read that
has started is counted as the longest message there may be, and the others wait unstarted: the core
holds no more of those than its window. A small request comes whole with its headers, and ends its
read at once; one that comes later is there once its turn comes.

Reads that find no room in the budget take turns in the *lane*: a few places besides it, which a
read must leave after a moment if others wait. So small requests pass while large ones, or such as
never come, take all the room. Callers share the budget by `SharedQuota`, those that wait for the
lane take turns, and of too many those of the caller with the most are refused.

Small messages that have arrived are not counted: the number of calls bounds them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from itertools import islice, takewhile
from typing import NamedTuple

from peloton.gateway.access.principals import CallersInTurn, SharedQuota
from peloton.runtime.core.principal import Principal

SMALL_BYTES_MAX = 16 * 1024
"""A message up to this size is not counted."""
KEPT_TWICE = 2
"""A message is kept as bytes and as what is parsed of them, and then as what is made of that."""


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


class _Read(NamedTuple):
    who: Principal
    begun_s: float
    start: Callable[[], bool]


class Intake:
    """The reads under way and the bytes that are charged. The methods may be called on any
    thread."""

    def __init__(self, *, message_bytes_max: int, bytes_max: int, pace: IntakePace = PACE) -> None:
        self._message_bytes_max = message_bytes_max
        self._bytes_max = bytes_max
        # A message that came by the lane finds room though all of the budget is expected to come.
        self._arrived_max = bytes_max + message_bytes_max if bytes_max else 0
        self._pace = pace
        # Reads and when they began. Only of those that wait there may be many: oldest first.
        self._counted: dict[Hashable, _Read] = {}  # as the longest message, in the budget
        self._lane: dict[Hashable, _Read] = {}
        self._waiting: dict[Hashable, _Read] = {}
        # The same; the newest of a caller first: its client is the likeliest to wait.
        self._turns: CallersInTurn[Hashable] = CallersInTurn(newest=True)
        self._charged: dict[Hashable, tuple[Principal, int]] = {}
        self._bytes = 0
        self._reads = SharedQuota("reads of requests")
        self.shares = SharedQuota("bytes of large requests in work")
        """Of which each caller has a share."""
        self.administers: Callable[[Hashable], bool] = lambda call: True
        """Whether a call may have what is kept for administrators; set before the first read."""
        self._lock = threading.Lock()

    def for_open_calls(self) -> Intake:
        """Return another intake without a budget: its reads take turns in its lane."""
        return Intake(message_bytes_max=self._message_bytes_max, bytes_max=0, pace=OPEN_PACE)

    @property
    def refusal(self) -> str:
        """Return the text for a request that finds no room."""
        if not self._bytes_max:
            return (
                f"too many requests in flight, or request larger than {SMALL_BYTES_MAX} bytes; "
                "retry"
            )
        return f"requests in flight hold {self._bytes_max} bytes already, over all calls; retry"

    def begin(
        self, call: Hashable, start: Callable[[], bool], *, who: Principal, now_s: float
    ) -> None:
        """Let a call of `who` read; it has one read at a time.

        `start` starts it, now or on another thread when there is room; it returns False if the call
        is over.
        """
        with self._lock:
            read = _Read(who, now_s, start)
            # The usual case; others that wait have no room in the budget, or in their share of it.
            at_once = self._count(call, read)
            if not at_once:
                self._waiting[call] = read
                self._turns.add(who, call)
        if not at_once:
            self._start_waiting(now_s)
        elif not start():
            with self._lock:
                self._forget_read(call)

    def arrived(self, call: Hashable, size: int, *, who: Principal, now_s: float) -> str:
        """End a read with so many bytes; return why there is no room for them, or ""."""
        with self._lock:
            self._forget_read(call)
            why = self._charge(call, KEPT_TWICE * size, who=who) if size > SMALL_BYTES_MAX else ""
            others = bool(self._waiting or self._lane)
        if others:
            self._start_waiting(now_s)
        return why

    def leave(self, call: Hashable) -> bool:
        """Forget a call that is over; return whether its read was not started, and never will
        be."""
        with self._lock:
            waited = call in self._waiting
            if waited:
                self._forget_waiting(call)
            return waited

    def release(self, call: Hashable, now_s: float) -> None:
        """Record that nothing of the call is charged any more."""
        with self._lock:
            who, charged = self._charged.pop(call, (None, 0))
            if who is not None:
                self._bytes -= charged
                self.shares.leave(who, charged)
        if charged:
            self._start_waiting(now_s)

    def next_look_s(self) -> float | None:
        """Return when `refused` may find something; None if no read is under way."""
        # Asked for each event. Without the lock: a read may begin right after in any case.
        if not self._counted and not self._waiting and not self._lane:
            return None
        with self._lock:
            if not self._waiting and not self._lane:  # the usual case
                begun = min((one.begun_s for one in self._counted.values()), default=None)
                return None if begun is None else begun + self._pace.read_s_max
            if len(self._waiting) > self._pace.waiting:
                return 0.0
            first = islice(self._waiting.values(), 1)
            reads = (*self._counted.values(), *self._lane.values(), *first)
            look_s = min((one.begun_s for one in reads), default=None)
            if look_s is None:
                return None
            look_s += self._pace.read_s_max
            if self._lane and self._waiting:
                lane_s = min(one.begun_s for one in self._lane.values())
                look_s = min(look_s, lane_s + self._pace.lane_s)
            return look_s

    def refused(self, now_s: float) -> list[RefusedRead]:
        """Return reads that last too long, those that have to leave the lane, and waiting ones
        beyond the limit."""
        late_s = now_s - self._pace.read_s_max
        none_came = f"no request came within {self._pace.read_s_max:g} s"
        with self._lock:
            waiting = self._waiting.items()
            waited = [call for call, _ in takewhile(lambda one: one[1].begun_s <= late_s, waiting)]
            for call in waited:
                self._forget_waiting(call)
            while (too_many := len(self._waiting) - self._pace.waiting) > 0:
                greedy = [*islice(self._turns.oldest_of_most(), too_many)]
                for call in greedy:
                    self._forget_waiting(call)
                waited += greedy
            late = [*_begun_until(self._counted, late_s), *_begun_until(self._lane, late_s)]
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
        """Start the reads that there is room for, one of each caller in turn."""
        while True:
            with self._lock:
                self._fill_budget()
                if not self._waiting or len(self._lane) >= self._pace.lane:
                    return
                call = self._turns.next()
                read = self._waiting.pop(call)._replace(begun_s=now_s)
                if not self._count(call, read):
                    self._lane[call] = read
            if not read.start():
                with self._lock:
                    self._forget_read(call)

    def _fill_budget(self) -> None:
        """Move reads of the lane into the budget if that has room for them by now."""
        for call, read in [*self._lane.items()]:
            if self._count(call, read):
                del self._lane[call]

    def _count(self, call: Hashable, read: _Read) -> bool:
        """Count a read in the budget until it ends, if the budget and the caller's share have
        room."""
        if self._bytes + self._message_bytes_max > self._bytes_max:
            return False
        most = self._bytes_max // self._message_bytes_max
        if self._reads.take(read.who, lambda: self.administers(call), most=most):
            return False
        self._counted[call] = read
        self._bytes += self._message_bytes_max
        return True

    def _charge(self, call: Hashable, cost: int, *, who: Principal) -> str:
        if self._bytes + cost > self._arrived_max:
            return self.refusal
        most = self._arrived_max
        why = self.shares.take(who, lambda: self.administers(call), most=most, count=cost)
        if not why:
            self._charged[call] = who, self._charged.get(call, (who, 0))[1] + cost
            self._bytes += cost
        return why

    def _forget_read(self, call: Hashable) -> None:
        self._lane.pop(call, None)
        read = self._counted.pop(call, None)
        if read is not None:
            self._bytes -= self._message_bytes_max
            self._reads.leave(read.who)

    def _forget_waiting(self, call: Hashable) -> None:
        self._turns.remove(self._waiting.pop(call).who, call)


def _begun_until(reads: dict[Hashable, _Read], until_s: float) -> list[Hashable]:
    """Return those of a few reads that began by then."""
    return [call for call, read in reads.items() if read.begun_s <= until_s]
