"""The keeper bench: every file call of a keeper, and every step of its daemon, under every fault.

A small history is played once without a fault, which numbers the file calls of the keeper and the
steps of the daemon. Then it is played again for each of them and each fault of the table below.
What must hold is in `bench_trial`: no run starts twice, none starts whose launch is not safe, no
end is told that a power cut would undo, what was told stays, and every run ends with its own exit
code, or LOST for a reason that the fault allows. `script/nightly` plays all of them (`-s` prints
the table), the suite those that once broke something.
"""

from __future__ import annotations

import errno
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from peloton.backends.keeper import kinds
from tests.backends.keeper.bench_disk import PlannedFault
from tests.backends.keeper.bench_trial import Bench, Broken, History, Lives, Trial, judge

LOG_CHARS = 800
AT_ONCE = 4
"""Trials at a time: most of one is waiting for tasks and rounds."""
UNSEEN = frozenset({kinds.KEEPER_DIED, kinds.USED_BEFORE})
UNSTARTED = frozenset({kinds.NOT_STARTED})
EXACT: frozenset[str] = frozenset()


Point = int | str
"""A number, or the text of the first such call."""


class Row(NamedTuple):
    """A fault: the trial of a point, and for which reasons a run may be LOST."""

    trial: Callable[[Point], Trial]
    honest: frozenset[str]


def _kill(at: Point, late: bool = False) -> PlannedFault:
    return PlannedFault(at, "kill", late)


def _error(at: Point, number: int = errno.EIO, *, late: bool = False, lasts: bool = False):
    return PlannedFault(at, "error", late, number, lasts)


DISK = {
    "kill -9 before the call": Row(lambda n: Trial(_kill(n)), UNSEEN),
    "kill -9 after the call": Row(lambda n: Trial(_kill(n, True)), UNSEEN),
    "power cut before, unsynced names and bytes lost": Row(
        lambda n: Trial(_kill(n), cut="nothing"), UNSEEN
    ),
    "power cut after, unsynced names and bytes lost": Row(
        lambda n: Trial(_kill(n, True), cut="nothing"), UNSEEN
    ),
    "power cut after, unsynced bytes lost": Row(
        lambda n: Trial(_kill(n, True), cut="names"), UNSEEN
    ),
    "power cut after, half of the unsynced bytes lost": Row(
        lambda n: Trial(_kill(n, True), cut="half"), UNSEEN
    ),
    "kill -9 after the call, later a power cut": Row(
        lambda n: Trial(_kill(n, True), cut_later="nothing"), UNSEEN
    ),
    "short write": Row(lambda n: Trial(PlannedFault(n, "short")), EXACT),
    "EIO": Row(lambda n: Trial(_error(n)), UNSTARTED),
    "EIO, done all the same": Row(lambda n: Trial(_error(n, late=True)), UNSTARTED),
    "ENOSPC": Row(lambda n: Trial(_error(n, errno.ENOSPC)), UNSTARTED),
    "EIO for a while": Row(lambda n: Trial(_error(n, lasts=True)), UNSTARTED),
    "disk full for a while": Row(lambda n: Trial(_error(n, errno.ENOSPC, lasts=True)), UNSTARTED),
    "EIO for a while, later a power cut": Row(
        lambda n: Trial(_error(n, lasts=True), cut_later="nothing"), UNSTARTED
    ),
}
PRUNING = {
    f"{name}, folders removed": Row(lambda n, row=row: row.trial(n)._replace(kept=1), row.honest)
    for name, row in DISK.items()
    if name in ("kill -9 before the call", "EIO", "ENOSPC")
}
DAEMON = {
    "kill -9 of the daemon": Row(lambda n: Trial(step=n), EXACT),
    "kill -9 of the daemon within a line": Row(lambda n: Trial(step=n, how="mid-send"), EXACT),
    "kill -9 of daemon and keeper": Row(lambda n: Trial(step=n, how="with the keeper"), UNSEEN),
}

ROWS = DISK | PRUNING | DAEMON


class Workers:
    """Plays trials at the same time, each over keepers of its own."""

    def __init__(self) -> None:
        self._lives: queue.SimpleQueue[Lives] = queue.SimpleQueue()
        self._all = [Lives() for _ in range(AT_ONCE)]
        for lives in self._all:
            self._lives.put(lives)
        self._pool = ThreadPoolExecutor(AT_ONCE)

    def play_all(self, trials: list[tuple[Path, Row, Point]]) -> list[tuple[str, str]]:
        """Of each trial what became of the runs, and what is wrong."""
        return [*self._pool.map(self._one, trials)]

    def _one(self, trial: tuple[Path, Row, Point]) -> tuple[str, str]:
        base, row, point = trial
        lives = self._lives.get()
        try:
            return play(lives, base, row.trial(point), row.honest)[0], ""
        except Broken as broken:
            return "BROKEN", f"{broken}\n{(base / 'keeper.log').read_text()[-LOG_CHARS:]}"
        finally:
            self._lives.put(lives)

    def calm(self, base: Path, row: Row) -> Bench:
        """The trial without its fault."""
        return play(self._all[0], base, row.trial(0), EXACT)[1]

    def close(self) -> None:
        self._pool.shutdown()
        for lives in self._all:
            lives.close()


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


def play(lives: Lives, base: Path, trial: Trial, honest: frozenset[str]) -> tuple[str, Bench]:
    """What became of the runs. Raises Broken."""
    bench = Bench(lives, base, trial)
    try:
        History(bench).play()
        return judge(bench, honest), bench
    finally:
        bench.close()


def calls_of(base: Path) -> list[str]:
    """Of the first life; the calls of the next are numbered from 1 again."""
    first: list[str] = []
    for line in (base / "calls").read_text().splitlines():
        number, _, call = line.partition(" ")
        if int(number) != len(first) + 1:
            break
        first.append(call)
    return first


def points_of(workers: Workers, folder: Path, name: str) -> list[str]:
    """The file calls of the keeper, or the steps of the daemon, without a fault."""
    bench = workers.calm(folder / "calm", ROWS[name])
    return bench.step_names if name in DAEMON else calls_of(folder / "calm")


def try_points(workers: Workers, folder: Path, name: str, points: list[str]):
    """All points under one fault."""
    assert points, "no point was tried"
    numbers = range(1, len(points) + 1)
    trials = [(folder / f"{number}", ROWS[name], number) for number in numbers]
    wrong = []
    print()
    for number, (text, why) in zip(numbers, workers.play_all(trials), strict=True):
        print(f"{number:4} {points[number - 1]:32.32} {name:50} {text}")
        if why:
            wrong.append(f"{number} {points[number - 1]}: {why}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ROWS)
def test_all_points(workers, tmp_path, name):
    points = points_of(workers, tmp_path, name)
    try_points(workers, tmp_path, name, points)


@pytest.mark.parametrize(
    ("point", "name"),
    [
        ("stat lock", "EIO"),
        ("close journal.new", "EIO"),
        ("mkdir runs/r-late-1", "EIO"),
        ("mkdir trash", "ENOSPC, folders removed"),
    ],
)
def test_points_that_once_broke_something(workers, tmp_path, point, name):
    """Runs were killed, exit codes lost, ids free again."""
    ((_, why),) = workers.play_all([(tmp_path / "trial", ROWS[name], point)])
    assert point in calls_of(tmp_path / "trial"), "not reached"
    assert not why, why
