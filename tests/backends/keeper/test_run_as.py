"""Real runs of other accounts: started, watched, adopted, killed and cleaned up by a keeper.

They run as `nobody`. What a keeper does that is not root stands in test_task_accounts.py.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.backends.keeper import accounts, kinds
from peloton.backends.keeper.group_roots import find_root
from peloton.backends.keeper.switching import AccountStarts, AccountTask
from peloton.backends.keeper_messages import (
    KeeperRunsListed,
    RunLimits,
    RunStarted,
)
from peloton.gateway.cluster.sandboxes import SandboxFiles
from peloton.runtime.far_files import NoFile

KEEPER = Path(kinds.__file__).parent
NOBODY = pwd.getpwnam("nobody")
as_root = pytest.mark.needs_root("to start a task as another account")
LIVE = "echo > ready; while :; do sleep 0.05; done"


@pytest.fixture
def daemon_of(open_folder: Path, new_daemon: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """In place of the one whose folder no other account gets to."""
    daemons: list[Any] = []

    def make(**settings: Any) -> Any:
        daemons.append(new_daemon(open_folder, **settings))
        return daemons[-1]

    yield make
    for one in daemons:
        one.runs.close()


def owner(path: Path) -> tuple[int, int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


@as_root
@pytest.mark.parametrize("wanted", ["user", "task_user"])
def test_a_run_has_its_account_and_nothing_of_root(daemon: Any, wanted: str) -> None:
    told = "id -u; id -G; umask; echo $HOME $USER $LOGNAME"
    masks = "grep -E '^Sig[BI]|^CapE' /proc/self/status"
    use = "echo hello > $MESOS_SANDBOX/mine; cat $MESOS_SANDBOX/mine; cat < stdout > /dev/null"
    daemon.launch("r-0-1", f"{told}; {masks}; {use}", **{wanted: "nobody"})
    assert daemon.end("r-0-1").outcome == "SUCCEEDED"
    lines = daemon.output("r-0-1").splitlines()
    groups = " ".join(map(str, os.getgrouplist("nobody", NOBODY.pw_gid)))
    assert lines[:4] == [
        str(NOBODY.pw_uid), groups, "0022", f"{NOBODY.pw_dir} nobody nobody",
    ]  # fmt: skip
    # Nothing is blocked or ignored, though Python ignores some signals. The C library's
    # `posix_spawn` makes every child ignore 32 and 33, which are its own.
    masks_found = [int(line.split()[1], 16) for line in lines[4:-1]]
    assert len(masks_found) == 3
    assert {mask & ~(0b11 << 31) for mask in masks_found} == {0}
    assert lines[-1] == "hello"
    box = daemon.sandbox("r-0-1")
    ids = (NOBODY.pw_uid, NOBODY.pw_gid)
    assert owner(box) == (*ids, 0o700)
    assert owner(box / "stdout") == owner(box / "stderr") == (*ids, 0o600)


@as_root
def test_it_has_no_group_of_the_keeper(daemon_of: Callable[..., Any], open_folder: Path) -> None:
    command = [sys.executable, "-I", "-S", str(KEEPER / "__main__.py"), str(open_folder), "30"]
    assert subprocess.run(command, check=False, extra_groups=[0, 4, 27]).returncode == 0
    daemon = daemon_of()
    daemon.launch("root", "id -G")
    daemon.launch("r-0-1", "id -G", user="nobody")
    daemon.end("root"), daemon.end("r-0-1")
    assert daemon.output("root").split() == ["0", "4", "27"]
    groups = os.getgrouplist("nobody", NOBODY.pw_gid)
    assert daemon.output("r-0-1").split() == [*map(str, groups)]


@as_root
def test_it_inherits_no_descriptor_and_leaves_none(daemon: Any, open_folder: Path, procs: Any):
    daemon.launch("first", "true", user="nobody")
    daemon.end("first")
    pid = procs.keeper_pid(open_folder)
    before = procs.held_at_rest(pid)
    daemon.launch("r-0-1", "ls /proc/self/fd | wc -l", user="nobody")
    for number in range(20):
        daemon.launch(f"bad-{number}", "/no/such/program", shell=False, user="nobody")
    for number in range(20):
        assert daemon.end(f"bad-{number}").exit_code == 127
    daemon.end("r-0-1")
    assert daemon.output("r-0-1").split() == ["4"]  # three, and the folder it lists
    procs.until(lambda: sorted(procs.held_by(pid)) == before, "no descriptor is left")
    assert os.readlink(f"/proc/{pid}/cwd") == str(open_folder)
    children = Path(f"/proc/{pid}/task/{pid}/children")
    procs.until(lambda: children.read_text() == "", "no child is left")


@as_root
def test_others_pass_through_the_folders_of_the_keeper_and_see_nothing(
    daemon_of: Callable[..., Any], open_folder: Path, procs: Any
) -> None:
    first = daemon_of(idle_s=0.05)
    first.launch("plain", "true")
    first.end("plain")
    assert owner(open_folder)[2] == owner(open_folder / "runs")[2] == 0o700
    look = "ls ..; ls ../..; cat ../plain/stdout; cat ../../journal; cat ../../keeper.log"
    first.launch("r-0-1", look, user="nobody")
    first.end("r-0-1")
    assert first.output("r-0-1", "stderr").count("Permission denied") == 5
    assert first.output("r-0-1") == ""
    assert owner(open_folder)[2] == owner(open_folder / "runs")[2] == 0o711
    rest = {path: owner(path)[2] & 0o077 for path in open_folder.iterdir() if path.name != "runs"}
    assert {path for path, mode in rest.items() if mode} == set()
    # The next keeper leaves the way open: tasks that it adopts need it.
    first.runs.close()
    procs.until(lambda: not procs.alive(procs.keeper_pid(open_folder)), "the keeper exits")
    second = daemon_of(epoch=2)
    second.launch("r-1-1", "true")
    second.end("r-1-1")
    assert owner(open_folder)[2] == owner(open_folder / "runs")[2] == 0o711


@as_root
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"user": "no-such-account"}, "this machine has no such account"),
        ({"caller": "no-such-account", "task_user": "nobody"}, "this machine has no such account"),
        ({"caller": "root"}, "tasks of callers never run as root"),
        ({"caller": "nobody", "user": "root"}, "nobody must not run tasks as root"),
        ({"caller": "nobody"}, "tasks of callers never run as nobody"),
        ({"caller": "daemon", "task_user": "nobody"}, "is a system account (below UID_MIN"),
    ],
)
def test_an_account_that_cannot_be_used_ends_the_run_unstarted(
    daemon: Any, given: dict[str, str], text: str
) -> None:
    daemon.launch("r-0-1", "touch made", **given)
    end = daemon.end("r-0-1")
    assert (end.outcome, end.reason) == ("FAILED", kinds.NO_ACCOUNT)
    assert text in end.message
    assert list(daemon.sandbox("r-0-1").iterdir()) == []
    assert not any(isinstance(each, RunStarted) for each in daemon.log.reports)
    daemon.launch("r-0-1", "true", user="nobody")
    assert daemon.end("r-0-1") == end, "the end is recorded: a repeat starts nothing"


@as_root
def test_a_closed_folder_above_ends_the_run_and_is_named(
    new_daemon: Callable[..., Any], open_folder: Path
) -> None:
    open_folder.parent.chmod(0o700)
    daemon = new_daemon(open_folder)
    try:
        daemon.launch("r-0-1", "true", user="nobody")
        end = daemon.end("r-0-1")
        assert (end.outcome, end.reason) == ("FAILED", kinds.NO_ACCOUNT)
        assert f"it must not pass {open_folder.parent} (mode 0700)" in end.message
    finally:
        daemon.runs.close()


@as_root
@pytest.mark.parametrize(
    ("value", "status", "why"),
    [("/no/such/program", 127, "No such file"), ("/etc", 126, "Permission denied")],
)
def test_what_cannot_be_run_fails_as_ever(daemon: Any, value: str, status: int, why: str) -> None:
    daemon.launch("r-0-1", value, shell=False, user="nobody")
    end = daemon.end("r-0-1")
    assert (end.outcome, end.exit_code, end.reason) == ("FAILED", status, kinds.NOT_RUNNABLE)
    assert why in end.message
    for bad in ({"A=B": "x"}, {"A": "x\0y"}):
        run = f"r-1-{len(daemon.log.reports)}"
        daemon.launch(run, "true", user="nobody", environment=bad)
        assert daemon.end(run).exit_code == 126


@as_root
def test_a_program_that_only_root_may_read_is_not_run(daemon: Any, passable: Path) -> None:
    secret = passable / "secret"
    secret.write_text("#!/bin/sh\necho secret")
    secret.chmod(0o700)
    daemon.launch("r-0-1", str(secret), shell=False, user="nobody")
    assert daemon.end("r-0-1").exit_code == 126


@as_root
def test_it_is_killed_with_all_it_left(daemon: Any, open_folder: Path, procs: Any) -> None:
    daemon.launch("r-0-1", f"(trap '' TERM; while :; do sleep 0.05; done) & {LIVE}", user="nobody")
    procs.until((daemon.sandbox("r-0-1") / "ready").exists, "the task is ready")
    daemon.runs.kill("host-1", "r-0-1", grace_s=30)
    assert daemon.end("r-0-1").outcome == "KILLED"
    procs.until(lambda: procs.marked(open_folder) == [], "none of its processes is left")


@as_root
def test_a_successor_adopts_it_and_ends_what_was_not_recorded(
    daemon_of: Callable[..., Any], open_folder: Path, procs: Any
) -> None:
    first = daemon_of(idle_s=30)
    for run in ("known-0-1", "lost-1-1"):
        first.launch(run, LIVE, user="nobody")
        procs.until((first.sandbox(run) / "ready").exists, "the task is ready")
    pids = {run: first.log.next_report(RunStarted, run_id=run).pid for run in RUNS}
    first.runs.close()
    procs.kill_both(open_folder)
    journal = open_folder / "journal"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(one for one in lines if '"start","run":"lost' not in one))
    second = daemon_of(epoch=2)
    second.runs.list("host-1")
    listed = {run.run_id: run for run in second.log.next_report(KeeperRunsListed).runs}
    assert listed["known-0-1"].state == "running" and procs.alive(pids["known-0-1"])
    assert listed["lost-1-1"].ended.outcome == "LOST" and not procs.alive(pids["lost-1-1"])
    second.runs.kill("host-1", "known-0-1", grace_s=30)
    assert second.end("known-0-1").outcome == "LOST"
    procs.until(lambda: procs.marked(open_folder) == [], "none of its processes is left")


RUNS = ("known-0-1", "lost-1-1")


@as_root
def test_links_that_a_task_leaves_lead_root_nowhere(
    daemon_of: Callable[..., Any], passable: Path, procs: Any
) -> None:
    """Neither to delete what they point at, nor to read it, nor to write to it."""
    kept = passable / "kept"
    (kept / "deep").mkdir(parents=True)
    (kept / "deep" / "file").write_text("secret")
    kept.chmod(0o700)
    daemon = daemon_of(sandboxes_kept_max=0)
    plant = f"ln -s {kept} d; ln -s {kept}/deep/file f; rm stdout; ln -s {kept}/deep/file stdout"
    daemon.launch("r-0-1", f"{plant}; mkdir in; ln -s {kept}/deep in/d; echo > made", user="nobody")
    assert daemon.end("r-0-1").outcome == "SUCCEEDED"
    box = daemon.sandbox("r-0-1")
    files = SandboxFiles(box.parent, ("127.0.0.1", 0))
    assert [entry.path for entry in files.listing("/r-0-1")] == [
        f"/r-0-1/{name}" for name in ("in", "made", "stderr")
    ]
    for path in ("f", "stdout", "d/deep/file", "in/d/file"):
        with pytest.raises(NoFile), files.open(f"/r-0-1/{path}"):
            pass
    daemon.runs.ack(["r-0-1"])
    procs.until(lambda: not box.exists(), "the sandbox is removed")
    procs.until(lambda: not (box.parent.parent / "trash").exists(), "the trash is removed")
    assert (kept / "deep" / "file").read_text() == "secret"


@as_root
@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_log_that_is_there_already_is_not_opened(
    passable: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whoever could put a link there before the logs are made would have root write through it."""
    monkeypatch.chdir(passable)
    (passable / "kept").write_text("secret")
    (passable / "box").mkdir()
    (passable / "box" / name).symlink_to(passable / "kept")
    account = accounts.look_up("nobody")
    assert account is not None
    starts = AccountStarts()
    task = AccountTask("/bin/echo", ["echo"], {}, "box", {})
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileExistsError):
        starts.spawn(task, account, now=0.0)
    assert len(os.listdir("/proc/self/fd")) == before
    assert (owner(passable / "kept")[0], owner(passable / "box")[0]) == (0, 0)
    (passable / "box" / name).unlink()
    (passable / "link").symlink_to("box")
    with pytest.raises(NotADirectoryError):
        starts.spawn(task._replace(sandbox="link"), account, now=0.0)
    assert (passable / "kept").read_text() == "secret"


def test_folders_are_emptied_by_descriptors() -> None:
    """`--fresh` removes the sandboxes of other accounts in this process."""
    assert shutil.rmtree.avoids_symlink_attacks


@as_root
def test_a_hard_link_to_the_file_of_another_is_not_served(daemon: Any, passable: Path) -> None:
    """As a kernel without `fs.protected_hardlinks` lets a task make one."""
    daemon.launch("r-0-1", "echo mine > mine", user="nobody")
    daemon.end("r-0-1")
    box = daemon.sandbox("r-0-1")
    (passable / "secret").write_text("secret")
    os.link(passable / "secret", box / "linked")
    files = SandboxFiles(box.parent, ("127.0.0.1", 0))
    with files.open("/r-0-1/mine") as file:
        assert os.read(file, 10) == b"mine\n"
    with pytest.raises(NoFile), files.open("/r-0-1/linked"):
        pass


@as_root
@pytest.mark.skipif(find_root("any").place is None, reason="no control groups here")
def test_it_begins_in_its_control_group_within_the_least_limits(daemon: Any) -> None:
    limits = RunLimits("enforce", cpu=0.1, pids=1)
    told = "id -un; grep memory /proc/self/cgroup"
    daemon.launch("r-0-1", told, user="nobody", limits=limits, memory_mb=1.0)
    assert daemon.end("r-0-1").outcome == "SUCCEEDED"
    name, group = daemon.output("r-0-1").splitlines()
    assert name == "nobody" and group.endswith("/r-0-1")
