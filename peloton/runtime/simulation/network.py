"""A simulated network: streams between the daemons of one stepper, drawn from one seed.

Turns frames that one daemon sends into frames that another receives: late, twice, out of order or
never. It partitions pairs of daemons, refuses dials, kills streams and leaves dead streams half
open. That is worse than any real stream; links have to tolerate it.

    network = Network(stepper, random.Random(seed))
    exchange = network.endpoint("a:1")        what one daemon gets, in place of sockets
    network.faults = NetworkFaults(drop=0.05)
    network.part("a:1", "b:1")
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

import msgspec

from peloton.runtime.ports import StreamListener
from peloton.runtime.shells.shell import Shell
from peloton.runtime.simulation.draws import FaultDraws
from peloton.runtime.simulation.stepper import Stepper

OVERTAKEN_S = 0.5
"""A frame that others overtake is delayed at most so long."""


class NetworkFaults(msgspec.Struct, frozen=True, gc=False):
    """The faults that are on, and how strong: shares of frames, dials or ends. All off: a calm."""

    delay_s: float = 0.0  # of everything, at most
    drop: float = 0.0  # frames that vanish
    repeat: float = 0.0  # frames that come twice
    overtake: float = 0.0  # frames delayed, out of their order
    cut: float = 0.0  # frames at which their stream dies
    refuse: float = 0.0  # dials that come to nothing
    silent: float = 0.0  # ends that are not notified when their stream dies


CALM_NETWORK = NetworkFaults()


class _End:
    """An end of a stream, as its daemon names it; `other` once the dial has arrived."""

    __slots__ = ("early", "exchange", "last_s", "number", "other")

    def __init__(self, number: int, exchange: Endpoint) -> None:
        self.number = number
        self.exchange = exchange
        self.other: _End | None = None
        self.early: list[bytes] = []  # came before the dial did
        self.last_s = 0.0  # when the last frame of this end arrives


class Endpoint:
    """The network as one life of one daemon has it: an `Exchange`."""

    def __init__(self, network: Network, address: str) -> None:
        self.address = address
        self.listener: StreamListener | None = None
        self.ends: dict[int, _End] = {}
        self._network = network

    def listen(self, listener: StreamListener) -> None:
        self.listener = listener

    def dial(self, address: str) -> int:
        return self._network.dial(self, address)

    def send(self, stream: int, data: bytes) -> None:
        end = self.ends.get(stream)
        if end is not None:
            self._network.send(end, data)

    def close(self, stream: int) -> None:
        end = self.ends.pop(stream, None)
        if end is not None:
            self._network.hang_up(end, "closed by the other side")

    def hung(self, end: _End, text: str) -> None:
        """Tell the listener that the stream of this end is dead; a dead daemon is not notified."""
        if self.listener is not None:
            self.listener.closed(end.number, text)


class Network:
    """All streams of a world. `struck` counts how often each fault struck."""

    def __init__(self, stepper: Stepper, chance: random.Random) -> None:
        self.faults = CALM_NETWORK
        self._draws = FaultDraws(chance)
        self.struck = self._draws.struck
        self.carried = 0
        self._stepper = stepper
        self._numbers = itertools.count(1)
        self._endpoints: dict[str, Endpoint] = {}
        self._parted: dict[tuple[str, str], None] = {}
        self._under_way: list[tuple[float, int, Callable[[], None]]] = []
        _Courier.start(stepper, self)
        self._courier = stepper.shells[-1]

    # ---- what a world calls ----

    def endpoint(self, address: str) -> Endpoint:
        """Return an endpoint for a new process; an earlier one at this address is dead."""
        self.die(address)
        found = self._endpoints[address] = Endpoint(self, address)
        return found

    def die(self, address: str) -> None:
        """Kill the daemon at this address; its peers may or may not be notified."""
        endpoint = self._endpoints.pop(address, None)
        if endpoint is not None:
            ends, endpoint.ends, endpoint.listener = endpoint.ends, {}, None
            for end in ends.values():
                self.hang_up(end, "reset")

    def part(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Partition: nothing passes from one to the other, nor back unless `one_way`."""
        self._parted[one, other] = None
        if not one_way:
            self._parted[other, one] = None

    def mend(self, one: str, other: str) -> None:
        """End the partition of these two."""
        self._parted.pop((one, other), None)
        self._parted.pop((other, one), None)

    def heal(self) -> None:
        """End all partitions. What was lost meanwhile stays lost."""
        self._parted.clear()

    # ---- what endpoints call ----

    def dial(self, endpoint: Endpoint, address: str) -> int:
        """Begin a stream, from the view of the dialler."""
        end = _End(next(self._numbers), endpoint)
        endpoint.ends[end.number] = end
        if self._draws.strikes("refuse", self.faults.refuse):
            self._later(end, lambda: self._closed(end, "refused"))
        else:
            self._later(end, lambda: self._knock(end, address))
        return end.number

    def send(self, end: _End, data: bytes) -> None:
        """Send a frame."""
        faults = self.faults
        if self._draws.strikes("cut", faults.cut):
            del end.exchange.ends[end.number]
            self._later(end, lambda: end.exchange.hung(end, "cut"))
            self.hang_up(end, "cut")
            return
        if self._draws.strikes("drop", faults.drop):
            return
        for _ in range(2 if self._draws.strikes("repeat", faults.repeat) else 1):
            self._later(end, lambda: self._frame(end, data))

    def hang_up(self, end: _End, text: str) -> None:
        """Notify the other end that the stream is dead, unless `silent` strikes."""
        other = end.other
        if other is not None and not self._draws.strikes("silent", self.faults.silent):
            self._later(end, lambda: self._closed(other, text))

    # ---- what arrives ----

    def arrive(self) -> None:
        """Deliver all that is due by now."""
        now = self._stepper.clock.now_s
        while self._under_way and self._under_way[0][0] <= now:
            heapq.heappop(self._under_way)[2]()
        self._ring()

    def _knock(self, end: _End, address: str) -> None:
        caller, called = end.exchange, self._endpoints.get(address)
        if end.number not in caller.ends:
            return
        if self._lost(caller.address, address):
            return
        if called is None or called.listener is None:
            self._closed(end, "nobody listens")
            return
        other = end.other = _End(next(self._numbers), called)
        other.other = end
        called.ends[other.number] = other
        called.listener.accepted(other.number)
        for data in end.early:
            self._frame(end, data)
        end.early = []

    def _frame(self, end: _End, data: bytes) -> None:
        other = end.other
        if other is None:
            end.early.append(data)
            return
        here = other.exchange
        if other.number not in here.ends or here.listener is None:
            return
        if not self._lost(end.exchange.address, here.address):
            self.carried += 1
            here.listener.arrived(other.number, data)

    def _closed(self, end: _End, text: str) -> None:
        if end.exchange.ends.pop(end.number, None) is not None:
            end.exchange.hung(end, text)

    def _lost(self, source: str, target: str) -> bool:
        if (source, target) not in self._parted:
            return False
        self.struck["parted"] += 1
        return True

    # ---- chance and time ----

    def _later(self, end: _End, what: Callable[[], None]) -> None:
        """Do it after all that the end has sent before, unless it is delayed."""
        faults, now = self.faults, self._stepper.clock.now_s
        at_s = now + self._draws.up_to(faults.delay_s)
        if self._draws.strikes("overtake", faults.overtake):
            at_s += self._draws.up_to(OVERTAKEN_S)
        else:
            at_s = end.last_s = max(at_s, end.last_s)
        heapq.heappush(self._under_way, (at_s, next(self._numbers), what))
        self._ring()

    def _ring(self) -> None:
        if self._under_way:
            self._courier.wake(self._under_way[0][0])


class _Courier(Shell):
    """Steps the network when something is due."""

    def __init__(self, stepper: Stepper, network: Network) -> None:
        super().__init__("network", stepper)
        self._network = network

    def handle(self, message: Any) -> None:
        self._network.arrive()

    def failed(self, error: BaseException) -> None:
        """A bug of the simulation: raise it to the caller."""
        raise error
