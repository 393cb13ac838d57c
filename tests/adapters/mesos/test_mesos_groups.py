"""Pods of several containers at a real agent: one run of several tasks of the default executor.

Whoever takes over knows them by what the master says.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from peloton.actors.host.messages import RunEnd, StartRun
from peloton.actors.host.run_spec import Container
from peloton.actors.task.messages import End
from peloton.actors.task.run_messages import UNHEALTHY, HealthCheck
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2_grpc
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2, pod_svc_pb2_grpc
from peloton.sdk.client import Client
from tests.adapters.mesos.mesos_daemon import config_file, pool_for_tests
from tests.adapters.mesos.mesos_jobs import running
from tests.adapters.test_daemon_wiring import until
from tests.adapters.test_fleet_words import foreground
from tests.channels import channel_to
from tests.cli.terminal import typed
from tests.e2e.cluster import until_there
from tests.servers.mesos import Mesos
from tests.servers.mesos_hosts import MesosHosts, framework, order

KILLED = "killed"
SIGNALS = dict.fromkeys(("SIGTERM", "SIGKILL"), KILLED)
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def mesos(tmp_path: Path) -> Iterator[Mesos]:
    with running(tmp_path / "mesos", agents=1) as found:
        yield found


def pod(**commands: str) -> StartRun:
    """A run of these containers, each with its name."""
    containers = tuple(Container(name, command) for name, command in commands.items())
    return order("", cpus=0.3, memory_mb=128, containers=containers)


def ends_of(end: RunEnd) -> list[tuple[str, int | str | None]]:
    """By what each ended. With which signal Mesos kills depends on how far the container had come
    to begin."""
    return [(one.name, SIGNALS.get(one.signal, one.exit_code)) for one in end.outcome.containers]


def test_the_end_of_a_pod_is_that_of_its_containers(mesos: Mesos, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with MesosHosts(framework(mesos.address)) as hosts:
        host = hosts.host()
        names = hosts.start(
            host,
            pod(web=f"{until_there(gate)}; exit 3", beside="sleep 600"),
            pod(a="exit 0", b=f"{until_there(gate)}; exit 0"),
            pod(**{one: f"touch {tmp_path}/{one}; exec sleep 600" for one in "cd"}),
        )
        hosts.wait_started(names)
        until(lambda: all((tmp_path / one).exists() for one in "cd"))
        hosts.stop(host, names[2], grace_s=60.0)
        gate.touch()
        failed, well, killed = hosts.wait_ended(names)
    assert (failed.outcome.end, failed.outcome.exit_code) == (End.FAILED, 3)
    assert failed.outcome.message == "container web: Command exited with status 3"
    assert ends_of(failed) == [("web", 3), ("beside", KILLED)]
    assert all(one.started_at and one.ended_at for one in failed.outcome.containers)
    assert (well.outcome.end, ends_of(well)) == (End.SUCCEEDED, [("a", 0), ("b", 0)])
    assert killed.outcome.end is End.KILLED
    assert ends_of(killed) == [("c", KILLED), ("d", KILLED)]


def test_a_container_that_fails_its_check_ends_the_pod(mesos: Mesos) -> None:
    check = HealthCheck("exit 1", initial_s=0.0, interval_s=0.1, max_failures=2, container="b")
    run = pod(a="exec sleep 600", b="exec sleep 600")
    with MesosHosts(framework(mesos.address)) as hosts:
        checked = replace(run, spec=replace(run.spec, check=check))
        (end,) = hosts.wait_ended(hosts.start(hosts.host(), checked))
    assert (end.outcome.end, end.outcome.reason) == (End.FAILED, UNHEALTHY)
    assert end.outcome.message.startswith("container b: the check of Mesos failed too often")
    assert ends_of(end) == [("a", KILLED), ("b", KILLED)]


@pytest.mark.parametrize("ordered", [True, False])
def test_another_link_takes_a_pod_over(mesos: Mesos, tmp_path: Path, ordered: bool) -> None:
    """Whether its host orders it again, or the master alone knows of it."""
    known, gate = framework(mesos.address), tmp_path / "gate"
    run = pod(a=f"echo a >> {tmp_path}/ran; {until_there(gate)}; exit 3", b="exec sleep 600")
    with MesosHosts(known) as hosts:
        hosts.wait_started(hosts.start(hosts.host(), run))
    with MesosHosts(known) as hosts:
        if ordered:
            hosts.start(hosts.host(), run)
        hosts.wait_started([run.run])
        gate.touch()
        (end,) = hosts.wait_ended([run.run])
    assert (end.outcome.end, end.outcome.exit_code) == (End.FAILED, 3)
    assert [how for _, how in ends_of(end)] == [3, KILLED]
    assert (tmp_path / "ran").read_text() == "a\n"


def test_a_pod_outlives_its_agents_process_and_not_its_executor(
    mesos: Mesos, tmp_path: Path
) -> None:
    gate, (agent,) = tmp_path / "gate", mesos.agents
    with MesosHosts(framework(mesos.address)) as hosts:
        run = pod(a=f"{until_there(gate)}; exit 3", b="exec sleep 600")
        other = pod(a="exec sleep 600", b="exec sleep 600")
        hosts.wait_started(hosts.start(hosts.host(), run, other))
        agent.kill()
        mesos.restart(agent)
        gate.touch()
        (end,) = hosts.wait_ended([run.run])
        assert ends_of(end) == [("a", 3), ("b", KILLED)]
        agent.kill()
        mesos.restart(agent, recover=False)
        (lost,) = hosts.wait_ended([other.run])
    assert (lost.outcome.end, lost.outcome.system) == (End.LOST, True)


def container(name: str, value: str) -> dict[str, Any]:
    need = {"cpu_limit": 0.1, "mem_limit_mb": 32.0, "disk_limit_mb": 10.0}
    return {"name": name, "resource": need, "entrypoint": {"value": value}}


def test_a_daemon_that_comes_back_tells_how_the_containers_ended(
    mesos: Mesos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    daemon = ["daemon", "--config", str(config_file(tmp_path, mesos))]
    with foreground(daemon) as address, Client(address) as client:
        until(lambda: "mesos.h1" in str(client.hosts.query()))
        pool = pool_for_tests(client)
        spec = stateless.JobSpec(
            name="pods", owning_team="team", instance_count=1, respool_id={"value": str(pool)},
            default_spec={"containers": [
                container("web", f"{until_there(gate)}; exit 3"),
                container("beside", "echo $PELOTON_CONTAINER_NAME; exec sleep 600"),
            ]},
        )  # fmt: skip
        with channel_to(address) as channel:
            jobs = stateless_svc_pb2_grpc.JobServiceStub(channel)
            job = jobs.CreateJob(svc.CreateJobRequest(spec=spec)).job_id.value
            until(lambda: current(channel, job).state == pod_pb2.POD_STATE_RUNNING)
        monkeypatch.setenv("PELOTON_API", address)
        until(lambda: typed("pod", "logs", f"{job}-0", "-f", "beside.stdout").out == "beside\n")
    gate.touch()
    with foreground(daemon) as address, channel_to(address) as channel:
        ended = until(lambda: earlier(channel, job))
    web, beside = ended.containers_status
    assert (ended.state, ended.reason) == (pod_pb2.POD_STATE_FAILED, "exited")
    assert (web.name, web.state, web.terminationStatus.exit_code) == (
        "web", pod_pb2.CONTAINER_STATE_FAILED, 3
    )  # fmt: skip
    assert (beside.name, beside.state) == ("beside", pod_pb2.CONTAINER_STATE_KILLED)
    assert beside.message == "ended because container web failed"


def answer(channel: Any, job: str) -> Any:
    pods = pod_svc_pb2_grpc.PodServiceStub(channel)
    return pods.GetPod(pod_svc_pb2.GetPodRequest(pod_name={"value": f"{job}-0"}))


def current(channel: Any, job: str) -> Any:
    return answer(channel, job).current.status


def earlier(channel: Any, job: str) -> Any:
    """The first run, once it is not the current one any more."""
    found = answer(channel, job).previous
    return found[-1].status if found else None
