"""What every `Exchange` keeps to: whole frames in order, ends that are told, numbers used once.

An adapter joins by a rig in `RIGS`: two endpoints, and a way to wait. Only what the port says is
tested; streams die in the tests of links, which survive it.
"""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from peloton.runtime.adapters.grpc_exchange import GrpcExchange
from peloton.runtime.core.links.parcels import STREAM_FRAME_BYTES_MAX
from peloton.runtime.ports import Exchange, StreamListener
from peloton.runtime.simulation.network import Network
from peloton.runtime.simulation.stepper import Stepper


class Diary:
    """Ears that write down what they are told."""

    def __init__(self) -> None:
        self.accepts: list[int] = []
        self.frames: dict[int, list[bytes]] = {}
        self.ends: list[int] = []

    def accepted(self, stream: int) -> None:
        self.accepts.append(stream)

    def arrived(self, stream: int, data: bytes) -> None:
        assert stream not in self.ends, "nothing comes after the end"
        self.frames.setdefault(stream, []).append(data)

    def closed(self, stream: int, text: str) -> None:
        assert text, "an end has a reason"
        self.ends.append(stream)


class Rig(Protocol):
    """Two daemons of one kind of exchange."""

    a: Exchange
    b: Exchange
    address_of_b: str
    address_of_nobody: str

    def wait(self, until: Callable[[], bool]) -> None:
        """Until it holds; raises if it never does."""

    def rest(self) -> None:
        """Long enough for whatever is under way."""

    def kill_b(self) -> None:
        """The process of b is gone, without a word."""

    def close(self) -> None:
        """Let go of everything."""


class Simulated:
    """The simulated network in a calm."""

    address_of_b = "b"
    address_of_nobody = "nobody"

    def __init__(self) -> None:
        self.stepper = Stepper(1)
        self.network = Network(self.stepper, random.Random(1))
        self.a: Exchange = self.network.endpoint("a")
        self.b: Exchange = self.network.endpoint("b")

    def wait(self, until: Callable[[], bool]) -> None:
        self.stepper.run(until)

    def rest(self) -> None:
        while self.stepper.step():
            pass

    def kill_b(self) -> None:
        self.network.die("b")

    def close(self) -> None:
        pass


class Belled:
    """An exchange whose ears ring a bell with all they are told, so that a test can wait."""

    def __init__(self, inner: Exchange, bell: threading.Condition) -> None:
        self.dial, self.send, self.close = inner.dial, inner.send, inner.close
        self._inner = inner
        self._bell = bell

    def listen(self, listener: StreamListener) -> None:
        self._listener = listener
        self._inner.listen(self)

    def accepted(self, stream: int) -> None:
        with self._bell:
            self._listener.accepted(stream)
            self._bell.notify_all()

    def arrived(self, stream: int, data: bytes) -> None:
        with self._bell:
            self._listener.arrived(stream, data)
            self._bell.notify_all()

    def closed(self, stream: int, text: str) -> None:
        with self._bell:
            self._listener.closed(stream, text)
            self._bell.notify_all()


class Grpc:
    """Two real exchanges on loopback."""

    def __init__(self) -> None:
        self._bell = threading.Condition()
        self._inner = GrpcExchange("127.0.0.1:0"), GrpcExchange("127.0.0.1:0")
        self.a: Exchange = Belled(self._inner[0], self._bell)
        self.b: Exchange = Belled(self._inner[1], self._bell)
        self.address_of_b = self._inner[1].address
        self._nobody = socket.socket()  # bound and not listening: nobody else can have the port
        self._nobody.bind(("127.0.0.1", 0))
        self.address_of_nobody = f"127.0.0.1:{self._nobody.getsockname()[1]}"

    def wait(self, until: Callable[[], bool]) -> None:
        with self._bell:
            assert self._bell.wait_for(until, timeout=60.0), "it never came to be"

    def rest(self) -> None:
        with self._bell:
            self._bell.wait_for(lambda: False, timeout=0.2)

    def kill_b(self) -> None:
        self._inner[1].stop()

    def close(self) -> None:
        for exchange in self._inner:
            exchange.stop()
        self._nobody.close()


RIGS: list[Callable[[], Rig]] = [Simulated, Grpc]


class Two:
    """Two endpoints that listen."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.a, self.b = Diary(), Diary()
        rig.a.listen(self.a)
        rig.b.listen(self.b)

    def join(self) -> tuple[int, int]:
        """A stream from a to b, as both name it."""
        known = len(self.b.accepts)
        stream = self.rig.a.dial(self.rig.address_of_b)
        self.rig.wait(lambda: len(self.b.accepts) > known)
        return stream, self.b.accepts[-1]


@pytest.fixture(params=RIGS, ids=lambda rig: rig.__name__)
def two(request: pytest.FixtureRequest) -> Iterator[Two]:
    rig = request.param()
    yield Two(rig)
    rig.close()


def test_frames_come_whole_and_in_order_both_ways(two: Two) -> None:
    here, there = two.join()
    said = [b"", b"\x00", *(b"%d" % number * 100 for number in range(200))]
    for data in said:
        two.rig.a.send(here, data)
        two.rig.b.send(there, data[::-1])
    two.rig.wait(lambda: len(two.b.frames.get(there, ())) == len(said))
    two.rig.wait(lambda: len(two.a.frames.get(here, ())) == len(said))
    assert two.b.frames == {there: said}
    assert two.a.frames == {here: [data[::-1] for data in said]}
    assert not two.a.ends and not two.b.ends and not two.a.accepts


def test_what_is_said_before_the_stream_stands_comes_too(two: Two) -> None:
    here = two.rig.a.dial(two.rig.address_of_b)
    two.rig.a.send(here, b"early")
    two.rig.wait(lambda: bool(two.b.frames))
    assert two.b.frames == {two.b.accepts[0]: [b"early"]}


def test_the_largest_frame_passes(two: Two) -> None:
    here, there = two.join()
    two.rig.a.send(here, bytes(STREAM_FRAME_BYTES_MAX))
    two.rig.wait(lambda: bool(two.b.frames))
    assert len(two.b.frames[there][0]) == STREAM_FRAME_BYTES_MAX


@pytest.mark.parametrize("closes", ["a", "b"])
def test_the_other_end_is_told_of_the_end_and_the_own_is_not(two: Two, closes: str) -> None:
    here, there = two.join()
    if closes == "a":
        two.rig.a.close(here)
        two.rig.wait(lambda: two.b.ends == [there])
    else:
        two.rig.b.close(there)
        two.rig.wait(lambda: two.a.ends == [here])
    two.rig.a.send(here, b"late")
    two.rig.b.send(there, b"late")
    two.rig.a.close(here)
    two.rig.b.close(there)
    two.rig.rest()
    assert len(two.a.ends) + len(two.b.ends) == 1
    assert not two.a.frames and not two.b.frames


def test_what_was_sent_before_the_end_may_come_but_nothing_behind_it(two: Two) -> None:
    here, there = two.join()
    for number in range(10):
        two.rig.a.send(here, b"%d" % number)
    two.rig.a.close(here)
    two.rig.wait(lambda: two.b.ends == [there])
    heard = two.b.frames.get(there, [])
    assert heard == [b"%d" % number for number in range(len(heard))]


def test_a_dial_that_finds_nobody_is_told(two: Two) -> None:
    stream = two.rig.a.dial(two.rig.address_of_nobody)
    two.rig.a.send(stream, b"hello")
    two.rig.wait(lambda: two.a.ends == [stream])
    assert not two.b.accepts


def test_the_death_of_the_other_side_is_told(two: Two) -> None:
    here, _ = two.join()
    two.rig.kill_b()
    two.rig.wait(lambda: two.a.ends == [here])
    again = two.rig.a.dial(two.rig.address_of_b)
    two.rig.wait(lambda: two.a.ends == [here, again])


def test_streams_are_many_and_their_numbers_are_never_used_again(two: Two) -> None:
    streams = []
    for number in range(5):
        here, there = two.join()
        streams.append((here, there))
        two.rig.a.send(here, b"%d" % number)
        if number % 2:
            two.rig.wait(lambda there=there: there in two.b.frames)  # type: ignore[misc]
            two.rig.a.close(here)
    two.rig.wait(lambda: len(two.b.frames) == 5)
    assert len({here for here, _ in streams}) == len({there for _, there in streams}) == 5
    assert [two.b.frames[there] for _, there in streams] == [[b"%d" % n] for n in range(5)]


def test_a_stream_that_is_not_known_is_nobodys(two: Two) -> None:
    two.rig.a.send(12345678, b"x")
    two.rig.a.close(12345678)
    two.rig.rest()
    assert not two.a.ends and not two.b.accepts
