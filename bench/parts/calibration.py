"""What this machine gives at the moment: the measure for all other figures of a run.

An empty gRPC call, an fdatasync and a bare spawn, at the beginning and at the end. It must not
void a run by itself: it says by how much the machine changed meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.parts import echo
from bench.parts.measure import cpu_s, quantile, syncs
from bench.parts.process import ROOT, ServerProcess
from bench.parts.spawn import BareSpawner

CALLS, SPAWNS = 200, 50
STEPS = 1_000_000
CALL_S_MAX = 30.0
DRIFT = 0.2
"""From this share on a figure of the run says little (docs/figures.md)."""


class Calibration(NamedTuple):
    """Seconds of each, and the load of the last minute."""

    step_s: float
    call_s: float
    call_cpu_s: float  # of the server
    sync_s: float
    spawn_s: float
    spawn_cpu_s: float
    load: float

    def line(self) -> str:
        """As text."""
        return (
            f"# {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, load {self.load:.2f}; "
            f"a step of a loop {self.step_s * 1e9:.0f} ns; "
            f"empty call {self.call_s * 1e3:.2f} ms, server's cpu {self.call_cpu_s * 1e3:.2f} ms; "
            f"append and fdatasync {self.sync_s * 1e3:.2f} ms; "
            f"bare spawn {self.spawn_s * 1e3:.2f} ms, cpu {self.spawn_cpu_s * 1e3:.2f} ms"
        )

    def drift(self, after: Calibration) -> str:
        """How the machine changed until `after`, as text."""
        names = ("step_s", "call_s", "sync_s", "spawn_s")
        changes = {name: getattr(after, name) / getattr(self, name) - 1 for name in names}
        worst = max(changes, key=lambda name: abs(changes[name]))
        busy = "" if self.load <= (os.cpu_count() or 1) + 1 else f"; load {self.load:.1f} before"
        verdict = "steady" if abs(changes[worst]) <= DRIFT and not busy else "trust only ratios"
        return f"# calibration: {worst[:-2]} changed by {changes[worst]:+.0%}{busy}: {verdict}"


@contextlib.contextmanager
def calibrating(folder: Path) -> Iterator[list[str]]:
    """Lines: the first is there at once, the others when the block has ended."""
    with contextlib.ExitStack() as stack:
        words = [str(ROOT / "bench" / "parts" / "echo.py")]
        server = ServerProcess(words, name="echo", folder=ROOT, errors=folder / "echo")
        stack.enter_context(contextlib.closing(server))
        spawner = stack.enter_context(contextlib.closing(BareSpawner()))
        before = calibrate(server, spawner, folder=folder)
        lines = [before.line()]
        yield lines
        after = calibrate(server, spawner, folder=folder)
        lines += [after.line(), before.drift(after)]


def calibrate(server: ServerProcess, spawner: BareSpawner, *, folder: Path) -> Calibration:
    """Measure, in less than a second."""
    load, begun = os.getloadavg()[0], time.perf_counter()
    for _ in range(STEPS):
        pass
    step_s = (time.perf_counter() - begun) / STEPS
    call = server.channel.unary_unary(echo.METHOD)
    call(bytes(4), timeout=CALL_S_MAX, wait_for_ready=True)
    cpu, calls = cpu_s(server.pid), []
    for _ in range(CALLS):
        begun = time.perf_counter()
        call(bytes(4), timeout=CALL_S_MAX)
        calls.append(time.perf_counter() - begun)
    call_cpu_s = (cpu_s(server.pid) - cpu) / CALLS
    spawned = spawner.run(SPAWNS)
    return Calibration(
        step_s,
        quantile(calls, 0.5),
        call_cpu_s,
        statistics.median(syncs(folder)),
        spawned.took_s,
        spawned.cpu_s,
        load,
    )
