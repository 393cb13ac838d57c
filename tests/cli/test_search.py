"""Finding the cluster in ZooKeeper: whose word counts, who is found, and what is said if nobody is.

The ZooKeeper is real, the clusters behind the leaders are fakes: that real daemons write such nodes
is tested with them.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from peloton.sdk import errors
from peloton.sdk.client import Client
from peloton.sdk.zookeeper import REFUSED, address_in
from tests.cli.terminal import Printed, Terminal, typed
from tests.conftest import ROOT
from tests.sdk.fakes import Cluster, serving
from tests.servers import zookeeper

ROLES = ("jobmanager", "resourcemanager", "hostmanager")
NOBODY = "127.0.0.1:1"
_numbers = itertools.count(1)


class Searched:
    """A root of our own in the ZooKeeper that all tests share."""

    def __init__(self) -> None:
        self.server = zookeeper.shared().address
        self.root = f"/search-{os.getpid()}-{next(_numbers)}"
        self._client = KazooClient(self.server)
        self._client.start(timeout=60)

    def lead(self, address: str, roles: tuple[str, ...] = ROLES) -> None:
        ip, _, port = address.rpartition(":")
        node = {"hostname": "h", "ip": ip, "http": 1, "grpc": int(port), "version": ""}
        self.write(json.dumps(node).encode(), roles)

    def write(self, data: bytes, roles: tuple[str, ...] = ROLES) -> None:
        for role in roles:
            path = f"{self.root}/{role}/leader"
            self._client.ensure_path(path)
            self._client.set(path, data)

    def __call__(self, *words: str, timeout: str = "60s") -> Printed:
        return typed("-z", self.server, "--zkroot", self.root, "-t", timeout, *words)

    def close(self) -> None:
        self._client.delete(self.root, recursive=True) if self._client.exists(self.root) else None
        self._client.stop()
        self._client.close()


@contextmanager
def gone_leader(searched: Searched, successor: str) -> Iterator[threading.Thread]:
    """Have a leader that hangs up on the first that calls it; its successor leads from then on.

    The thread ends once somebody has called.
    """
    with socket.create_server(("127.0.0.1", 0)) as gone:
        searched.lead(f"127.0.0.1:{gone.getsockname()[1]}")

        def hang_up() -> None:
            caller, _ = gone.accept()
            searched.lead(successor)
            caller.close()
            gone.close()

        called = threading.Thread(target=hang_up, daemon=True)
        called.start()
        yield called


@pytest.fixture
def searched() -> Iterator[Searched]:
    one = Searched()
    yield one
    one.close()


def test_the_leader_of_each_role_is_asked(searched: Searched) -> None:
    jobs, pools = Cluster(), Cluster()
    jobs.add_job("RUNNING", "RUNNING")
    with serving(jobs) as one, serving(pools) as other:
        searched.lead(one, ("jobmanager",))
        searched.lead(other, ("resourcemanager",))
        assert searched("job", "query", "-r", "/hello").code == 0
        # Peloton's own calls are anybody's.
        assert searched("host", "list").code == 0
    assert [call.name for call in pools.calls] == ["LookupResourcePoolID"]
    assert [call.name for call in jobs.calls] == ["Query", "ListHosts"]
    assert jobs.calls[0].metadata["rpc-service"] == "peloton-jobmgr"


def test_the_environment_and_the_named_cluster(
    searched: Searched, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with serving(Cluster()) as address:
        searched.lead(address)
        monkeypatch.setenv("ZK_ROOT", searched.root)
        monkeypatch.setenv("ZK_SERVERS", f"{searched.server}\n{searched.server}")
        assert typed("respool", "dump").code == 0
        monkeypatch.delenv("ZK_SERVERS")
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / ".peloton").mkdir()
        file = tmp_path / ".peloton" / "clusters.json"
        file.write_text(
            json.dumps({"clusters": [{"clusterName": "prod", "zkURL": searched.server}]})
        )
        assert typed("-e", "prod", "respool", "dump").code == 0
        printed = typed("-e", "test", "respool", "dump")
        assert (printed.code, "knows prod" in printed.err) == (66, True), printed
        file.write_text("[]")
        assert typed("-e", "prod", "respool", "dump").code == 65
        file.unlink()
        assert typed("-e", "prod", "respool", "dump").code == 66


def test_a_typed_address_outranks_a_search_and_a_typed_search_outranks_the_environment(
    searched: Searched, peloton: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZK_SERVERS", NOBODY)
    assert peloton("respool", "dump").code == 0
    monkeypatch.setenv("PELOTON_API", NOBODY)
    searched.lead(peloton.address)
    assert searched("respool", "dump").code == 0
    # Of the roles that have addresses the search is not asked; here one that is not there.
    assert searched("respool", "dump", "-v", NOBODY, "-t", "300ms").code == 69


def test_a_leader_that_is_gone_is_looked_for_until_there_is_another(searched: Searched) -> None:
    with serving(Cluster()) as address, gone_leader(searched, address) as called:
        printed = searched("respool", "dump")
        assert not called.is_alive(), "the first was never asked: nothing is proved"
    assert printed.code == 0, printed.err


def test_a_change_is_sent_once_to_a_leader_that_is_there(searched: Searched) -> None:
    """Nothing is said before there is a connection, so nothing can have happened before."""
    cluster = Cluster()
    cluster.add_job("RUNNING", "RUNNING")
    with (
        serving(cluster) as address,
        gone_leader(searched, address) as called,
        Client.found(searched.server, root=searched.root) as client,
    ):
        client.tasks.stop(next(iter(cluster.jobs)))
        assert not called.is_alive(), "the first was never asked: nothing is proved"
    assert len(cluster.called("Stop")) == 1


def test_no_leader_is_said_at_once(searched: Searched) -> None:
    # Who waited for one would do so until the test is given up.
    printed = searched("respool", "dump", timeout="1h")
    assert printed.code == 69
    assert f"no leader in ZooKeeper at {searched.server}" in printed.err
    assert f"{searched.root}/jobmanager/leader" in printed.err
    assert "minicluster" not in printed.err


@pytest.mark.parametrize("frozen", [False, True])
def test_no_zookeeper_is_said_within_seconds(frozen: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}" if frozen else NOBODY
        # Whoever is refused does not wait until its time is over.
        printed = typed("-z", address, "-t", "2s" if frozen else "1h", "respool", "dump")
    assert printed.code == 69
    why = " does not answer within 2 s" if frozen else f": {REFUSED}"
    assert printed.err == f"ZooKeeper at {address}{why}\n"


def test_a_node_that_says_nothing_sensible(searched: Searched) -> None:
    for data in (b"", b"{", b"[]", b'{"ip": "h", "grpc": "1"}', b'{"ip": "", "grpc": 1}'):
        if data:
            with pytest.raises(errors.ServerError, match="names no ip and grpc port"):
                address_in(data, "/p")
    searched.write(b"hello")
    printed = searched("respool", "dump")
    assert (printed.code, "names no ip and grpc port" in printed.err) == (70, True)
    assert address_in(b'{"ip": "::1", "grpc": 5397}', "/p") == "[::1]:5397"


def test_without_the_fleet_extra_it_says_what_to_install() -> None:
    program = """
import sys
sys.modules["kazoo"] = None
sys.argv = ["peloton", "-z", "h:2181", "respool", "dump"]
from peloton.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 70
    assert "pip install -e '.[fleet]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_proposed_names_the_search(searched: Searched) -> None:
    with serving(Cluster()) as address:
        searched.lead(address)
        printed = searched(
            "job", "create", "/hello", str(ROOT / "examples" / "hello_world_job.yaml")
        )
    assert f"--zkservers {searched.server}" in printed.out + printed.err, printed
