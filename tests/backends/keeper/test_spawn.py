"""What a task gets from its keeper and what it does not, and what a spawn leaves in the keeper.

Real keepers, real processes. /proc, the folder and the reports are all there is.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from peloton.backends.keeper import processes
from peloton.backends.keeper_messages import KeeperRunEnded, KeeperRunsListed, RunStarted

KEEPER = Path(sys.modules["peloton.backends.keeper_messages"].__file__ or "").parent / "keeper"
# Starts a keeper from a process that ignores and blocks what it can.
ROUGH_START = """
import os, signal, sys
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.execv(sys.executable, [sys.executable, "-I", "-S", *sys.argv[1:]])
"""


def fields_of(status: str) -> dict[str, str]:
    """Of /proc/PID/status."""
    return dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)


def umask_of(pid: int) -> str:
    return fields_of(Path(f"/proc/{pid}/status").read_text())["Umask"]


def test_signals_are_default_and_unblocked_whoever_started_the_keeper(daemon_of, folder):
    start = [str(KEEPER / "__main__.py"), str(folder), "30"]
    command = [sys.executable, "-c", ROUGH_START, *start]
    assert subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode == 0
    daemon = daemon_of()
    daemon.launch("r-0-1", "cat", shell=False, arguments=("cat", "/proc/self/status"))
    assert daemon.end("r-0-1").outcome == "SUCCEEDED"
    told = fields_of(daemon.output("r-0-1"))
    # The C library ignores the two that it keeps for itself, and sets them when it needs them.
    valid = sum(1 << (number - 1) for number in signal.valid_signals())
    masks = {name: int(told[name], 16) & valid for name in ("SigBlk", "SigIgn", "SigCgt")}
    assert masks == {"SigBlk": 0, "SigIgn": 0, "SigCgt": 0}


def test_a_keeper_keeps_no_descriptor_of_its_starter(daemon_of, folder, procs, tmp_path):
    """Its lock would outlive a daemon that was killed, and no other one could begin."""
    with open(tmp_path / "lock of a daemon", "w") as lock:
        start = [sys.executable, "-I", "-S", str(KEEPER / "__main__.py"), str(folder), "30"]
        done = subprocess.run(start, pass_fds=[lock.fileno()], check=False)
    assert done.returncode == 0
    assert not any("lock of a daemon" in each for each in procs.held_by(procs.keeper_pid(folder)))


def test_folder_modes_and_input(daemon):
    task = "umask; pwd; echo $MESOS_SANDBOX; readlink /proc/self/fd/0; touch made; mkdir inner"
    daemon.launch("r-0-1", task)
    assert daemon.end("r-0-1").outcome == "SUCCEEDED"
    box = daemon.sandbox("r-0-1")
    assert daemon.output("r-0-1").split() == ["0022", str(box), str(box), "/dev/null"]
    modes = {path.name: path.stat().st_mode & 0o777 for path in [box, *box.iterdir()]}
    assert modes == {
        "r-0-1": 0o700, "stdout": 0o600, "stderr": 0o600, "made": 0o644, "inner": 0o755,
    }  # fmt: skip


def test_the_variables_of_the_keeper_cannot_be_replaced(daemon, folder):
    given = {"PELOTON_RUN_ID": "other", "PELOTON_KEEPER": "/other", "PELOTON_JOB_ID": "j"}
    daemon.launch("r-0-1", "env", environment=given)
    daemon.end("r-0-1")
    lines = [line for line in daemon.output("r-0-1").splitlines() if line.startswith("PELOTON_")]
    assert sorted(lines) == [
        "PELOTON_JOB_ID=j", f"PELOTON_KEEPER={folder}", "PELOTON_RUN_ID=r-0-1",
    ]  # fmt: skip


def test_a_spawn_changes_nothing_in_the_keeper(daemon, folder, procs):
    """Neither one that succeeds nor one that fails: descriptors, folder, umask, children."""
    daemon.launch("first-0-1", "true")
    daemon.end("first-0-1")
    pid = procs.keeper_pid(folder)
    before = procs.held_at_rest(pid)
    assert umask_of(pid) == "0077"
    for number in range(40):
        daemon.launch(f"good-{number}-1", "true")
        daemon.launch(f"bad-{number}-1", "/no/such/program", shell=False)
    for number in range(40):
        assert daemon.end(f"good-{number}-1").outcome == "SUCCEEDED"
        assert daemon.end(f"bad-{number}-1").exit_code == 127
    procs.until(lambda: sorted(procs.held_by(pid)) == before, "no descriptor is left")
    assert os.readlink(f"/proc/{pid}/cwd") == str(folder)
    assert umask_of(pid) == "0077"
    children = Path(f"/proc/{pid}/task/{pid}/children")
    procs.until(lambda: children.read_text() == "", "no child is left")


def program(path: Path, text: str, *, mode: int = 0o755) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path.parent


@pytest.mark.parametrize(
    ("first", "second", "status", "seen"),
    [
        (None, ("#!/bin/sh\necho second", 0o755), 0, "second"),
        (("#!/bin/sh\necho first", 0o755), ("#!/bin/sh\necho second", 0o755), 0, "first"),
        (("#!/bin/sh\necho first", 0o644), ("#!/bin/sh\necho second", 0o755), 0, "second"),
        (("#!/bin/sh\necho first", 0o644), None, 126, "Permission denied"),
        (("#!/no/such/shell\n", 0o755), ("#!/bin/sh\necho second", 0o755), 0, "second"),
        (("#!/no/such/shell\n", 0o755), None, 127, "No such file"),
        (("no program at all", 0o755), None, 126, "Exec format error"),
        (None, None, 127, "No such file"),
    ],
)
def test_programs_are_searched_in_the_path_of_the_task(
    daemon, tmp_path, first, second, status, seen
):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder, file in zip(folders, (first, second), strict=True):
        if file is not None:
            program(folder / "searched", file[0], mode=file[1])
    path = f"{tmp_path / 'missing'}:{folders[0]}:{folders[1]}"
    daemon.launch("r-0-1", "searched", shell=False, environment={"PATH": path})
    end = daemon.end("r-0-1")
    assert end.exit_code == status
    assert seen in (end.message if status else daemon.output("r-0-1"))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"environment": {"A=B": "x"}}, "illegal environment variable name"),
        ({"environment": {"A": "x\0y"}}, "null"),
        ({"arguments": ("cat", "x\0y")}, "null"),
        ({"arguments": ("cat", "x" * 200_000)}, "Argument list too long"),
        ({"environment": {"A": "\ud800"}}, "surrogates not allowed"),
    ],
)
def test_what_no_program_can_be_given_fails_its_own_run(daemon, given, why):
    daemon.launch("r-0-1", "/bin/cat", shell=False, **given)
    end = daemon.end("r-0-1")
    assert (end.outcome, end.exit_code, end.reason) == ("FAILED", 126, "command cannot be run")
    assert why in end.message
    daemon.launch("r-1-1", "true")
    assert daemon.end("r-1-1").outcome == "SUCCEEDED"


def test_a_command_that_cannot_be_run_has_started_and_ended(daemon):
    """In this order, as one that fails at once: a task's history must not differ."""
    daemon.launch("r-0-1", "/no/such/program", shell=False)
    end = daemon.end("r-0-1")
    kinds = [type(each) for each in daemon.log.reports if getattr(each, "run_id", "") == "r-0-1"]
    assert kinds == [RunStarted, KeeperRunEnded]
    assert daemon.log.next_report(RunStarted).at <= end.at
    assert (daemon.sandbox("r-0-1") / "stdout").read_bytes() == b""


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal").read_text().splitlines()]


def test_a_process_whose_pid_was_not_recorded_is_found_and_ended(daemon_of, folder, procs):
    """As if the keeper had been killed between the spawn and the record of it."""
    first = daemon_of(idle_s=30)
    first.launch("r-0-1", "sleep 60 & setsid sleep 60 & echo > ready; wait")
    procs.until((first.sandbox("r-0-1") / "ready").exists, "the task is ready")
    procs.until(lambda: len(procs.marked(folder)) == 3, "all of its processes run")
    first.runs.close()
    procs.kill_both(folder)
    kept = [record for record in records(folder) if record["is"] != "start"]
    (folder / "journal").write_text("".join(f"{json.dumps(record)}\n" for record in kept))
    assert len(procs.marked(folder)) == 3

    second = daemon_of(epoch=2)
    second.runs.list("host-1")
    (listed,) = second.log.next_report(KeeperRunsListed).runs
    assert listed.ended.outcome == "LOST"
    assert procs.marked(folder) == [], "ended before the first answer of the successor"
    second.runs.ack(["r-0-1"])
    second.launch("r-0-1", "true")
    assert second.end("r-0-1").reason == "run id used before"


def test_an_exec_is_told_from_processes_without_text(procs):
    """Kernel threads have neither arguments nor environment as well. An exec is over soon."""
    procs.until(
        lambda: not any(processes.in_exec(*each) for each in processes.all_processes()),
        "no process is taken for one that is in an exec",
    )


def test_a_launch_is_recorded_before_its_process_and_both_before_the_end(daemon, folder):
    for number in range(100):
        daemon.launch(f"r-{number}-1", "true")
    for number in range(100):
        daemon.end(f"r-{number}-1")
    seen: dict[str, list[str]] = {}
    for record in records(folder):
        if "run" in record:
            seen.setdefault(record["run"], []).append(record["is"])
    assert len(seen) == 100
    # The second says with which status it has ended.
    assert {tuple(kinds) for kinds in seen.values()} == {("launch", "start", "start", "end")}


def test_acknowledgements_reach_the_journal(daemon_of, folder, procs):
    first = daemon_of(idle_s=30)
    first.launch("r-0-1", "true")
    first.end("r-0-1")
    first.runs.ack(["r-0-1"])
    procs.until(lambda: {"is": "ack", "run": "r-0-1"} in records(folder), "it is written")
    first.runs.close()
    procs.kill_both(folder)
    second = daemon_of(epoch=2)
    second.runs.list("host-1")
    assert second.log.next_report(KeeperRunsListed).runs == ()


def test_an_id_stays_taken_though_its_folder_was_lost(daemon_of, folder, procs):
    """As after a power cut, of which the synced journal knows more than the folders show."""
    first = daemon_of(idle_s=30)
    first.launch("r-0-1", "true")
    first.end("r-0-1")
    first.runs.close()
    procs.kill_both(folder)
    shutil.rmtree(folder / "runs" / "r-0-1")
    second = daemon_of(epoch=2)
    second.runs.list("host-1")
    second.log.next_report(KeeperRunsListed)
    second.runs.ack(["r-0-1"])
    second.launch("r-0-1", "true")
    assert second.log.next_report(KeeperRunEnded, run_id="r-0-1").reason == "run id used before"


def test_nothing_starts_and_no_end_is_lost_while_the_journal_cannot_be_written(
    daemon_of, folder, procs
):
    daemon = daemon_of(idle_s=30)
    daemon.launch("r-0-1", "while [ ! -e go ]; do sleep 0.02; done; exit 9")
    pid = daemon.log.next_report(RunStarted).pid
    keeper = procs.keeper_pid(folder)
    unlimited = resource.prlimit(keeper, resource.RLIMIT_FSIZE)
    resource.prlimit(keeper, resource.RLIMIT_FSIZE, (1, unlimited[1]))
    daemon.launch("r-1-1", "touch ran")
    procs.until((folder / "runs" / "r-1-1").exists, "the launch was read")
    (daemon.sandbox("r-0-1") / "go").touch()
    procs.until(lambda: not procs.alive(pid), "the first task has ended")
    assert not [each for each in daemon.log.reports if isinstance(each, KeeperRunEnded)]
    resource.prlimit(keeper, resource.RLIMIT_FSIZE, unlimited)
    assert daemon.end("r-0-1").exit_code == 9
    end = daemon.end("r-1-1")
    assert (end.outcome, end.reason) == ("LOST", "could not be started")
    assert not (daemon.sandbox("r-1-1") / "ran").exists()
    daemon.launch("r-2-1", "true")
    assert daemon.end("r-2-1").outcome == "SUCCEEDED"
