"""What happens between the start of a process and the command that it executes as its account.

The keeper must not wait for the command's file: here a process of the account holds a lease on it,
which delays every exec until it is given up.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.backends.keeper import accounts, kinds, processes
from peloton.backends.keeper.switching import START_MAX_S, AccountStarts, AccountTask
from peloton.backends.keeper_messages import RunStarted
from tests.backends.keeper.test_disk import HOST, REQUEST, Keeper

FIRST = str(Path(kinds.__file__).parent / "account_start.py")
NOBODY = pwd.getpwnam("nobody")
LEASE = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(os.open(sys.argv[1], os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("leased", flush=True)
sys.stdin.read()
"""
pytestmark = pytest.mark.needs_root("to start a task as another account")


@pytest.fixture
def leased(passable: Path) -> Iterator[tuple[str, Any]]:
    """A program on which another process holds a lease, and that process."""
    program = passable / "program"
    shutil.copy("/bin/true", program)
    os.chown(program, NOBODY.pw_uid, NOBODY.pw_gid)
    command = ["/usr/bin/env", "python3", "-c", LEASE, str(program)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=NOBODY.pw_uid
    ) as holder:
        assert holder.stdout.readline() == "leased\n"
        yield str(program), holder
        holder.kill()


@pytest.fixture
def daemon(open_folder: Path, new_daemon: Callable[..., Any]) -> Iterator[Any]:
    made = new_daemon(open_folder)
    yield made
    made.runs.close()


@pytest.fixture
def spawned(passable: Path) -> Iterator[Callable[..., int]]:
    """Starts a task without a keeper; the working folder is put back."""
    pids: list[int] = []
    home = os.open(".", os.O_RDONLY)

    def spawn(starts: AccountStarts, *command: str, **environment: str) -> int:
        account = accounts.look_up("nobody")
        assert account is not None
        box = passable / f"box-{len(pids)}"
        box.mkdir()
        task = AccountTask(command[0], list(command), environment, str(box), {"MARK": "x"})
        pids.append(starts.spawn(task, account, now=100.0))
        return pids[-1]

    yield spawn
    os.fchdir(home)
    os.close(home)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def cmdline(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def waits_for_its_command(pid: int) -> bool:
    """Amid an exec a process has no arguments, neither these nor others."""
    return FIRST in cmdline(pid)


def test_the_keeper_goes_on_while_a_command_cannot_be_opened(
    daemon: Any, open_folder: Path, leased: tuple[str, Any], procs: Any
) -> None:
    program, holder = leased
    environment = {"SECRET": "value"}
    daemon.launch("hung", program, shell=False, user="nobody", environment=environment)
    daemon.launch("other", "true", user="nobody")
    assert daemon.end("other").outcome == "SUCCEEDED"
    pid = daemon.log.next_report(RunStarted, run_id="hung").pid
    procs.until(lambda: waits_for_its_command(pid), "it waits for its command")
    assert procs.marked(open_folder) == [pid], "a successor would find it"
    assert not any("value" in argument for argument in cmdline(pid))
    holder.kill()
    assert daemon.end("hung").outcome == "SUCCEEDED"


def test_a_run_that_waits_for_its_command_can_be_killed(
    daemon: Any, leased: tuple[str, Any]
) -> None:
    daemon.launch("hung", leased[0], shell=False, user="nobody")
    pid = daemon.log.next_report(RunStarted, run_id="hung").pid
    os.kill(pid, signal.SIGSTOP)
    daemon.runs.kill("host-1", "hung", grace_s=0)
    assert daemon.end("hung").outcome == "KILLED"


def test_what_does_not_execute_its_command_in_time_is_killed(
    spawned: Callable[..., int], leased: tuple[str, Any], procs: Any
) -> None:
    starts = AccountStarts()
    runs, hung = spawned(starts, "/bin/sleep", "1000"), spawned(starts, leased[0])
    procs.until(lambda: cmdline(runs)[0] == "/bin/sleep", "the command is executed")
    procs.until(lambda: waits_for_its_command(hung), "the other one waits for its command")
    os.kill(hung, signal.SIGSTOP)
    assert starts.next_deadline() == 100.0 + START_MAX_S
    starts.kill_overdue(100.0 + START_MAX_S - 1)
    assert procs.alive(hung)
    starts.kill_overdue(100.0 + START_MAX_S)
    assert os.waitpid(hung, 0) == (hung, signal.SIGKILL)
    failure = starts.ended(hung)
    assert failure is not None and (failure.value, failure.number) == (leased[0], 0)
    told = processes._failed_start(failure)
    assert (told.status, str(told)) == (
        126, f"cannot run {leased[0]!r}: its file did not open in time",
    )  # fmt: skip
    assert procs.alive(runs), "what runs is not killed"
    assert starts.next_deadline() is None


def test_a_run_that_cannot_open_its_command_ends(
    passable: Path, leased: tuple[str, Any], monkeypatch: pytest.MonkeyPatch, procs: Any
) -> None:
    """The loop calls at the deadline."""
    monkeypatch.chdir(passable)
    runs = Keeper(passable).runs
    runs._spawner = processes.Spawner()
    command = {"run": "hung", "value": leased[0], "shell": False, "arguments": []}
    account = {"as": {"user": "nobody"}, "limit_mb": 0}
    runs.launch(HOST, [{**REQUEST, **command, **account}])
    runs.commit()
    run, deadline = runs.memory.runs["hung"], runs.next_kill()
    assert run.pid and run.end is None and deadline is not None
    procs.until(lambda: waits_for_its_command(run.pid), "it waits for its command")
    runs.kill_overdue(deadline)
    os.waitid(os.P_PID, run.pid, os.WEXITED | os.WNOWAIT)
    runs.reap()
    assert run.end is not None
    assert (run.end["outcome"], run.end["reason"]) == (kinds.FAILED, kinds.NOT_RUNNABLE)
    assert run.end["exit_code"] == 126 and runs.next_kill() is None


def test_an_end_without_a_failure_is_forgotten(spawned: Callable[..., int]) -> None:
    starts = AccountStarts()
    pid = spawned(starts, "/bin/sh", "-c", "exit 126")
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 126
    assert starts.ended(pid) is None, "it is the command's own exit code"
    assert (starts.next_deadline(), starts._starts) == (None, {})


def test_variables_of_a_task_are_not_obeyed_while_it_is_root(
    spawned: Callable[..., int], passable: Path
) -> None:
    traces = passable / "traces"
    traces.mkdir()
    traces.chmod(0o777)
    output = str(traces / "trace")
    pid = spawned(AccountStarts(), "/bin/true", LD_DEBUG="libs", LD_DEBUG_OUTPUT=output)
    assert os.waitpid(pid, 0) == (pid, 0)
    assert [path.stat().st_uid for path in traces.iterdir()] == [NOBODY.pw_uid]


def test_only_three_descriptors_reach_a_task(spawned: Callable[..., int], passable: Path) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(null, True)
    pid = spawned(AccountStarts(), "/bin/ls", "/proc/self/fd")
    os.close(null)
    assert os.waitpid(pid, 0) == (pid, 0)
    found = (passable / "box-0" / "stdout").read_text().split()
    assert found == ["0", "1", "2", "3"], "the last one is the folder that is listed"


def test_what_the_keeper_was_started_with_reaches_no_task(
    passable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one that runs as the keeper's own account."""
    monkeypatch.chdir(passable)
    (passable / "box").mkdir()
    null = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(null, True)
    program = processes.Program("/bin/ls", ["ls", "/proc/self/fd"], {}, "box")
    with processes.Spawner() as spawner:
        pid = spawner.spawn(program)
    os.close(null)
    assert os.waitpid(pid, 0) == (pid, 0)
    assert (passable / "box" / "stdout").read_text().split() == ["0", "1", "2", "3"]
