"""What passes between two daemons: bare streams, and envelopes as shards send them; plain and TLS.

    script/bench exchange                      everything, about a quarter of a minute
    script/bench exchange --envelopes 100000 --pairs 3

Two processes on loopback. Bare streams carry frames under a window as a link's; above them stand
both peer shells, with the packing of all kinds, so that an envelope is packed, carried, unpacked
and delivered. Plain and TLS take turns. CPU is of both processes, all threads. Every run counts
what arrived, and ends if anything is missing. It must not gate a test, and what it prints can be
compared within one run only.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts import far  # noqa: E402
from bench.parts.measure import cpu_s, machine, quantile, ratio, spread  # noqa: E402
from peloton.actors.host.messages import Launch
from peloton.actors.host.run_spec import RunSpec  # noqa: E402
from peloton.actors.job.slice.messages import ListInstances  # noqa: E402
from peloton.actors.resources import UNIT, Resources  # noqa: E402
from peloton.actors.task.messages import Started  # noqa: E402
from peloton.runtime.adapters.grpc_exchange import GrpcExchange, Tls  # noqa: E402
from peloton.runtime.core.turning.envelope import Envelope  # noqa: E402
from peloton.runtime.ports import ShardId  # noqa: E402
from peloton.runtime.shells.collector import Collector  # noqa: E402
from peloton.runtime.shells.peer_messages import Outbound  # noqa: E402
from peloton.runtime.shells.shell_messages import send  # noqa: E402
from peloton.runtime.vocabulary import Key  # noqa: E402
from tests.adapters.pems import Authority  # noqa: E402

WAIT_S_MAX = 120.0
JOB = "5f4dcc3b-5aa7-65d6-1d83-27deb882cf99"
SPEC = RunSpec(Resources(UNIT, 100 * UNIT, 0, 0), "python -m work --shard 17")
OUTSTANDING = 64
"""Asks under way at once, where not one after the other."""


class Took(NamedTuple):
    """What some work took: seconds, and those of CPU on both sides."""

    wall_s: float
    here_s: float
    far_s: float

    @property
    def cpu_s(self) -> float:
        """Both sides."""
        return self.here_s + self.far_s


class Far:
    """The other process."""

    def __init__(self, mode: str, tls: Tls | None) -> None:
        command = [sys.executable, far.__file__, mode, *map(str, tls[:3] if tls else ())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            raise SystemExit("the other side did not start")

    @contextlib.contextmanager
    def counted(self) -> Iterator[list[Took]]:
        """What passes meanwhile took; the list has one at the end."""
        took: list[Took] = []
        far_s, here_s, begun = cpu_s(self._process.pid), time.process_time(), time.perf_counter()
        yield took
        wall_s, here_s = time.perf_counter() - begun, time.process_time() - here_s
        took.append(Took(wall_s, here_s, cpu_s(self._process.pid) - far_s))

    def close(self) -> None:
        """End it, and wait for that."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=10)
        self._process.kill()
        self._process.wait()


class RawSide:
    """A stream of bare frames to another process."""

    def __init__(self, tls: Tls | None) -> None:
        self.far = Far("raw", tls)
        self._exchange = GrpcExchange("127.0.0.1:0", tls=tls)
        self._came = threading.Condition()
        self._credit, self._echoes = far.WINDOW, 0
        self._exchange.listen(self)
        self._stream = self._exchange.dial(self.far.address)
        self.trips(1)

    def accepted(self, stream: int) -> None:
        """Nobody dials us."""

    def arrived(self, stream: int, data: bytes) -> None:
        """An echo, or credit."""
        with self._came:
            if data[:1] == far.ECHO:
                self._echoes += 1
            else:
                self._credit += far.WINDOW // 4
            self._came.notify()

    def closed(self, stream: int, text: str) -> None:
        """Whoever waits gives up by its time."""
        print(f"the stream is closed: {text}", file=sys.stderr)

    def frames(self, count: int, *, size_bytes: int) -> Took:
        """So many, as fast as the window allows; a multiple of the window."""
        data = far.TAKE + bytes(size_bytes - 1)
        with self.far.counted() as took:
            for _ in range(count):
                with self._came:
                    self._wait(lambda: self._credit > 0)
                    self._credit -= 1
                self._exchange.send(self._stream, data)
            with self._came:
                self._wait(lambda: self._credit == far.WINDOW)
        return took[0]

    def trips(self, count: int) -> list[float]:
        """Seconds there and back, one after the other."""
        times = []
        data = far.ECHO + bytes(99)
        for _ in range(count):
            wanted = self._echoes + 1
            begun = time.perf_counter()
            self._exchange.send(self._stream, data)
            with self._came:
                self._wait(lambda wanted=wanted: self._echoes >= wanted)
            times.append(time.perf_counter() - begun)
        return times

    def _wait(self, until: Any) -> None:
        if not self._came.wait_for(until, WAIT_S_MAX):
            raise SystemExit("frames did not arrive")

    def close(self) -> None:
        """Both sides."""
        self._exchange.stop()
        self.far.close()


class ShellSide:
    """A peer shell whose peer is another process."""

    def __init__(self, tls: Tls | None) -> None:
        self.far = Far("shell", tls)
        self._exchange = GrpcExchange("127.0.0.1:0", tls=tls)
        self.peer = far.FAR
        """To whom envelopes go."""
        self._ref, self._threads = far.begin(far.HERE, self._exchange, other=self.far.address)
        until = time.monotonic() + WAIT_S_MAX
        while not isinstance(self.received(), int):
            if time.monotonic() > until:
                raise SystemExit("the peers do not meet")
            time.sleep(0.01)

    def received(self) -> Any:
        """How many envelopes arrived there: the query goes behind all that was sent before."""
        return self._ask(ListInstances(0, 0)).result(WAIT_S_MAX)

    def envelopes(self, count: int, *, batch: int) -> Took:
        """So many, as shards send them: some to one place at a time."""
        before = self.received()
        parts = [range(at, min(at + batch, count)) for at in range(0, count, batch)]
        letters = [_outbound(part)._replace(peer=self.peer) for part in parts]
        with self.far.counted() as took:
            for letter in letters:
                send(self._ref, letter)
            arrived = self.received() - before
        if arrived != count:
            raise SystemExit(f"{arrived} of {count} envelopes arrived")
        return took[0]

    def asks(self, count: int) -> list[float]:
        """Seconds from an ask to its answer, one after the other."""
        times = []
        for _ in range(count):
            begun = time.perf_counter()
            self._answered(self._ask(ListInstances(0, 1)))
            times.append(time.perf_counter() - begun)
        return times

    def many_asks(self, count: int) -> Took:
        """So many, a number of them under way at once."""
        with self.far.counted() as took:
            for at in range(0, count, OUTSTANDING):
                some = range(min(OUTSTANDING, count - at))
                for future in [self._ask(ListInstances(0, 1)) for _ in some]:
                    self._answered(future)
        return took[0]

    def _ask(self, query: ListInstances) -> Future[Any]:
        future: Future[Any] = Future()
        sent: Any = query
        envelope = Envelope(Key(f"slice/{JOB}/0"), sent, reply_to=future)
        send(self._ref, Outbound(far.FAR, 1, ShardId("jobmgr", 3), [envelope]))
        return future

    def _answered(self, future: Future[Any]) -> None:
        answer = future.result(WAIT_S_MAX)
        if answer != (far.VIEW,):
            raise SystemExit(f"an ask was answered {answer}")

    def close(self) -> None:
        """Both sides."""
        self._threads.stop()
        self._exchange.stop()
        self.far.close()


def _outbound(numbers: range) -> Outbound:
    """Half of them orders to start a run, half of them reports that one runs."""
    tasks, sender = Key(f"task/{JOB}/0"), ShardId("hostmgr", 1)
    envelopes = []
    for number in numbers:
        member, host = 1 << number % 1000, Key(f"host/agent{number % 500}")
        if number % 2:
            envelopes.append(Envelope(tasks, Started(1), member, sender=host))
        else:
            envelopes.append(Envelope(host, Launch(1, SPEC), sender=tasks, origin=member))
    return Outbound(far.FAR, 1, ShardId("jobmgr", 3), envelopes, sender, 7)


# ---- the tables ----


def streams(sides: dict[str, RawSide], chosen: argparse.Namespace) -> Iterator[str]:
    """Bare frames."""
    for size_bytes in chosen.sizes:
        # Few of the large ones: what counts is that the window turns over many times.
        count = max(1, min(chosen.frames, chosen.frames * 4096 // size_bytes) // far.WINDOW)
        count *= far.WINDOW
        took: dict[str, list[Took]] = defaultdict(list)
        for name, side in _turns(sides, chosen.pairs):
            took[name].append(side.frames(count, size_bytes=size_bytes))
        for name, some in took.items():
            wall_s, used_s = sum(t.wall_s for t in some), sum(t.cpu_s for t in some)
            frames = count * len(some)
            yield (
                f"frames {name:<5} {size_bytes:>7,} B  {frames / wall_s:>8,.0f} frames/s "
                f"{frames * size_bytes / wall_s / 1e6:>7,.1f} MB/s  "
                f"cpu {used_s / frames * 1e6:,.1f} us a frame, both sides"
            )
        yield _rates(took)
    trips: dict[str, list[list[float]]] = defaultdict(list)
    took = defaultdict(list)
    for name, side in _turns(sides, chosen.pairs):
        with side.far.counted() as some:
            trips[name].append(side.trips(chosen.trips))
        took[name] += some
    yield from _latencies("frame, there and back", trips)
    yield from _single(took, count=2 * chosen.trips * chosen.pairs)


def shells(sides: dict[str, ShellSide], chosen: argparse.Namespace) -> Iterator[str]:
    """Envelopes and asks."""
    for batch in chosen.batches:
        took: dict[str, list[Took]] = defaultdict(list)
        for name, side in _turns(sides, chosen.pairs):
            took[name].append(side.envelopes(chosen.envelopes, batch=batch))
        yield from _envelopes(f"by {batch}", took, count=chosen.envelopes)
    took = defaultdict(list)
    for name, side in _turns(sides, chosen.pairs):
        took[name].append(side.many_asks(chosen.asks))
    yield from _envelopes(f"asks, {OUTSTANDING} at once", took, count=chosen.asks)
    trips: dict[str, list[list[float]]] = defaultdict(list)
    for name, side in _turns(sides, chosen.pairs):
        trips[name].append(side.asks(chosen.trips))
    yield from _latencies("ask and answer", trips)


def _envelopes(what: str, took: dict[str, list[Took]], *, count: int) -> Iterator[str]:
    for name, some in took.items():
        every = count * len(some) / 1000
        here_s, far_s = sum(t.here_s for t in some), sum(t.far_s for t in some)
        yield (
            f"envelopes {name:<5} {what:<18} "
            f"{1000 * every / sum(t.wall_s for t in some):>8,.0f} /s  cpu per 1000: "
            f"{here_s / every * 1e3:.1f} ms here, {far_s / every * 1e3:.1f} ms there"
        )
    yield _rates(took)


def _single(took: dict[str, list[Took]], *, count: int) -> Iterator[str]:
    """What a frame costs that travels alone: between daemons with little to say, most do."""
    for name, some in took.items():
        used_s = sum(each.cpu_s for each in some)
        yield f"frame alone {name:<5} cpu {used_s / count * 1e6:,.0f} us, both sides"


def _latencies(what: str, trips: dict[str, list[list[float]]]) -> Iterator[str]:
    for name, some in trips.items():
        yield f"{what} {name:<5} {spread([each for times in some for each in times])}"
    halves = {name: [quantile(times, 0.5) for times in some] for name, some in trips.items()}
    yield f"{'':7}TLS / plain: p50 {ratio([*zip(halves['tls'], halves['plain'], strict=True)])}"


def _rates(took: dict[str, list[Took]]) -> str:
    both = [*zip(took["tls"], took["plain"], strict=True)]
    walls = ratio([(a.wall_s, b.wall_s) for a, b in both])
    return f"{'':7}TLS / plain: time {walls}, cpu {ratio([(a.cpu_s, b.cpu_s) for a, b in both])}"


def _turns(sides: dict[str, Any], pairs: int) -> Iterator[tuple[str, Any]]:
    """Each as often, by turns, so that a slow moment of the machine is everybody's."""
    for turn in range(pairs):
        yield from [*sides.items()][:: 1 if turn % 2 == 0 else -1]


def run(chosen: argparse.Namespace) -> Iterator[str]:
    """Lines, each when it is measured."""
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(tempfile.TemporaryDirectory(prefix="peloton-bench-"))
        yield from machine(Path(made))
        ways = {"plain": None, "tls": Authority(Path(made) / "pems").issue("peer")}
        raw = {name: RawSide(tls) for name, tls in ways.items()}
        for side in raw.values():
            stack.callback(side.close)
        yield from streams(raw, chosen)
        above = {name: ShellSide(tls) for name, tls in ways.items()}
        for each in above.values():
            stack.callback(each.close)
        yield from shells(above, chosen)


def options(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 4096, 65536, 262144])
    parser.add_argument("--frames", type=int, default=12_800, help="of 4 KB or less, in one turn")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 10, 100], help="envelopes")
    parser.add_argument("--envelopes", type=int, default=20_000, help="in one turn")
    parser.add_argument("--asks", type=int, default=5_000, help="in one turn")
    parser.add_argument("--trips", type=int, default=1_000, help="in one turn")
    parser.add_argument("--pairs", type=int, default=5, help="how often each has its turn")
    return parser.parse_args(args)


if __name__ == "__main__":
    Collector().own()  # as daemons do
    for line in run(options()):
        print(line, flush=True)
