"""The keeper through a daemon's eyes: real processes, one behaviour a test.

Turns each promise of the keeper into a test. Tests wait for reports or for /proc, with a deadline,
never for a time to pass.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from peloton.backends.keeper_calling import dial
from peloton.backends.keeper_messages import (
    HostEpochRefused,
    KeeperDown,
    KeeperRunEnded,
    KeeperRunsListed,
    KeeperUp,
    RunRequest,
    RunStarted,
    RunUnknown,
)

KEEPER = Path(sys.modules["peloton.backends.keeper_messages"].__file__ or "").parent / "keeper"
START = [sys.executable, "-I", "-S", str(KEEPER / "__main__.py")]


def test_exit_code_and_output(daemon):
    daemon.launch("r-0-1", "echo out; echo err >&2; exit 7")
    end = daemon.end("r-0-1")
    assert (end.outcome, end.exit_code, end.signal, end.reason) == ("FAILED", 7, None, "exited")
    assert daemon.output("r-0-1") == "out\n"
    assert daemon.output("r-0-1", "stderr") == "err\n"


def test_success(daemon):
    daemon.launch("r-0-1", "true")
    assert daemon.end("r-0-1").outcome == "SUCCEEDED"
    assert daemon.log.next_report(RunStarted, run_id="r-0-1").pid > 0


def test_death_by_a_signal(daemon):
    daemon.launch("r-0-1", "kill -SEGV $$")
    end = daemon.end("r-0-1")
    assert (end.outcome, end.exit_code, end.signal) == ("FAILED", None, signal.SIGSEGV)


def test_syntax_error_of_the_shell_fails_as_one(daemon):
    daemon.launch("r-0-1", "if then (")
    end = daemon.end("r-0-1")
    assert (end.outcome, end.exit_code) == ("FAILED", 2)
    assert "yntax error" in daemon.output("r-0-1", "stderr")


def test_exec_with_arguments_as_argv(daemon):
    words = ("zero", "-c", 'echo "$0 $1"', "a", "b c")
    daemon.launch("r-0-1", "sh", shell=False, arguments=words)
    assert daemon.end("r-0-1").outcome == "SUCCEEDED"
    assert daemon.output("r-0-1") == "a b c\n"


@pytest.mark.parametrize(
    ("value", "status", "why"),
    [
        ("/no/such/program", 127, "No such file"),
        ("no-such-program-at-all", 127, "No such file"),
        ("/etc", 126, "Permission denied"),
        ("bad\0name", 126, "null"),
    ],
)
def test_what_cannot_be_run_fails_and_says_why(daemon, value, status, why):
    daemon.launch("r-0-1", value, shell=False)
    end = daemon.end("r-0-1")
    assert (end.outcome, end.exit_code) == ("FAILED", status)
    assert end.reason == "command cannot be run"
    assert why in end.message
    daemon.launch("r-0-2", "true")
    assert daemon.end("r-0-2").outcome == "SUCCEEDED"


def test_environment_is_the_given_one_and_no_more(daemon):
    daemon.launch("r-0-1", "env", environment={"GIVEN": "a=b c", "PATH": "/bin:/usr/bin"})
    daemon.end("r-0-1")
    lines = daemon.output("r-0-1").splitlines()
    assert "GIVEN=a=b c" in lines and "PATH=/bin:/usr/bin" in lines
    assert not any(line.startswith("PYTEST_CURRENT_TEST") for line in lines)


def test_it_inherits_no_descriptor(daemon, folder, procs):
    daemon.launch("r-0-1", "ls /proc/self/fd | wc -l; umask")
    daemon.end("r-0-1")
    assert daemon.output("r-0-1").split() == ["4", "0022"]  # three, and the folder it lists
    held = procs.held_by(procs.keeper_pid(folder))
    assert not any(".py" in name or "pytest" in name and str(folder) not in name for name in held)


def test_own_group_and_session(daemon, procs):
    daemon.launch("r-0-1", "echo > ready; sleep 60")
    pid = daemon.log.next_report(RunStarted).pid
    procs.until((daemon.sandbox("r-0-1") / "ready").exists, "the task is ready")
    assert os.getpgid(pid) == pid and os.getsid(pid) == pid
    daemon.runs.kill("host-1", "r-0-1", grace_s=60)
    end = daemon.end("r-0-1")
    assert (end.outcome, end.signal, end.reason) == ("KILLED", signal.SIGTERM, "killed")


STUBBORN = """
trap '' TERM
(trap '' TERM; while :; do sleep 60; done) &
setsid sh -c "trap '' TERM; while :; do sleep 60; done" &
echo ready > ready
while :; do sleep 60; done
"""


def test_a_stubborn_group_dies_whole_after_the_grace(daemon, folder, procs):
    daemon.launch("r-0-1", STUBBORN)
    procs.until((daemon.sandbox("r-0-1") / "ready").exists, "the task is ready")
    daemon.runs.kill("host-1", "r-0-1", grace_s=0.3)
    end = daemon.end("r-0-1")
    assert (end.outcome, end.signal) == ("KILLED", signal.SIGKILL)
    started = daemon.log.next_report(RunStarted)
    assert end.at - started.at >= 0.3
    procs.until(lambda: not procs.marked(folder), "nothing of the run is left")


def test_grace_lets_a_task_clean_up(daemon, procs):
    task = "trap 'echo bye; exit 3' TERM; echo > ready; while :; do sleep 0.05; done"
    daemon.launch("r-0-1", task)
    procs.until((daemon.sandbox("r-0-1") / "ready").exists, "the task is ready")
    daemon.runs.kill("host-1", "r-0-1", grace_s=30)
    end = daemon.end("r-0-1")
    assert (end.outcome, end.exit_code) == ("KILLED", 3)
    assert "bye" in daemon.output("r-0-1")


SAVER = """
trap 'echo > told; while [ ! -e go ]; do sleep 0.05; done; echo saved > saved; exit 0' TERM
echo > ready
while :; do sleep 0.05; done
"""
"""A program that saves its work when it is told to end, and takes until its gate is there."""


@pytest.mark.parametrize("again", [False, True], ids=["one keeper", "a successor"])
@pytest.mark.parametrize("behind", ["sh saver & wait", "sh saver | cat"])
def test_what_runs_behind_a_shell_has_its_grace(daemon, folder, procs, behind, again):
    """The shell ends at once by the signal; the run has ended with its last process."""
    daemon.launch("r-0-1", f"cat > saver <<'END'\n{SAVER}END\n{behind}")
    sandbox = daemon.sandbox("r-0-1")
    shell = daemon.log.next_report(RunStarted).pid
    procs.until((sandbox / "ready").exists, "the program to run")
    if again:
        os.kill(procs.keeper_pid(folder), signal.SIGKILL)
        daemon.log.reports.clear()
        daemon.log.next_report(KeeperRunsListed)
    daemon.runs.kill("host-1", "r-0-1", grace_s=600)
    procs.until(lambda: (sandbox / "told").exists() and not procs.alive(shell), "only it to run")
    (sandbox / "go").touch()
    assert daemon.end("r-0-1").outcome == "KILLED"
    assert (sandbox / "saved").read_text() == "saved\n"


def test_what_does_not_end_behind_a_shell_is_killed_after_the_grace(daemon, folder, procs):
    daemon.launch("r-0-1", "(trap '' TERM; echo > ready; while :; do sleep 0.05; done) & wait")
    procs.until((daemon.sandbox("r-0-1") / "ready").exists, "the task is ready")
    daemon.runs.kill("host-1", "r-0-1", grace_s=0.3)
    end = daemon.end("r-0-1")
    assert (end.outcome, end.signal) == ("KILLED", signal.SIGTERM)
    procs.until(lambda: not procs.marked(folder), "nothing of the run is left")


def test_children_end_with_their_leader(daemon, folder, procs):
    """In the group, out of the session, and twice removed from their parent."""
    daemon.launch("r-0-1", "sleep 60 & setsid sleep 60 & (setsid sleep 60 &) ; exit 0")
    assert daemon.end("r-0-1").outcome == "SUCCEEDED"
    procs.until(lambda: not procs.marked(folder), "nothing of the run is left")


def test_the_group_ends_at_once_not_at_the_next_round(daemon_of, folder, procs):
    daemon = daemon_of(round_s=600)
    daemon.launch("r-0-1", "sleep 60 & exit 0")
    daemon.end("r-0-1")
    procs.until(lambda: not procs.marked(folder), "nothing of the run is left")


def test_memory_limit_is_resident_memory(daemon):
    eat = "import time; hold = bytearray(120 * 1024 * 1024); time.sleep(60)"
    argv = (sys.executable, "-c", eat)
    daemon.launch("r-0-1", sys.executable, shell=False, arguments=argv, memory_mb=40)
    end = daemon.end("r-0-1")
    assert (end.outcome, end.signal) == ("FAILED", signal.SIGKILL)
    assert end.reason == "memory limit exceeded" and "40 MB asked for" in end.message


def test_address_space_is_not_memory(daemon):
    """RLIMIT_AS would end this one; small limits leave room for a shell."""
    reserve = "import mmap; m = mmap.mmap(-1, 1 << 30); open('ready', 'w'); print('fine')"
    argv = (sys.executable, "-c", reserve)
    daemon.launch("r-0-1", sys.executable, shell=False, arguments=argv, memory_mb=40)
    daemon.launch("r-1-1", "sleep 0.4", memory_mb=1)
    assert daemon.end("r-0-1").outcome == "SUCCEEDED"
    assert daemon.end("r-1-1").outcome == "SUCCEEDED"


def test_a_repeated_launch_is_answered_not_done(daemon):
    for _ in range(3):
        daemon.launch("r-0-1", "echo once")
    daemon.end("r-0-1")
    daemon.launch("r-0-1", "echo once")
    daemon.runs.ack(["r-0-1"])
    daemon.launch("r-0-1", "echo once")
    again = daemon.log.next_report(KeeperRunEnded, reason="run id used before")
    assert again.outcome == "LOST"
    assert daemon.output("r-0-1") == "once\n"


def test_kill_of_a_run_nobody_knows(daemon):
    daemon.runs.kill("host-1", "r-9-9", grace_s=1)
    daemon.log.next_report(RunUnknown, run_id="r-9-9")


def test_kill_overtakes_a_queued_launch(daemon):
    """More than one batch, all in one line: the kill is read before the last batch starts."""
    many = [RunRequest(f"r-{i}-1", "host-1", "echo ran") for i in range(64)]
    daemon.runs.launch("host-1", 1, runs=many)
    daemon.launch("last-0-1", "echo ran; sleep 60")
    daemon.runs.kill("host-1", "last-0-1", grace_s=5)
    assert daemon.end("last-0-1").outcome == "KILLED"


def test_listing(daemon):
    daemon.launch("r-0-1", "exit 4")
    daemon.launch("r-1-1", "sleep 60")
    daemon.end("r-0-1")
    started = daemon.log.next_report(RunStarted, run_id="r-1-1")
    daemon.log.reports.clear()
    daemon.runs.list("host-1")
    by_id = {run.run_id: run for run in daemon.log.next_report(KeeperRunsListed).runs}
    assert by_id["r-0-1"].state == "ended" and by_id["r-0-1"].ended.exit_code == 4
    assert (by_id["r-1-1"].state, by_id["r-1-1"].pid) == ("running", started.pid)
    daemon.runs.ack(["r-0-1", "r-1-1"])
    daemon.log.reports.clear()
    daemon.runs.list("host-1")
    assert [run.run_id for run in daemon.log.next_report(KeeperRunsListed).runs] == ["r-1-1"]
    daemon.runs.kill("host-1", "r-1-1", grace_s=0)
    daemon.end("r-1-1")


def test_hosts_are_told_apart(daemon):
    daemon.runs.hello("host-2", 5)
    daemon.runs.launch("host-2", 5, runs=[RunRequest("r-0-1", "host-2", "true")])
    assert daemon.end("r-0-1").host == "host-2"
    daemon.runs.list("host-1")
    assert daemon.log.next_report(KeeperRunsListed, host="host-1").runs == ()


def test_an_end_without_a_daemon_is_known_to_the_next(daemon_of, procs):
    first = daemon_of(epoch=1, idle_s=30)
    first.launch("r-0-1", "while [ ! -e go ]; do sleep 0.02; done; exit 9")
    pid = first.log.next_report(RunStarted).pid
    first.runs.close()
    (first.sandbox("r-0-1") / "go").touch()
    procs.until(lambda: not procs.alive(pid), "the task ends while nobody listens")
    second = daemon_of(epoch=2)
    # That the task ended is to be seen before the keeper has asked how.
    procs.until(lambda: listed_end(second) is not None, "the keeper knows the end")
    assert listed_end(second).exit_code == 9


def listed_end(daemon):
    """How its one run ended, as the keeper says when asked now."""
    daemon.log.reports.clear()
    daemon.runs.list("host-1")
    (listed,) = daemon.log.next_report(KeeperRunsListed).runs
    return listed.ended


def test_a_lower_epoch_is_refused_also_by_a_successor(daemon_of, folder, procs):
    new = daemon_of(epoch=7)
    new.own()
    old = daemon_of(epoch=6)
    assert old.log.next_report(HostEpochRefused).known == 7
    old.launch("r-0-1", "true")
    os.kill(procs.keeper_pid(folder), signal.SIGKILL)
    new.log.next_report(KeeperDown)
    older = daemon_of(epoch=5)
    assert older.log.next_report(HostEpochRefused).known == 7
    assert not (folder / "runs" / "r-0-1").exists()


def test_news_go_to_the_newest_owner(daemon_of):
    old = daemon_of(epoch=1)
    old.launch("r-0-1", "while [ ! -e go ]; do sleep 0.02; done")
    old.log.next_report(RunStarted)
    new = daemon_of(epoch=2)
    new.own()
    (old.sandbox("r-0-1") / "go").touch()
    assert new.end("r-0-1").outcome == "SUCCEEDED"


def test_a_second_keeper_is_refused(daemon, folder, procs):
    daemon.log.next_report(KeeperUp)
    pid = procs.keeper_pid(folder)
    assert subprocess.run([*START, str(folder)], check=False).returncode == 3
    assert procs.keeper_pid(folder) == pid and procs.alive(pid)


def test_signals_of_a_terminal_do_not_end_it(daemon, folder, procs):
    daemon.launch("r-0-1", "sleep 1000")
    daemon.log.next_report(RunStarted, run_id="r-0-1")
    keeper = procs.keeper_pid(folder)
    for number in (signal.SIGHUP, signal.SIGINT):
        os.kill(keeper, number)
    daemon.launch("r-0-2", "true")
    assert daemon.end("r-0-2").outcome == "SUCCEEDED"
    assert procs.keeper_pid(folder) == keeper


def test_it_leaves_when_idle_and_comes_back_with_its_memory(daemon_of, folder, procs):
    first = daemon_of(idle_s=0.2)
    first.launch("r-0-1", "exit 5")
    first.end("r-0-1")
    pid = procs.keeper_pid(folder)
    first.runs.close()
    procs.until(lambda: not procs.alive(pid), "the keeper leaves")
    second = daemon_of(epoch=2)
    second.runs.list("host-1")
    assert second.log.next_report(KeeperRunsListed).runs[0].ended.exit_code == 5
    assert procs.keeper_pid(folder) != pid


def test_it_does_not_leave_a_run(daemon_of, folder, procs):
    first = daemon_of(idle_s=0.2)
    first.launch("r-0-1", "while [ ! -e go ]; do sleep 0.02; done; touch done")
    first.log.next_report(RunStarted)
    pid = procs.keeper_pid(folder)
    first.runs.close()
    os.kill(pid, signal.SIGTERM)
    second = daemon_of(epoch=2)
    second.runs.list("host-1")
    second.log.next_report(KeeperRunsListed)
    assert procs.keeper_pid(folder) == pid, "it stays for its run"
    second.runs.close()
    box = first.sandbox("r-0-1")
    (box / "go").touch()
    procs.until((box / "done").exists, "the run goes on to its end")
    procs.until(lambda: not procs.alive(pid), "then the keeper leaves")


def test_it_leaves_with_its_runs_when_its_folder_is_gone(daemon_of, folder, procs):
    daemon = daemon_of()
    daemon.launch("r-0-1", "echo > ready; sleep 60")
    pid = daemon.log.next_report(RunStarted).pid
    procs.until((daemon.sandbox("r-0-1") / "ready").exists, "the task is ready")
    keeper = procs.keeper_pid(folder)
    daemon.runs.close()
    procs.until(lambda: procs.removed(folder), "its folder is gone")
    procs.until(lambda: not procs.alive(keeper), "the keeper leaves")
    procs.until(lambda: not procs.alive(pid), "and its run has been killed")


def test_a_successor_adopts_watches_and_kills(daemon, folder, procs):
    daemon.launch("r-0-1", "while [ ! -e go ]; do sleep 0.02; done; exit 0")
    daemon.launch("r-1-1", STUBBORN)
    procs.until((daemon.sandbox("r-1-1") / "ready").exists, "the task is ready")
    pid = daemon.log.next_report(RunStarted, run_id="r-0-1").pid
    daemon.log.reports.clear()
    os.kill(procs.keeper_pid(folder), signal.SIGKILL)
    listed = daemon.log.next_report(KeeperRunsListed)
    states = {run.run_id: run.state for run in listed.runs}
    assert states == {"r-0-1": "running", "r-1-1": "running"}
    assert procs.alive(pid)
    (daemon.sandbox("r-0-1") / "go").touch()
    daemon.runs.kill("host-1", "r-1-1", grace_s=0.2)
    ends = [daemon.end(run_id) for run_id in ("r-0-1", "r-1-1")]
    assert [(end.outcome, end.exit_code, end.signal, end.reason) for end in ends] == [
        ("SUCCEEDED", 0, None, "exited"), ("KILLED", None, signal.SIGKILL, "killed"),
    ]  # fmt: skip
    procs.until(lambda: not procs.marked(folder), "nothing of the runs is left")


def test_a_successor_ends_what_dead_leaders_left(daemon, folder, procs):
    """The leader dies while no keeper is there to end its group."""
    daemon.launch("r-0-1", "sleep 60 & echo > ready; wait")
    procs.until((daemon.sandbox("r-0-1") / "ready").exists, "the task is ready")
    leader = daemon.log.next_report(RunStarted).pid
    keeper = procs.keeper_pid(folder)
    os.kill(keeper, signal.SIGSTOP)
    os.kill(leader, signal.SIGKILL)
    os.kill(keeper, signal.SIGKILL)

    # Not in the first list, perhaps: a daemon asks for one whenever it has reached a keeper.
    procs.until(daemon.listed_ends, "the successor lists the end")
    assert daemon.listed_ends()[0].signal == signal.SIGKILL
    procs.until(lambda: not procs.marked(folder), "nothing of the run is left")


def test_a_torn_journal_is_read_up_to_the_tear(daemon_of, folder, procs):
    first = daemon_of()
    first.launch("r-0-1", "exit 6")
    first.end("r-0-1")
    keeper = procs.keeper_pid(folder)
    first.runs.close()
    procs.until(lambda: not procs.alive(keeper), "the keeper leaves")
    with open(folder / "journal", "ab") as journal:
        journal.write(b'{"is":"end","ru')
    second = daemon_of(epoch=2)
    second.runs.list("host-1")
    assert second.log.next_report(KeeperRunsListed).runs[0].ended.exit_code == 6


def test_sandboxes_are_pruned_to_the_newest(daemon_of, folder, procs):
    daemon = daemon_of(sandboxes_kept_max=3)
    for number in range(8):
        daemon.launch(f"r-{number}-1", "true")
        daemon.end(f"r-{number}-1")
        if number < 7:
            daemon.runs.ack([f"r-{number}-1"])
    kept = {"r-4-1", "r-5-1", "r-6-1", "r-7-1"}  # the last is not acknowledged
    procs.until(lambda: set(os.listdir(folder / "runs")) == kept, "the oldest are removed")
    procs.until(lambda: not (folder / "trash").exists(), "and the trash with them")


def test_what_the_runs_of_a_job_leave_is_kept_while_it_is_leased(daemon_of, folder, procs):
    daemon = daemon_of(sandboxes_kept_max=0)
    daemon.runs.lease("held", 60.0)
    for run in ("held-0-1", "held-1-1", "r-0-1"):
        daemon.launch(run, "true")
        daemon.end(run)
    daemon.runs.ack(["held-0-1", "held-1-1", "r-0-1"])
    procs.until(lambda: not (folder / "runs" / "r-0-1").exists(), "that of the other job is gone")
    assert sorted(os.listdir(folder / "runs")) == ["held-0-1", "held-1-1"]


def test_a_run_id_must_name_a_folder_of_its_own(daemon):
    for bad in ("", "../x", "a/b", ".hidden", "x" * 300):
        runs = [RunRequest(bad, "host-1", "true"), RunRequest("r-0-1", "host-1", "true")]
        (refused,) = daemon.runs.launch("host-1", 1, runs=runs)
        assert (refused.run_id, str(refused)) == (bad, "not a run id")
    assert daemon.end("r-0-1").outcome == "SUCCEEDED", "the others of the order run"


LEASES = (b'{"q":"lease"}\n', b'{"q":"lease","jobs":["a"]}\n', b'{"q":"lease","jobs":{"a":"b"}}\n')


def test_nonsense_ends_the_connection_not_the_keeper(daemon, folder, procs):
    daemon.log.next_report(KeeperUp)
    pid = procs.keeper_pid(folder)
    for nonsense in (
        b"hello\n",
        b"[]\n",
        b'{"q":"dance","host":"h","epoch":1}\n',
        b"{}\n",
        *LEASES,
    ):
        sock = dial(folder)
        sock.setblocking(True)
        sock.settimeout(60)
        sock.sendall(nonsense)
        with sock.makefile("rb") as answer:
            assert b'"bad"' in answer.read()
        sock.close()
    daemon.launch("r-0-1", "true")
    assert daemon.end("r-0-1").outcome == "SUCCEEDED"
    assert procs.keeper_pid(folder) == pid
