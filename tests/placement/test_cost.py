"""What one wish costs must not grow with the number of hosts: counted, not timed.

Lines of the placer that run stand for what Python does. The most memory that a call allocates
stands for what arrays do: a scan allocates at least one byte a host.
"""

from __future__ import annotations

import statistics
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import msgspec
import pytest

import peloton.placement
from peloton.placement.messages import HostDeltas, HostSummary, Label, Placed, Shape, Wish
from peloton.placement.placer import Placer
from peloton.placement.reasons import HostChecks
from peloton.runtime.vocabulary import Bits, Key, Message, Send

from .hosts import INVENTORY, SLICE, host, label, placer_of, res

FOLDER = str(Path(peloton.placement.__file__).parent)
FEW, MANY = 1_000, 8_000
CALLS = 100  # as many again come first, in which the orders are built

Call = list[tuple[Key | None, Message]]
Calls = Callable[[list[HostSummary]], Iterator[Call]]


def cluster(count: int) -> list[HostSummary]:
    """Hosts of many sizes, one in eleven with cpu left but no memory."""
    return [
        host(
            f"h{n}",
            res(1 + n * 7919 % 97 / 3, n * 104729 % 11 * 500, 100),
            labels=(Label("zone", f"z{n % 5}"), Label("rack", f"r{n % 20}")),
            ports=9,
            running=((Label("app", f"a{n}"), 1),),
        )
        for n in range(count)
    ]


def starved(count: int) -> list[HostSummary]:
    """The tightest three in four hosts have cpu left but no memory."""
    lasts = range(count - count // 4, count)
    return [host(f"h{n}", res(1 + n / count, 50 * (n in lasts), 100)) for n in range(count)]


def wishes(number: int, shapes: list[Shape], count: int) -> Call:
    numbers = range(number, number + count)
    return [(SLICE, Wish(SLICE, n, Bits.of(0), shapes[n % len(shapes)])) for n in numbers]


def calls_of(*shapes: Shape, count: int = 1) -> Calls:
    return lambda _: (wishes(n * count, [*shapes], count) for n in range(2 * CALLS))


def with_reports(hosts: list[HostSummary]) -> Iterator[Call]:
    """With each wish another host reports what it has free."""
    for n in range(2 * CALLS):
        some = hosts[n * 31 % len(hosts)]
        summary = msgspec.structs.replace(some, position=n + 2, free=res(n % 40, n % 9, 9))
        yield [(INVENTORY, HostDeltas(INVENTORY, n + 2, (summary,))), *wishes(n, [PACK], 1)]


def counted(run: Callable[[], None]) -> tuple[int, int]:
    """How many lines of the placer run, and how often it scans all hosts."""
    lines = scans = 0

    def traced(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines, scans
        lines += event == "line"
        scans += event == "call" and frame.f_code is HostChecks.fit.__code__
        return traced if frame.f_code.co_filename.startswith(FOLDER) else None

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        run()
    finally:
        sys.settrace(before)
    return lines, scans


class Cost(NamedTuple):
    """What calls cost; those counted as `lines` and `peak` scan no hosts."""

    first: float  # lines of the first calls, in which orders are built
    lines: float  # of one call after that
    peak: float  # bytes that half of those calls do not exceed


def cost(hosts: list[HostSummary], calls: Calls) -> Cost:
    placer = placer_of(hosts)
    lines, peaks = [0, 0], []
    for number, call in enumerate(calls(hosts)):
        later = number >= CALLS
        if number == CALLS:
            tracemalloc.start()
        sends: list[Send] = []
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        some, scans = counted(partial(_receive, placer, call, sends))
        lines[later] += some
        if later:
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
            assert not scans
        wanted = sum(isinstance(message, Wish) for _, message in call)
        placed = [send.message for send in sends if isinstance(send.message, Placed)]
        assert sum(len(answer.members) for answer in placed) == wanted
    tracemalloc.stop()
    return Cost(lines[0] / CALLS, lines[1] / CALLS, statistics.median(peaks))


def _receive(placer: Placer, call: Call, sends: list[Send]) -> None:
    sends += placer.receive(call, 0.0)


PACK = Shape(res(0.1, 1))
MIXED = [Shape(res(0.1 + n % 10 / 10, 1 + n % 7)) for n in range(70)]
ZONE = Shape(res(0.1, 1), constraint=label("host", "zone", "z3"))
RACKS = [Shape(res(0.1, 1), constraint=label("host", "rack", f"r{n}")) for n in range(8)]
NAMES = [Shape(res(0.1, 1), constraint=label("host", "hostname", f"h{n}")) for n in range(2, 9)]
BESIDE = [Shape(res(0.1, 1), constraint=label("task", "app", f"a{n}")) for n in range(2, 9)]
JOBS = [Label("job", f"j{n}") for n in range(2 * CALLS)]
ALONE = [
    Shape(res(0.1, 1), constraint=label("task", "job", job.value, "less", 1), labels=(job,))
    for job in JOBS
]
APART = [Shape(res(0.1, 1), strategy="spread", labels=(job,), apart=job) for job in JOBS]


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param(calls_of(PACK), id="pack"),
        pytest.param(calls_of(*MIXED), id="many shapes"),
        pytest.param(calls_of(ZONE), id="zone"),
        pytest.param(calls_of(Shape(res(0.1, 1), strategy="spread")), id="spread"),
        pytest.param(calls_of(*MIXED, count=7), id="seven a call"),
        pytest.param(calls_of(*RACKS), id="racks"),
        pytest.param(calls_of(*NAMES), id="hosts by name"),
        pytest.param(calls_of(*BESIDE), id="beside a task"),
        pytest.param(calls_of(*ALONE), id="none of its job"),
        pytest.param(calls_of(ALONE[0]), id="none of one job"),
        pytest.param(calls_of(*APART), id="apart"),
        pytest.param(calls_of(APART[0]), id="apart, one job"),
        pytest.param(calls_of(Shape(res(0.1, 1), ports=4)), id="ports"),
        pytest.param(calls_of(Shape(res(0.1, 1), fixed_ports=(80,))), id="a fixed port"),
        pytest.param(with_reports, id="with reports"),
    ],
)
def test_a_wish_costs_the_same_among_few_hosts_and_many(calls: Calls) -> None:
    few, many = cost(cluster(FEW), calls), cost(cluster(MANY), calls)
    assert many.lines < 1.2 * few.lines + 20
    assert many.peak < 1.2 * few.peak + 1_000
    assert many.first * CALLS < 1.2 * few.first * CALLS + MANY


def test_hosts_without_memory_are_passed_by_in_blocks() -> None:
    """A line or so for every thirty of them, and no scan."""
    calls = calls_of(PACK)
    few, many = cost(starved(FEW), calls), cost(starved(2 * MANY), calls)
    assert many.lines < few.lines + 2 * MANY / 30
    assert many.peak < 1.2 * few.peak + 1_000
