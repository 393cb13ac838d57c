"""Pids that mean somebody else by now: what a successor adopts, signals, and leaves alone.

Real processes, and the keeper's own objects in this process.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from peloton.backends.keeper import kinds, processes, watch
from peloton.backends.keeper.adoption import adopt
from peloton.backends.keeper.journal import KeeperJournal
from peloton.backends.keeper.kept import KeepRules
from peloton.backends.keeper.kinds import KeeperRun, Memory
from peloton.backends.keeper.runs import Runs
from peloton.backends.keeper.sandboxes import SandboxFolders
from peloton.backends.keeper.service import Service
from peloton.backends.keeper.stops import NOTICE, SAVED
from peloton.backends.keeper.supervised import SupervisorGone

HOST = "host-1"
COMMAND = {"value": "x", "shell": True, "arguments": []}


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads its own group, as a run does."""
    made = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield made
    made.kill()
    made.wait()


def test_where_nobody_takes_the_supervisors_place_runs_it_had_are_watched(
    stranger: subprocess.Popen[bytes], runs_of: Callable[[Memory], Runs]
) -> None:
    """Its end would be waited for, for ever, of somebody who has ended."""

    class Below:
        descriptor = -1

        def read(self) -> list[object]:
            raise SupervisorGone

        def forget(self, processes: object) -> None:
            raise AssertionError("it has told nothing")

        def take_place(self) -> None:
            raise FileNotFoundError(2, "the interpreter was replaced")

    runs = runs_of(memory_of(stranger.pid, birth_of(stranger.pid)))
    run = runs.adopted["r-0-1"]
    run.inherited = True
    runs.left.add(run)
    keeper = SimpleNamespace(_runs=runs, _selector=SimpleNamespace(unregister=lambda fd: None))
    Service._hear_supervisor(keeper, Below())  # type: ignore[arg-type]
    stranger.kill()
    stranger.wait()
    watch.check_adopted(runs)
    assert run.end is not None and run.end["outcome"] == kinds.LOST


def signalled_by(runs: Runs) -> list[int]:
    """The groups that would get a signal from now on: one on its way is not seen in time."""
    found: list[int] = []
    runs.signal_group = lambda pid, number: found.append(pid)  # type: ignore[method-assign]
    return found


def birth_of(pid: int) -> int:
    found = processes.stat(pid)
    assert found is not None
    return found.birth


def memory_of(pid: int, birth: int, *, boot: str = "") -> Memory:
    """What a journal says of one run that was started."""
    memory = Memory(boot or processes.boot_id())
    run = KeeperRun("r-0-1", HOST, command={**COMMAND}, memory_mb=64.0)
    run.recorded, run.pid, run.birth = True, pid, birth
    memory.runs[run.run_id] = run
    return memory


@pytest.fixture
def runs_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Memory], Runs]:
    monkeypatch.chdir(tmp_path)

    def make(memory: Memory) -> Runs:
        alive = adopt(memory, str(tmp_path), now=5.0)
        journal = KeeperJournal("journal")
        journal.rewrite(memory.records())
        boxes = SandboxFolders(str(tmp_path), rules=KeepRules(1000))
        boxes.open(memory.runs)
        runs = Runs(str(tmp_path), memory, journal=journal, boxes=boxes)
        runs.adopted = {run.run_id: run for run in alive}
        return runs

    return make


def test_the_very_process_is_adopted(stranger, runs_of):
    runs = runs_of(memory_of(stranger.pid, birth_of(stranger.pid)))
    assert [*runs.adopted] == ["r-0-1"]
    assert runs.listing(HOST)[0]["state"] == "running"
    runs.kill(HOST, "r-0-1", grace_s=60.0)
    assert stranger.wait(60) == -signal.SIGTERM


def test_one_that_has_saved_its_work_is_not_waited_for(runs_of, tmp_path):
    """It ignores the signal, and was given a minute."""
    program = "trap '' TERM; echo ready; sleep 600"
    made = subprocess.Popen(["sh", "-c", program], start_new_session=True, stdout=subprocess.PIPE)
    assert made.stdout.readline() == b"ready\n"
    runs = runs_of(memory_of(made.pid, birth_of(made.pid)))
    sandbox = tmp_path / runs.sandboxes.path("r-0-1")
    sandbox.mkdir(parents=True, exist_ok=True)
    runs.kill(HOST, "r-0-1", grace_s=60.0, notice="for /b")
    assert (sandbox / NOTICE).read_text() == "for /b\n"
    runs.kill_overdue(time.monotonic())
    assert made.poll() is None
    (sandbox / SAVED).touch()
    assert runs.next_kill() < time.monotonic() + 1.0
    runs.kill_overdue(time.monotonic() + 1.0)
    assert made.wait(60) == -signal.SIGKILL


def test_a_process_that_got_the_pid_later_is_not_adopted(stranger, runs_of):
    runs = runs_of(memory_of(stranger.pid, birth_of(stranger.pid) - 1))
    signalled = signalled_by(runs)
    assert not runs.adopted
    (listed,) = runs.listing(HOST)
    assert (listed["state"], listed["end"]["reason"]) == ("ended", kinds.KEEPER_DIED)
    runs.kill(HOST, "r-0-1", grace_s=0.0)
    runs.kill_overdue(math.inf)
    assert signalled == []


def test_after_a_restart_of_the_machine_no_pid_is_adopted(stranger, runs_of):
    """Birth times begin anew as well, so a process may have both numbers of a run."""
    memory = memory_of(stranger.pid, birth_of(stranger.pid), boot="the boot before")
    runs = runs_of(memory)
    assert not runs.adopted
    assert memory.runs["r-0-1"].end["reason"] == kinds.MACHINE_RESTARTED


def test_the_second_keeper_after_a_restart_knows_the_boot_of_the_first(stranger, runs_of, tmp_path):
    runs_of(memory_of(stranger.pid, birth_of(stranger.pid), boot="the boot before"))
    again = Memory("another")
    again.fold(KeeperJournal("journal").read())
    assert again.boot_id == processes.boot_id()


@pytest.mark.parametrize("way", ["kill", "overdue", "all", "memory"])
def test_no_signal_reaches_a_process_that_got_the_pid_of_an_adopted_run(stranger, runs_of, way):
    """The adopted process ends, nobody of us reaps it, and its pid is free at once."""
    runs = runs_of(memory_of(stranger.pid, birth_of(stranger.pid)))
    (run,), signalled = runs.adopted.values(), signalled_by(runs)
    run.birth -= 1  # as if it were the process before
    ways = {
        "kill": lambda: runs.kill(HOST, "r-0-1", grace_s=60.0),
        "overdue": lambda: (runs.kill(HOST, "r-0-1", grace_s=0.0), runs.kill_overdue(math.inf)),
        "all": runs.kill_all,
        "memory": lambda: runs.kill_over_limit(run, "much", reason=kinds.OVER_MEMORY),
    }
    ways[way]()
    assert signalled == []
    run.birth += 1
    runs.kill_all()
    assert signalled == [stranger.pid]


def test_the_end_of_an_adopted_run_is_noticed_though_nobody_reaps_it(runs_of):
    made = subprocess.Popen(["sleep", "600"], start_new_session=True)
    runs = runs_of(memory_of(made.pid, birth_of(made.pid)))
    watch.check_adopted(runs)
    assert runs.adopted
    made.kill()
    os.waitid(os.P_PID, made.pid, os.WEXITED | os.WNOWAIT)
    watch.check_adopted(runs)
    assert not runs.adopted, "a zombie has ended, whoever should reap it"
    assert runs.memory.runs["r-0-1"].end["outcome"] == kinds.LOST
    made.wait()


def test_a_process_without_a_record_ends_and_one_of_an_adopted_run_does_not(runs_of, tmp_path):
    marks = {processes.KEEPER_MARK: str(tmp_path)}
    ours, lost = (
        subprocess.Popen(
            ["sleep", "600"], start_new_session=True, env={**marks, processes.RUN_MARK: name}
        )
        for name in ("r-0-1", "r-1-1")
    )
    try:
        memory = memory_of(ours.pid, birth_of(ours.pid))
        memory.runs["r-1-1"] = KeeperRun("r-1-1", HOST, command={**COMMAND}, memory_mb=0.0)
        memory.runs["r-1-1"].recorded = True
        runs_of(memory)
        assert lost.wait(60) == -signal.SIGKILL
        assert ours.poll() is None
    finally:
        for made in (ours, lost):
            made.kill()
            made.wait()


def test_a_successor_waits_while_a_planted_exec_hides_its_mark(runs_of, monkeypatch):
    """Only if a launch is recorded whose start is not: else there can be no such process."""
    looks: list[int] = []

    def planted_exec(pid: int, found: processes.Stat) -> bool:
        looks.append(pid)
        return len(looks) == 1  # at the first look one is in the middle of its exec

    monkeypatch.setattr(processes, "in_exec", planted_exec)
    started = memory_of(os.getpid(), birth_of(os.getpid()))
    runs_of(started)
    assert looks == []
    runs_of(memory_of(0, 0))
    assert len(looks) > 1 and looks[0] in looks[1:], "looked at again, until it is over"
