"""Hypothesis strategies for hosts, jobs, pools, and histories of a cluster.

    @given(histories())
    def test_every_job_ends(history):
        with Cluster() as cluster:
            play(cluster, history).settle()

What is drawn is small at first and shrinks to the least that fails. Every job fits on the smallest
host that is drawn, so that each may come to its end.
"""

from __future__ import annotations

from typing import Any

from peloton import INSTALL_EXTRA

try:
    from hypothesis import strategies as st
except ImportError as error:  # it is in an extra
    text = f"the package hypothesis is missing; {INSTALL_EXTRA.format('testing')}"
    raise ImportError(text, name="hypothesis") from error

from peloton.testing.behaviour import Behaviour
from peloton.testing.cluster import HostSize
from peloton.testing.histories import (
    DaemonsCrash,
    DaemonsRestart,
    HistoryStep,
    HostComes,
    HostSwitchedOff,
    HostSwitchedOn,
    JobComes,
    StopComes,
    TimePasses,
)
from peloton.testing.jobs import JobShape, shaped_spec

CPUS_MIN, CPUS_MAX = 2, 16
MEMORY_MB_MIN, MEMORY_MB_MAX = 1024, 8192
INSTANCES_MAX, RETRIES_MAX = 8, 2
SECONDS_MAX = 90
STEPS_MAX = 12


def host_sizes(*, gpu_max: int = 0) -> st.SearchStrategy[HostSize]:
    """Draw what a host has; of gpus at most so many."""
    return st.fixed_dictionaries(
        {
            "cpu": st.integers(CPUS_MIN, CPUS_MAX).map(float),
            "memory_mb": st.integers(MEMORY_MB_MIN, MEMORY_MB_MAX).map(float),
            "gpu": st.integers(0, gpu_max).map(float),
        }
    ).map(lambda drawn: HostSize(**drawn))  # type: ignore[typeddict-item]


def job_shapes(
    *, instances_max: int = INSTANCES_MAX, gpu_max: int = 0
) -> st.SearchStrategy[JobShape]:
    """Draw jobs; one without gpus fits on every host of `host_sizes`."""
    return st.fixed_dictionaries(
        {
            "instances": st.integers(1, instances_max),
            "cpu": st.sampled_from((0.5, 0.1, 1.0, float(CPUS_MIN))),
            "memory_mb": st.sampled_from((64.0, 1.0, float(MEMORY_MB_MIN))),
            "gpu": st.integers(0, gpu_max).map(float),
            "priority": st.integers(0, 3),
            "preemptible": st.booleans(),
            "retries": st.integers(0, RETRIES_MAX),
        }
    ).map(lambda drawn: JobShape(**drawn))  # type: ignore[typeddict-item]


def job_specs(
    *, instances_max: int = INSTANCES_MAX, gpu_max: int = 0
) -> st.SearchStrategy[dict[str, Any]]:
    """Draw whole specs of v0, as `Client.jobs.create` takes them."""
    return job_shapes(instances_max=instances_max, gpu_max=gpu_max).map(shaped_spec)


def behaviours() -> st.SearchStrategy[Behaviour]:
    """Draw how a run ends; every one does."""
    after = st.integers(0, SECONDS_MAX).map(float)
    codes, signals = st.integers(0, 3), st.sampled_from(("SIGKILL", "SIGSEGV"))
    exits = st.builds(Behaviour, after=after, exit_code=codes)
    return exits | st.builds(Behaviour, after=after, signal=signals)


@st.composite
def pool_trees(
    draw: st.DrawFn, *, pools_max: int = 6, cpu: float = 32.0
) -> dict[str, dict[str, Any]]:
    """Draw a tree of pools in `cpu` cpus: specs by path, parents before children.

    Each keeps the rules: no reservation above its limit, those of children together not above that
    of their parent, no limit above the parent's.
    """
    left: dict[str, float] = {"": cpu}
    limits: dict[str, float] = {"": cpu}
    found: dict[str, dict[str, Any]] = {}
    for number in range(draw(st.integers(1, pools_max))):
        parent = draw(st.sampled_from([*left]))
        path = f"{parent}/p{number}"
        reserved = draw(st.integers(0, int(left[parent])))
        limit = draw(st.integers(reserved, int(limits[parent])))
        left[parent] -= reserved
        left[path], limits[path] = float(reserved), float(limit)
        resource = {
            "kind": "cpu",
            "reservation": float(reserved),
            "limit": float(limit),
            "share": float(draw(st.integers(1, 3))),
        }
        others = [{"kind": kind, "limit": 1e6} for kind in ("memory", "disk")]
        found[path] = {"name": f"p{number}", "resources": [resource, *others]}
    return found


def histories(*, steps_max: int = STEPS_MAX) -> st.SearchStrategy[tuple[HistoryStep, ...]]:
    """Draw what happens to a cluster, for `histories.play`; it begins with a host."""
    numbers = st.integers(0, 5)
    steps: st.SearchStrategy[HistoryStep] = st.one_of(
        st.builds(JobComes, job_shapes(), behaviours()),
        st.builds(TimePasses, st.integers(0, SECONDS_MAX).map(float)),
        st.builds(HostComes, host_sizes()),
        st.builds(HostSwitchedOff, numbers),
        st.builds(HostSwitchedOn),
        st.builds(StopComes, numbers),
        st.builds(DaemonsCrash),
        st.builds(DaemonsRestart),
    )
    first = st.builds(HostComes, host_sizes())
    rest = st.lists(steps, max_size=steps_max)
    return st.tuples(first, rest).map(lambda drawn: (drawn[0], *drawn[1]))
