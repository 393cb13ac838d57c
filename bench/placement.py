"""Benchmark of the placer: placements a second, without shards, journal or network.

Run `python bench/placement.py`. Hosts come in five shapes, half full, as in the benchmark set's
"decide". Except in one case inventories are silent, so room only shrinks, and every index is made
anew before it is full. It must not be read as a figure of the whole path: see the end-to-end
benchmarks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import msgspec

from peloton.actors.resources import UNIT, Resources
from peloton.placement.messages import (
    Constraint,
    HostDeltas,
    HostSummary,
    Label,
    Placed,
    Shape,
    Wish,
)
from peloton.placement.placer import Placer
from peloton.runtime.vocabulary import Bits, Key, Message

KINDS = ((16, 64), (32, 128), (48, 96), (64, 256), (96, 384))  # cpu, GB of memory


def res(cpu: float, memory_mb: float, disk_mb: float) -> Resources:
    return Resources(round(cpu * UNIT), round(memory_mb * UNIT), round(disk_mb * UNIT))


def hosts(count: int) -> tuple[HostSummary, ...]:
    found = []
    for at in range(count):
        cpu, memory_gb = KINDS[at % len(KINDS)]
        capacity = res(cpu, memory_gb * 1024, 500_000)
        used = (at * 7919 % 97) / 97
        free = res(cpu * used, memory_gb * 1024 * (at * 104729 % 89) / 89, 400_000)
        labels = (Label("rack", f"r{at % 50}"), Label("zone", f"z{at % 5}"))
        found.append(HostSummary(Key(f"host/h{at}"), 1, capacity, free, labels, True, 1000))
    return tuple(found)


SMALL = Shape(res(0.1, 32, 32))
SHAPES = [Shape(res(0.1 + at % 10 / 10, 32 * (1 + at % 7), 32)) for at in range(100)]
ZONE = Shape(
    res(0.1, 32, 32),
    constraint=Constraint("label", "host", Label("zone", "z3"), "greater", 0),
)
SPREAD = Shape(res(0.1, 32, 32), strategy="spread")
REPORTED = "single, and its host reports"
LARGE = Shape(res(4, 8192, 1024))


def placer(summaries: tuple[HostSummary, ...]) -> Placer:
    made = Placer(Key("placer/0"))
    made.receive([(None, HostDeltas(Key("inventory/0"), 1, summaries, True))], 0.0)
    return made


def run(
    summaries: tuple[HostSummary, ...], calls: Sequence[list[tuple[Key | None, Message]]]
) -> tuple[float, int]:
    """Seconds and members placed."""
    made = placer(summaries)
    sends = []
    begun = time.perf_counter()
    for call in calls:
        sends += made.receive(call, 0.0)
    took = time.perf_counter() - begun
    said = [send.message for send in sends]
    return took, sum(len(m.members) for m in said if isinstance(m, Placed))


def wishes(
    shapes: Sequence[Shape], members: int, calls: int, per_call: int
) -> list[list[tuple[Key | None, Message]]]:
    bits = Bits.span(0, members)
    made: list[list[tuple[Key | None, Message]]] = []
    for call in range(calls):
        numbers = range(call * per_call, (call + 1) * per_call)
        made.append(
            [(None, Wish(Key("slice/j/0"), n, bits, shapes[n % len(shapes)])) for n in numbers]
        )
    return made


def run_reported(
    summaries: tuple[HostSummary, ...], calls: Sequence[list[tuple[Key | None, Message]]]
) -> tuple[float, int]:
    """The same, with the report of each host that accepted in front of the next wish."""
    made = placer(summaries)
    hosts = {summary.host: summary for summary in summaries}
    reports: list[tuple[Key | None, Message]] = []
    took, placed = 0.0, 0
    for sequence, call in enumerate(calls, start=2):
        begun = time.perf_counter()
        sends = made.receive([*reports, *call], 0.0)
        took += time.perf_counter() - begun
        names = [name for send in sends for name in send.message.hosts]
        placed += len(names)
        for name in names:
            old = hosts[name]
            hosts[name] = msgspec.structs.replace(
                old,
                position=old.position + 1,
                launches=old.launches + 1,
                free=old.free - SMALL.resources,
            )
        changed = tuple(hosts[name] for name in dict.fromkeys(names))
        reports = [(None, HostDeltas(Key("inventory/0"), sequence, changed))]
    return took, placed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="*", default=[1_000, 10_000, 50_000])
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    cases: dict[str, Callable[[], list[list[tuple[Key | None, Message]]]]] = {
        "1000 members, pack": lambda: wishes([SMALL], 1000, 50, 1),
        "1000 members, pack, 100 shapes": lambda: wishes(SHAPES, 1000, 50, 1),
        "1000 members, pack, large": lambda: wishes([LARGE], 1000, 5, 1),
        "1000 members, pack, zone": lambda: wishes([ZONE], 1000, 50, 1),
        "1000 members, spread": lambda: wishes([SPREAD], 1000, 50, 1),
        "single, one a call": lambda: wishes([SMALL], 1, 5000, 1),
        "single, one a call, 100 shapes": lambda: wishes(SHAPES, 1, 5000, 1),
        "single, one a call, zone": lambda: wishes([ZONE], 1, 5000, 1),
        "single, one a call, spread": lambda: wishes([SPREAD], 1, 5000, 1),
        "single, 100 a call": lambda: wishes([SMALL], 1, 100, 100),
        "single, 100 a call, 100 shapes": lambda: wishes(SHAPES, 1, 100, 100),
        REPORTED: lambda: wishes([SMALL], 1, 5000, 1),
        "singles among batches": lambda: [
            call for n in range(40) for call in wishes([SMALL], 1000 if n % 4 == 0 else 1, 1, 1)
        ],
    }
    for count in chosen.hosts:
        summaries = hosts(count)
        begun = time.perf_counter()
        placer(summaries)
        print(f"{count:,} hosts: snapshot read in {(time.perf_counter() - begun) * 1e3:.0f} ms")
        for name, make in cases.items():
            calls = make()
            play = run_reported if name == REPORTED else run
            took, placed = min(play(summaries, calls) for _ in range(chosen.rounds))
            each_us = took / max(1, sum(map(len, calls))) * 1e6
            print(
                f"  {name:<32} {placed / took:>12,.0f} placements/s {each_us:>9.1f} us a wish"
                f"  {placed:>7,} placed"
            )


if __name__ == "__main__":
    main()
