"""A daemon of a real fleet that no other reaches: an expired certificate, or a wrong address.

Real processes on a real ZooKeeper and a real Cassandra. The others have to serve all the while: it
joins, keeps its session, and must own nothing. In simulated time: `tests/worlds/fleets`.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.v0.job import job_pb2, job_pb2_grpc
from tests.adapters.pems import Authority
from tests.adapters.test_daemon_servers import Cluster, cluster, content, looking, owners, patiently
from tests.adapters.test_daemon_wiring import until
from tests.channels import channel_to
from tests.cli.terminal import typed
from tests.gateway.fleet_fixture import Deployment
from tests.servers.process import free_ports

__all__ = ["cluster"]
EXPIRED = "its certificate has expired"
GIVEN_UP_S = 15.0


def tls(authority: Authority, name: str, *, expired: bool = False) -> dict[str, str]:
    """The setting `tls` of a daemon."""
    files = authority.expired(name) if expired else authority.issue(name)
    return {
        "ca": str(files.ca),
        "certificate": str(files.certificate),
        "key": str(files.key),
    }


def members(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """What each member publishes."""
    folder = "/peloton/test/members"
    with looking(cluster.zookeeper) as client:
        found = {name: content(client, f"{folder}/{name}") for name in client.get_children(folder)}
        return {name: json.loads(data) for name, data in found.items() if data}


def health(port: int, path: str = "/ready") -> tuple[int, str]:
    """Status and text; 0 while nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


class Troubled:
    """One more daemon, begun although its check found what is wrong."""

    def __init__(self, cluster: Cluster, name: str, *, listen: dict[str, str], **more: Any) -> None:
        self.cluster, self.name = cluster, name
        exchange, grpc_port, self.http = free_ports(3)
        self.address, self.grpc = f"127.0.0.1:{exchange}", f"127.0.0.1:{grpc_port}"
        doors = {"exchange": self.address, "grpc": self.grpc, "http": f"127.0.0.1:{self.http}"}
        self.settings = {"listen": doors | listen, **more}
        checked = typed("daemon", "--check", "--config", cluster.config(name, **self.settings))
        assert checked.code == 69
        self.found = checked.err + checked.out
        known = {*members(cluster)}
        self.process = cluster.begin(name, **self.settings)
        (self.member,) = until(lambda: {*members(cluster)} - known)

    def node(self) -> dict[str, Any] | None:
        """What it publishes now; on a slow machine a session may end, and the next has another
        number at the end of its name."""
        own = self.member.rpartition(".")[0]
        found = members(self.cluster).items()
        return next((node for name, node in found if name.rpartition(".")[0] == own), None)

    def published(self) -> dict[str, Any]:
        """The same, once there is one; who waits in vain reads what the daemon said."""
        try:
            return until(self.node)
        except AssertionError as error:
            code, said = self.process.poll(), self.cluster.errors(self.name)
            raise AssertionError(
                f"{self.name} ({self.member}, exit code {code}) publishes nothing:\n{said}"
            ) from error

    def stands_aside(self) -> str:
        """Its own words, once it has said why."""
        until(lambda: "stands aside and owns no shard" in self.cluster.errors(self.name))
        return self.cluster.errors(self.name)

    def call(self, job: str) -> str:
        """What a client is answered here for a job of another daemon."""
        with channel_to(self.grpc) as channel:
            stub = job_pb2_grpc.JobManagerStub(channel)
            try:
                stub.Get(job_pb2.GetRequest(id={"value": job}), timeout=30)
            except grpc.RpcError as error:
                assert isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNAVAILABLE
                return str(error.details())
        return ""

    def end(self) -> None:
        """Without a word."""
        self.process.kill()
        self.process.wait()
        until(lambda: self.node() is None)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_that_nobody_reaches_owns_nothing_says_why_and_stops_nobody(
    cluster: Cluster, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "pems")
    _, at_one = cluster.start("one", tls=tls(authority, "one"))
    cluster.start("two", tls=tls(authority, "two"))
    until(lambda: len(set(owners(cluster.zookeeper))) == 2)
    first = {*members(cluster)}
    with channel_to(at_one) as channel:
        clients = Deployment(None, channel, http=None)  # type: ignore[arg-type]
        job = patiently(lambda: clients.create(clients.request(instances=2)))

        def nobody_is_stopped(troubled: Troubled) -> None:
            """For longer than a daemon may take to find out that it is cut off."""
            end_s = time.monotonic() + GIVEN_UP_S
            while time.monotonic() < end_s:
                made = clients.create(clients.request(instances=1))  # at the first attempt
                assert clients.ended(made).done
                assert {owner.decode() for owner in owners(cluster.zookeeper)} <= first
            node = troubled.published()
            assert node["aside"] and {"jobmgr", "resmgr", "hostmgr"} <= {*node["unfit"]}

        expired = Troubled(cluster, "old", listen={}, tls=tls(authority, "old", expired=True))
        own = f"{expired.address} does not lead to this daemon: {EXPIRED}"
        assert f"listen.exchange: {own}" in expired.found
        assert "is out of reach: it ended the connection at once, as who does not" in expired.found
        nobody_is_stopped(expired)
        assert f"its own address {expired.address} does not lead to it: {EXPIRED}" in (
            expired.stands_aside()
        )
        status, text = health(expired.http)
        assert status == 503 and "stands aside" in text and EXPIRED in text
        answer = expired.call(job)
        assert "the daemon at 127.0.0.1:" in answer and "is out of reach: " in answer
        expired.end()

        for attempt in range(20):
            wrong = Troubled(
                cluster,
                f"wrong{attempt}",
                listen={"advertise": "127.0.0.1:1"},
                tls=tls(authority, f"wrong{attempt}"),
            )
            if wrong.member > max(first):
                break
            wrong.end()  # of two the lower id dials: this one reaches all by itself
        found = "listen.advertise: 127.0.0.1:1 does not lead to this daemon: connection refused"
        assert found in wrong.found
        nobody_is_stopped(wrong)
        assert "the daemon at 127.0.0.1:" in wrong.stands_aside()
        assert "connection refused" in wrong.stands_aside()
        assert health(wrong.http)[0] == 503
        text = "the daemon at 127.0.0.1:1 ("
        until(lambda: text in cluster.errors("one") + cluster.errors("two"))
