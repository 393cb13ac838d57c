"""The benchmarks of the front door, tiny: real daemons, every task checked. No time is judged."""

from __future__ import annotations

import re

import pytest

from bench import c2m, entitlement, failover, gang, limits, processes, pt50k, standing, steady
from bench.parts.follower import Start


@pytest.mark.nightly
@pytest.mark.timeout(300)  # daemons begin, on a machine that may be busy
def test_processes_have_a_line_for_each_array_and_for_single_jobs() -> None:
    words = ["--slots", "1x2", "--tasks", "8", "--rounds", "1", "--jobs", "2"]
    lines = [*processes.run(processes.options(words))]
    assert sum(line.startswith("8 x true on 1 x 2: ") for line in lines) == 1
    assert sum(line.startswith("# 8 x true on 1 x 2: ") for line in lines) == 2
    for backend in ("real", "simulated"):
        assert sum(line.startswith(f"one job at a time, {backend}: p50") for line in lines) == 1
    assert sum("empty call" in line for line in lines) == 2  # before and after


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_one_large_job_is_measured_against_its_ideal_with_both_kinds_of_configs() -> None:
    words = ["--tasks", "30", "--hosts", "2", "--duration-s", "0.2"]
    lines = [*pt50k.run(pt50k.options(words))]
    for kind in ("one config", "own configs"):
        (line,) = [line for line in lines if line.startswith(f"30 x 0.2 s, {kind}: ")]
        assert " x the ideal 0.4 s;" in line and "checked: 30 tasks" in line


@pytest.mark.nightly
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


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_after_a_kill_every_task_runs_on_and_ends_once() -> None:
    lines = [*failover.run(failover.options(["--hosts", "2", "--ended", "5"]))]
    assert sum(line.startswith("an empty cluster: ready") for line in lines) == 1
    assert sum(line.startswith("2 hosts x 10 running, 5 ended: ready") for line in lines) == 1
    (checked,) = [line for line in lines if line.startswith("checked: 20 tasks ran on")]
    assert "200 under way came through" in checked


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_raised_limit_lets_just_the_task_run_that_waited_for_it() -> None:
    lines = [*limits.run(limits.options(["--pools", "11", "--changes", "2"]))]
    assert any(line.startswith("11 pools: create p50") for line in lines)
    assert any("limit raised to RUNNING p50" in line and "8 leaves" in line for line in lines)
    assert any(line.startswith("# 11 / 11 pools: ") for line in lines)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_large_jobs_at_once_are_all_started_once() -> None:
    lines = [*c2m.run(c2m.options(["--jobs", "3", "--size", "20", "--hosts", "4"]))]
    assert sum("checked: 60 tasks, each started once" in line for line in lines) == 1


def test_flatness_is_the_rate_of_the_last_tenth_over_that_of_the_first() -> None:
    starts = [Start("a", 100.0 + second, 10) for second in range(1, 10)]
    assert c2m.flatness([*starts, Start("a", 111.0, 10)], 100.0) == pytest.approx(0.5)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_tasks_that_stay_still_run_after_the_churn() -> None:
    words = ["--hosts", "3", "--tasks", "30", "--idle-s", "0.1", "--for-s", "1"]
    lines = [*standing.run(standing.options(words))]
    for start in ("3 hosts: ", "30 running tasks: ", "churn of ", "checked: 30 tasks still run"):
        assert sum(line.startswith(start) for line in lines) == 1


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_every_shape_of_jobs_is_placed_and_jobs_in_part_are_counted() -> None:
    words = ["--shapes", "--tasks", "20", "--jobs", "1", "20", "--duration-s", "0.2"]
    lines = [*gang.run(gang.options(words))]
    told = [line for line in lines if "room for" in line]
    assert len(told) == 4 and all("checked: 20 tasks" in line for line in told)
    (part,) = [line for line in told if line.startswith("1 jobs x 20, room for 10:")]
    assert "1 jobs run in part" in part


def test_the_deciding_of_gangs_is_measured_against_single_instances() -> None:
    lines = [*gang.run(gang.options(["--hosts", "40", "--count", "3", "--size", "4"]))]
    assert lines[0].startswith("# 40 hosts of 10 slots")
    for line, name in zip(lines[1:], ("placing", "admission"), strict=True):
        assert line.startswith(f"{name}: 3 gangs of 4: ")
        assert "(12 of 12 members)" in line and "ratio " in line


def test_a_pass_over_all_pools_is_measured_against_a_naive_one() -> None:
    lines = [*entitlement.run(entitlement.options(["--pools", "111", "--runs", "1"]))]
    assert [line.partition(":")[0] for line in lines] == ["112 pools"] * 2
    apart = re.search(r"at most ([0-9.]+) apart", lines[0])
    assert apart is not None and float(apart[1]) < 0.0001, "both say the same, but for rounding"
    assert "one changed leaf" in lines[1]
