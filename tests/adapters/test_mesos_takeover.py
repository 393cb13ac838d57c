"""Five hundred tasks on four agents of a real Mesos, and the subscribed daemon dies amid launches.

No run twice, none lost, each end exact. It must not look into a daemon.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from peloton.api.v0.task import task_pb2
from tests.adapters.test_daemon_servers import Cluster, cluster, owners, patiently
from tests.adapters.test_daemon_wiring import until
from tests.adapters.test_mesos_fleet import Job, each_ran_once, on, raised, subscribed, subscriber
from tests.channels import channel_to
from tests.gateway.fleet_fixture import Deployment, default_config
from tests.servers import mesos_home
from tests.servers.mesos import ROOMY, Mesos

__all__ = ["cluster"]
AGENTS, TASKS, BEGUN = 4, 500, 100
CODES = {number: number % 3 for number in range(TASKS)}
FINE = sum(not code for code in CODES.values())
ENDED = {"SUCCEEDED": FINE, "FAILED": TASKS - FINE}


@contextmanager
def closed(gate: Path) -> Iterator[Callable[[], None]]:
    """Who asks for a shared lock of the gate waits, and costs nothing, until it is opened."""
    with gate.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield lambda: fcntl.flock(held, fcntl.LOCK_UN)


def noting(folder: Path, gate: Path) -> task_pb2.TaskConfig:
    """Tasks that note their run, wait for the gate, and fail by their number."""
    config = default_config()
    config.resource.cpuLimit, config.resource.memLimitMb = 0.02, 8.0
    waits = f"flock --shared {gate} true"
    code = "exit $((PELOTON_INSTANCE_ID % 3))"
    config.command.value = f"echo $PELOTON_POD_ID >> {folder}/ran; {waits}; {code}"
    return config


def deployed(channel: grpc.Channel) -> Deployment | None:
    """None before so many agents are known that its pool has room in the root's."""
    try:
        return Deployment(None, channel, http=None)
    except AssertionError as error:
        assert "exceeds limit" in str(error)
        return None


@pytest.fixture
def mesos(tmp_path: Path) -> Iterator[Mesos]:
    mesos_home.needed_home()
    found = Mesos(tmp_path / "mesos", agents=AGENTS, resources=ROOMY)
    try:
        found.launch()
        yield found
    finally:
        found.stop()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_takeover_amid_launches_loses_and_doubles_no_run(
    cluster: Cluster, mesos: Mesos, tmp_path: Path
) -> None:
    daemons, gate = on(cluster, mesos), tmp_path / "gate"
    processes, places = {}, {}
    for name in ("one", "two"):
        processes[name], places[name] = daemons.start(name)
    until(lambda: len(set(owners(daemons.zookeeper))) == 2)
    raised(daemons)
    until(lambda: [one for one in subscribed(mesos) if one["active"]])
    with (
        closed(gate) as open_gate,
        channel_to(places["one"]) as first,
        channel_to(places["two"]) as second,
    ):
        at = {
            name: until(lambda channel=channel: patiently(lambda: deployed(channel)))  # type: ignore[misc]
            for name, channel in (("one", first), ("two", second))
        }
        job = Job(at["one"], noting(tmp_path, gate), TASKS)
        until(lambda: job.counts(at["two"]).get("RUNNING", 0) >= BEGUN)
        dead = subscriber(mesos, processes)
        processes[dead].kill()
        processes[dead].wait()
        del places[dead]
        (left,) = places
        assert job.counts(at[left]).get("RUNNING", 0) < TASKS, "it died amid launches"
        until(lambda: job.counts(at[left]) == {"RUNNING": TASKS})
        open_gate()
        until(lambda: job.counts(at[left]) == ENDED)
        assert job.codes(at[left]) == CODES
    each_ran_once(tmp_path, job.name, TASKS)
