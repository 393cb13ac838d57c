"""A host that is held for a task, over the death of the daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc
from tests.e2e import cluster as c
from tests.e2e.test_holds import service


def waits_for(stub: Any) -> dict[str, list[str]]:
    found = stub.GetHostsByQuery(hostsvc.GetHostsByQueryRequest()).hosts
    return {one.hostname: [t.value for t in one.held_tasks] for one in found if one.held_tasks}


def test_a_host_waits_for_its_task_over_the_death_of_the_daemon(tmp_path: Path) -> None:
    with c.running(tmp_path, "--open-loopback") as cluster:
        with service(cluster) as stub:
            sent = hostsvc.ReserveHostsRequest()
            sent.reservation.task.id.value = "mine-0"
            sent.reservation.task.resource.cpuLimit = 0.1
            names = [
                one.hostname for one in stub.GetHosts(hostsvc.GetHostsRequest(filter={})).hosts
            ]
            sent.reservation.hosts.add(hostname=names[0])
            assert stub.ReserveHosts(sent).host.hostname == names[0]
        cluster.kill()
        cluster.start()
        with service(cluster) as stub:
            c.wait_for(lambda: waits_for(stub) == {names[0]: ["mine-0"]}, "the reservation")
            wanted = hostsvc.GetCompletedReservationRequest()

            def completed() -> Any:
                return stub.GetCompletedReservations(wanted).completedReservations

            (one,) = c.wait_for(completed, "the room")
            assert (one.host.hostname, one.task.id.value) == (names[0], "mine-0")
            assert not waits_for(stub)
