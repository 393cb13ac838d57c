"""What a process has used, as the kernel counts it, and figures as text.

Turns /proc and lists of durations into seconds, bytes and quantiles. It must not judge a figure:
no limit stands here, and no benchmark gates a test.
"""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = resource.getpagesize()
SYNCS = 50


def cpu_s(pid: int) -> float:
    """User and system seconds of a process, children that it waited for left out."""
    fields = _stat(Path(f"/proc/{pid}"))
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def cpu_of_tree_s(pid: int) -> float:
    """The same of a process and of all its descendants that live."""
    return sum(map(cpu_s, tree(pid)))


def cpu_of_children_s(pid: int) -> float:
    """User and system seconds of all children of a process that have ended."""
    fields = _stat(Path(f"/proc/{pid}"))
    return (int(fields[13]) + int(fields[14])) / TICKS_PER_S


def cpu_of_threads_s(pid: int, name: str) -> float:
    """User and system seconds of the threads with this name, in a process and its descendants."""
    found = 0
    for process in tree(pid):
        for thread in Path(f"/proc/{process}/task").iterdir():
            # A thread may end while we look; what it used is then in the process's sum only.
            with contextlib.suppress(OSError):
                if (thread / "comm").read_text().rstrip() == name:
                    fields = _stat(thread)
                    found += int(fields[11]) + int(fields[12])
    return found / TICKS_PER_S


def tree(pid: int) -> list[int]:
    """A process and all its descendants that live."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                children.setdefault(int(_stat(process)[1]), []).append(int(process.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def _stat(folder: Path) -> list[str]:
    # The name in parentheses may hold anything, so the fields are counted from behind it.
    return (folder / "stat").read_text().rpartition(")")[2].split()


def peak_bytes(pid: int) -> int:
    """The most memory of a process that was in RAM at once."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(dict(line.split(":", 1) for line in lines)["VmHWM"].split()[0]) * 1024


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def written_bytes(pid: int) -> int:
    """What a process had written to disks (not merely to the page cache)."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["write_bytes"])


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of all does not exceed; 0 where there is none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def spread(values: Sequence[float], *, unit: str = "ms", factor: float = 1e3) -> str:
    """p50 and p99 as text, of durations in seconds unless told otherwise."""
    p50, p99 = quantile(values, 0.5) * factor, quantile(values, 0.99) * factor
    return f"p50 {p50:.3g} {unit}, p99 {p99:.3g} {unit}"


def ratio(pairs: Sequence[tuple[float, float]]) -> str:
    """Of pairs measured side by side: the median of the ratios, with the least and the largest.

    Pairs too short for the clock, which counts CPU in ticks of 10 ms, are left out.
    """
    ratios = [above / below for above, below in pairs if below > 0]
    if not ratios:
        return "too short to measure"
    if len(ratios) == 1:
        return f"{ratios[0]:.2f}"
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def syncs(folder: Path) -> list[float]:
    """Seconds of some appends, each with its fdatasync."""
    times = []
    with (folder / "probe").open("ab", buffering=0) as file:
        for _ in range(SYNCS):
            begun = time.perf_counter()
            file.write(bytes(256))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begun)
    return times


def machine(folder: Path) -> Iterator[str]:
    """What the figures were measured on, in lines: without it they say nothing."""
    begun = time.perf_counter()
    for _ in range(1_000_000):
        pass
    empty_ns = (time.perf_counter() - begun) * 1e3
    times = syncs(folder)
    yield (
        f"# {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}; "
        f"a step of a loop {empty_ns:.0f} ns; append and fdatasync {spread(times)}"
    )
