"""Runs of several containers, over a real keeper: their order, ends, kills, adoption and limits."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peloton.backends.keeper import kinds, pod_run
from peloton.backends.keeper.group_roots import find_root
from peloton.backends.keeper.pods import Pods
from peloton.backends.keeper_messages import (
    ContainersMoved,
    KeeperDown,
    KeeperRunEnded,
    KeeperRunsListed,
    ListedRun,
    PodPart,
    RunLimits,
    RunPod,
    RunStarted,
)

LIVE = "trap 'exit 9' TERM; touch $PELOTON_CONTAINER_NAME.up; while :; do sleep 0.05; done"
STUBBORN = "trap '' TERM; touch $PELOTON_CONTAINER_NAME.up; while :; do sleep 0.05; done"
ACCOUNT = "games"
ENFORCED = RunLimits("enforce", cpu=0.5, pids=64)
grouped = pytest.mark.needs_root(
    "to make control groups", possible=find_root("any").place is not None
)


def init(name: str, value: str, **more: Any) -> PodPart:
    return PodPart(name, value, init=True, **more)


def launch(daemon: Any, *parts: PodPart, run_id: str = "r-0-1", **request: Any) -> None:
    grace_s = request.pop("grace_s", 30.0)
    daemon.launch(run_id, "exit 99", pod=RunPod(parts, grace_s), **request)


def statuses(end: KeeperRunEnded) -> dict[str, int | None]:
    """By container: its exit code, the negative of its signal, or None."""
    return {
        one.name: -one.signal if one.signal is not None else one.exit_code for one in end.containers
    }


def ends(daemon: Any) -> list[KeeperRunEnded]:
    """As told by itself, or in a list."""
    told = [one for one in [*daemon.log.reports] if isinstance(one, KeeperRunEnded)]
    return [*told, *daemon.listed_ends()]


def up(daemon: Any, *names: str, run_id: str = "r-0-1") -> Callable[[], bool]:
    return lambda: all((daemon.sandbox(run_id) / f"{name}.up").exists() for name in names)


def test_init_containers_come_first_one_after_the_other_then_all_together(daemon: Any) -> None:
    # The second init container sees what the first wrote; the others wait for each other.
    meet = "touch {0}; while [ ! -e {1} ]; do sleep 0.01; done; echo {0} >> said"
    launch(
        daemon,
        PodPart("web", meet.format("web", "db")),
        init("first", "echo first > said"),
        PodPart("db", meet.format("db", "web")),
        init("second", "test ! -e web && test ! -e db && echo second >> said"),
    )
    end = daemon.end("r-0-1")
    assert (end.outcome, end.exit_code, end.reason) == ("SUCCEEDED", 0, kinds.EXITED)
    said = (daemon.sandbox("r-0-1") / "said").read_text().split()
    assert said[:2] == ["first", "second"] and sorted(said[2:]) == ["db", "web"]
    first, second, web, db = end.containers
    assert [one.name for one in end.containers] == ["first", "second", "web", "db"]
    assert first.started_at <= first.ended_at <= second.started_at <= second.ended_at
    assert second.ended_at <= min(web.started_at, db.started_at)
    assert statuses(end) == {"first": 0, "second": 0, "web": 0, "db": 0}
    started = daemon.log.next_report(RunStarted, run_id="r-0-1").at
    assert max(web.started_at, db.started_at) <= started <= end.at


def test_it_has_started_once_all_containers_have(daemon: Any, procs: Any) -> None:
    launch(daemon, init("wait", "while [ ! -e go ]; do sleep 0.01; done"), PodPart("web", LIVE))
    procs.until(lambda: (daemon.sandbox("r-0-1") / "wait.stdout").exists(), "the first container")
    daemon.runs.list("host-1", asked_at=7.0)
    (listed,) = daemon.log.next_report(KeeperRunsListed, asked_at=7.0).runs
    assert (listed.state, listed.started_at) == ("queued", 0.0)
    assert not any(isinstance(one, RunStarted) for one in [*daemon.log.reports])
    (daemon.sandbox("r-0-1") / "go").touch()
    started = daemon.log.next_report(RunStarted, run_id="r-0-1")
    daemon.runs.list("host-1", asked_at=8.0)
    (listed,) = daemon.log.next_report(KeeperRunsListed, asked_at=8.0).runs
    assert (listed.state, listed.started_at) == ("running", started.at)


GATES = "while [ ! -e $PELOTON_CONTAINER_NAME.go ]; do sleep 0.01; done; exit {0}"


def doing(told: ContainersMoved | ListedRun) -> dict[str, str | int]:
    """By container: waits, runs, or its exit code."""
    return {
        one.name: one.exit_code if one.exit_code is not None
        else "runs" if one.started_at else "waits"
        for one in told.containers
    }  # fmt: skip


def let_go(daemon: Any, name: str, run_id: str = "r-0-1") -> None:
    (daemon.sandbox(run_id) / f"{name}.go").touch()


def moves(daemon: Any) -> list[dict[str, str | int]]:
    return [doing(one) for one in [*daemon.log.reports] if isinstance(one, ContainersMoved)]


def await_move(daemon: Any, procs: Any, want: dict[str, str | int]) -> None:
    procs.until(lambda: want in moves(daemon), f"{want} to be told")


def listed(daemon: Any, asked_at: float) -> list[ListedRun]:
    daemon.runs.list("host-1", asked_at=asked_at)
    return list(daemon.log.next_report(KeeperRunsListed, asked_at=asked_at).runs)


def test_each_step_of_a_container_is_told_while_the_pod_runs(daemon: Any, procs: Any) -> None:
    launch(daemon, init("first", GATES.format(0)), *(
        PodPart(name, GATES.format(0)) for name in ("web", "db")
    ))  # fmt: skip
    await_move(daemon, procs, {"first": "runs", "web": "waits", "db": "waits"})
    let_go(daemon, "first")
    await_move(daemon, procs, {"first": 0, "web": "runs", "db": "runs"})
    let_go(daemon, "db")
    await_move(daemon, procs, {"first": 0, "web": "runs", "db": 0})
    (found,) = listed(daemon, 7.0)
    assert doing(found) == {"first": 0, "web": "runs", "db": 0}
    first, web, db = found.containers
    assert first.init and first.started_at <= first.ended_at <= web.started_at
    assert web.ended_at == 0.0 and web.started_at <= db.ended_at
    let_go(daemon, "web")
    assert daemon.end("r-0-1").outcome == "SUCCEEDED"
    told = moves(daemon)
    assert all(a != b for a, b in zip(told, told[1:], strict=False)), "each change is told once"


def test_of_a_run_of_a_single_container_nothing_more_is_told(daemon: Any, procs: Any) -> None:
    daemon.launch("r-0-1", "while [ ! -e go ]; do sleep 0.01; done")
    daemon.log.next_report(RunStarted, run_id="r-0-1")
    (found,) = listed(daemon, 7.0)
    assert found.containers == ()
    (daemon.sandbox("r-0-1") / "go").touch()
    daemon.end("r-0-1")
    assert moves(daemon) == []


def test_a_successor_tells_what_containers_do(daemon: Any, folder: Path, procs: Any) -> None:
    """Also what they did while there was no keeper."""
    launch(daemon, *(PodPart(name, GATES.format(0)) for name in ("web", "db", "side")))
    await_move(daemon, procs, {"web": "runs", "db": "runs", "side": "runs"})
    os.kill(procs.keeper_pid(folder), signal.SIGKILL)
    let_go(daemon, "db")
    want = {"web": "runs", "db": 0, "side": "runs"}
    procs.until(lambda: want in moves(daemon) or want in lists(daemon), "it to be told")
    let_go(daemon, "side")
    await_move(daemon, procs, {"web": "runs", "db": 0, "side": 0})
    let_go(daemon, "web")
    assert daemon.end("r-0-1").outcome == "SUCCEEDED"


def lists(daemon: Any) -> list[dict[str, str | int]]:
    found = [one for one in [*daemon.log.reports] if isinstance(one, KeeperRunsListed)]
    return [doing(run) for one in found for run in one.runs]


def test_each_has_its_output_and_its_variables(daemon: Any) -> None:
    say = "echo $PELOTON_CONTAINER_NAME $SHARED $OWN; echo err >&2; pwd > $OWN.pwd"
    launch(
        daemon,
        init("a", say, environment={"OWN": "1", "SHARED": "mine"}),
        PodPart("b", "sh", False, ("sh", "-c", say), {"OWN": "2"}),
        environment={"SHARED": "all"},
    )
    assert daemon.end("r-0-1").outcome == "SUCCEEDED"
    box = daemon.sandbox("r-0-1")
    assert daemon.output("r-0-1", "a.stdout") == "a all 1\n"
    assert daemon.output("r-0-1", "b.stdout") == "b all 2\n"
    assert daemon.output("r-0-1", "b.stderr") == "err\n"
    assert (box / "1.pwd").read_text() == (box / "2.pwd").read_text() == f"{box}\n"
    lines = [line.partition(" ")[2] for line in daemon.output("r-0-1").splitlines()]
    assert lines == [
        "init container a: started", "init container a: exit code 0",
        "container b: started", "container b: exit code 0",
    ]  # fmt: skip


def test_an_init_container_that_fails_is_the_end(daemon: Any) -> None:
    launch(daemon, init("a", "exit 3"), init("b", "touch b"), PodPart("web", "touch web"))
    end = daemon.end("r-0-1")
    assert (end.outcome, end.exit_code, end.reason) == ("FAILED", 3, kinds.EXITED)
    assert end.message == "init container a: exit code 3"
    assert statuses(end) == {"a": 3, "b": None, "web": None}
    assert [bool(one.started_at) for one in end.containers] == [True, False, False]
    assert not (daemon.sandbox("r-0-1") / "web").exists()
    assert not any(isinstance(one, RunStarted) for one in daemon.log.reports)


def test_one_that_fails_ends_the_others_with_grace(daemon: Any) -> None:
    fail = "while [ ! -e web.up ]; do sleep 0.01; done; kill -SEGV $$"
    launch(daemon, PodPart("web", LIVE), PodPart("bad", fail), PodPart("done", "true"))
    end = daemon.end("r-0-1")
    assert (end.outcome, end.exit_code, end.signal) == ("FAILED", None, signal.SIGSEGV)
    assert end.reason == kinds.SIGNALLED
    assert end.message == "container bad: signal 11 (SIGSEGV)"
    assert statuses(end) == {"web": 9, "bad": -signal.SIGSEGV, "done": 0}


def test_what_does_not_end_in_its_grace_is_killed(daemon: Any, folder: Path, procs: Any) -> None:
    fail = "while [ ! -e web.up ]; do sleep 0.01; done; exit 4"
    leave = "setsid sleep 1000 & sleep 1000 & "
    launch(daemon, PodPart("web", leave + STUBBORN), PodPart("bad", fail), grace_s=0.2)
    end = daemon.end("r-0-1")
    assert (end.outcome, end.exit_code) == ("FAILED", 4)
    assert statuses(end) == {"web": -signal.SIGKILL, "bad": 4}
    procs.until(lambda: not procs.marked(folder), "all it started to be gone")


def test_a_command_that_cannot_be_run_fails_as_in_a_shell(daemon: Any) -> None:
    launch(daemon, PodPart("web", LIVE), PodPart("none", "/no/such", shell=False))
    end = daemon.end("r-0-1")
    assert (end.outcome, end.exit_code, end.reason) == ("FAILED", 127, kinds.NOT_RUNNABLE)
    assert end.message.startswith("container none: cannot run '/no/such'")


@pytest.mark.parametrize("phase", ["init", "main"])
def test_a_kill_tells_all_of_them(daemon: Any, procs: Any, phase: str) -> None:
    parts = [PodPart("web", LIVE), PodPart("db", LIVE)]
    if phase == "init":
        parts.insert(0, init("first", LIVE))
    launch(daemon, *parts)
    names = ["first"] if phase == "init" else ["web", "db"]
    procs.until(up(daemon, *names), "they to run")
    daemon.runs.kill("host-1", "r-0-1", grace_s=30.0)
    end = daemon.end("r-0-1")
    assert (end.outcome, end.exit_code, end.reason) == ("KILLED", 9, kinds.KILL_REQUESTED)
    want = {"first": 9, "web": None, "db": None} if phase == "init" else {"web": 9, "db": 9}
    assert statuses(end) == want


def test_what_runs_behind_a_shell_has_the_grace_of_its_pod(daemon: Any, procs: Any) -> None:
    """Of one container, which has ended with its last process; the other ends at once."""
    saver = "trap 'echo > told; until test -e go; do sleep 0.05; done; echo > saved; exit 0' TERM"
    behind = f"({saver}; echo > up; while :; do sleep 0.05; done) & wait"
    launch(daemon, PodPart("web", behind), PodPart("log", "sleep 600"))
    sandbox = daemon.sandbox("r-0-1")
    procs.until((sandbox / "up").exists, "the program to run")
    daemon.log.next_report(RunStarted, run_id="r-0-1")
    daemon.runs.kill("host-1", "r-0-1", grace_s=600.0)
    procs.until((sandbox / "told").exists, "it to be told")
    (sandbox / "go").touch()
    assert daemon.end("r-0-1").outcome == "KILLED"
    assert (sandbox / "saved").exists()


def test_a_kill_ends_with_the_grace(daemon: Any, folder: Path, procs: Any) -> None:
    launch(daemon, PodPart("web", STUBBORN), PodPart("db", f"echo $$ > pid; {LIVE}"))
    procs.until(up(daemon, "web", "db"), "both to run")
    db = int((daemon.sandbox("r-0-1") / "pid").read_text())
    daemon.runs.kill("host-1", "r-0-1", grace_s=600.0)
    procs.until(lambda: not procs.alive(db), "the one that obeys to end")
    daemon.runs.kill("host-1", "r-0-1", grace_s=0.0)
    end = daemon.end("r-0-1")
    assert (end.outcome, statuses(end)) == ("KILLED", {"web": -signal.SIGKILL, "db": 9})
    procs.until(lambda: not procs.marked(folder), "all it started to be gone")


def test_a_watcher_that_does_not_obey_is_killed_with_all_it_watches(
    daemon: Any, folder: Path, procs: Any
) -> None:
    launch(daemon, PodPart("web", STUBBORN))
    os.kill(daemon.log.next_report(RunStarted, run_id="r-0-1").pid, signal.SIGSTOP)
    daemon.runs.kill("host-1", "r-0-1", grace_s=0.1)
    end = daemon.end("r-0-1")
    assert (end.outcome, end.reason) == ("KILLED", kinds.KILL_REQUESTED)
    procs.until(lambda: not procs.marked(folder), "all it started to be gone")


def test_a_watcher_does_not_end_by_the_signals_of_a_terminal(daemon: Any, procs: Any) -> None:
    launch(daemon, PodPart("web", "touch $PELOTON_CONTAINER_NAME.up; sleep 1000 & wait $!; exit 7"))
    procs.until(up(daemon, "web"), "it to run")
    pid = daemon.log.next_report(RunStarted, run_id="r-0-1").pid
    for number in (signal.SIGHUP, signal.SIGINT):
        os.kill(pid, number)
    daemon.runs.kill("host-1", "r-0-1", grace_s=600.0)
    assert daemon.end("r-0-1").outcome == "KILLED", "it was there to tell it to its container"
    assert statuses(daemon.end("r-0-1"))["web"] == -signal.SIGTERM


def test_a_watcher_that_is_killed_leaves_nothing(daemon_of: Any, folder: Path, procs: Any) -> None:
    daemon = daemon_of(round_s=1000.0)  # which would find what is left
    launch(daemon, init("first", "true"), PodPart("web", STUBBORN))
    procs.until(up(daemon, "web"), "it to run")
    os.kill(daemon.log.next_report(RunStarted, run_id="r-0-1").pid, signal.SIGKILL)
    end = daemon.end("r-0-1")
    assert (end.outcome, end.exit_code, end.reason) == ("LOST", None, kinds.POD_UNWATCHED)
    assert statuses(end) == {"first": 0, "web": None}
    procs.until(lambda: not procs.marked(folder), "all it started to be gone")


@pytest.mark.parametrize("phase", ["init", "main"])
def test_a_successor_of_a_killed_keeper_learns_every_status(
    daemon: Any, folder: Path, procs: Any, phase: str
) -> None:
    """Also of what ended while there was no keeper."""
    wait = "touch $PELOTON_CONTAINER_NAME.up; while [ ! -e go ]; do sleep 0.01; done; exit {0}"
    before = wait.format(0) if phase == "init" else "true"
    launch(daemon, init("first", before), PodPart("web", wait.format(7)), PodPart("db", LIVE))
    procs.until(up(daemon, *(["first"] if phase == "init" else ["web", "db"])), "it to run")
    os.kill(procs.keeper_pid(folder), signal.SIGKILL)
    (daemon.sandbox("r-0-1") / "go").touch()
    procs.until(lambda: ends(daemon), "its end to be told")
    end = ends(daemon)[0]
    assert (end.outcome, end.exit_code) == ("FAILED", 7)
    assert end.message == "container web: exit code 7"
    assert statuses(end)["first"] == 0 and statuses(end)["db"] in (9, -signal.SIGTERM)


def test_a_successor_reports_the_start_and_kills(daemon: Any, folder: Path, procs: Any) -> None:
    launch(daemon, init("first", "while [ ! -e go ]; do sleep 0.01; done"), PodPart("web", LIVE))
    procs.until(lambda: (daemon.sandbox("r-0-1") / "first.stdout").exists(), "it to begin")
    os.kill(procs.keeper_pid(folder), signal.SIGKILL)
    daemon.log.next_report(KeeperDown)
    (daemon.sandbox("r-0-1") / "go").touch()
    daemon.log.next_report(RunStarted, run_id="r-0-1")
    procs.until(up(daemon, "web"), "it to run")
    daemon.runs.kill("host-1", "r-0-1", grace_s=30.0)
    assert (daemon.end("r-0-1").outcome, statuses(daemon.end("r-0-1"))["web"]) == ("KILLED", 9)


def test_an_end_that_is_acknowledged_leaves_no_file(daemon: Any, folder: Path, procs: Any) -> None:
    launch(daemon, PodPart("web", "true"))
    daemon.end("r-0-1")
    daemon.runs.ack(["r-0-1"])
    procs.until(lambda: [*(folder / "pods").iterdir()] == [], "its file to be removed")


def test_no_variable_is_written_down(daemon: Any, folder: Path, procs: Any) -> None:
    launch(
        daemon, PodPart("web", LIVE, environment={"SECRET": "canary-1"}),
        environment={"ALL": "canary-2"},
    )  # fmt: skip
    procs.until(up(daemon, "web"), "it to run")
    files = [*folder.iterdir(), *(folder / "pods").iterdir()]
    assert not any(b"canary" in path.read_bytes() for path in files if path.is_file())


def test_memory_is_that_of_the_whole_pod(daemon: Any) -> None:
    grow = f"exec {sys.executable} -c 'x = bytearray(60 << 20); import time; time.sleep(1000)'"
    launch(daemon, PodPart("a", grow), PodPart("b", grow), memory_mb=64.0)
    end = daemon.end("r-0-1")
    assert (end.outcome, end.reason) == ("FAILED", kinds.OVER_MEMORY)
    assert len(end.containers) == 2


@grouped
def test_one_group_holds_the_whole_pod(daemon: Any) -> None:
    show = "cat /proc/self/cgroup"
    launch(daemon, init("i", show), PodPart("a", show), limits=ENFORCED, memory_mb=64.0)
    assert daemon.end("r-0-1").outcome == "SUCCEEDED"
    for name in ("i", "a"):
        assert "/r-0-1\n" in daemon.output("r-0-1", f"{name}.stdout")


@grouped
def test_memory_beyond_the_limit_ends_all_of_it(daemon: Any, folder: Path, procs: Any) -> None:
    eats = f"exec {sys.executable} -c 'x = bytearray(300 << 20)'"
    launch(daemon, PodPart("web", LIVE), PodPart("a", eats), limits=ENFORCED, memory_mb=64.0)
    end = daemon.end("r-0-1")
    assert (end.outcome, end.reason) == ("FAILED", kinds.OOM)
    assert end.message.startswith("out of memory: limit 80 MB, peak "), end.message
    assert [one.name for one in end.containers] == ["web", "a"]
    procs.until(lambda: not procs.marked(folder), "all it started to be gone")


@pytest.mark.needs_root("to start programs as others")
def test_containers_run_as_the_account_of_the_run(open_folder: Path, new_daemon: Any) -> None:
    daemon = new_daemon(open_folder)
    uid = pwd.getpwnam(ACCOUNT).pw_uid
    try:
        launch(
            daemon, init("a", "id -u; echo mine > file"), PodPart("b", "id -u; cat file"),
            PodPart("c", "/no/such", shell=False), task_user=ACCOUNT,
        )  # fmt: skip
        end = daemon.end("r-0-1")
        assert (end.outcome, end.exit_code, end.reason) == ("FAILED", 127, kinds.NOT_RUNNABLE)
        assert daemon.output("r-0-1", "a.stdout") == f"{uid}\n"
        assert daemon.sandbox("r-0-1").stat().st_uid == uid
        assert (daemon.sandbox("r-0-1") / "b.stdout").stat().st_uid == uid
    finally:
        daemon.runs.close()


@pytest.mark.needs_root("to start programs as others")
def test_where_an_init_container_cannot_become_its_account_no_other_begins(tmp_path: Path) -> None:
    """Its process says so later, and the pod has failed by then."""
    box, status = tmp_path / "box", tmp_path / "status"
    box.mkdir()
    account, marks = pwd.getpwnam(ACCOUNT), {"PELOTON_RUN_ID": "r", "PELOTON_KEEPER": "k"}
    parts = [
        {"name": name, "init": init, "value": "/bin/touch", "arguments": ["touch", f"{name}.up"],
         "environment": marks}
        for name, init in (("i", True), ("web", False))
    ]  # fmt: skip
    told = {
        "status": str(status), "sandbox": str(box), "grace_s": 5.0, "containers": parts,
        "account": [ACCOUNT, account.pw_uid, account.pw_gid, [account.pw_gid], ""],
    }  # fmt: skip
    (tmp_path / "told").write_text(json.dumps(told))
    command = f"exec {sys.executable} -I -S {pod_run.__file__} 4< {tmp_path}/told"
    subprocess.run(["setpriv", "--bounding-set=-setgid", "sh", "-c", command], check=True)
    found = json.loads(status.read_text())
    assert found["over"] and found["why_lost"].startswith("cannot become the account")
    assert [bool(row[0]) for row in found["containers"]] == [True, False] and not found["ready_at"]


def test_nothing_of_a_pod_is_kept_that_a_watcher_has_not_finished(tmp_path: Path) -> None:
    (tmp_path / "pods").mkdir()
    for name in ("r-0-1", "r-0-1.new"):
        (tmp_path / "pods" / name).touch()
    run = kinds.KeeperRun("r-0-1", "h", command={}, memory_mb=0.0)
    run.pod = [["a", False]]
    Pods(str(tmp_path)).forget(run)
    assert not [*(tmp_path / "pods").iterdir()]


@pytest.mark.parametrize(
    "parts",
    [
        [PodPart("a", "x"), PodPart("a", "y")],
        [PodPart("../a", "x")],
        [PodPart("..", "x")],
        [PodPart("/a", "x")],
        [PodPart("a\n", "x")],
        [PodPart("", "x")],
        [init("a", "x")],
    ],
)
def test_a_malformed_pod_fails_alone(daemon: Any, parts: list[PodPart]) -> None:
    launch(daemon, *parts)
    daemon.launch("r-1-1", "true")
    assert daemon.end("r-1-1").outcome == "SUCCEEDED"
    assert daemon.end("r-0-1").reason == kinds.NOT_RUNNABLE
