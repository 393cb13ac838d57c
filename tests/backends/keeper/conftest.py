"""What the keeper's tests share: a log of reports, and a folder whose keeper is gone afterwards.

Turns reports that come from another thread into things a test can wait for, with a deadline.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.backends.keeper_messages import KeeperRunEnded, KeeperRunsListed, RunReport, RunRequest
from peloton.backends.process_runs import KeeperSettings, ProcessRuns
from tests import processes
from tests.backends.keeper.bench_groups import remove_groups
from tests.descriptors import held_by

DEADLINE_S = float(os.environ.get("PELOTON_TEST_DEADLINE_S", "60"))
AT_REST_READINGS = 5
HOST = "host-1"


class ReportLog:
    """All reports in order; `next_report` waits for the first one that fits."""

    def __init__(self) -> None:
        self.reports: list[RunReport] = []
        self._changed = threading.Condition()

    def __call__(self, report: RunReport) -> None:
        with self._changed:
            self.reports.append(report)
            self._changed.notify_all()

    def next_report(self, kind: type, **wanted: object) -> Any:
        def fits(report: object) -> bool:
            return isinstance(report, kind) and all(
                getattr(report, name) == value for name, value in wanted.items()
            )

        with self._changed:
            found = self._changed.wait_for(
                lambda: next((r for r in self.reports if fits(r)), None), DEADLINE_S
            )
        assert found is not None, f"no {kind.__name__} {wanted} in {self.reports}"
        return found


class Daemon:
    """A daemon that owns one host."""

    def __init__(
        self, folder: Path, *, epoch: int = 1, silent_max_s: float = DEADLINE_S, **settings: Any
    ) -> None:
        self.log = ReportLog()
        self.epoch = epoch
        started_with = KeeperSettings(**{"idle_s": 0.2, "round_s": 0.1, **settings})
        self.runs = ProcessRuns(folder, self.log, settings=started_with, silent_max_s=silent_max_s)
        self.runs.hello(HOST, epoch)

    def own(self) -> None:
        """Wait until the keeper knows that the host is this daemon's."""
        self.runs.list(HOST)
        self.log.next_report(KeeperRunsListed)

    def launch(self, run_id: str, value: str, **request: Any) -> None:
        self.runs.launch(HOST, self.epoch, runs=[RunRequest(run_id, HOST, value, **request)])

    def end(self, run_id: str) -> KeeperRunEnded:
        ended: KeeperRunEnded = self.log.next_report(KeeperRunEnded, run_id=run_id)
        return ended

    def listed_ends(self) -> list[KeeperRunEnded]:
        """Ends that any list so far has told."""
        told = [one for one in [*self.log.reports] if isinstance(one, KeeperRunsListed)]
        return [run.ended for one in told for run in one.runs if run.ended is not None]

    def output(self, run_id: str, name: str = "stdout") -> str:
        return (self.sandbox(run_id) / name).read_text()

    def sandbox(self, run_id: str) -> Path:
        return self.runs.folder / "runs" / run_id


def keeper_pid(folder: Path) -> int:
    return int((folder / "lock").read_text())


def kill_both(folder: Path) -> None:
    """Its keeper, and the supervisor that would start another and tell it how its runs ended."""
    supervisor, keeper = supervisor_pid(folder), keeper_pid(folder)
    os.kill(supervisor, signal.SIGSTOP)
    for pid in (keeper, supervisor):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not (alive(keeper) or alive(supervisor)), "neither is left")


def supervisor_pid(folder: Path) -> int:
    """Of the parent of that keeper; for a moment 0 where it is being replaced."""
    return int((folder / "supervisor").read_text() or 0)


def alive(pid: int) -> bool:
    """Zombies are not: whoever should reap them may be slow."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def marked(folder: Path) -> list[int]:
    """Every process that was started for a run of this folder."""
    mark = f"PELOTON_KEEPER={folder}".encode()
    return [one.pid for one in processes.every() if mark in one.variables]


def held_at_rest(pid: int) -> list[str]:
    """What its descriptors lead to, sorted; a keeper opens and closes some all the time."""
    readings = [sorted(held_by(pid))]

    def same_again() -> bool:
        readings.append(sorted(held_by(pid)))
        return readings[-AT_REST_READINGS:] == [readings[-1]] * AT_REST_READINGS

    until(same_again, "its descriptors to stay the same")
    return readings[-1]


def removed(folder: Path) -> bool:
    """Whether it is gone with all it holds: a keeper may just be writing there."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        pause.wait(0.01)


@pytest.fixture
def passable() -> Iterator[Path]:
    """A folder that other accounts may pass; pytest's own are closed to them."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="peloton-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Whatever a failed test leaves running ends here."""
    path = tmp_path.resolve() / "keeper"
    yield path
    end_all(path)


@pytest.fixture
def open_folder(passable: Path) -> Iterator[Path]:
    """As `folder`, where other accounts get to."""
    yield passable / "keeper"
    end_all(passable / "keeper")


def end_all(path: Path) -> None:
    """Kill the keeper of a folder, its supervisor, and what they started."""
    keepers = []
    for find in (supervisor_pid, keeper_pid):
        with contextlib.suppress(OSError, ValueError):
            pid = find(path)
            if b"keeper" in processes.Process(pid).words:
                keepers.append(pid)
    processes.end_all(lambda: marked(path), stopped_first=keepers)
    if path.exists():
        remove_groups(path)


@pytest.fixture
def daemon_of(folder: Path) -> Iterator[Callable[..., Daemon]]:
    daemons: list[Daemon] = []

    def make(**settings: Any) -> Daemon:
        daemons.append(Daemon(folder, **settings))
        return daemons[-1]

    yield make
    for daemon in daemons:
        daemon.runs.close()


@pytest.fixture
def new_daemon() -> type[Daemon]:
    """For daemons of other folders; the test closes them."""
    return Daemon


@pytest.fixture
def daemon(daemon_of: Callable[..., Daemon]) -> Daemon:
    return daemon_of()


@pytest.fixture
def procs() -> Any:
    """The helpers above, for tests: pytest's import mode lets no test import another file."""
    return _Procs


class _Procs:
    keeper_pid = staticmethod(keeper_pid)
    supervisor_pid = staticmethod(supervisor_pid)
    kill_both = staticmethod(kill_both)
    alive = staticmethod(alive)
    marked = staticmethod(marked)
    until = staticmethod(until)
    held_by = staticmethod(held_by)
    held_at_rest = staticmethod(held_at_rest)
    removed = staticmethod(removed)
    HOST = HOST
