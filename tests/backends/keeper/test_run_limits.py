"""How long a run may take: its keeper ends it, whoever else lives.

Real keepers. What counts near the limit is said by `stops.py`, and shown here without a clock: the
end is seen before the limit is over, or after it.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peloton.actors.task.messages import DEADLINE_EXCEEDED
from peloton.backends.keeper import kinds
from peloton.backends.keeper.kinds import KeeperRun
from peloton.backends.keeper.stops import Stops, since_boot
from peloton.backends.keeper_messages import (
    KeeperRunEnded,
    KeeperRunsListed,
    PodPart,
    RunPod,
    RunStarted,
)

HOST = "host-1"
LONG = "echo > ready; exec sleep 600"
LATE = "Deadline exceeded: ran longer than"


def ends(daemon: Any) -> list[KeeperRunEnded]:
    """Those that were told, by reports and by lists."""
    told = [one for one in [*daemon.log.reports] if isinstance(one, KeeperRunEnded)]
    return told + daemon.listed_ends()


def test_it_is_the_reason_that_tasks_give() -> None:
    assert kinds.RUN_LIMIT == DEADLINE_EXCEEDED


def test_a_run_ends_at_its_limit(daemon: Any) -> None:
    daemon.launch("r-0-1", LONG, max_running_s=0.3, grace_s=60.0)
    end = daemon.end("r-0-1")
    assert (end.outcome, end.reason) == ("KILLED", DEADLINE_EXCEEDED)
    assert (end.signal, end.message) == (signal.SIGTERM, f"{LATE} 0.3 s")
    assert end.at - daemon.log.next_report(RunStarted).at >= 0.29


@pytest.mark.parametrize(
    ("program", "code", "number"),
    [
        ("trap 'exit 0' TERM; while :; do sleep 0.02; done", 0, None),
        ("trap '' TERM; while :; do sleep 0.02; done", None, signal.SIGKILL),
    ],
    ids=["it obeys", "it does not"],
)
def test_it_has_its_grace_and_no_way_to_succeed(
    daemon: Any, program: str, code: int | None, number: int | None
) -> None:
    daemon.launch("r-0-1", program, max_running_s=0.3, grace_s=0.5 if number else 600.0)
    end = daemon.end("r-0-1")
    assert (end.outcome, end.reason) == ("KILLED", DEADLINE_EXCEEDED)
    assert (end.exit_code, end.signal) == (code, number)


def test_no_daemon_has_to_live(daemon_of: Callable[..., Any], folder: Path, procs: Any) -> None:
    first = daemon_of(idle_s=60.0)
    first.launch("r-0-1", LONG, max_running_s=0.5, grace_s=60.0)
    first.log.next_report(RunStarted)
    first.runs.close()
    procs.until(lambda: not procs.marked(folder), "it has ended")
    second = daemon_of(epoch=2)
    second.runs.list(HOST)
    procs.until(lambda: ends(second), "its end")
    assert ends(second)[0].reason == DEADLINE_EXCEEDED


def test_nor_the_keeper_that_has_started_it(daemon: Any, folder: Path, procs: Any) -> None:
    daemon.launch("r-0-1", LONG, max_running_s=2.0, grace_s=60.0)
    daemon.log.next_report(RunStarted)
    os.kill(procs.keeper_pid(folder), signal.SIGKILL)
    daemon.runs.close()
    procs.until(lambda: not procs.marked(folder), "it has ended")


def test_one_that_ends_after_its_limit_is_late_though_no_keeper_was_there(
    daemon: Any, folder: Path, procs: Any, tmp_path: Path
) -> None:
    """It exits with 0 by itself; the supervisor has seen when."""
    go = tmp_path / "go"
    value = f"until [ -e {go} ]; do sleep 0.02; done"
    daemon.launch("r-0-1", value, max_running_s=1.0, grace_s=60.0)
    begun = daemon.log.next_report(RunStarted)
    keeper = procs.keeper_pid(folder)
    os.kill(keeper, signal.SIGSTOP)
    limit_at = since_boot() + 1.0
    procs.until(lambda: since_boot() > limit_at, "its time is over")
    go.touch()
    procs.until(lambda: not procs.alive(begun.pid), "it has ended")
    os.kill(keeper, signal.SIGKILL)
    procs.until(lambda: ends(daemon), "its end")
    end = ends(daemon)[0]
    assert (end.outcome, end.exit_code, end.reason) == ("KILLED", 0, DEADLINE_EXCEEDED)


@pytest.mark.parametrize(
    ("ended_s", "late"), [(59.9, False), (60.1, True)], ids=["before", "after"]
)
def test_what_counts_is_when_the_end_is_seen(ended_s: float, late: bool) -> None:
    run = KeeperRun("r-0-1", HOST, command={}, memory_mb=0.0)
    run.max_running_s = 60.0
    stops = Stops({run.run_id: run}, str, signal=lambda *_: None, note=lambda _: None)
    run.pid, run.started_at = 1, time.time()
    stops.started(run)
    run.due -= 100.0  # it has begun so long ago
    stops.ended(run, time.time() - 100.0 + ended_s)
    assert run.late == late


def test_an_end_before_the_limit_counts_though_it_is_told_after_it(
    daemon: Any, folder: Path, procs: Any, tmp_path: Path
) -> None:
    """Its keeper is killed before it sees the end, and no other begins in time."""
    go = tmp_path / "go"
    daemon.launch(
        "r-0-1", f"until [ -e {go} ]; do sleep 0.02; done", max_running_s=30.0, grace_s=60.0
    )
    begun = daemon.log.next_report(RunStarted)
    supervisor, keeper = procs.supervisor_pid(folder), procs.keeper_pid(folder)
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(keeper, signal.SIGKILL)
    procs.until(lambda: not procs.alive(keeper), "the keeper is gone")
    with (folder / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.kill(supervisor, signal.SIGCONT)
        go.touch()
        procs.until(lambda: not procs.alive(begun.pid), "it has ended")
        # As if its limit had been over since, and not before.
        journal = folder / "journal"
        records = [json.loads(line) for line in journal.read_text().splitlines()]
        (start,) = [one for one in records if one["is"] == "start"]
        late_at = since_boot()
        start["due"][0] = late_at + 0.2
        journal.write_text("".join(f"{json.dumps(one)}\n" for one in records))
        procs.until(lambda: since_boot() > late_at + 0.3, "the limit to be over")
    procs.until(lambda: ends(daemon), "its end")
    end = ends(daemon)[0]
    assert (end.outcome, end.exit_code, end.reason) == ("SUCCEEDED", 0, "exited")


def test_limits_of_runs_that_have_ended_take_no_room() -> None:
    stops = Stops({}, str, signal=lambda *_: None, note=lambda _: None)
    for number in range(1000):
        run = KeeperRun(f"r-{number}-1", HOST, command={}, memory_mb=0.0)
        run.max_running_s, run.pid, run.started_at = 86400.0, 1, 1.0
        stops.started(run)
        stops.ended(run, 0.0)
    assert len(stops._dues) < 200


@pytest.mark.parametrize("again", [False, True], ids=["one keeper", "a successor"])
def test_another_limit_counts_from_the_start(
    daemon: Any, folder: Path, procs: Any, again: bool
) -> None:
    daemon.launch("r-0-1", LONG, max_running_s=600.0, grace_s=60.0)
    daemon.launch("r-1-1", LONG, max_running_s=1.5, grace_s=60.0)
    daemon.launch("r-2-1", LONG)
    for at in range(3):
        daemon.log.next_report(RunStarted, run_id=f"r-{at}-1")
    daemon.runs.limit(HOST, ["r-1-1"], max_running_s=0.0)
    daemon.runs.limit(HOST, ["r-0-1", "r-2-1"], max_running_s=1.5)
    daemon.runs.list(HOST)
    daemon.log.next_report(KeeperRunsListed)
    if again:
        procs.until(lambda: '"r-2-1","pid"' in (folder / "journal").read_text(), "notes")
        os.kill(procs.keeper_pid(folder), signal.SIGKILL)

    def late() -> set[str]:
        return {end.run_id for end in ends(daemon) if end.message == f"{LATE} 1.5 s"}

    procs.until(lambda: late() == {"r-0-1", "r-2-1"}, "both have ended")
    daemon.runs.kill(HOST, "r-1-1", grace_s=60.0)
    assert daemon.end("r-1-1").reason == "killed", "the limit was taken away"


def test_of_a_pod_a_successor_knows_that_its_limit_was_taken_away(
    daemon: Any, folder: Path, procs: Any
) -> None:
    pod = RunPod((PodPart("web", LONG),), 60.0)
    daemon.launch("r-0-1", "", pod=pod, max_running_s=1.5, grace_s=60.0)
    daemon.log.next_report(RunStarted)
    daemon.runs.limit(HOST, ["r-0-1"], max_running_s=0.0)
    daemon.runs.list(HOST)
    daemon.log.next_report(KeeperRunsListed)
    os.kill(procs.keeper_pid(folder), signal.SIGKILL)
    limit_at = since_boot() + 2.0
    procs.until(lambda: since_boot() > limit_at, "its time would be over")
    daemon.runs.kill(HOST, "r-0-1", grace_s=60.0)
    assert daemon.end("r-0-1").reason == "killed"


def test_and_what_limit_it_was_given_before_it_had_begun(
    daemon: Any, folder: Path, procs: Any
) -> None:
    waits = "echo > waits; until [ -e go ]; do sleep 0.02; done"
    parts = (PodPart("first", waits, init=True), PodPart("web", LONG))
    daemon.launch("r-0-1", "", pod=RunPod(parts, 60.0), max_running_s=600.0, grace_s=60.0)
    procs.until((daemon.sandbox("r-0-1") / "waits").exists, "the first to run")
    daemon.runs.limit(HOST, ["r-0-1"], max_running_s=0.5)
    daemon.runs.list(HOST)
    daemon.log.next_report(KeeperRunsListed)
    os.kill(procs.keeper_pid(folder), signal.SIGKILL)
    (daemon.sandbox("r-0-1") / "go").touch()
    procs.until(lambda: ends(daemon), "its end")
    assert ends(daemon)[0].message == f"{LATE} 0.5 s"


def test_a_pod_has_its_time_from_the_start_of_its_containers(daemon: Any, procs: Any) -> None:
    """Not while its init containers run, which takes longer here; as its daemon counts."""
    waits = "echo > waits; until [ -e go ]; do sleep 0.02; done"
    parts = (PodPart("first", waits, init=True), PodPart("web", LONG), PodPart("db", LONG))
    daemon.launch("r-0-1", "", pod=RunPod(parts, 60.0), max_running_s=0.5, grace_s=60.0)
    procs.until((daemon.sandbox("r-0-1") / "waits").exists, "the first to run")
    limit_at = since_boot() + 0.7
    procs.until(lambda: since_boot() > limit_at, "its time would be over")
    assert not [one for one in daemon.log.reports if isinstance(one, KeeperRunEnded)]
    (daemon.sandbox("r-0-1") / "go").touch()
    end = daemon.end("r-0-1")
    assert (end.outcome, end.reason) == ("KILLED", DEADLINE_EXCEEDED)
    assert [one.signal for one in end.containers] == [None, signal.SIGTERM, signal.SIGTERM]
