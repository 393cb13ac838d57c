"""Many a `kill -9` of keeper and daemon: what must hold whatever moment they hit.

Turns a seed into moments and victims, then compares what the tasks wrote themselves with what the
daemons were told. No victim is asked whether it is ready.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DAEMON_SHARE, KEEPER_SHARE = 0.5, 0.3  # the rest: the keeper while there is no daemon
PROGRAM = Path(__file__).parent / "kill_daemon.py"
REPOSITORY = Path(__file__).parents[3]
FINISH_DEADLINE_S = 120.0
PACE_S_MIN = 0.5
SEED = int(os.environ.get("PELOTON_KILL_SEED", "1"))


class Field:
    """The folder, the daemon of the moment, and who was killed when."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = folder.parent / "ledger"
        self.epoch = 0
        self.daemon: subprocess.Popen[bytes] | None = None
        self.keeper_kills: list[float] = []
        self.daemon_kills = 0

    def keep_daemon(self) -> subprocess.Popen[bytes]:
        if self.daemon is None or self.daemon.poll() is not None:
            assert self.daemon is None or self.daemon.returncode == -signal.SIGKILL
            self.epoch += 1
            words = [sys.executable, str(PROGRAM), str(self.folder), str(self.ledger)]
            self.daemon = subprocess.Popen(
                [*words, str(self.epoch)], env={**os.environ, "PYTHONPATH": str(REPOSITORY)}
            )
        return self.daemon

    def kill_daemon(self) -> None:
        daemon = self.keep_daemon()
        daemon.kill()
        daemon.wait()
        self.daemon_kills += 1

    def had(self, kills: int) -> bool:
        """Whether there were so many, and enough of each: there is not always a keeper to kill."""
        daemons, keepers = self.daemon_kills, len(self.keeper_kills)
        return daemons + keepers >= kills and daemons > kills / 4 and keepers > kills / 5

    def kill_keeper(self) -> bool:
        """Between two keepers there is none to kill."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.folder / "lock").read_text())
            if str(self.folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                before = time.time()
                os.kill(pid, signal.SIGKILL)
                self.keeper_kills.append(before)
                return True
        return False

    def size(self) -> int:
        return self.ledger.stat().st_size if self.ledger.exists() else 0

    def launched(self) -> int:
        """How many runs were ordered."""
        return sum("launched" in line for line in self.lines()) if self.ledger.exists() else 0

    def lines(self) -> list[dict[str, Any]]:
        lines = []
        for line in self.ledger.read_text().splitlines():
            with contextlib.suppress(ValueError):
                lines.append(json.loads(line))
        return lines


def storm(field: Field, chance: random.Random, *, pace_s: float, kills: int) -> None:
    """A moment is some bytes of ledger away, or some milliseconds, whichever comes first: so
    kills hit starts of daemons and keepers as well as full work. It ends once there were enough
    kills, and more runs: on a slow machine there are several kills a run."""
    pause = threading.Event()
    while not (field.had(kills) and field.launched() > kills):
        field.keep_daemon()
        goal = field.size() + chance.choice([1, 60, 300, 1500])
        until = time.monotonic() + chance.uniform(0, pace_s)
        while field.size() < goal and time.monotonic() < until:
            pause.wait(0.001)
        fate = chance.random()
        if fate < DAEMON_SHARE + KEEPER_SHARE:
            field.kill_daemon() if fate < DAEMON_SHARE else field.kill_keeper()
        else:
            field.kill_daemon()
            pause.wait(chance.uniform(0, 0.6))
            field.kill_keeper()


def pace_s(field: Field, until: Callable[..., None]) -> float:
    """How long a daemon may live: on a slow machine longer, or none would come to its work."""
    began_s = time.monotonic()
    field.keep_daemon()
    until(field.size, "the first daemon begins")
    return max(PACE_S_MIN, 1.2 * (time.monotonic() - began_s))


def calm(field: Field) -> None:
    (field.folder.parent / "stop").touch()
    daemon = field.keep_daemon()
    assert daemon.wait(FINISH_DEADLINE_S) == 0


@pytest.fixture
def field(folder: Path):
    made = Field(folder)
    yield made
    if made.daemon is not None and made.daemon.poll() is None:
        made.daemon.kill()
        made.daemon.wait()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(60, marks=pytest.mark.slow),
        pytest.param(200, marks=pytest.mark.nightly),
    ],
)
def test_kills_at_any_moment(field, folder, procs, kills):
    storm(field, random.Random(SEED), pace_s=pace_s(field, procs.until), kills=kills)
    calm(field)
    launched = {line["launched"]: line["at"] for line in field.lines() if "launched" in line}
    ended = {line["ended"]: line for line in field.lines() if "ended" in line}
    marks = Counter(int(word) for word in (folder.parent / "started").read_text().split())
    outcomes = Counter(line["status"][0] for line in ended.values())
    print(
        f"{field.daemon_kills} daemons and {len(field.keeper_kills)} keepers killed; "
        f"{len(launched)} runs, {len(marks)} started, {dict(outcomes)}"
    )
    assert [n for n, times in marks.items() if times > 1] == [], "started twice"
    assert launched.keys() - ended.keys() == set(), "lost"
    assert marks.keys() - launched.keys() == set(), "never asked for"
    for number, line in ended.items():
        judge(number, line, field=field, launched_at=launched[number], marks=marks)
    procs.until(lambda: not procs.marked(folder), "nothing is left running")
    assert outcomes["SUCCEEDED"] and outcomes["FAILED"] and outcomes["KILLED"]


def judge(number: int, line: dict[str, Any], *, field: Field, launched_at: float, marks) -> None:
    """Exact, unless a keeper was killed during the run's life."""
    outcome, exit_code, number_of_signal, reason = line["status"]
    if outcome == "LOST":
        assert reason in ("keeper died, exit status unknown", "run id used before"), line
        assert any(launched_at <= at <= line["over"] for at in field.keeper_kills), line
        return
    assert marks[number] == 1, line
    if number % 5 == 0:
        assert (outcome, exit_code, number_of_signal) == ("KILLED", None, signal.SIGTERM), line
    else:
        wanted = "SUCCEEDED" if number % 7 == 0 else "FAILED"
        assert (outcome, exit_code, number_of_signal) == (wanted, number % 7, None), line
