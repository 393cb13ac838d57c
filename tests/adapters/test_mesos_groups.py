"""Pods of several containers at a real agent: one run of several tasks of the default executor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.actors.host.messages import Container, RunSpec, StartRun
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import End
from tests.e2e.cluster import until_there
from tests.servers import mesos_home
from tests.servers.mesos import Mesos, until
from tests.servers.mesos_hosts import MesosHosts, framework, order

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def mesos(tmp_path: Path) -> Iterator[Mesos]:
    mesos_home.needed_home()
    found = Mesos(tmp_path / "mesos", agents=1)
    try:
        found.launch()
        yield found
    finally:
        found.stop()


def pod(**commands: str) -> StartRun:
    """A run of these containers, each with its name."""
    containers = tuple(Container(name, command) for name, command in commands.items())
    return order("", cpus=0.3, memory_mb=128, containers=containers)


def test_a_pod_ends_as_the_container_that_failed(mesos: Mesos, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with MesosHosts(framework(mesos.address)) as hosts:
        names = hosts.start(
            hosts.host(),
            pod(web=f"{until_there(gate)}; exit 3", beside="sleep 600"),
            pod(a="exit 0", b="exit 0"),
        )
        hosts.wait_started(names)
        gate.touch()
        failed, well = (end.outcome for end in hosts.wait_ended(names))
        print(failed, well)
        there = tmp_path / "there"
        run = hosts.start(
            hosts.host(),
            pod(
                a=f"touch {there}a; sleep 600",
                b=f"trap 'exit 7' TERM; touch {there}b; while :; do sleep 0.1; done",
            ),
        )
        until(lambda: (tmp_path / "therea").exists() and (tmp_path / "thereb").exists() or None, "x")
        hosts.stop(hosts.host(), *run, grace_s=5.0)
        print(hosts.wait_ended(run))
        assert 0
