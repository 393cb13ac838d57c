"""Hosts on hold, what is launched there, and hosts that wait for a task, over a daemon's death."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc

from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc
from peloton.private.hostmgr.hostsvc import hostsvc_pb2_grpc
from tests.e2e import cluster as c


@contextlib.contextmanager
def service(cluster: c.Cluster) -> Iterator[Any]:
    with grpc.insecure_channel(cluster.address) as channel:
        yield hostsvc_pb2_grpc.InternalHostServiceStub(channel)


def hosts(stub: Any) -> dict[str, tuple[str, list[str]]]:
    """The status and the runs of each host."""
    found = stub.GetHostsByQuery(hostsvc.GetHostsByQueryRequest()).hosts
    return {one.hostname: (one.status, [task.value for task in one.tasks]) for one in found}


def waits_for(stub: Any) -> dict[str, list[str]]:
    """The tasks that hosts wait for."""
    found = stub.GetHostsByQuery(hostsvc.GetHostsByQueryRequest()).hosts
    return {one.hostname: [t.value for t in one.held_tasks] for one in found if one.held_tasks}


def reserve(stub: Any, host: str) -> None:
    """Let the host wait for a task."""
    sent = hostsvc.ReserveHostsRequest()
    sent.reservation.task.id.value = "awaited-0"
    sent.reservation.task.resource.cpuLimit = 0.1
    sent.reservation.hosts.add(hostname=host)
    assert stub.ReserveHosts(sent).host.hostname == host


def test_holds_and_what_runs_there_and_reservations_outlive_the_daemon(tmp_path: Path) -> None:
    began, go = tmp_path / "began", tmp_path / "go"
    with c.running(tmp_path, "--open-loopback") as cluster:
        with service(cluster) as stub:
            both = hostsvc.AcquireHostOffersRequest(filter={"quantity": {"maxHosts": 2}})
            used, kept = stub.AcquireHostOffers(both).hostOffers
            command = f'echo "$PELOTON_POD_ID" > {began}; {c.until_there(go)}'
            config = {
                "command": {"shell": True, "value": command},
                "resource": {"cpuLimit": 0.1, "memLimitMb": 1.0, "diskLimitMb": 1.0},
            }
            launch = hostsvc.LaunchTasksRequest(
                hostname=used.hostname, agentId=used.agentId, id=used.id,
                tasks=[{"taskId": {"value": "mine-0-1"}, "config": config}],
            )  # fmt: skip
            stub.LaunchTasks(launch)
            c.wait_for(lambda: began.exists() and began.read_text(), "the process to begin")
            assert began.read_text() == "mine-0-1\n"
            (third,) = {*hosts(stub)} - {used.hostname, kept.hostname}
            reserve(stub, third)
        cluster.kill()
        cluster.start()
        with service(cluster) as stub:
            c.wait_for(
                lambda: hosts(stub)[used.hostname] == ("ready", ["mine-0-1"]), "the run's host"
            )
            assert hosts(stub)[kept.hostname] == ("placing", [])
            c.wait_for(lambda: waits_for(stub) == {third: ["awaited-0"]}, "the reservation")
            wanted = hostsvc.GetCompletedReservationRequest()
            (one,) = c.wait_for(
                lambda: stub.GetCompletedReservations(wanted).completedReservations, "the room"
            )
            assert (one.host.hostname, one.task.id.value) == (third, "awaited-0")
            assert not waits_for(stub)
            go.touch()
            c.wait_for(lambda: hosts(stub)[used.hostname] == ("ready", []), "the run to end")
            launch.hostname, launch.id.value = kept.hostname, kept.id.value
            launch.tasks[0].config.command.value = "sleep 600"
            stub.LaunchTasks(launch)
            assert hosts(stub)[kept.hostname][1] == ["mine-0-1"]
            stub.KillTasks(hostsvc.KillTasksRequest(taskIds=[{"value": "mine-0-1"}]))
            c.wait_for(lambda: hosts(stub)[kept.hostname] == ("ready", []), "the killed run to end")
