"""Health checks by command: in the sandbox, as the run's account, within its limits."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from pwd import getpwnam
from typing import Any

import pytest

from peloton.actors.task.run_messages import HealthCheck
from peloton.backends.keeper import checks
from peloton.backends.keeper.accounts import Accounts
from peloton.backends.keeper.checks import CheckMeans, CheckRequest, Checks
from peloton.backends.keeper.group_roots import find_root
from peloton.backends.keeper.kinds import KeeperRun
from peloton.backends.keeper.limits import Limits
from peloton.backends.keeper.processes import Spawner
from peloton.backends.keeper.programs import inherited
from peloton.backends.keeper_messages import (
    KeeperRunsListed,
    PodPart,
    RunChecked,
    RunLimits,
    RunPod,
    RunStarted,
)
from tests.backends.keeper.conftest import HOST, alive, keeper_pid, until

GROUPS = find_root("any").place is not None
WAITS = "echo mine > word; echo > ready; while :; do sleep 0.05; done"


def begun(daemon: Any, value: str = WAITS, **request: Any) -> None:
    daemon.launch("r-0-1", value, checked=True, **request)
    daemon.log.next_report(RunStarted, run_id="r-0-1")
    until((daemon.sandbox("r-0-1") / "ready").exists, "the run to be ready")


def outcome(
    daemon: Any, command: str, number: int, timeout_s: float = 60.0, **more: Any
) -> RunChecked:
    check = HealthCheck(command, timeout_s=timeout_s, **more)
    daemon.runs.check(HOST, "r-0-1", number=number, check=check)
    found: RunChecked = daemon.log.next_report(RunChecked, number=number)
    return found


@pytest.mark.parametrize(
    ("command", "ok", "text"),
    [
        ("grep mine word", True, "mine"),
        ("true", True, ""),
        ("echo out; echo $WORD is bad >&2; exit 3", False, "exit status 3: said is bad"),
        ("exit 1", False, "exit status 1"),
        ("kill -TERM $$", False, "signal 15"),
        ("test $MESOS_SANDBOX = $PWD", True, ""),
        ("no-such-program 2> /dev/null", False, "exit status 127"),
        ('printf "a\\033[1mb"', True, "a [1mb"),
    ],
)
def test_a_command_runs_in_the_sandbox_with_the_variables_of_its_run(
    daemon: Any, command: str, ok: bool, text: str
) -> None:
    begun(daemon, environment={"WORD": "said"})
    found = outcome(daemon, command, 7)
    assert (found.host, found.run_id, found.ok, found.text) == (HOST, "r-0-1", ok, text)
    assert not [*(daemon.runs.folder / "checks").iterdir()], "what it printed is not kept"
    assert daemon.output("r-0-1") == "", "nor is it the run's output"


def test_of_a_run_that_is_not_to_be_checked_none_ever_is(daemon: Any) -> None:
    """Such as one in a container of its own. That it cannot be now is another answer."""
    begun(daemon)
    assert not outcome(daemon, "true", 1).never
    daemon.launch("r-0-2", WAITS)
    daemon.log.next_report(RunStarted, run_id="r-0-2")
    daemon.runs.check(HOST, "r-0-2", number=2, check=HealthCheck("true"))
    found = daemon.log.next_report(RunChecked, number=2)
    assert (found.ok, found.never, found.text) == (None, True, "a command is not carried out")


def test_without_the_environment_of_its_run(daemon: Any) -> None:
    begun(daemon, environment={"WORD": "said"})
    assert outcome(daemon, 'test -z "$WORD" && cat word', 1, unshared=True).ok is True


def test_one_that_takes_too_long_is_killed(daemon: Any) -> None:
    begun(daemon)
    found = outcome(daemon, "sleep 600", 1, 0.1)
    assert (found.ok, found.text) == (False, "killed, as it may take 0.1 s")


def test_one_that_would_fill_the_disk_is_killed(daemon: Any) -> None:
    begun(daemon)
    found = outcome(daemon, "echo on >&2; head -c 17000000 /dev/zero; sleep 600", 1, 600.0)
    assert (found.ok, found.text) == (False, "killed, as it may print 16 MB: on")


def test_it_ends_with_its_run_and_then_nothing_is_known(daemon: Any) -> None:
    begun(daemon)
    daemon.runs.check(HOST, "r-0-1", number=1, check=HealthCheck("echo $$ > pid; sleep 600"))
    file = daemon.sandbox("r-0-1") / "pid"
    until(lambda: file.exists() and file.read_text().strip(), "the check to begin")
    daemon.runs.kill(HOST, "r-0-1", grace_s=5.0)
    assert daemon.end("r-0-1").outcome == "KILLED"
    found = daemon.log.next_report(RunChecked, number=1)
    assert found.ok is None
    assert not alive(int(file.read_text()))


def test_a_run_that_was_not_to_be_checked_is_not(daemon: Any) -> None:
    daemon.launch("r-0-1", WAITS)
    daemon.log.next_report(RunStarted, run_id="r-0-1")
    assert outcome(daemon, "true", 1).ok is None


def test_one_of_what_does_not_run_is_answered_at_once(daemon: Any) -> None:
    """Whoever asks has a few under way at a time, and would wait in vain."""
    assert outcome(daemon, "true", 1).ok is None
    begun(daemon)
    daemon.runs.kill(HOST, "r-0-1", grace_s=60.0)
    daemon.end("r-0-1")
    assert outcome(daemon, "true", 2).ok is None


def test_of_several_containers_it_has_the_variables_of_its_own(daemon: Any, folder: Path) -> None:
    parts = [PodPart(name, f"touch {name}.up; {WAITS}", environment={"OWN": name}) for name in "ab"]
    waits = PodPart("i", "true", init=True, environment={"OWN": "i"})
    begun(daemon, pod=RunPod((waits, *parts), checked="b"), environment={"OWN_NOT": "all"})
    show = "echo $OWN $OWN_NOT $PELOTON_CONTAINER_NAME"
    assert outcome(daemon, show, 1).text == "b all b"
    assert outcome(daemon, show, 2, unshared=True).text == ""
    os.kill(keeper_pid(folder), signal.SIGKILL)
    daemon.log.reports.clear()
    daemon.log.next_report(KeeperRunsListed)
    assert outcome(daemon, show, 3).text == "b all b", "of a successor, too"


class Alone:
    """Checks of one run without a keeper, and what they tell; the test says what time it is."""

    def __init__(self, folder: Path) -> None:
        command = {"environment": {}, "value": "", "shell": True, "arguments": []}
        self.run = KeeperRun("r-0-1", HOST, command=command, memory_mb=0.0)
        self.run.pid, self.run.checked = os.getpid(), True
        means = CheckMeans(Spawner(), Limits(str(folder)), Accounts(os.geteuid()), inherited())
        self.told: list[dict[str, Any]] = []
        self.checks = Checks(str(folder), lambda host, event: self.told.append(event), means=means)
        self.checks.started(self.run)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Alone:
    monkeypatch.chdir(tmp_path)
    return Alone(tmp_path)


def test_with_one_whose_time_is_over_ends_what_it_has_begun(alone: Alone, tmp_path: Path) -> None:
    of, pid_file = alone.checks, tmp_path / "child"
    asked = CheckRequest(1, "sleep 600 & echo $! > child; wait", 2.5)
    of.begin(alone.run, asked, sandbox="", now=0.0)
    until(lambda: pid_file.exists() and pid_file.read_text().strip(), "the check to begin")
    (leader,), child = of.pids, int(pid_file.read_text())
    of.kill_overdue(2.4)
    assert alive(leader) and alive(child)
    of.kill_overdue(2.5)
    status = os.waitstatus_to_exitcode(os.waitpid(leader, 0)[1])
    assert of.reaped(leader, status) and alone.told[0]["text"] == "killed, as it may take 2.5 s"
    until(lambda: not alive(child), "what the check has begun to end")


@pytest.mark.needs_root("to become an ordinary user for one check")
def test_a_keeper_of_an_ordinary_user_checks(
    passable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may open for writing no file that it has made read-only, as root may."""
    passable.chmod(0o777)
    monkeypatch.chdir(passable)
    alone = Alone(passable)
    of = alone.checks
    os.seteuid(getpwnam("nobody").pw_uid)
    try:
        of.begin(alone.run, CheckRequest(1, "true", 60.0), sandbox="", now=0.0)
    finally:
        os.seteuid(0)
    assert alone.told == [], "it could not begin"
    assert of.reaped(of.pids[0], os.waitpid(of.pids[0], 0)[1])
    assert alone.told[0]["ok"] is True


def test_times_of_checks_that_have_ended_are_not_kept(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check may be allowed a day, and take a moment."""
    monkeypatch.setattr(checks, "_DEADLINES_MAX", 4)
    of, run, told = alone.checks, alone.run, alone.told
    for number in range(10):
        asked = CheckRequest(number, "true", 1.0 if number == 0 else 86400.0)
        of.begin(run, asked, sandbox="", now=0.0)
        if number:  # the first one goes on, as far as is known
            pid = of.pids[-1]
            assert of.reaped(pid, os.waitpid(pid, 0)[1])
        assert len(of._deadlines) <= 5
    assert len(told) == 9 and of.next_deadline() == 1.0
    os.waitpid(of.pids[0], 0)


@pytest.mark.needs_root("to make control groups", possible=GROUPS)
def test_it_is_in_the_control_group_of_its_run(daemon: Any) -> None:
    begun(daemon, limits=RunLimits("enforce", cpu=0.5, pids=64), memory_mb=64.0)
    command = "grep -c /r-0-1$ /proc/self/cgroup; (setsid grep -c /r-0-1$ /proc/self/cgroup) >&2"
    found = outcome(daemon, command, 1)
    assert found.ok and int(found.text) >= 1, "a child in a session of its own"


@pytest.mark.needs_root("to start a task as another account")
def test_it_has_the_account_of_its_run(open_folder: Path, new_daemon: Any) -> None:
    daemon = new_daemon(open_folder)
    try:
        begun(daemon, user="nobody")
        found = outcome(daemon, "touch proof && id -un && stat -c %U proof", 1)
        assert (found.ok, found.text) == (True, "nobody")
    finally:
        daemon.runs.close()


@pytest.mark.needs_root("to start a task as another account")
def test_a_successor_checks_with_the_same_account_and_variables(
    open_folder: Path, new_daemon: Any
) -> None:
    """It has read neither the environment nor the account of a run from its predecessor."""
    daemon = new_daemon(open_folder)
    try:
        begun(daemon, user="nobody", environment={"WORD": "said"})
        first = keeper_pid(open_folder)
        os.kill(first, signal.SIGKILL)
        daemon.log.reports.clear()
        daemon.log.next_report(KeeperRunsListed)
        found = outcome(daemon, "echo $WORD by $(id -un)", 2)
        assert (found.ok, found.text) == (True, "said by nobody")
        assert keeper_pid(open_folder) != first
    finally:
        daemon.runs.close()


def test_what_a_killed_keeper_leaves_of_a_check_is_ended(folder: Path, daemon: Any) -> None:
    begun(daemon)
    daemon.runs.check(HOST, "r-0-1", number=1, check=HealthCheck("echo $$ > pid; sleep 600"))
    file = daemon.sandbox("r-0-1") / "pid"
    until(lambda: file.exists() and file.read_text().strip(), "the check to begin")
    daemon.log.reports.clear()
    os.kill(keeper_pid(folder), signal.SIGKILL)
    listed = daemon.log.next_report(KeeperRunsListed)
    assert [run.state for run in listed.runs] == ["running"], "the run goes on"
    until(lambda: not alive(int(file.read_text())), "the check to end")
