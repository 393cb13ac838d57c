"""A short storm over real daemons on real servers, as `script/nemesis` runs it.

What it may find is listed in `peloton/chaos/nemesis/verdict.py`; here that it finds nothing, that
something happened, and that nothing of it is left. Before it, in no time: that the questions which
only this storm asks are answered with a finding where they should be.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from peloton.actors.job.messages import JobCreated, JobDeleted, JobView, job_key
from peloton.actors.job.stages import JobStates
from peloton.chaos.cluster.world.history import Asked, Operation, faults
from peloton.chaos.nemesis import operations
from peloton.chaos.nemesis.clients import SharedRecord, WantedJob
from peloton.chaos.nemesis.ground import MESOS_ENGINE, RUN_ON_MESOS, MesosProcesses, OnMesos
from peloton.chaos.nemesis.process_table import SeenAlive
from peloton.chaos.nemesis.takeovers import Takeovers
from peloton.chaos.nemesis.timeline import Timeline
from peloton.chaos.nemesis.verdict import (
    Noted,
    goals_missed,
    not_as_accepted,
    notes_of,
    overlaps,
    with_seen,
)
from peloton.runtime.vocabulary import Absent, Key
from peloton.sdk.errors import AlreadyExists, NotFound, ServerError, TimedOut
from tests.begun_process import begun_process
from tests.e2e.cluster import wait_for
from tests.e2e.storms import WITHIN_S, left_over, nemesis
from tests.servers.mesos_home import needed_home

JOB = "6f1f0a1e-7d0b-4b3e-9f0e-0c8d1d9b7c11"
MINUTES = 0.6
SEED = 4
OPERATIONS_MIN = 5


class Tale:
    """A history of one job, told line by line."""

    def __init__(self, folder: Path) -> None:
        self.record = SharedRecord([], Timeline(folder / "timeline.log"))
        self._now_s = 0.0

    def says(self, what: Asked, answer: Any, *, tries: int = 1) -> Operation:
        """It was asked for, and answered so; None: nobody knows."""
        operation, _ = self.record.begin("c", what, job_id=JOB)
        operation.tries, operation.begun_s = tries, self._now_s
        self._now_s += 1.0
        if answer is not None:
            operation.end(answer, self._now_s - 0.5)
        if what is Asked.CREATE:
            self.record.note(self.record.wanted_jobs, JOB, value=WantedJob(JOB, 1, 1.0, operation))
        return operation

    def missed(self) -> list[str]:
        """What is wrong at the end."""
        return [text.split()[0] for text in goals_missed(self.record)]


def seen(state: str) -> JobView:
    """What a look shows."""
    runtime = SimpleNamespace(state=JobStates[state], taskStats={state: 1}, desiredStateVersion=1)
    info = SimpleNamespace(id=SimpleNamespace(value=JOB), runtime=runtime)
    return operations.view(SimpleNamespace(jobInfo=info))


def test_a_job_must_come_to_its_goal(tmp_path: Path) -> None:
    for state, wrong in (("SUCCEEDED", []), ("RUNNING", ["R15"]), ("KILLED", ["R15"])):
        tale = Tale(tmp_path)
        tale.says(Asked.CREATE, JobCreated(job_key(JOB)))
        tale.says(Asked.GET, seen(state))
        assert tale.missed() == wrong, state


def test_who_was_never_answered_about_is_missed(tmp_path: Path) -> None:
    tale = Tale(tmp_path)
    tale.says(Asked.CREATE, JobCreated(job_key(JOB)))
    tale.says(Asked.GET, None)
    assert tale.missed() == ["R15"]


def test_what_was_acknowledged_and_is_absent_is_lost(tmp_path: Path) -> None:
    tale = Tale(tmp_path)
    tale.says(Asked.CREATE, JobCreated(job_key(JOB)))
    tale.says(Asked.GET, Absent(job_key(JOB)))
    assert tale.missed() == []
    assert "R1 acknowledged" in "".join(faults(tale.record.history))


def test_a_deleted_job_is_gone_unless_a_copy_of_its_creation_was_on_its_way(tmp_path: Path) -> None:
    for tries, wrong in ((1, ["R1"]), (2, [])):
        tale = Tale(tmp_path)
        tale.says(Asked.CREATE, JobCreated(job_key(JOB)), tries=tries)
        tale.says(Asked.DELETE, JobDeleted())
        tale.says(Asked.GET, seen("SUCCEEDED"))
        assert tale.missed() == wrong, tries


def test_only_what_is_certain_ends_an_operation(tmp_path: Path) -> None:
    look = Operation("c", Asked.GET, begun_s=0.0)
    assert operations.uncertain(TimedOut("late"))
    assert not operations.uncertain(ServerError("it broke", kind="UNKNOWN"))
    assert isinstance(operations.raised(look, NotFound("no such job")), Absent)
    create = Operation("c", Asked.CREATE, begun_s=0.0)
    for error in (AlreadyExists("taken"), NotFound("the pool is gone")):
        create.end(operations.raised(create, error), 1.0)
        assert create.refused, error


def test_two_runs_of_an_instance_at_a_time_are_noticed() -> None:
    first, second = (
        Noted(f"{JOB}-0-1", (1.0,), ended=(5.0,)),
        Noted(f"{JOB}-0-2", (4.0,), ended=(6.0,)),
    )
    other, later = Noted(f"{JOB}-1-1", (4.0,), ended=(6.0,)), Noted(f"{JOB}-0-2", (5.5,))
    assert len(list(overlaps([first, second, other]))) == 1
    assert not list(overlaps([first, later, other]))


def test_an_overlap_with_a_run_that_was_being_killed_is_noticed() -> None:
    """It noted no end; the process table had it."""
    killed, late = (Noted(f"{JOB}-0-1", (1.0,), seen=SeenAlive(1.0, at)) for at in (3.9, 4.1))
    after = Noted(f"{JOB}-0-2", (4.0,), ended=(6.0,))
    assert not list(overlaps([killed, after]))
    assert [text.split()[0] for text in overlaps([late, after])] == ["R8c"]
    assert "being killed" in "".join(overlaps([late, after]))


def test_an_overlap_is_noticed_over_a_short_run_between(tmp_path: Path) -> None:
    long = Noted(f"{JOB}-0-9", (1.0,), seen=SeenAlive(1.0, 9.0))
    short, last = (Noted(f"{JOB}-0-{at}", (at * 0.5,), ended=(at * 0.5 + 0.1,)) for at in (10, 11))
    assert len(list(overlaps([last, long, short]))) == 2


def test_runs_without_notes_are_known_by_the_process_table() -> None:
    """The sandboxes of old runs are removed, and a run may end before it notes anything."""
    silent = with_seen([], {f"{JOB}-0-1": SeenAlive(1.0, 4.5)})
    noted = with_seen([Noted(f"{JOB}-0-2", (4.0,))], {f"{JOB}-0-2": SeenAlive(4.1, 5.0)})
    assert [each.last_s for each in (*silent, *noted)] == [4.5, 5.0]
    assert len(list(overlaps([*silent, *noted]))) == 1


def test_a_run_begins_once_for_each_time_that_a_host_accepted_it() -> None:
    """A job that is created again by its id has runs of the same names."""
    run, noted = f"{JOB}-0-1", Noted(f"{JOB}-0-1", (1.0,))
    again = Noted(run, (1.0, 9.0))
    for one, times, wrong in (
        (noted, 1, []),
        (noted, 2, []),  # the later one had nothing to do: its job was stopped before
        (noted, 0, ["R9"]),
        (again, 2, []),
        (again, 1, ["R8"]),
        (again, 0, ["R8", "R9"]),
        (Noted(run), 0, []),
        (Noted(run, seen=SeenAlive(1.0, 2.0)), 0, ["R9"]),
    ):
        found = [text.split()[0] for text in not_as_accepted(one, {run: times})]
        assert found == wrong, (one, times)


def test_a_run_notes_its_end_also_when_it_is_killed(tmp_path: Path) -> None:
    """And takes its time for it, so that an overlap could be seen."""
    spec = operations.job_spec(1, lasts_s=600.0, cpus=0.5)
    script = spec["defaultConfig"]["command"]["value"]
    run = subprocess.Popen(["sh", "-c", script], cwd=tmp_path, start_new_session=True)
    mark = tmp_path / operations.MARK
    wait_for(lambda: mark.exists() and mark.read_text(), "its first note")
    os.killpg(run.pid, signal.SIGTERM)
    assert run.wait(30) == 143
    words = mark.read_text().split()
    assert words[::2] == [operations.BEGUN, operations.ENDED]
    assert float(words[3]) - float(words[1]) >= operations.DYING_S


def on_mesos(folder: Path) -> OnMesos:
    """Agents with these files; nobody strikes them."""
    return OnMesos(MesosProcesses("", None, (), folder))  # type: ignore[arg-type]


def test_a_task_of_mesos_that_began_in_two_sandboxes_began_twice(tmp_path: Path) -> None:
    for agent, container, at in (("agent1", "c1", 1.0), ("agent2", "c2", 3.0)):
        executor = tmp_path / agent / f"work/slaves/s/frameworks/f/executors/{JOB}-0-1/runs"
        (executor / container).mkdir(parents=True)
        (executor / container / operations.MARK).write_text(f"{operations.BEGUN} {at}\n")
        (executor / "latest").symlink_to(executor / container)
    assert [*notes_of(on_mesos(tmp_path).notes())] == [Noted(f"{JOB}-0-1", (1.0, 3.0))]


def test_a_run_in_an_executor_of_ours_notes_inside_of_that(tmp_path: Path) -> None:
    executor = tmp_path / "agent1/work/slaves/s/frameworks/f/executors/ours/runs/c1"
    (executor / "runs" / f"{JOB}-0-1").mkdir(parents=True)
    (executor / "runs" / f"{JOB}-0-1" / operations.MARK).write_text(f"{operations.BEGUN} 1.0\n")
    assert [*notes_of(on_mesos(tmp_path).notes())] == [Noted(f"{JOB}-0-1", (1.0,))]


def test_a_task_of_mesos_is_known_by_its_variables(tmp_path: Path) -> None:
    sandbox, elsewhere = tmp_path / "mesos" / "sandbox", tmp_path / "elsewhere"
    for folder, known in ((sandbox, f"{JOB}-0-1"), (elsewhere, None)):
        folder.mkdir(parents=True)
        variables = {RUN_ON_MESOS: f"{JOB}-0-1"}
        with begun_process("task", cwd=folder, env=variables) as process:
            try:
                assert on_mesos(tmp_path / "mesos").run_of(process.pid) == known
            finally:
                process.kill()
    assert on_mesos(tmp_path).run_of(2**22 + 1) is None


def test_an_owner_is_found_for_what_is_struck() -> None:
    living = [SimpleNamespace(name=name, pid=pid) for name, pid in (("d0", 7), ("d1", 8))]
    fleet = SimpleNamespace(living=lambda: living)
    sharding = SimpleNamespace(shard_of=lambda key: key)
    takeovers = Takeovers(fleet, None, sharding=sharding)  # type: ignore[arg-type]
    assert takeovers.owner_of(Key(MESOS_ENGINE)) is None
    takeovers._owners[MESOS_ENGINE] = "host-8-1"  # type: ignore[index]
    assert takeovers.owner_of(Key(MESOS_ENGINE)) is living[1]


@pytest.mark.slow
@pytest.mark.timeout(WITHIN_S + 30)
@pytest.mark.parametrize("backend", ["process", pytest.param("mesos", marks=pytest.mark.nightly)])
def test_nothing_is_found_after_a_short_storm(root: Path, tmp_path: Path, backend: str) -> None:
    folder = tmp_path / "storm"
    if backend == "mesos":
        needed_home()
    words = ["--minutes", str(MINUTES), "--seed", str(SEED), "--backend", backend]
    line = nemesis(root, *words, folder=folder)
    assert line.startswith("nemesis: ") and " 0 lost, 0 findings" in line, line
    operations = re.search(r"(\d+) operations", line)
    assert operations is not None and int(operations[1]) >= OPERATIONS_MIN, line
    wait_for(lambda: not left_over(folder), "what was killed to be gone")
