"""What is told of a host's slack, for loads of some time; and what runs of this machine use."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from peloton.actors.resources import UNIT
from peloton.backends.cpu_use import OWN_CPUS, CpuUse
from peloton.backends.keeper.processes import RUN_MARK
from peloton.backends.slack_meter import AGAIN_S, HostLoad, SlackMeter
from peloton.backends.slack_thread import SlackThread

EVERY_S = 5.0


class Metered:
    def __init__(self) -> None:
        self.meter, self.now = SlackMeter(), 0.0

    def __call__(self, held: float, used: float) -> float | None:
        """What is told after this load, in cpus."""
        self.now += EVERY_S
        told = self.meter.measured({"h": HostLoad(held, used)}, self.now)
        return told["h"] / UNIT if told else None


def test_of_what_is_not_used_a_share_is_kept() -> None:
    load = Metered()
    assert load(0.0, 0.0) == 0.0
    assert load(4.0, 1.0) == 2.4
    assert load(4.0, 1.0) is None


def test_what_was_told_is_told_again_for_a_host_that_could_not_use_it_yet() -> None:
    load = Metered()
    told = [load(4.0, 1.0) for _ in range(1 + 2 * int(AGAIN_S / EVERY_S))]
    assert told == [2.4, *([None] * 5), 2.4, *([None] * 5), 2.4]


def test_less_is_told_at_once_and_more_bit_by_bit() -> None:
    load = Metered()
    assert load(4.0, 0.0) == 3.2
    assert load(4.0, 4.0) == 0.0
    told = [load(4.0, 0.0) for _ in range(40)]
    risen = [each for each in told if each is not None]
    assert risen == sorted(risen) and 2.5 < risen[-1] <= 3.2
    assert told[0] is None or told[0] < 1.0


def test_a_load_that_goes_up_and_down_is_told_as_one() -> None:
    load = Metered()
    load(4.0, 2.0)
    told = [load(4.0, used) for used in (1.9, 2.0, 1.8, 2.0) * 20]
    again = [each for each in told if each is not None]
    assert again == [1.6] * len(again) and len(again) <= 80 * EVERY_S / AGAIN_S


def test_more_use_than_is_held_leaves_none() -> None:
    assert Metered()(1.0, 3.0) == 0.0


def test_a_host_that_is_gone_is_forgotten() -> None:
    load = Metered()
    load(4.0, 0.0)
    load.meter.measured({}, 99.0)
    assert load.meter.told == {}


def test_runs_are_known_by_their_environment() -> None:
    busy = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass\n"
    wait = "print('ready', flush=True); input()"
    environment = {**os.environ, RUN_MARK: "r1", OWN_CPUS: "1.5"}
    use = CpuUse()
    with subprocess.Popen(
        [sys.executable, "-c", f"import sys\nprint('begun', flush=True); input()\n{busy}{wait}"],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        began = time.monotonic()
        assert use.read(began)["r1"] == (1.5, 1.5), "nothing is known of it yet"
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        found = use.read(began + 1.0)["r1"]
        assert found.own == 1.5 and 0.4 < found.used < 1.0
        process.stdin.write("\n")
        process.stdin.flush()
    assert "r1" not in use.read(began + 2.0)


TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Kernel:
    """What the kernel tells of one process of run r1, which says that it has `own` cpus."""

    def __init__(self, proc: Path, own: str) -> None:
        self._at = proc / "7"
        self._at.mkdir()
        (self._at / "environ").write_bytes(f"{RUN_MARK}=r1\0{OWN_CPUS}={own}\0".encode())
        self.used(0.0)

    def used(self, seconds: float) -> None:
        """It has used so much in all."""
        fields = ["S", *["0"] * 10, str(int(seconds * TICKS_PER_S)), *["0"] * 7, "5"]
        (self._at / "stat").write_text(f"7 (busy one) {' '.join(fields)}\n")


def test_what_is_used_of_a_new_run_is_not_known(tmp_path: Path) -> None:
    kernel, use = Kernel(tmp_path, "4"), CpuUse(tmp_path)
    assert use.read(10.0) == {"r1": (4.0, 4.0)}
    kernel.used(5.0)
    assert use.read(20.0) == {"r1": (4.0, 0.5)}


def test_a_program_that_says_it_has_more_than_there_is_ends_nothing(tmp_path: Path) -> None:
    Kernel(tmp_path, "inf")
    assert CpuUse(tmp_path).read(10.0) == {}


def test_a_daemon_that_begins_anew_tells_nothing_before_it_has_compared(tmp_path: Path) -> None:
    """Neither that busy runs leave slack, nor that idle ones leave none."""
    kernel, told, over = Kernel(tmp_path, "4"), list[int](), threading.Event()
    readings = 0

    def hosts() -> dict[str, list[str]]:
        nonlocal readings
        readings += 1
        kernel.used(1e6 * readings)
        return {"h": ["r1"]}

    def tell(host: str, slack: int) -> None:  # noqa: ARG001
        told.append(slack)
        over.set()

    measuring = SlackThread(hosts, tell, every_s=0.01, use=CpuUse(tmp_path))
    assert over.wait(60)
    measuring.close()
    assert (told, readings >= 2) == ([0], True)
