"""Where clients send their secrets: to the daemon of an entry, not to who took its address."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.gateway.access.authentication import Authentication
from peloton.gateway.server.intake import Intake
from peloton.gateway.server.serving import Server
from peloton.sdk.client import Client
from peloton.sdk.credentials import ClientTlsFiles, Credentials, Login, Routes
from peloton.sdk.errors import Denied, PelotonError, ServiceUnavailable
from peloton.settings import access_files
from peloton.settings.access_files import ClusterEntry
from tests.adapters.pems import Authority
from tests.adapters.test_client_access import at, running, settings
from tests.cli.terminal import typed

JOIN_S = 60.0


@contextlib.contextmanager
def published(folder: Path, address: str, *, with_socket: bool = False) -> Iterator[ClusterEntry]:
    """An entry of this process, with a token."""
    token = folder / "token"
    access_files.made_token(token)
    path = folder / "api.sock"
    entry = access_files.entry_for(
        address, token_file=str(token), socket=str(path) if with_socket else ""
    )
    access_files.publish([entry])
    try:
        yield entry
    finally:
        access_files.withdraw([entry])


def has_token(metadata: tuple[tuple[str, str], ...]) -> bool:
    return any(name == "authorization" for name, _ in metadata)


# ---- daemons that stop ----


def is_refused(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize("deep", [False, True])
def test_an_entry_is_withdrawn_before_its_port_is_free(tmp_path: Path, deep: bool) -> None:
    """With a socket, and without one because its name would be too long."""
    folder = tmp_path / ("x" * 100 if deep else "x")
    folder.mkdir()
    left: list[ClusterEntry | None] = []
    with running(settings(folder)) as daemon:
        address, port = at(daemon), daemon.grpc.port
        routes = Routes(Credentials())
        route = routes.to(address)
        assert route.holds and has_token(route.metadata) == deep

        def watch() -> None:
            while not is_refused(port):
                pass
            left.append(access_files.entry_of(address))
            left.append(route.entry if route.holds else None)

        watcher = threading.Thread(target=watch)
        watcher.start()
    watcher.join(JOIN_S)
    assert left == [None, None]
    assert routes.to(address).metadata == ()


def test_clients_of_a_daemon_that_stops_are_not_refused_as_strangers(tmp_path: Path) -> None:
    """Also those that look for an entry when it is withdrawn: a wait for a job must go on."""
    authentication = Authentication.by_token("x" * 30, owner="ann")
    server = Server(
        [], Intake(message_bytes_max=1 << 20, bytes_max=1 << 22), authentication=authentication
    )
    (port,) = server.listen(["127.0.0.1:0"])
    server.start()
    try:
        with Client(f"127.0.0.1:{port}", timeout_s=60.0) as client:
            with pytest.raises(Denied):
                client.ops.hosts()
            server.refuse_new()
            with pytest.raises(ServiceUnavailable):
                client.ops.hosts()
    finally:
        server.stop(0).wait(5)


def test_calls_are_refused_before_the_entry_is_withdrawn(tmp_path: Path) -> None:
    found: list[PelotonError] = []
    with running(settings(tmp_path)) as daemon:

        def call() -> None:
            with Client(at(daemon), timeout_s=60.0) as client:
                try:
                    client.ops.hosts()
                except PelotonError as error:
                    found.append(error)

        # The steps are taken from the end: this one after the first.
        daemon._listeners._stop_grpc.insert(-1, call)
    assert [type(error) for error in found] == [ServiceUnavailable]


def test_a_token_is_not_sent_to_a_port_whose_socket_is_gone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.setblocking(False)
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with published(tmp_path, address, with_socket=True):
            with pytest.raises(ServiceUnavailable, match=r"api\.sock, is gone"):
                Routes(Credentials()).to(address)
            with Client(address, timeout_s=1.0) as client:
                with pytest.raises(ServiceUnavailable, match="is gone"):
                    client.jobs.query()
                with pytest.raises(ServiceUnavailable, match="is gone"):
                    next(client.internals.run_events())
            with pytest.raises(BlockingIOError):
                other.accept()


def test_other_addresses_are_called_where_one_daemon_is_about_to_stop(tmp_path: Path) -> None:
    with (
        running(settings(tmp_path)) as daemon,
        published(tmp_path, "127.0.0.1:1", with_socket=True),
        Client(["127.0.0.1:1", at(daemon)], timeout_s=20.0) as client,
    ):
        client.jobs.query()


# ---- names that stand for two addresses ----


@contextlib.contextmanager
def neighbour(port: int) -> Iterator[socket.socket]:
    """Another process at the other address of `localhost`."""
    with socket.create_server(("::1", port), family=socket.AF_INET6) as other:
        other.setblocking(False)
        yield other


def named(folder: Path, secret: str) -> Credentials:
    """What the user names."""
    if secret == "password":
        return Credentials(login=Login("ann", "a-password"))
    access_files.made_token(folder / "named")
    return Credentials(token_file=str(folder / "named"))


@pytest.mark.parametrize("secret", ["password", "token"])
def test_a_named_secret_goes_to_one_address_of_localhost(tmp_path: Path, secret: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as daemon:
        port = daemon.getsockname()[1]
        daemon.close()  # as one that stopped: gRPC would try the other address
        with neighbour(port) as other:
            client = Client(f"localhost:{port}", credentials=named(tmp_path, secret), timeout_s=1.0)
            with client, pytest.raises(ServiceUnavailable):
                client.jobs.query()
            with pytest.raises(BlockingIOError):
                other.accept()


@pytest.mark.parametrize("secret", ["password", "token"])
def test_a_named_secret_goes_where_the_entry_says(tmp_path: Path, secret: str) -> None:
    routes = Routes(named(tmp_path, secret))
    with published(tmp_path, "[::1]:7002") as entry:
        route = routes.to("localhost:7002")
        assert (route.target, route.entry) == ("[::1]:7002", entry) and route.metadata
    again = routes.to("localhost:7002")
    assert (again.target, again.metadata) == ("127.0.0.1:7002", route.metadata)


def test_with_a_named_token_the_socket_is_used_where_there_is_one(tmp_path: Path) -> None:
    routes = Routes(named(tmp_path, "token"))
    with published(tmp_path, "127.0.0.1:7003", with_socket=True) as entry:
        with pytest.raises(ServiceUnavailable, match="is gone"):
            routes.to("localhost:7003")
        Path(entry.socket).touch()
        assert routes.to("localhost:7003").target == f"unix:{entry.socket}"
    assert has_token(routes.to("localhost:7003").metadata)


def test_with_tls_the_name_is_dialled_that_the_certificate_proves(tmp_path: Path) -> None:
    tls = ClientTlsFiles(str(Authority(tmp_path / "ca").ca))
    for secret in ("password", "token"):
        routes = Routes(named(tmp_path, secret)._replace(tls=tls))
        assert routes.to("localhost:7004").target == "localhost:7004"


# ---- names of folders ----


@pytest.mark.parametrize("name", ["a%41b?x#y 100%", "a b+c&d=e\u00fc\u4e2d"])
def test_a_data_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    with running(settings(folder)) as daemon:
        route = Routes(Credentials()).to(at(daemon))
        assert route.target.startswith("unix:") and not route.metadata
        with Client(at(daemon), timeout_s=20.0) as client:
            pool = client.pools.create("/p", {"name": "p", "resources": []})
        assert {"journal.sqlite", "api.sock"} <= {path.name for path in (folder / "data").iterdir()}
    assert [path.name for path in tmp_path.iterdir()] == [name], "nothing is written elsewhere"
    with running(settings(folder)) as daemon, Client(at(daemon), timeout_s=20.0) as client:
        assert client.pools.lookup("/p") == pool
    done = typed("journal", "check", "--data-dir", str(folder / "data"))
    assert done.code == 0, done.err
