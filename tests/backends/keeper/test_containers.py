"""Runs that are containers, over a real keeper: their ends, kills, adoption, and what is left.

The engine is a program that speaks podman's command line (`tests/fake_engine.py`), or, where this
machine can run one, podman itself with an image of a static busybox.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.backends.keeper import kinds
from peloton.backends.keeper_messages import (
    RunContainer,
    RunLimits,
)
from tests.fake_engine import install
from tests.real_engine import RealPodman, real_podman

IMAGE = "localhost/tiny:1"
LIMITS = RunLimits("try", cpu=0.5, pids=64)
LIVE = "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done"


WITH_PODMAN = pytest.mark.needs_root("to run containers")


@pytest.fixture(scope="module")
def podman() -> Iterator[RealPodman | None]:
    with real_podman(IMAGE) as found:
        yield found


@pytest.fixture(params=["fake", pytest.param("podman", marks=WITH_PODMAN)])
def engine(request: pytest.FixtureRequest, tmp_path: Path, podman: Any) -> Iterator[Path]:
    """Its program."""
    if request.param == "podman":
        if podman is None:
            pytest.skip("no podman works here")
        yield podman.program
        return
    path = install(tmp_path, "podman", IMAGE)
    yield path
    for one in (tmp_path / "engine" / "containers").iterdir():
        subprocess.run([path, "rm", one.name], check=False)


@pytest.fixture
def contained(daemon_of: Callable[..., Any], engine: Path) -> Iterator[Any]:
    yield daemon_of()


def launch(daemon: Any, run_id: str, value: str, **request: Any) -> None:
    engine, image = request.pop("engine"), request.pop("image", IMAGE)
    container = RunContainer(str(engine), image)
    daemon.launch(run_id, value, container=container, **{"limits": LIMITS, **request})


def up(daemon: Any, run_id: str) -> bool:
    """Whether it says that it runs."""
    path = daemon.sandbox(run_id) / "stdout"
    return path.exists() and "up" in path.read_text()


def containers(engine: Path) -> list[str]:
    done = subprocess.run(
        [engine, "ps", "--all", "--format={{.Names}}"], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_a_container_has_its_sandbox_its_variables_and_its_exit_code(
    contained: Any, engine: Path, procs: Any
) -> None:
    use = "echo out $X; echo err >&2; pwd; echo here > mine; exit 7"
    launch(contained, "r-0-1", use, engine=engine, environment={"X": "1  2"}, memory_mb=64.0)
    end = contained.end("r-0-1")
    assert (end.outcome, end.exit_code, end.reason) == ("FAILED", 7, kinds.EXITED)
    assert contained.output("r-0-1").startswith("out 1 2\n")
    assert contained.output("r-0-1", "stderr") == "err\n"
    assert (contained.sandbox("r-0-1") / "mine").read_text() == "here\n"
    procs.until(lambda: not containers(engine), "the container to be removed")
    procs.until(
        lambda: [p.name for p in (contained.runs.folder / "containers").iterdir()] == ["engines"],
        "its end to be forgotten",
    )


def test_a_program_gets_its_arguments_and_no_shell(contained: Any, engine: Path) -> None:
    argv = {"shell": False, "arguments": ("x", "a  b", "$HOME", "--rm")}
    launch(contained, "r-0-1", "/bin/echo", engine=engine, **argv)
    assert contained.end("r-0-1").outcome == "SUCCEEDED"
    assert contained.output("r-0-1") == "a  b $HOME --rm\n"


def test_failures_have_names(contained: Any, engine: Path) -> None:
    launch(contained, "r-0-1", "true", engine=engine, image="localhost/none:1")
    launch(contained, "r-1-1", "/nope", engine=engine, shell=False)
    launch(contained, "r-2-1", "true", engine=engine, environment={"X": "a\nb"})
    launch(contained, "r-3-1", "true", engine=engine, image="--privileged")
    launch(contained, "r-4-1", "true", engine="/nowhere/podman")
    ends = [contained.end(f"r-{at}-1") for at in range(5)]
    assert [end.outcome for end in ends] == ["FAILED"] * 4 + ["LOST"]
    assert [end.reason for end in ends] == [
        kinds.IMAGE_UNAVAILABLE, kinds.NOT_RUNNABLE, kinds.NO_CONTAINER, kinds.NOT_RUNNABLE,
        kinds.NO_ENGINE,
    ]  # fmt: skip
    assert ends[0].message.startswith("Error: ") and "none" in ends[0].message
    assert "/nope" in ends[1].message and "line break" in ends[2].message
    assert "cannot run /nowhere/podman" in ends[4].message


def test_a_kill_reaches_the_container_not_only_its_client(
    contained: Any, engine: Path, procs: Any
) -> None:
    for run, value in (("r-0-1", LIVE), ("r-1-1", LIVE.replace("'exit 9'", "''"))):
        launch(contained, run, value, engine=engine)
        procs.until(lambda run=run: up(contained, run), "it to run")
    contained.runs.kill("host-1", "r-0-1", grace_s=600.0)
    end = contained.end("r-0-1")
    assert (end.outcome, end.exit_code, end.reason) == ("KILLED", 9, kinds.KILL_REQUESTED)
    contained.runs.kill("host-1", "r-1-1", grace_s=0.2)
    assert contained.end("r-1-1").exit_code == 128 + signal.SIGKILL
    procs.until(lambda: not containers(engine), "both to be removed")


def test_a_successor_adopts_what_runs_and_learns_what_has_ended(
    daemon_of: Callable[..., Any], engine: Path, folder: Path, procs: Any
) -> None:
    first = daemon_of()
    go = "while [ ! -e go ]; do sleep 0.05; done"
    for at in range(3):
        launch(first, f"r-{at}-1", f"echo up; {go}; echo on; exit {at + 3}", engine=engine)
        procs.until(lambda at=at: up(first, f"r-{at}-1"), "it to run")
    first.runs.close()
    # One keeps its watcher, one loses it, and one ends while nobody watches.
    started = [json.loads(line) for line in (folder / "journal").read_text().splitlines()]
    pids = {one["run"]: one["pid"] for one in started if one["is"] == "start"}
    os.kill(procs.keeper_pid(folder), signal.SIGKILL)
    for run in ("r-1-1", "r-2-1"):
        os.killpg(pids[run], signal.SIGKILL)
    (folder / "runs" / "r-2-1" / "go").touch()
    procs.until(lambda: not procs.alive(pids["r-2-1"]), "its watcher to end")
    being_written = folder / "containers" / "r-0-1.new"
    being_written.touch()  # the watcher that lives on may be telling the end at this moment
    second = daemon_of(epoch=2)
    second.own()  # what ended before is told to nobody but who asks
    assert being_written.exists()
    (folder / "runs" / "r-0-1" / "go").touch()
    (folder / "runs" / "r-1-1" / "go").touch()
    for at in range(3):
        end = second.end(f"r-{at}-1")
        assert (end.outcome, end.exit_code) == ("FAILED", at + 3), end
    assert second.output("r-0-1") == "up\non\n"
    procs.until(lambda: not containers(engine), "all to be removed")


def test_a_watcher_that_dies_is_followed_by_another(
    contained: Any, engine: Path, folder: Path, procs: Any
) -> None:
    launch(contained, "r-0-1", LIVE, engine=engine)
    procs.until(lambda: up(contained, "r-0-1"), "it to run")
    (started,) = [
        json.loads(line) for line in (folder / "journal").read_text().splitlines()
        if '"start"' in line
    ]  # fmt: skip
    os.kill(started["pid"], signal.SIGKILL)
    procs.until(lambda: not procs.alive(started["pid"]), "the watcher to die")
    contained.runs.kill("host-1", "r-0-1", grace_s=600.0)
    assert contained.end("r-0-1").outcome == "KILLED"
    procs.until(lambda: not containers(engine), "it to be removed")


def test_a_keeper_removes_containers_of_its_own_that_it_does_not_know(
    daemon_of: Callable[..., Any], engine: Path, folder: Path, procs: Any
) -> None:
    first = daemon_of()
    launch(first, "r-0-1", LIVE, engine=engine)
    procs.until(lambda: up(first, "r-0-1"), "it to run")
    first.runs.close()
    os.kill(procs.keeper_pid(folder), signal.SIGKILL)
    (folder / "journal").write_text("")  # as if its records were never written
    daemon_of(epoch=2)
    procs.until(lambda: not containers(engine), "it to be removed")


def test_a_folder_that_is_removed_takes_its_containers_along(
    contained: Any, engine: Path, folder: Path, procs: Any
) -> None:
    launch(contained, "r-0-1", LIVE, engine=engine)
    procs.until(lambda: up(contained, "r-0-1"), "it to run")
    contained.runs.close()
    procs.until(lambda: procs.removed(folder), "the folder to be gone")
    procs.until(lambda: not containers(engine), "the container to be removed")


def test_a_sandbox_that_is_too_large_ends_its_container(contained: Any, engine: Path) -> None:
    limits = RunLimits("try", disk_mb=1.0)
    fill = "i=0; while [ $i -lt 40000 ]; do echo 0123456789012345678901234567890123456789; "
    wait = "i=$((i + 1)); done > filled; while :; do sleep 0.05; done"
    launch(contained, "r-0-1", fill + wait, engine=engine, limits=limits)
    end = contained.end("r-0-1")
    assert (end.outcome, end.reason) == ("FAILED", kinds.DISK_LIMIT), end


@pytest.mark.needs_root("to start a task as another account")
def test_a_container_of_another_account_has_its_sandbox(
    open_folder: Path, new_daemon: Callable[..., Any], engine: Path, procs: Any
) -> None:
    nobody = pwd.getpwnam("nobody")
    daemon = new_daemon(open_folder)
    try:
        launch(daemon, "r-0-1", "echo mine; id -u; touch made", engine=engine, user="nobody")
        assert daemon.end("r-0-1").outcome == "SUCCEEDED"
        assert daemon.sandbox("r-0-1").stat().st_uid == nobody.pw_uid
        isolated = "tests" not in engine.read_text()  # the stand-in changes no user
        uid = nobody.pw_uid if isolated else os.geteuid()
        assert daemon.output("r-0-1").split() == ["mine", str(uid)]
        assert (daemon.sandbox("r-0-1") / "made").stat().st_uid == uid
    finally:
        daemon.runs.close()
