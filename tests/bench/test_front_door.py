"""The benchmarks of the front door, tiny: real daemons, every task checked. No time is judged."""

from __future__ import annotations

import pytest

from bench import failover, processes, pt50k, steady


@pytest.mark.slow
@pytest.mark.timeout(300)  # daemons begin, on a machine that may be busy
def test_processes_have_a_line_for_each_array_and_for_single_jobs() -> None:
    words = ["--slots", "1x2", "--tasks", "8", "--rounds", "1", "--jobs", "2"]
    lines = [*processes.run(processes.options(words))]
    assert sum(line.startswith("8 x true on 1 x 2: ") for line in lines) == 1
    assert sum(line.startswith("# 8 x true on 1 x 2: ") for line in lines) == 2
    for backend in ("real", "simulated"):
        assert sum(line.startswith(f"one job at a time, {backend}: p50") for line in lines) == 1
    assert sum("empty call" in line for line in lines) == 2  # before and after


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_large_job_is_measured_against_its_ideal_with_both_kinds_of_configs() -> None:
    words = ["--tasks", "30", "--hosts", "2", "--duration-s", "0.2"]
    lines = [*pt50k.run(pt50k.options(words))]
    for kind in ("one config", "own configs"):
        (line,) = [line for line in lines if line.startswith(f"30 x 0.2 s, {kind}: ")]
        assert " x the ideal 0.4 s;" in line and "checked: 30 tasks" in line


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_burst_and_a_steady_load_of_each_size_are_checked() -> None:
    words = ["--sizes", "5", "1", "--tasks", "10", "--singles", "3", "--hosts", "5"]
    lines = [*steady.run(steady.options([*words, "--duration-s", "0.1", "--for-s", "1"]))]
    for size, tasks in ((5, 10), (1, 3)):
        (line,) = [
            line for line in lines if line.startswith("burst") and f"jobs of {size}:" in line
        ]
        assert f"checked: {tasks} tasks" in line
        (line,) = [line for line in lines if f"jobs of {size} a second" in line]
        assert "p50" in line and "checked: " in line


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_after_a_kill_every_task_runs_on_and_ends_once() -> None:
    lines = [*failover.run(failover.options(["--hosts", "2", "--ended", "0", "5"]))]
    assert sum(line.startswith("an empty cluster: ready") for line in lines) == 1
    for ended in (0, 5):
        assert sum(line.startswith(f"2 hosts x 10 running, {ended} ended: ") for line in lines) == 1
    checked = [line for line in lines if line.startswith("checked: 20 tasks ran on")]
    assert len(checked) == 2 and all("200 under way succeeded" in line for line in checked)
