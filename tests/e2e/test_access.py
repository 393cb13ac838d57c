"""Who may call a minicluster: its user, without any option; others only where it is open."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import grpc
import pytest

from peloton.api.v0.job import job_pb2, job_pb2_grpc
from peloton.sdk.client import Client
from peloton.sdk.errors import Denied
from peloton.settings import access_files
from peloton.testing.serving_process import STOP_S_MAX
from tests.cli import terminal
from tests.cli.terminal import Printed
from tests.e2e import cluster as c

NOBODY_UID = 65534
SLOW_S = 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[c.Cluster]:
    with c.running(tmp_path_factory.mktemp("access")) as running:
        with running.client() as client:
            c.pool(client)
        yield running


def told(address: str) -> access_files.ClusterEntry:
    """What the cluster has written about its address."""
    entry = access_files.entry_of(address)
    assert entry is not None
    return entry


def raw_call(target: str, *metadata: tuple[str, str]) -> grpc.StatusCode:
    """How a call of a client that knows of nothing ends."""
    with grpc.insecure_channel(target) as channel:
        jobs = job_pb2_grpc.JobManagerStub(channel)
        try:
            jobs.Query(job_pb2.QueryRequest(), metadata=metadata, timeout=SLOW_S)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
        return grpc.StatusCode.OK


def typed(*words: str, **variables: str) -> Printed:
    """What a command prints where these variables are set."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        return terminal.typed(*words)


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_its_user_needs_no_option_by_whatever_name_of_the_address(cluster: c.Cluster) -> None:
    port = cluster.address.rpartition(":")[2]
    for words, variables in (
        (["--api", cluster.address], {}),
        (["--api", f"localhost:{port}"], {}),
        (["--jobmgr", f"localhost:{port}"], {}),
        ([], {"PELOTON_API": cluster.address}),
    ):
        done = typed(*words, "job", "query", **variables)
        assert done.code == 0, (words, done.err)


def test_who_has_no_token_is_told_how_to_get_one(cluster: c.Cluster, tmp_path: Path) -> None:
    assert raw_call(cluster.address) is grpc.StatusCode.UNAUTHENTICATED
    elsewhere = {"XDG_STATE_HOME": str(tmp_path)}
    done = typed("--api", cluster.address, "job", "query", **elsewhere)
    assert done.code == 77, done
    assert "--token-file" in done.err and "--open-loopback" in done.err
    file = told(cluster.address).token_file
    done = typed("--api", cluster.address, "--token-file", file, "job", "query", **elsewhere)
    assert done.code == 0, done.err
    elsewhere["PELOTON_TOKEN_FILE"] = file
    assert typed("--api", cluster.address, "job", "query", **elsewhere).code == 0
    wrong = tmp_path / "wrong"
    wrong.write_text("x" * 43)
    wrong.chmod(0o600)
    elsewhere["PELOTON_TOKEN_FILE"] = str(wrong)
    done = typed("--api", cluster.address, "job", "query", **elsewhere)
    assert done.code == 77 and "wrong token" in done.err
    wrong.chmod(0o644)
    done = typed("--api", cluster.address, "job", "query", **elsewhere)
    assert done.code == 65 and "chmod 600" in done.err


def test_the_socket_and_the_token_are_for_its_user_alone(cluster: c.Cluster) -> None:
    entry = told(cluster.address)
    token = access_files.read_token(Path(entry.token_file))
    data = cluster.folder / "data"
    assert (mode(data), mode(entry.token_file), mode(entry.socket)) == (0o700, 0o600, 0o600)
    assert Path(entry.socket).parent == Path(entry.token_file).parent == data
    entries = access_files.state_folder() / access_files.ENTRIES
    assert mode(entries) == 0o700 and mode(entries / cluster.address) == 0o600
    assert token not in (entries / cluster.address).read_text()
    assert raw_call(f"unix:{entry.socket}") is grpc.StatusCode.OK
    bearer = ("authorization", f"Bearer {token}")
    assert raw_call(cluster.address, bearer) is grpc.StatusCode.OK


@pytest.mark.needs_root("to be another user")
def test_another_user_gets_neither_socket_nor_token(cluster: c.Cluster) -> None:
    entry = told(cluster.address)
    for path in (entry.socket, entry.token_file):
        assert refused_to_another_user(path), path


def refused_to_another_user(path: str) -> bool:
    program = (
        "import os, socket, sys\n"
        f"os.setgroups([]); os.setgid({NOBODY_UID}); os.setuid({NOBODY_UID})\n"
        "try:\n"
        "    open(sys.argv[1]) if sys.argv[1].endswith('token') else "
        "socket.socket(socket.AF_UNIX).connect(sys.argv[1])\n"
        "except PermissionError:\n"
        "    sys.exit(42)\n"
    )
    return subprocess.run([sys.executable, "-c", program, path], timeout=60).returncode == 42


def test_files_of_tasks_are_sent_for_a_link_or_the_token(cluster: c.Cluster) -> None:
    with cluster.client() as client:
        spec = c.job(1, "echo only for its user")
        job = str(client.jobs.create("/tests", spec).jobId.value)
        assert c.ended(client, job)[0] == "SUCCEEDED"
        assert b"".join(client.tasks.logs(job, 0)) == b"only for its user\n"
        assert b"".join(client.tasks.follow(job, 0)) == b"only for its user\n"
        found = client.tasks.browse(job, 0)
    link = next(path for path in found.paths if path.endswith("/stdout"))
    plain = "/" + link.split("/", 2)[2]
    base = f"http://{found.hostname}:{found.port}/files/download?path="
    assert fetched(base + link) == (200, b"only for its user\n")
    status, text = fetched(base + plain)
    assert status == 403 and b"BrowseSandbox" in text
    token = access_files.read_token(Path(told(cluster.address).token_file))
    bearer = {"Authorization": f"Bearer {token}"}
    assert fetched(base + plain, bearer) == (200, b"only for its user\n")
    assert fetched(base + plain, {"Authorization": f"Bearer {token}x"})[0] == 403
    listing = base.replace("download", "browse")
    assert fetched(listing + plain.rpartition("/")[0])[0] == 403
    status, text = fetched(listing + link.rpartition("/")[0])
    assert status == 200 and link in [one["path"] for one in json.loads(text)]
    for path in ("/health", "/ready", "/metrics", "/version"):
        assert fetched(f"http://{found.hostname}:{found.port}{path}")[0] == 200, path


def fetched(url: str, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        sent = urllib.request.Request(url, headers=dict(headers or {}))
        with direct.open(sent, timeout=SLOW_S) as got:
            return got.status, got.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_the_token_is_in_no_other_file_and_no_answer(cluster: c.Cluster) -> None:
    entry = told(cluster.address)
    token = access_files.read_token(Path(entry.token_file)).encode()
    said = ("authorization", f"Bearer {token.decode()}")
    raw_call(cluster.address, said, ("password", "canary-of-a-password"))
    for path in [*(cluster.folder).rglob("*"), *access_files.state_folder().rglob("*")]:
        if path.is_file() and str(path) != entry.token_file:
            data = path.read_bytes()
            assert token not in data and b"canary-of-a-password" not in data, path


def test_a_client_from_before_the_cluster_gets_to_know_it(cluster: c.Cluster) -> None:
    """It was refused as a stranger's, by a cluster that listened there before."""
    at = access_files.state_folder() / access_files.ENTRIES / cluster.address
    entry = at.read_bytes()
    at.unlink()
    with cluster.client() as client:
        with pytest.raises(Denied, match="--token-file"):
            client.jobs.query()
        at.write_bytes(entry)
        at.chmod(0o600)
        client.jobs.query()


def test_what_a_killed_cluster_leaves_behind_is_harmless(cluster: c.Cluster) -> None:
    """The last with the shared cluster."""
    old, entry = cluster.address, told(cluster.address)
    token = access_files.read_token(Path(entry.token_file))
    with cluster.client(timeout_s=20.0) as client:
        client.jobs.query()
        cluster.kill()
        assert access_files.entry_of(old) is None, "its writer has ended"
        assert (access_files.state_folder() / access_files.ENTRIES / old).exists()
        assert Path(entry.socket).exists()
        cluster.options = ("--grpc", old)
        cluster.start()
        assert cluster.address == old
        client.jobs.query()  # the client of before finds the new one
    assert access_files.read_token(Path(told(old).token_file)) == token
    assert cluster.stop() == 0
    assert not (access_files.state_folder() / access_files.ENTRIES / old).exists()
    assert not Path(entry.socket).exists()
    lines = cluster.errors().splitlines()
    assert not [line for line in lines if "warning" in line and "tasks run as" not in line]


def test_open_loopback_serves_the_originals_clients_and_says_so(tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "peloton", "minicluster", "--backend", "simulated"),
        *("--data-dir", str(tmp_path / "data"), "--no-classic-ports", "--open-loopback"),
        *("--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            ready = process.stdout.readline()
            assert ready.startswith("ready: grpc (open to all users of this machine) 127.0.0.1:")
            errors = [process.stderr.readline()]
            while not errors[-1].startswith("ready: http "):
                errors.append(process.stderr.readline())
            assert any("open to all users of this machine" in line for line in errors)
            assert raw_call(ready.split()[-1]) is grpc.StatusCode.OK
            status, text = fetched(f"http://{errors[-1].split()[-1]}/ready")
            assert status == 200 and text.startswith(b"OK\naccess: open to all users of this")
            with Client(ready.split()[-1]) as client:
                client.jobs.query()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_S_MAX) == 0
