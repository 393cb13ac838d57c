"""What a task costs through the keeper, beside a bare spawn of the same program: CPU, not time.

    script/bench keeper                                  2,000 tasks at each width, half a minute
    script/bench keeper --tasks 500 --in-flight 1 64
    script/bench keeper --other ../before                beside the keeper of another checkout
    script/bench keeper --limits                         and beside itself, with tasks in groups
    script/bench keeper --folder /dev/shm                without the cost of a disk's file system

The CPU of a keeper counts its own and all of its ended children's, as the kernel has them. Rounds
of the keepers and of bare spawns alternate, and ratios are of neighbours in time. The client's own
CPU is left out: it is the daemon's. Each run must end once and succeed; a figure of a keeper that
lost one would be worth nothing. It must not gate a test.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import queue
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts.measure import TICKS_PER_S, machine, ratio, resident_bytes  # noqa: E402
from bench.parts.spawn import PROGRAM, BareSpawner  # noqa: E402
from peloton.backends.keeper_messages import (  # noqa: E402
    KeeperRunEnded,
    KeeperRunsListed,
    RunLimits,
    RunReport,
    RunRequest,
)
from peloton.backends.process_runs import KeeperSettings, ProcessRuns  # noqa: E402

HOST = "host-1"
WAIT_S_MAX = 120.0
REPOSITORY = Path(__file__).resolve().parent.parent
LIMITS = RunLimits("enforce", cpu=1.0, pids=64, disk_mb=100.0)
KEEPER = Path("peloton", "backends", "keeper", "__main__.py")


class TaskCpu(NamedTuple):
    """CPU seconds of a round, by task."""

    own_s: float
    children_s: float

    @property
    def all_s(self) -> float:
        """Of the keeper and of the tasks."""
        return self.own_s + self.children_s


class MeasuredKeeper:
    """The keeper of a checkout, in a folder of its own, with a client."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        checkout: Path = REPOSITORY,
        program: str = PROGRAM,
        limits: RunLimits | None = None,
    ) -> None:
        self.name = name
        self._program = program
        self._limits = limits
        self.ended = 0
        self._reports: queue.SimpleQueue[RunReport] = queue.SimpleQueue()
        self._numbers = itertools.count()
        settings = KeeperSettings(idle_s=1.0)
        command = [sys.executable, "-I", "-S", str(checkout / KEEPER), str(folder)]
        subprocess.run([*command, *map(str, settings)], check=True, stdin=subprocess.DEVNULL)
        self.pid = int((folder / "lock").read_text())
        self._runs = ProcessRuns(folder, self._reports.put, settings=settings)
        self._runs.hello(HOST, 1)

    def run(self, tasks: int, *, in_flight: int) -> TaskCpu:
        """So many tasks, this many of them at a time."""
        own_s, children_s = self._cpu_s()
        open_runs: set[str] = set()
        launched = 0
        while launched < tasks or open_runs:
            fresh = min(tasks - launched, in_flight - len(open_runs))
            if fresh:
                open_runs.update(self._launch(fresh))
                launched += fresh
            self._settle(open_runs)
        own_after_s, children_after_s = self._cpu_s()
        return TaskCpu((own_after_s - own_s) / tasks, (children_after_s - children_s) / tasks)

    def check(self) -> None:
        """That the keeper holds nothing that was not acknowledged. Ends the benchmark if not."""
        self._runs.list(HOST)
        report = self._next_report()
        while not isinstance(report, KeeperRunsListed):
            report = self._next_report()
        if report.runs:
            raise SystemExit(f"{self.name}: {len(report.runs)} runs are left over")

    def resident_mb(self) -> float:
        """Memory of the keeper itself."""
        return resident_bytes(self.pid) / 1e6

    def close(self) -> None:
        """Leave the keeper; it exits when it has been idle."""
        self._runs.close()

    def _launch(self, count: int) -> list[str]:
        ids = [f"run-{next(self._numbers)}-1" for _ in range(count)]
        memory_mb = 64.0 if self._limits is not None else 0.0
        requests = [
            RunRequest(
                run_id, HOST, self._program, shell=False, memory_mb=memory_mb, limits=self._limits
            )
            for run_id in ids
        ]
        self._runs.launch(HOST, 1, runs=requests)
        return ids

    def _settle(self, open_runs: set[str]) -> None:
        """Wait for an end, and acknowledge all that have come by then."""
        ends = []
        report: RunReport | None = self._next_report()
        while report is not None:
            if isinstance(report, KeeperRunEnded):
                if report.run_id not in open_runs or report.outcome != "SUCCEEDED":
                    raise SystemExit(f"{self.name}: an unexpected end: {report}")
                open_runs.discard(report.run_id)
                ends.append(report.run_id)
            report = None if self._reports.empty() else self._next_report()
        if ends:
            self.ended += len(ends)
            self._runs.ack(ends)

    def _next_report(self) -> RunReport:
        try:
            return self._reports.get(timeout=WAIT_S_MAX)
        except queue.Empty:
            raise SystemExit(f"{self.name}: no report for {WAIT_S_MAX:g} s") from None

    def _cpu_s(self) -> tuple[float, float]:
        """Its own, and its ended children's."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        user, system, children_user, children_system = map(int, fields[11:15])
        return (user + system) / TICKS_PER_S, (children_user + children_system) / TICKS_PER_S


def compare(
    keepers: Sequence[MeasuredKeeper], bare: BareSpawner, *, rounds: Sequence[int], in_flight: int
) -> Iterator[str]:
    """Lines of one width: what a task cost, and the ratios of neighbouring rounds."""
    spawns_s: list[float] = []
    used: dict[str, list[TaskCpu]] = {keeper.name: [] for keeper in keepers}
    for tasks in rounds:
        spawns_s.append(bare.run(tasks).cpu_s)
        for keeper in keepers:
            used[keeper.name].append(keeper.run(tasks, in_flight=in_flight))
    yield f"{in_flight} at a time: bare spawn {statistics.median(spawns_s) * 1e3:.2f} ms CPU a task"
    for name, rows in used.items():
        own, children, both = (
            statistics.median(pick) * 1e3
            for pick in zip(*((row.own_s, row.children_s, row.all_s) for row in rows), strict=True)
        )
        pairs = [(row.all_s, spawn_s) for row, spawn_s in zip(rows, spawns_s, strict=True)]
        yield (
            f"  {name}: {both:.2f} ms CPU a task (keeper {own:.2f}, children {children:.2f}); "
            f"keeper / bare spawn {ratio(pairs)}"
        )
    for other in keepers[1:]:
        first, second = used[keepers[0].name], used[other.name]
        pairs = [(one.all_s, two.all_s) for one, two in zip(first, second, strict=True)]
        yield f"  {keepers[0].name} / {other.name}: {ratio(pairs)}"


def run(options: argparse.Namespace) -> dict[str, int]:
    """Measure and print; returns how many runs ended, by keeper."""
    sizes = [options.tasks // options.rounds] * options.rounds
    checkouts = {"this keeper": REPOSITORY}
    if options.other is not None:
        checkouts["other keeper"] = options.other.resolve()
    with contextlib.ExitStack() as stack:
        place = tempfile.TemporaryDirectory(prefix="keeper-", dir=options.folder)
        folder = Path(stack.enter_context(place))
        bare = stack.enter_context(contextlib.closing(BareSpawner()))
        keepers = [
            stack.enter_context(
                contextlib.closing(MeasuredKeeper(name, folder / f"{n}", checkout=checkout))
            )
            for n, (name, checkout) in enumerate(checkouts.items())
        ]
        if options.limits:
            limited = MeasuredKeeper("in groups", folder / "limits", limits=LIMITS)
            keepers.append(stack.enter_context(contextlib.closing(limited)))
        for line in machine(folder):
            print(line)
        bare.run(sizes[0])
        for keeper in keepers:  # to warm up
            keeper.run(sizes[0], in_flight=max(options.in_flight))
        for in_flight in options.in_flight:
            for line in compare(keepers, bare, rounds=sizes, in_flight=in_flight):
                print(line, flush=True)
        for keeper in keepers:
            keeper.check()
            print(f"{keeper.name}: {keeper.ended} runs, {keeper.resident_mb():.1f} MB resident")
    return {keeper.name: keeper.ended for keeper in keepers}


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=2000, help="at each width")
    parser.add_argument("--rounds", type=int, default=10, help="into which they are divided")
    parser.add_argument("--in-flight", type=int, nargs="+", default=[64, 2])
    parser.add_argument("--other", type=Path, help="a checkout whose keeper is measured as well")
    parser.add_argument("--limits", action="store_true", help="also with tasks in control groups")
    parser.add_argument("--folder", type=Path, help="where the keepers' folders are made")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(options(sys.argv[1:]))
