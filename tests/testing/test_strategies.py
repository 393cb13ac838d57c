"""The strategies: what is drawn is accepted, histories come to an end, and faults are found."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from peloton.actors.resources import Resources
from peloton.testing.behaviour import runs
from peloton.testing.cluster import Cluster
from peloton.testing.histories import (
    HistoryStep,
    HostComes,
    HostSwitchedOff,
    JobComes,
    TimePasses,
    assert_sound,
    play,
)
from peloton.testing.strategies import histories, job_specs, pool_trees

FEW = settings(max_examples=12, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@FEW
@given(histories())
def test_whatever_happens_every_job_comes_to_its_end(history: tuple[HistoryStep, ...]) -> None:
    with Cluster() as cluster:
        played = play(cluster, history)
        assert_sound(cluster)
        played.settle()
        assert_sound(cluster)


@pytest.mark.slow
@FEW
@given(pool_trees())
def test_every_tree_of_pools_is_accepted(tree: dict[str, dict[str, Any]]) -> None:
    with Cluster() as cluster:
        cluster.add_hosts(2, cpu=16, memory_mb=1e6, disk_mb=1e6)
        for path, spec in tree.items():
            cluster.client.pools.create(path, spec)
        assert {*tree} <= {pool.path for pool in cluster.client.ops.pools().pools}


@pytest.mark.slow
@FEW
@given(job_specs(gpu_max=1))
def test_every_spec_is_accepted_and_runs(spec: dict[str, Any]) -> None:
    with Cluster() as cluster:
        cluster.add_hosts(8, cpu=2, memory_mb=1024, gpu=1)
        cluster.submit(spec).until("SUCCEEDED")


def test_a_job_that_does_not_end_is_found_and_says_what_it_does() -> None:
    with Cluster() as cluster:
        played = play(cluster, (HostComes(), JobComes(does=runs())))
        with pytest.raises(AssertionError, match=r"(?s)within 60 virtual seconds.*RUNNING running"):
            played.settle(within_s=60)


def test_a_host_that_gives_too_much_is_found() -> None:
    with Cluster() as cluster:
        play(cluster, (HostComes({"cpu": 2}), JobComes({"cpu": 2}, runs()), TimePasses(3)))
        assert_sound(cluster)
        (run, process), *_ = cluster.inside.machines.running.items()
        cluster.inside.machines.running[f"{run[:-1]}2"] = process
        with pytest.raises(AssertionError, match="host/host-1 runs 4000000 of 2000000 millionths"):
            assert_sound(cluster)
        cluster.inside.machines.running[f"{run[:-1]}2"] = process._replace(needs=Resources())
        with pytest.raises(AssertionError, match="runs twice at once"):
            assert_sound(cluster)


def test_a_history_leaves_out_what_cannot_be() -> None:
    with Cluster() as cluster:
        played = play(
            cluster, (HostSwitchedOff(), JobComes(), TimePasses(3), HostComes(), JobComes())
        )
        assert played.lost == {} and len(played.jobs) == 1


def test_without_hypothesis_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; import peloton.testing.strategies"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "the package hypothesis is missing; in the checkout, run" in done.stderr
    assert "[testing]" in done.stderr
