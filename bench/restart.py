"""A restart with many running tasks: seconds until ready, and memory.

    .venv/bin/python bench/restart.py                              100,000 tasks on 1,000 hosts
    .venv/bin/python bench/restart.py --tasks 1000000 --hosts 10000
    .venv/bin/python bench/restart.py --beside ../other            and the code of another checkout
    .venv/bin/python bench/restart.py --profile                    and where the time goes

One process fills a SQLite journal with running tasks through the shards and stops; then another
process recovers it, as often as `--turns` says. Recovered: every shard is open. Ready: every host
has compared its ledger with its backend, and nothing is left to do. Runs are simulated and do not
end meanwhile. Each turn also reads the bytes of the journal and decodes them as untyped MessagePack
(`raw`): the least that a recovery could take. Prints figures of one run; compare only those.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import gc
import io
import json
import os
import pstats
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import peloton.runtime.core.recovery as recovery  # first: its code may be of another checkout

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.end_to_end import TASK, Bench  # noqa: E402
from bench.parts.measure import machine, ratio  # noqa: E402
from bench.parts.raw import read_raw  # noqa: E402
from peloton.backends.simulated import SimulatedBackend  # noqa: E402

DURATION_S = 1e7
QUIET_S = 0.5
QUIET_CPU_SHARE = 0.1
WAIT_S = 600.0
STAGES = {"_restore_piece": "checkpoint", "_fold_frame": "tail", "_derive": "derive"}
PROFILE_LINES = 30


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1000, help="tasks of one job")
    parser.add_argument("--hosts", type=int, default=0, help="default: one for 100 tasks")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--beside", type=Path, help="another checkout, measured in turns")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--step", choices=("fill", "recover"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    found = parser.parse_args(arguments)
    found.hosts = found.hosts or max(1, found.tasks // 100)
    return found


# ---- in a process of its own ----


def fill(asked: argparse.Namespace) -> dict[str, float]:
    """Have the tasks running, and stop; returns what the process took."""
    capacity = TASK.times(-(-asked.tasks // asked.hosts))
    bench = Bench(asked.folder, asked.hosts, DURATION_S, capacity=capacity)
    bench.wait_for_capacity()
    jobs = asked.tasks // asked.size
    for done in range(0, jobs, 100):
        bench.create(min(100, jobs - done), asked.size)
        bench.wait_for(("RUNNING",), min(done + 100, jobs) * asked.size)
    _wait_until_quiet()
    gc.collect()
    found = {"bytes": _resident()}
    bench.root.stop()
    return found


def recover(asked: argparse.Namespace) -> dict[str, float]:
    """Start on the journal that `fill` left, and measure until nothing is left to do."""
    found: dict[str, float] = {}
    found["raw_s"], found["journal_bytes"] = read_raw(asked.folder / "journal.sqlite")
    gc.collect()
    spent = dict.fromkeys(STAGES.values(), 0.0)
    for name, stage in STAGES.items():
        setattr(recovery, name, _timed(getattr(recovery, name), spent, stage))
    listed = _count_lists()
    began, cpu = time.monotonic(), time.process_time()
    capacity = TASK.times(-(-asked.tasks // asked.hosts))
    bench = Bench(asked.folder, asked.hosts, DURATION_S, capacity=capacity)
    found["recovered_s"] = time.monotonic() - began
    at, at_cpu = _wait_until_quiet(lambda: listed["runs"] >= asked.tasks)
    found |= {"ready_s": at - began, "cpu_s": at_cpu - cpu, "peak_bytes": _peak(), **spent}
    found["tasks"] = _running(bench)
    found["listed"] = listed["lists"]
    gc.collect()
    found["bytes"] = _resident()
    bench.root.stop()
    return found


def _timed(function: Callable[..., Any], spent: dict[str, float], stage: str) -> Any:
    def timed(*given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*given, **named)
        finally:
            spent[stage] += time.perf_counter() - began

    return timed


def _count_lists() -> dict[str, int]:
    """Count the lists that the backend makes, and the runs it has adopted by them."""
    counts = {"lists": 0, "runs": 0}
    plain = SimulatedBackend._list

    def counted(backend: SimulatedBackend, order: Any, now: float) -> Any:
        counts["lists"] += 1
        before = len(backend._ends)
        answer = plain(backend, order, now)
        counts["runs"] += sum(map(_size, backend._ends[before:]))
        return answer

    SimulatedBackend._list = counted  # type: ignore[method-assign]
    return counts


def _size(end: Any) -> int:
    """Runs of an entry of the backend: names; or names, and crowd, run and members as bits."""
    runs = end[1]
    if runs and isinstance(runs[0], tuple):
        return len(runs[0]) + int(runs[1][2]).bit_count()
    return len(runs)


def _running(bench: Bench) -> int:
    views: list[Any] = bench.root.region.views("job").result(WAIT_S)
    return sum(dict(view.counts).get("RUNNING", 0) for view in views)


def _wait_until_quiet(done: Callable[[], bool] = lambda: True) -> tuple[float, float]:
    """Until this process has used no CPU for a while; when that began, and the CPU until then."""
    until = time.monotonic() + WAIT_S
    seen = [(time.monotonic(), time.process_time())]
    while time.monotonic() < until:
        time.sleep(0.05)
        seen.append((time.monotonic(), time.process_time()))
        while len(seen) > 1 and seen[-1][0] - seen[1][0] >= QUIET_S:
            del seen[0]
        (since, cpu), (now, cpu_now) = seen[0], seen[-1]
        if done() and now - since >= QUIET_S and cpu_now - cpu < QUIET_CPU_SHARE * (now - since):
            return since, cpu
    raise SystemExit(f"not ready within {WAIT_S:g} s")


def _resident() -> int:
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    (kib,) = re.findall(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    return int(kib) * 1024


@contextlib.contextmanager
def _profiled() -> Iterator[None]:
    """Profile every thread that begins meanwhile, and print it to stderr."""
    profiles: list[cProfile.Profile] = []

    def begin(*_: Any) -> None:
        profiles.append(cProfile.Profile(time.thread_time))
        profiles[-1].enable()

    threading.setprofile(begin)
    yield
    threading.setprofile(None)  # type: ignore[arg-type]
    text = io.StringIO()
    stats = pstats.Stats(*profiles, stream=text)
    for order in ("tottime", "cumtime"):
        stats.sort_stats(order).print_stats(PROFILE_LINES)
    print(re.sub(r"/\S*/(?=peloton/|python3)", "", text.getvalue()), file=sys.stderr)


def step(asked: argparse.Namespace) -> dict[str, float]:
    """What a process of its own does."""
    if asked.step == "fill":
        return fill(asked)
    with _profiled() if asked.profile else contextlib.nullcontext():
        return recover(asked)


# ---- the whole ----


def call(asked: argparse.Namespace, name: str, *, code: Path, folder: Path) -> dict[str, float]:
    """One step in a new process, with the code of a checkout."""
    words = ["--step", name, "--folder", str(folder), "--tasks", str(asked.tasks)]
    words += ["--size", str(asked.size), "--hosts", str(asked.hosts)]
    words += ["--profile"] if asked.profile else []
    command = [sys.executable, str(Path(__file__).resolve()), *words]
    environment = {**os.environ, "PYTHONPATH": str(code)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(asked: argparse.Namespace) -> Iterator[str]:
    """Fill, recover, and compare; yields the lines to print."""
    codes = {"here": ROOT, **({"beside": asked.beside.resolve()} if asked.beside else {})}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in codes}
    with tempfile.TemporaryDirectory() as scratch:
        yield from machine(Path(scratch))
        yield f"# {asked.tasks} running tasks, jobs of {asked.size}, {asked.hosts} hosts"
        before = {}
        for name, code in codes.items():
            folder = Path(scratch) / name
            folder.mkdir()
            before[name] = call(asked, "fill", code=code, folder=folder)
            yield f"{name:7} before the restart: {before[name]['bytes'] / 1e6:,.0f} MB resident"
        for turn in range(asked.turns):
            for name in [*codes] if turn % 2 == 0 else reversed([*codes]):
                took = call(asked, "recover", code=codes[name], folder=Path(scratch) / name)
                took["peak/before"] = took["peak_bytes"] / before[name]["bytes"]
                if took["tasks"] != asked.tasks:
                    raise SystemExit(f"{name}: {took['tasks']:g} of {asked.tasks} tasks run")
                found[name].append(took)
                yield from _lines(name, took)
    if asked.beside:
        yield from compare(found["here"], found["beside"])


def _lines(name: str, took: dict[str, float]) -> Iterator[str]:
    stages = ", ".join(f"{stage} {took[stage]:.2f}" for stage in STAGES.values())
    yield (
        f"{name:7} recovered {took['recovered_s']:.2f} s ({stages}), "
        f"ready {took['ready_s']:.2f} s, "
        f"cpu {took['cpu_s']:.2f} s = {took['cpu_s'] / took['raw_s']:.1f} x raw "
        f"({took['journal_bytes'] / 1e6:,.1f} MB)"
    )
    yield (
        f"{name:7} memory: peak {took['peak_bytes'] / 1e6:,.0f} MB = {took['peak/before']:.2f} x "
        f"before, after {took['bytes'] / 1e6:,.0f} MB; lists of runs {took['listed']:g}, "
        f"tasks {took['tasks']:g}"
    )


def compare(here: Sequence[dict[str, float]], beside: Sequence[dict[str, float]]) -> Iterator[str]:
    """Ratios of the turns of one run."""
    for what in ("recovered_s", "ready_s", "cpu_s", "peak_bytes", "bytes", "journal_bytes"):
        pairs = [(ours[what], theirs[what]) for ours, theirs in zip(here, beside, strict=True)]
        yield f"# here / beside  {what.removesuffix('_s')}: {ratio(pairs)}"


def main() -> None:
    """Run and print."""
    asked = options()
    if asked.step:
        print(json.dumps(step(asked)))
        return
    for line in run(asked):
        print(line, flush=True)


if __name__ == "__main__":
    main()
