"""Benchmark of the placer: placements a second of CPU, without shards, journal or network.

Run `script/bench placement`. Hosts come in five shapes, half full, as in the benchmark set's
"decide". Except in one case inventories are silent, so room only shrinks, and every index is made
anew before it is full. Members with conditions come one a call: each with a label of its own, or
many with one, so that ever more hosts are closed to the next. It must not be read as a figure of
the whole path: see the end-to-end benchmarks.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from peloton.actors.resources import UNIT, Resources  # noqa: E402
from peloton.placement.messages import (  # noqa: E402
    Constraint,
    HostDeltas,
    HostSummary,
    Label,
    Placed,
    Shape,
    Wish,
)
from peloton.placement.placer import Placer  # noqa: E402
from peloton.runtime.vocabulary import Bits, Key, Message  # noqa: E402

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
        running = ((Label("app", f"a{at % 50}"), 1),)
        name = Key(f"host/h{at}")
        found.append(HostSummary(name, 1, capacity, free, labels, True, 1000, running))
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


def conditions(hosts: int, calls: int) -> dict[str, list[Shape]]:
    """Shapes of single members that depend on labels, on tasks or on ports, by turns."""
    small, job = SMALL.resources, Label("job", "j")
    jobs = [Label("job", f"j{at}") for at in range(calls)]
    names = (at for at in range(hosts) if at % 97 and at % 89)  # those with something free
    return {
        "rack by turns": [_where("host", Label("rack", f"r{at}")) for at in range(50)],
        "a host each": [
            _where("host", Label("hostname", f"h{at}")) for at, _ in zip(names, jobs, strict=False)
        ],
        "beside a task": [_where("task", Label("app", f"a{at}")) for at in range(50)],
        "none of its own label": [
            Shape(small, constraint=Constraint("label", "task", each, "less", 1), labels=(each,))
            for each in jobs
        ],
        "none of one label": [
            Shape(small, constraint=Constraint("label", "task", job, "less", 1), labels=(job,))
        ],
        "apart, a job each": [
            Shape(small, strategy="spread", labels=(each,), apart=each) for each in jobs
        ],
        "apart, one job": [Shape(small, strategy="spread", labels=(job,), apart=job)],
        "fixed port by turns": [Shape(small, fixed_ports=(31_000 + at,)) for at in range(100)],
        "one fixed port": [Shape(small, fixed_ports=(31_000,))],
        "dynamic ports": [Shape(small, ports=2)],
    }


def _where(kind: str, label: Label) -> Shape:
    return Shape(SMALL.resources, constraint=Constraint("label", kind, label, "greater", 0))


def placer(summaries: tuple[HostSummary, ...]) -> Placer:
    made = Placer(Key("placer/0"))
    made.receive([(None, HostDeltas(Key("inventory/0"), 1, summaries, True))], 0.0)
    return made


def run(
    summaries: tuple[HostSummary, ...], calls: Sequence[list[tuple[Key | None, Message]]]
) -> tuple[float, int]:
    """Seconds of CPU and members placed."""
    made = placer(summaries)
    sends = []
    begun = time.process_time()
    for call in calls:
        sends += made.receive(call, 0.0)
    took = time.process_time() - begun
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
        begun = time.process_time()
        sends = made.receive([*reports, *call], 0.0)
        took += time.process_time() - begun
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
    parser.add_argument("--singles", type=int, default=5_000, help="calls of one member")
    parser.add_argument("--only", default="", help="cases with this in their names")
    chosen = parser.parse_args()
    cases: dict[str, Callable[[], list[list[tuple[Key | None, Message]]]]] = {
        "1000 members, pack": lambda: wishes([SMALL], 1000, 50, 1),
        "1000 members, pack, 100 shapes": lambda: wishes(SHAPES, 1000, 50, 1),
        "1000 members, pack, large": lambda: wishes([LARGE], 1000, 5, 1),
        "1000 members, pack, zone": lambda: wishes([ZONE], 1000, 50, 1),
        "1000 members, spread": lambda: wishes([SPREAD], 1000, 50, 1),
        "single, one a call": lambda: wishes([SMALL], 1, chosen.singles, 1),
        "single, one a call, 100 shapes": lambda: wishes(SHAPES, 1, chosen.singles, 1),
        "single, one a call, zone": lambda: wishes([ZONE], 1, chosen.singles, 1),
        "single, one a call, spread": lambda: wishes([SPREAD], 1, chosen.singles, 1),
        "single, 100 a call": lambda: wishes([SMALL], 1, 100, 100),
        "single, 100 a call, 100 shapes": lambda: wishes(SHAPES, 1, 100, 100),
        REPORTED: lambda: wishes([SMALL], 1, chosen.singles, 1),
        "singles among batches": lambda: [
            call for n in range(40) for call in wishes([SMALL], 1000 if n % 4 == 0 else 1, 1, 1)
        ],
    }
    for count in chosen.hosts:
        summaries = hosts(count)
        begun = time.process_time()
        placer(summaries)
        print(f"{count:,} hosts: snapshot read in {(time.process_time() - begun) * 1e3:.0f} ms")
        of_conditions = {
            f"single, {name}": partial(wishes, shapes, 1, chosen.singles, 1)
            for name, shapes in conditions(count, chosen.singles).items()
        }
        for name, make in (cases | of_conditions).items():
            if chosen.only not in name:
                continue
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
