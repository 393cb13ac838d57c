"""Real runs in control groups: held to memory and processes, ended whole, and nothing left behind.

They need a machine that lets this user divide a control group, of version 1 or 2. Where there is
none they are skipped; what a keeper does then stands in test_groups.py.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peloton.backends.keeper import kinds, limits
from peloton.backends.keeper.group_roots import find_root
from peloton.backends.keeper.groups import GroupRoot
from peloton.backends.keeper_messages import KeeperRunsListed, RunLimits, RunStarted

PLACE = find_root("any").place
grouped = pytest.mark.needs_root("to make control groups", possible=PLACE is not None)
ENFORCED = RunLimits("enforce", cpu=0.5, pids=64)
EATS = f"exec {sys.executable} -c 'x = bytearray(300 * 1024 * 1024)'"
WAITS = "echo > ready; while :; do sleep 0.05; done"


def place_of(folder: Path) -> GroupRoot:
    found = find_root(limits.Limits(str(folder))._name()).place
    assert found is not None
    return found


def groups_of(folder: Path) -> set[str]:
    """The names of all groups in all hierarchies."""
    found: set[str] = set()
    for path in place_of(folder).folders.values():
        if os.path.isdir(path):
            found |= {one.name for one in Path(path).iterdir() if one.is_dir()}
    return found


@grouped
def test_a_run_begins_in_its_group_and_so_do_its_descendants(daemon: Any, folder: Path) -> None:
    told = "cat /proc/self/cgroup; (setsid cat /proc/self/cgroup)"
    daemon.launch("r-0-1", told, limits=ENFORCED, memory_mb=64.0)
    assert daemon.end("r-0-1").outcome == "SUCCEEDED"
    lines = daemon.output("r-0-1").splitlines()
    inside = [line for line in lines if line.endswith("/r-0-1")]
    hierarchies = len({*place_of(folder).folders.values()})
    assert len(inside) == 2 * hierarchies, "the shell's child and one in a session of its own"


@grouped
def test_memory_beyond_the_limit_ends_the_run_with_the_reason(daemon: Any) -> None:
    daemon.launch("r-0-1", EATS, limits=ENFORCED, memory_mb=64.0)
    end = daemon.end("r-0-1")
    assert (end.outcome, end.reason) == ("FAILED", kinds.OOM)
    assert end.message.startswith("out of memory: limit 64 MB, peak 6"), end.message
    assert 60 <= end.peak_mb <= 64


@grouped
def test_a_child_that_is_out_of_memory_ends_the_whole_run(daemon: Any) -> None:
    """Version 1 of the kernel's groups kills one process only; the run does not go on without."""
    command = f"({EATS}); echo went on > after; {WAITS}"
    daemon.launch("r-0-1", command, limits=ENFORCED, memory_mb=64.0)
    assert daemon.end("r-0-1").reason == kinds.OOM


@grouped
def test_no_more_processes_than_the_limit(daemon: Any) -> None:
    forks = "for n in $(seq 40); do sleep 600 & done; wait"
    wanted = RunLimits("enforce", pids=20)
    daemon.launch("r-0-1", forks, limits=wanted)
    end = daemon.end("r-0-1")
    assert end.outcome == "FAILED"
    assert "fork" in daemon.output("r-0-1", "stderr")


@grouped
def test_what_fled_from_the_session_ends_with_the_run(daemon: Any, procs: Any) -> None:
    flees = "setsid env -i sleep 600 & echo $! > fled; sleep 0.1; exit 3"
    daemon.launch("r-0-1", flees, limits=ENFORCED)
    assert daemon.end("r-0-1").exit_code == 3
    fled = int((daemon.sandbox("r-0-1") / "fled").read_text())
    procs.until(lambda: not procs.alive(fled), "the process without a mark ends")


@grouped
def test_what_fled_to_a_group_within_ends_with_the_run(
    daemon: Any, folder: Path, procs: Any
) -> None:
    place = place_of(folder)
    if place.version == 1:
        ways, file = " ".join(dict.fromkeys(place.folders.values())), "tasks"
    else:
        ways, file = place.folders["memory"], "cgroup.procs"
    nests = f"for way in {ways}; do mkdir $way/r-0-1/in; echo $$ > $way/r-0-1/in/{file}; done"
    flees = f"{nests}; setsid env -i sleep 600 & echo $! > fled; sleep 0.1; exit 3"
    daemon.launch("r-0-1", flees.replace("; setsid", "\nsetsid"), limits=ENFORCED)
    daemon.launch("r-1-1", WAITS)  # while it lives, only the groups tell whose a process is
    assert daemon.end("r-0-1").exit_code == 3
    fled = int((daemon.sandbox("r-0-1") / "fled").read_text())
    procs.until(lambda: not procs.alive(fled), "the process without a mark ends")
    procs.until(lambda: not groups_of(folder), "and no group is left")


@grouped
def test_groups_are_gone_after_the_end_and_so_is_the_keepers(
    daemon: Any, folder: Path, procs: Any
) -> None:
    daemon.launch("r-0-1", "sleep 600 & exit 0", limits=ENFORCED)
    daemon.launch("r-1-1", "no-such-program", shell=False, limits=ENFORCED)
    assert daemon.end("r-0-1").outcome == "SUCCEEDED"
    assert daemon.end("r-1-1").reason == kinds.NOT_RUNNABLE
    procs.until(lambda: not groups_of(folder), "no group is left")
    daemon.runs.ack(["r-0-1", "r-1-1"])
    paths = place_of(folder).folders.values()
    daemon.runs.close()
    procs.until(lambda: not any(map(os.path.exists, paths)), "an idle keeper leaves no folder")


@grouped
def test_a_successor_ends_what_is_in_groups_without_a_run_and_keeps_the_others(
    daemon_of: Callable[..., Any], folder: Path, procs: Any
) -> None:
    first = daemon_of()
    first.launch("r-0-1", WAITS, limits=ENFORCED, memory_mb=64.0)
    # It ends, and leaves a process that only its group tells: no session, no mark.
    stays = "setsid env -i sleep 600 & echo $! > fled; echo > ready; sleep 600"
    first.launch("r-1-1", stays, limits=ENFORCED)
    for run in ("r-0-1", "r-1-1"):
        procs.until((first.sandbox(run) / "ready").exists, f"{run} runs")
    first.log.next_report(RunStarted, run_id="r-0-1")
    leader = first.log.next_report(RunStarted, run_id="r-1-1").pid
    keeper = procs.keeper_pid(folder)
    os.kill(keeper, signal.SIGKILL)
    os.kill(leader, signal.SIGKILL)
    fled = int((first.sandbox("r-1-1") / "fled").read_text())
    procs.until(lambda: not procs.alive(fled), "the successor ends it")
    procs.until(lambda: groups_of(folder) == {"r-0-1"}, "and keeps the group of the other")
    first.runs.kill(procs.HOST, "r-0-1", grace_s=0.0)
    procs.until(lambda: not groups_of(folder), "which goes with its run")


@grouped
def test_an_adopted_run_that_is_out_of_memory_has_the_reason(
    daemon: Any, folder: Path, procs: Any
) -> None:
    waits_then_eats = f"echo > ready; while [ ! -e go ]; do sleep 0.05; done; {EATS}"
    daemon.launch("r-0-1", waits_then_eats, limits=ENFORCED, memory_mb=64.0)
    procs.until((daemon.sandbox("r-0-1") / "ready").exists, "it runs")
    daemon.log.next_report(RunStarted)  # else its process may not be recorded yet
    keeper = procs.keeper_pid(folder)
    os.kill(keeper, signal.SIGKILL)
    lock = folder / "lock"
    procs.until(lambda: lock.read_text().strip() not in ("", str(keeper)), "a successor")
    daemon.log.next_report(KeeperRunsListed)
    (daemon.sandbox("r-0-1") / "go").touch()
    procs.until(lambda: [e for e in daemon.listed_ends() if e.reason == kinds.OOM]
                or any(getattr(r, "reason", "") == kinds.OOM for r in [*daemon.log.reports]),
                "its end names the reason")  # fmt: skip


@grouped
def test_the_keeper_itself_is_in_no_group_of_a_run(daemon: Any, folder: Path, procs: Any) -> None:
    daemon.launch("r-0-1", WAITS, limits=ENFORCED, memory_mb=64.0)
    daemon.log.next_report(RunStarted)  # by then the keeper has left
    mine = Path(f"/proc/{procs.keeper_pid(folder)}/cgroup").read_text()
    assert mine == Path("/proc/self/cgroup").read_text()


def test_a_sandbox_beyond_its_limit_ends_the_run(daemon: Any) -> None:
    fills = f"dd if=/dev/zero of=big bs=1M count=8 2>/dev/null; {WAITS}"
    daemon.launch("r-0-1", fills, limits=RunLimits("try", disk_mb=4.0))
    end = daemon.end("r-0-1")
    assert (end.outcome, end.reason) == ("FAILED", kinds.DISK_LIMIT)
    # It may be looked at before all of it is written.
    assert re.fullmatch(r"the sandbox uses [5-8] MB, its limit is 4 MB", end.message)


def test_an_end_carries_what_was_used(daemon: Any) -> None:
    burns = f"exec {sys.executable} -c 'for n in range(3_000_000): pass'"
    daemon.launch("r-0-1", burns)
    end = daemon.end("r-0-1")
    assert end.cpu_s > 0.01 and end.peak_mb > 1
