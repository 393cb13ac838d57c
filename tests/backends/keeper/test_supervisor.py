"""What outlives a keeper that is killed: the exit codes of its runs, and the graces it has begun.

Real keepers and supervisors, killed one at a time and together.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.backends import keeper
from peloton.backends.keeper_messages import KeeperRunsListed, RunStarted

PACKAGE = Path(keeper.__file__).parent
HOST = "host-1"
GATED = "echo begun >> {0}/marks; while [ ! -e {0}/go ]; do sleep 0.02; done; exit {1}"
SAVER = """trap 'echo told >> told' TERM
echo > ready
until [ -e go ]; do sleep 0.02; done
exit 5
"""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Runs of `GATED` end once its file `go` is there."""
    return tmp_path


def begin(daemon: Any, gate: Path, procs: Any, codes: dict[str, int]) -> dict[str, int]:
    """The pids of runs that end with these codes, once told to."""
    for run_id, code in codes.items():
        daemon.launch(run_id, GATED.format(gate, code))
    pids = {run: daemon.log.next_report(RunStarted, run_id=run).pid for run in codes}
    procs.until(lambda: len(begun(gate)) == len(codes), "all to have begun")
    return pids


def begun(gate: Path) -> list[str]:
    marks = gate / "marks"
    return marks.read_text().split() if marks.exists() else []


def ends(daemon: Any, procs: Any, runs: Any) -> dict[str, Any]:
    """How they ended, whether a list told it or a report."""

    def found() -> dict[str, Any]:
        told = [one for one in [*daemon.log.reports] if hasattr(one, "outcome")]
        return {end.run_id: end for end in [*told, *daemon.listed_ends()] if end.run_id in runs}

    procs.until(lambda: found().keys() == {*runs}, f"the ends of {runs}")
    return found()


def kill_keeper(folder: Path, procs: Any) -> int:
    """Kill it alone, and wait until its successor has begun; its pid."""
    killed: int = procs.keeper_pid(folder)
    os.kill(killed, signal.SIGKILL)
    procs.until(lambda: successor(folder, procs, killed), "a successor")
    return killed


def successor(folder: Path, procs: Any, killed: int) -> bool:
    text = (folder / "lock").read_text()
    return bool(text) and int(text) != killed and bool(procs.alive(int(text)))


def test_of_runs_that_end_while_their_keeper_is_killed_each_code_is_known(
    daemon: Any, folder: Path, procs: Any, gate: Path
) -> None:
    """They are not lost, so nobody runs them again: four have begun, and four have ended."""
    codes = {"r-0-1": 0, "r-1-1": 0, "r-2-1": 0, "r-3-1": 7}
    begin(daemon, gate, procs, codes)
    os.kill(procs.keeper_pid(folder), signal.SIGKILL)
    (gate / "go").touch()
    found = ends(daemon, procs, codes)
    assert {run: end.exit_code for run, end in found.items()} == codes
    assert [found[run].outcome for run in codes] == ["SUCCEEDED"] * 3 + ["FAILED"]
    assert begun(gate) == ["begun"] * 4


@pytest.mark.parametrize("before", [0, 1, 3])
def test_so_they_are_after_several_keepers(
    daemon: Any, folder: Path, procs: Any, gate: Path, before: int
) -> None:
    begin(daemon, gate, procs, {"r-0-1": 3})
    for _ in range(before):
        kill_keeper(folder, procs)
    daemon.launch("r-1-1", GATED.format(gate, 4))
    # Before that is told its pid may not be noted yet, and its keeper's successor ends it.
    daemon.log.next_report(RunStarted, run_id="r-1-1")
    procs.until(lambda: len(begun(gate)) == 2, "the second to have begun")
    os.kill(procs.keeper_pid(folder), signal.SIGKILL)
    (gate / "go").touch()
    found = ends(daemon, procs, ("r-0-1", "r-1-1"))
    assert [found[run].exit_code for run in ("r-0-1", "r-1-1")] == [3, 4]


def test_a_full_disk_of_its_log_takes_no_exit_code_along(
    daemon_of: Callable[..., Any], folder: Path, procs: Any, gate: Path
) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "keeper.log").unlink(missing_ok=True)
    (folder / "keeper.log").symlink_to("/dev/full")
    daemon = daemon_of()
    begin(daemon, gate, procs, {"r-0-1": 3})
    kill_keeper(folder, procs)
    (gate / "go").touch()
    assert ends(daemon, procs, ["r-0-1"])["r-0-1"].exit_code == 3


def test_what_it_cannot_write_ends_no_supervisor(tmp_path: Path) -> None:
    """Neither its log nor the file with its number; and nobody reads its answer any more."""
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "r+b", buffering=0) as full:
        words = [sys.executable, "-I", "-S", str(PACKAGE / "supervisor.py")]
        done = subprocess.run(
            [*words, str(full.fileno()), str(writer), "/bin/sh", "-c", "echo 0 >&$3; exit 7", "x"],
            pass_fds=(full.fileno(), writer), cwd=tmp_path, stdout=full, stderr=subprocess.PIPE,
            timeout=60, check=False,
        )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (7, b"")


@pytest.fixture
def without_keeper(folder: Path, procs: Any) -> Callable[[], Any]:
    """A context that kills the keeper, and lets none begin meanwhile."""

    @contextlib.contextmanager
    def killed() -> Iterator[None]:
        pid, supervisor = procs.keeper_pid(folder), procs.supervisor_pid(folder)
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        procs.until(lambda: not procs.alive(pid), "the keeper is gone")
        with (folder / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.kill(supervisor, signal.SIGCONT)
            yield

    return killed


def test_an_end_while_no_keeper_can_begin_is_kept_until_one_does(
    daemon: Any, folder: Path, procs: Any, gate: Path, without_keeper: Callable[[], Any]
) -> None:
    pids = begin(daemon, gate, procs, {"r-0-1": 6, "r-1-1": 0})
    with without_keeper():
        (gate / "go").touch()
        procs.until(lambda: not any(map(procs.alive, pids.values())), "both have ended")
    found = ends(daemon, procs, pids)
    assert [found[run].exit_code for run in pids] == [6, 0]
    assert found["r-0-1"].cpu_s > 0 and found["r-0-1"].peak_mb > 0


def test_a_supervisor_told_to_leave_while_no_keeper_lives_leaves_once_its_runs_have_ended(
    daemon: Any, folder: Path, procs: Any, gate: Path, without_keeper: Callable[[], Any]
) -> None:
    begin(daemon, gate, procs, {"r-0-1": 6})
    supervisor = procs.supervisor_pid(folder)
    with without_keeper():
        os.kill(supervisor, signal.SIGTERM)
    (gate / "go").touch()
    assert ends(daemon, procs, ["r-0-1"])["r-0-1"].exit_code == 6
    procs.until(lambda: not procs.alive(supervisor), "it is gone")


def test_so_it_does_where_the_keeper_that_was_told_is_killed(
    daemon: Any, folder: Path, procs: Any, gate: Path
) -> None:
    begin(daemon, gate, procs, {"r-0-1": 6})
    supervisor = procs.supervisor_pid(folder)
    os.kill(supervisor, signal.SIGTERM)
    kill_keeper(folder, procs)
    (gate / "go").touch()
    assert ends(daemon, procs, ["r-0-1"])["r-0-1"].exit_code == 6
    procs.until(lambda: not procs.alive(supervisor), "it is gone")


def test_a_keeper_takes_the_place_of_a_supervisor_that_was_killed(
    daemon: Any, folder: Path, procs: Any, gate: Path
) -> None:
    """So that the codes are known, too, when that keeper is killed in its turn."""
    begin(daemon, gate, procs, {"r-0-1": 3})
    first, keeper_pid = procs.supervisor_pid(folder), procs.keeper_pid(folder)
    os.kill(first, signal.SIGKILL)
    procs.until(lambda: procs.supervisor_pid(folder) == keeper_pid, "the keeper to be that")
    procs.until(lambda: successor(folder, procs, keeper_pid), "another keeper")
    kill_keeper(folder, procs)
    (gate / "go").touch()
    assert ends(daemon, procs, ["r-0-1"])["r-0-1"].exit_code == 3


def test_where_both_are_killed_the_runs_are_lost(
    daemon: Any, folder: Path, procs: Any, gate: Path
) -> None:
    pids = begin(daemon, gate, procs, {"r-0-1": 0, "r-1-1": 0})
    procs.kill_both(folder)
    (gate / "go").touch()
    found = ends(daemon, procs, pids)
    assert {end.outcome for end in found.values()} == {"LOST"}
    assert {end.reason for end in found.values()} == {"keeper died, exit status unknown"}


def test_what_a_keeper_without_a_supervisor_has_left_is_watched_as_it_was(
    folder: Path, daemon_of: Callable[..., Any], procs: Any, gate: Path
) -> None:
    """As where none could take the place of one that ended: its runs go on, and how they end nobody
    has kept."""
    start = (
        f"import os, sys; sys.path.append({str(PACKAGE.parent)!r}); os.chdir({str(folder)!r}); "
        f"from keeper.keeping import keep; keep({str(folder)!r}, ['60', '1000', '0.1'])"
    )
    folder.mkdir(mode=0o700)
    alone = subprocess.Popen([sys.executable, "-I", "-S", "-c", start])
    procs.until((folder / "socket").exists, "the keeper answers")
    daemon = daemon_of()
    pids = begin(daemon, gate, procs, {"r-0-1": 0})
    alone.kill()
    alone.wait()
    daemon.log.reports.clear()
    listed = daemon.log.next_report(KeeperRunsListed)
    assert [run.state for run in listed.runs] == ["running"] and procs.alive(pids["r-0-1"])
    (gate / "go").touch()
    assert daemon.end("r-0-1").outcome == "LOST"


def test_both_leave_together(daemon_of: Callable[..., Any], folder: Path, procs: Any) -> None:
    daemon = daemon_of()
    daemon.launch("r-0-1", "true")
    daemon.end("r-0-1")
    both = procs.keeper_pid(folder), procs.supervisor_pid(folder)
    assert all(map(procs.alive, both))
    daemon.runs.close()
    procs.until(lambda: not any(map(procs.alive, both)), "both are gone")


def test_a_supervisor_with_nothing_to_keep_ends_with_its_keeper(
    daemon_of: Callable[..., Any], folder: Path, procs: Any
) -> None:
    daemon = daemon_of(idle_s=60.0)
    daemon.launch("r-0-1", "true")
    daemon.end("r-0-1")
    daemon.runs.close()
    supervisor = procs.supervisor_pid(folder)
    os.kill(procs.keeper_pid(folder), signal.SIGKILL)
    procs.until(lambda: not procs.alive(supervisor), "it is gone")


def test_a_keeper_of_the_version_of_its_daemon_begins_where_the_files_of_another_are_gone(
    daemon_of: Callable[..., Any], folder: Path, procs: Any, gate: Path, tmp_path: Path
) -> None:
    shutil.copytree(
        PACKAGE, tmp_path / "before" / "keeper", ignore=shutil.ignore_patterns("__pycache__")
    )
    command = [sys.executable, "-I", "-S", str(tmp_path / "before" / "keeper" / "__main__.py")]
    subprocess.run([*command, str(folder), "60"], check=True, stdin=subprocess.DEVNULL)
    daemon = daemon_of()
    begin(daemon, gate, procs, {"r-0-1": 3})
    shutil.rmtree(tmp_path / "before")
    os.kill(procs.keeper_pid(folder), signal.SIGKILL)
    (gate / "go").touch()
    assert ends(daemon, procs, ["r-0-1"])["r-0-1"].exit_code == 3


def test_runs_of_a_folder_that_was_moved_meanwhile_end(
    daemon_of: Callable[..., Any], folder: Path, procs: Any, without_keeper: Callable[[], Any]
) -> None:
    daemon = daemon_of()
    daemon.launch("r-0-1", "sleep 600 & setsid sleep 600 & wait")
    daemon.log.next_report(RunStarted)
    daemon.runs.close()
    supervisor = procs.supervisor_pid(folder)
    aside = folder.with_name("aside")
    with without_keeper():
        folder.rename(aside)
    procs.until(lambda: not procs.marked(folder), "nothing of it runs")
    procs.until(lambda: not procs.alive(supervisor), "nobody is left")


# Graces.


@pytest.mark.parametrize(
    ("behind", "code", "number"),
    [("sh saver & wait", None, signal.SIGTERM), ("exec sh saver", 5, None)],
    ids=["its shell has ended", "alone"],
)
def test_a_grace_goes_on_after_its_keeper(
    daemon: Any, folder: Path, procs: Any, behind: str, code: int | None, number: int | None
) -> None:
    """The program saves its work. It is told once, and has its time."""
    daemon.launch("r-0-1", f"cat > saver <<'END'\n{SAVER}END\n{behind}")
    saver = daemon.sandbox("r-0-1")
    procs.until((saver / "ready").exists, "the program to run")
    first = daemon.log.next_report(RunStarted).pid
    daemon.runs.kill(HOST, "r-0-1", grace_s=600.0)
    procs.until((saver / "told").exists, "it to be told")
    procs.until(lambda: code or not procs.alive(first), "only the program to run")
    kill_keeper(folder, procs)
    daemon.log.reports.clear()
    daemon.runs.list(HOST)
    listed = daemon.log.next_report(KeeperRunsListed)
    assert [run.state for run in listed.runs] == ["running"]
    (saver / "go").touch()
    end = ends(daemon, procs, ["r-0-1"])["r-0-1"]
    assert (end.outcome, end.exit_code, end.signal) == ("KILLED", code, number)
    assert end.reason == "killed"
    assert (saver / "told").read_text() == "told\n"


def test_a_grace_ends_though_nobody_orders_it_again(
    daemon_of: Callable[..., Any], folder: Path, procs: Any
) -> None:
    """Keeper and daemon are gone: the successor knows by itself when it is over."""
    daemon = daemon_of()
    daemon.launch("r-0-1", "trap '' TERM; echo > ready; while :; do sleep 0.05; done")
    procs.until((daemon.sandbox("r-0-1") / "ready").exists, "the program to run")
    # A keeper that cannot tell this any more would not read on.
    daemon.log.next_report(RunStarted)
    daemon.runs.kill(HOST, "r-0-1", grace_s=1.0)
    daemon.runs.close()
    procs.until(lambda: '"stop"' in (folder / "journal").read_text(), "the kill to be noted")
    os.kill(procs.keeper_pid(folder), signal.SIGKILL)
    procs.until(lambda: not procs.marked(folder), "it to be killed")
    again = daemon_of(epoch=2)
    again.runs.list(HOST)
    end = ends(again, procs, ["r-0-1"])["r-0-1"]
    assert (end.outcome, end.signal) == ("KILLED", signal.SIGKILL)
