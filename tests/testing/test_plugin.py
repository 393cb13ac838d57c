"""The plug-in as pytest finds it: fixtures, markers, and what a test that fails prints."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Of what an inner run loads pytester leaves nothing, and numpy cannot be loaded twice.
import peloton.testing.cluster  # noqa: F401

pytest_plugins = ["pytester"]


def test_pytest_finds_it_and_runs_a_test_of_two_hundred_tasks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from peloton.testing.assertions import assert_counts, assert_state
        from peloton.testing.behaviour import succeeds

        def test_all_run(cluster):
            cluster.add_hosts(10, cpu=8)
            job = cluster.submit(instances=200, cpu=0.1, does=succeeds(after=30))
            cluster.advance(60)
            assert_state(job, "SUCCEEDED")
            assert_counts(job, SUCCEEDED=200)
        """
    )
    result = pytester.runpytest("--strict-markers")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["plugins:*peloton-scheduler*"])


def test_a_failure_prints_why_and_nothing_of_the_kit(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from peloton.testing.assertions import *

        def test_state(cluster):
            cluster.add_host(cpu=2)
            cluster.submit(cpu=2, name="first")
            job = cluster.submit(cpu=2, name="second")
            cluster.advance(0.5)
            assert_state(job, "RUNNING")

        def test_reason(cluster):
            cluster.add_host(cpu=2)
            job = cluster.submit(cpu=2)
            cluster.advance(0.5)
            assert_waits_because(job, "pool-limit")

        def test_counts(cluster):
            cluster.add_host(cpu=2)
            job = cluster.submit(instances=2)
            cluster.advance(0.5)
            assert_counts(job, RUNNING=1, PENDING=1)
        """
    )
    result = pytester.runpytest("-Wignore")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            "*AssertionError: job 'second' (*) is PENDING, not RUNNING",
            "E*instances: 1 PENDING",
            "E*In the way of instance 0:",
            "*AssertionError: job 'test' (*) waits for nothing",
            "E*instances: 1 RUNNING",
            "*AssertionError: job 'test' (*) has 2 RUNNING, not 1; 0 PENDING, not 1",
        ]
    )
    result.stdout.no_fnmatch_line("*def assert_state*")


def test_markers_shape_the_cluster(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.peloton_cluster(daemons=3, seed=5)
        class TestThree:
            def test_there_are_three(self, cluster):
                assert sorted(cluster.inside.world.daemons) == ["d1", "d2", "d3"]

            @pytest.mark.peloton_cluster(daemons=2)
            def test_the_closest_counts(self, cluster):
                assert len(cluster.inside.world.daemons) == 2
                assert cluster.inside.world.seed == 5

        @pytest.mark.peloton_cluster(demons=3)
        def test_a_wrong_word(cluster): ...

        @pytest.mark.peloton_cluster(3)
        def test_no_word(cluster): ...
        """
    )
    result = pytester.runpytest("--strict-markers")
    result.assert_outcomes(passed=2, errors=2)
    result.stdout.fnmatch_lines(["*no field demons; there is seed, daemons*"])
    result.stdout.fnmatch_lines(["*takes fields by name, got (3,)*"])


def test_a_run_that_does_not_use_it_loads_nothing_of_ours() -> None:
    code = (
        "import sys; before = {*sys.modules}; import peloton.testing.plugin; "
        "print(sorted(n for n in {*sys.modules} - before if n.startswith(('peloton', 'grpc'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "['peloton', 'peloton.testing', 'peloton.testing.plugin']"
