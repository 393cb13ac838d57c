"""Checks that a real Mesos carries out, above all of readiness, and what hosts are told of them.

Tasks are made ready and unready by files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from peloton.actors.host.run_spec import Container
from peloton.actors.task.messages import End
from peloton.actors.task.run_messages import UNHEALTHY, HealthCheck, HttpProbe, TaskHealth
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2_grpc
from peloton.api.v1alpha.pod.svc import pod_svc_pb2, pod_svc_pb2_grpc
from peloton.sdk.client import Client
from tests.adapters.mesos.mesos_daemon import config_file, pool_for_tests, said
from tests.adapters.mesos.mesos_jobs import running
from tests.adapters.test_daemon_wiring import until
from tests.adapters.test_fleet_words import foreground
from tests.channels import channel_to
from tests.servers.mesos import Mesos
from tests.servers.mesos_hosts import MesosHosts, framework, order
from tests.servers.process import free_ports

NOT_READY = "runs, but is not ready: the check of Mesos: exit code 1"
pytestmark = pytest.mark.timeout(300)
READY, UNREADY = TaskHealth.HEALTHY, TaskHealth.UNHEALTHY
SOON = HealthCheck(initial_s=0.1, interval_s=0.1, timeout_s=30.0, max_failures=1)


@pytest.fixture(scope="module")
def mesos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesos]:
    with running(tmp_path_factory.mktemp("mesos"), agents=1) as found:
        yield found


def by_file(file: Path, **more: Any) -> HealthCheck:
    """It is ready as long as the file is there."""
    return replace(SOON, command=f"test -e {file}", **more)


def follows(hosts: MesosHosts, name: str, file: Path) -> None:
    """A run becomes ready with the file, and unready without."""
    hosts.wait_ready(name, False)
    file.touch()
    hosts.wait_ready(name, False, True)
    file.unlink()
    hosts.wait_ready(name, False, True, False)


def test_a_task_becomes_ready_and_unready_and_another_link_is_told_anew(
    mesos: Mesos, tmp_path: Path
) -> None:
    file, known = tmp_path / "ready", framework(mesos.address)
    ready = by_file(file, max_failures=2, timeout_s=5.0)
    run = order("exec sleep 600", check=HealthCheck(readiness=ready))
    with MesosHosts(known) as hosts:
        (name,) = hosts.start(hosts.host(), run)
        follows(hosts, name, file)
        last = hosts.changes[-1]
        assert (last.unready_text, last.over) == ("the check of Mesos: exit code 1", False)
        file.touch()
        hosts.wait_ready(name, False, True, False, True)
    with MesosHosts(known) as hosts:
        hosts.start(hosts.host(), run)
        hosts.wait_ready(name, True)
        file.unlink()
        hosts.wait_ready(name, True, False)
        hosts.stop(hosts.host(), name, grace_s=5.0)
        hosts.wait_ended([name])


def test_it_goes_on_beside_a_check_of_the_health(mesos: Mesos, tmp_path: Path) -> None:
    file = tmp_path / "ready"
    check = replace(SOON, command="true", readiness=by_file(file))
    with MesosHosts(framework(mesos.address)) as hosts:
        (name,) = hosts.start(hosts.host(), order("exec sleep 600", check=check))
        hosts.wait(lambda: is_now(hosts, UNREADY) and hosts.changes[-1].live.healthy)
        file.touch()
        hosts.wait(lambda: is_now(hosts, READY) and hosts.changes[-1].live.healthy)
        assert name not in hosts.ends


def test_a_task_outlives_a_check_that_a_signal_ends_or_that_takes_too_long(
    mesos: Mesos, tmp_path: Path
) -> None:
    """The file says what the check does."""
    file = tmp_path / "does"
    file.write_text("true")
    check = HealthCheck(readiness=replace(SOON, command=f". {file}", timeout_s=8.0))
    with MesosHosts(framework(mesos.address)) as hosts:
        (name,) = hosts.start(hosts.host(), order("exec sleep 600", check=check))
        hosts.wait(lambda: is_now(hosts, READY))
        for does, text in (("kill -9 $$", "exit code 137"), ("sleep 600", "has no result")):
            replaced(file, does)
            hosts.wait(lambda text=text: text in hosts.changes[-1].live.unready_text)
            replaced(file, "true")
            hosts.wait(lambda: is_now(hosts, READY))
        assert name not in hosts.ends


def test_a_check_of_the_health_that_a_signal_ends_has_failed_and_no_more(mesos: Mesos) -> None:
    """The second one is too much."""
    check = replace(SOON, command="kill -9 $$", max_failures=2)
    with MesosHosts(framework(mesos.address)) as hosts:
        (end,) = hosts.wait_ended(hosts.start(hosts.host(), order("exec sleep 600", check=check)))
        assert [one.live.healthy for one in hosts.changes] == [False]
    assert (end.outcome.end, end.outcome.reason) == (End.FAILED, UNHEALTHY)


def is_now(hosts: MesosHosts, ready: TaskHealth) -> bool:
    """What was told last of the only run."""
    return bool(hosts.changes) and hosts.changes[-1].live.ready is ready


def replaced(file: Path, text: str) -> None:
    """With one rename: a check may read it at any time."""
    new = file.with_name("new")
    new.write_text(text)
    new.rename(file)


def test_by_a_request(mesos: Mesos, tmp_path: Path) -> None:
    """The file is what the task serves."""
    file, (port,) = tmp_path / "ready", free_ports(1)
    serve = f"exec python3 -m http.server --bind 127.0.0.1 --directory {tmp_path} {port}"
    check = HealthCheck(readiness=replace(SOON, http=HttpProbe(port, "/ready")))
    with MesosHosts(framework(mesos.address)) as hosts:
        hosts.start(hosts.host(), order(serve, check=check))
        hosts.wait(lambda: hosts.changes and "status 404" in hosts.changes[-1].live.unready_text)
        file.touch()
        hosts.wait(lambda: is_now(hosts, READY))


def test_of_a_container_of_a_pod(mesos: Mesos, tmp_path: Path) -> None:
    file = tmp_path / "ready"
    containers = (Container("a", "exec sleep 600"), Container("b", "exec sleep 600"))
    check = HealthCheck(readiness=by_file(file, container="b"))
    run = order("", cpus=0.3, memory_mb=128, containers=containers, check=check)
    with MesosHosts(framework(mesos.address)) as hosts:
        (name,) = hosts.start(hosts.host(), run)
        follows(hosts, name, file)


def test_a_tasks_status_says_so_also_after_a_restart_of_the_daemon(
    mesos: Mesos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ready"
    daemon = ["daemon", "--config", str(config_file(tmp_path, mesos))]
    with foreground(daemon) as address, Client(address) as client, channel_to(address) as channel:
        monkeypatch.setenv("PELOTON_API", address)
        until(lambda: "mesos.h1" in said("host", "list"))
        pool = pool_for_tests(client)
        jobs = stateless_svc_pb2_grpc.JobServiceStub(channel)
        sent = svc.CreateJobRequest(spec=service(str(pool), file))
        job = jobs.CreateJob(sent).job_id.value
        until(lambda: said("why", job), lambda text: "not ready" in text)
        until(lambda: message(channel, job), lambda text: text == NOT_READY)
        file.touch()
        until(lambda: message(channel, job), lambda text: "ready" not in text)
        assert "not ready" not in said("why", job)
    file.unlink()
    with foreground(daemon) as address, channel_to(address) as channel:
        until(lambda: message(channel, job), lambda text: text == NOT_READY)


def service(pool: str, file: Path) -> stateless.JobSpec:
    """One instance, which is ready as long as the file is there."""
    container = {
        "resource": {"cpu_limit": 0.1, "mem_limit_mb": 32.0, "disk_limit_mb": 10.0},
        "entrypoint": {"value": "exec sleep 600"},
        "readiness_check": {
            "enabled": True, "type": "HEALTH_CHECK_TYPE_COMMAND",
            "command_check": {"command": f"test -e {file}"},
            "initial_interval_secs": 1, "interval_secs": 1, "max_consecutive_failures": 1,
        },
    }  # fmt: skip
    return stateless.JobSpec(
        name="checked", owning_team="team", instance_count=1, respool_id={"value": pool},
        default_spec={"containers": [container]},
    )  # fmt: skip


def message(channel: Any, job: str) -> str:
    """Of the status of its pod."""
    pods = pod_svc_pb2_grpc.PodServiceStub(channel)
    found = pods.GetPod(pod_svc_pb2.GetPodRequest(pod_name={"value": f"{job}-0"}))
    return str(found.current.status.message)
