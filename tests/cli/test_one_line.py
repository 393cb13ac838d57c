"""What people mistype, lack or break ends in one line and an exit code, never in a traceback.

Each line is typed into a process of its own: what Python prints at its very end counts, too.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.sdk.addresses import with_port
from peloton.sdk.client import Client
from tests.cli.terminal import typed
from tests.sdk.fakes import Cluster, serving

PELOTON = [sys.executable, "-m", "peloton"]
HERE = ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--no-classic-ports"]
WAIT_S_MAX = 90.0


def shell(line: str, **names: object) -> tuple[int, str]:
    """The exit code and stderr of a shell line, in which `peloton` is the program."""
    program = " ".join(PELOTON)
    line = line.replace("peloton", program, 1)
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, timeout=WAIT_S_MAX, stdin=subprocess.DEVNULL,
        env={**os.environ, **{name: str(value) for name, value in names.items()}},
    )  # fmt: skip
    errors = done.stderr.decode("utf-8", "replace")
    assert "Traceback" not in errors and "Exception ignored" not in errors, errors
    return done.returncode, errors


@pytest.fixture
def busy() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


# ---- addresses ----


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("localhost", "localhost:5397"),
        ("10.0.0.1", "10.0.0.1:5397"),
        ("a.b-c_d:1", "a.b-c_d:1"),
        ("::1", "[::1]:5397"),
        ("[::1]", "[::1]:5397"),
        ("[::1]:7", "[::1]:7"),
        ("unix:/tmp/x", "unix:/tmp/x"),
    ],
)
def test_an_address_without_a_port_has_the_default_one(text: str, whole: str) -> None:
    assert with_port(text, 5397) == whole


@pytest.mark.parametrize(
    "text", ["", ":1", "a:", "a:b", "http://a:1", "a b:1", "a:0", "a:65536", "a:1:2", "é:1", "a/b"]
)
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT|not between 1 and 65535"):
        with_port(text, 5397)


@pytest.mark.parametrize("flag", ["--api", "--jobmgr", "--resmgr", "--hostmgr", "--zkservers"])
def test_a_flag_with_no_address_is_a_usage_error(flag: str) -> None:
    printed = typed(flag, "http://a:1", "-t", "1s", "job", "query")
    assert (printed.code, printed.out) == (64, "")
    assert f"{flag}: 'http://a:1' is not HOST:PORT" in printed.err


def test_no_address_at_all_is_a_usage_error() -> None:
    printed = typed("--api", ",", "job", "query")
    assert printed.code == 64 and "--api: no address in ','" in printed.err


def test_the_default_port_is_the_one_that_is_proposed() -> None:
    printed = typed("--api", "127.0.0.9", "-t", "1s", "job", "query")
    assert printed.code == 69
    assert "127.0.0.9:5397 does not answer" in printed.err
    assert "peloton minicluster --grpc 127.0.0.9:5397" in printed.err


def test_a_client_refuses_what_is_no_address() -> None:
    with pytest.raises(ValueError, match="not HOST:PORT"):
        Client("http://a:1")


# ---- what is handed in ----


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("peloton job create /p {bin}", 65),
        ("peloton job create /p {empty}", 65),
        ("peloton job create /p {folder}", 66),
        ("peloton job create /p {nothing}", 66),
        ("peloton respool create /p {bin}", 65),
        ("peloton --basicAuthConfig {bin} job query", 65),
        ("peloton --basicAuthConfig {folder} job query", 66),
        ("peloton --username ann --password-file {folder} job query", 65),
        ("peloton --tls-ca {folder}/none job query", 65),
        ("peloton --token-file {bin} job query", 65),
        ("peloton --token-file {folder}/none job query", 65),
        ("peloton daemon --config {bin}", 64),
        ("peloton daemon --config {empty}", 64),
        ("peloton daemon --config {nothing}", 64),
        ("peloton minicluster --cluster {bin}", 64),
        ("peloton minicluster --cluster {empty}", 64),
        ("peloton minicluster --cluster {nothing}", 64),
        ("peloton schema apply --ca-file {bin} --replication dc1:1", 69),
        ("peloton doctor --ca-file {empty}", 69),
        ("peloton doctor --cassandra nosuch.invalid", 69),
        ("peloton --clusterName x job query", 65),
        ("peloton job get $'\\xff\\xfe' -t 1s", 64),
    ],
)
def test_files_and_names_of_all_sorts(line: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "bin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / ".peloton").mkdir()
    (tmp_path / ".peloton" / "clusters.json").write_text("[" * 100_000)
    names = {name: tmp_path / name for name in ("bin", "empty", "folder", "nothing")}
    found, errors = shell(line.format(**names), HOME=tmp_path)
    assert (found, len(errors.splitlines())) == (code, 1), errors


# ---- where it prints to ----


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("peloton schema show > /dev/full", 70, "No space left on device"),
        ("peloton --help > /dev/full", 70, "No space left on device"),
        ("peloton schema show >&-", 0, ""),
        ("peloton schema show >&- 2>&-", 0, ""),
        ("peloton --help | head -c 1 > /dev/null", 0, ""),
    ],
)
def test_a_place_that_takes_no_output(line: str, code: int, said: str) -> None:
    found, errors = shell(line)
    assert found == code
    assert said in errors and len(errors.splitlines()) == bool(said)


def test_a_name_that_the_terminal_cannot_show_is_escaped() -> None:
    cluster = Cluster()
    with serving(cluster) as address:
        found, errors = shell(f"peloton --api {address} -t 60s job query", PYTHONIOENCODING="ascii")
    assert found == 0, errors


@pytest.mark.parametrize("gone", ["> /dev/full", ">&-", "2>&-", "> >(true)"])
def test_a_minicluster_runs_on_when_nobody_reads_it(gone: str, tmp_path: Path) -> None:
    """It is stopped as ever, and its exit code is that of a stop."""
    line = f"peloton minicluster --backend simulated --data-dir {tmp_path / 'd'} {' '.join(HERE)}"
    caught = "until grep -Eq 'SigCgt:.*[4-7c-f][0-9a-f]{3}$' /proc/$p/status; do sleep 0.1; done"
    found, errors = shell(f"{line} {gone} & p=$!; {caught}; sleep 4; kill -TERM $p; wait $p")
    assert found == 0, errors


# ---- where it starts ----


@pytest.mark.parametrize("door", ["--grpc", "--http"])
def test_a_busy_port_is_named_with_its_setting(door: str, busy: int, tmp_path: Path) -> None:
    other = {"--grpc": "--http", "--http": "--grpc"}[door]
    found, errors = shell(
        f"peloton minicluster --no-classic-ports --data-dir {tmp_path / 'd'}"
        f" {door} 127.0.0.1:{busy} {other} 127.0.0.1:0"
    )
    assert (found, errors) == (
        69,
        f"peloton minicluster: {door}: 127.0.0.1:{busy} is busy: another program listens there. "
        "Stop it, or start a second one with --grpc, --http and --data-dir of its own\n",
    )


@pytest.mark.parametrize("door", ["grpc", "http"])
def test_a_daemon_names_a_busy_port_by_its_field(door: str, busy: int, tmp_path: Path) -> None:
    listen = {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"} | {door: f"127.0.0.1:{busy}"}
    (tmp_path / "d.yaml").write_text(
        f"cluster: c\njournal: {{sqlite: {{folder: data}}}}\nlisten: {listen}\n"
        "backend: {simulated: {hosts: [{name: a}]}}\n"
    )
    found, errors = shell(f"peloton daemon --config {tmp_path / 'd.yaml'}")
    assert found == 69
    assert f"peloton daemon: listen.{door}: 127.0.0.1:{busy} is busy" in errors


def test_a_data_folder_of_all_sorts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "a" / "journal.sqlite").mkdir(parents=True)
    for name, data in {"b/journal.sqlite": os.urandom(9000), "c/backend": b"\xff"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(data)
    (tmp_path / "d" / "lock").mkdir(parents=True)
    (tmp_path / "e" / "backend.new").mkdir(parents=True)
    for folder in ("file/x", "a", "b", "c", "d", "e"):
        line = f"peloton minicluster --backend simulated --data-dir {tmp_path / folder}"
        found, errors = shell(f"{line} {' '.join(HERE)}")
        # What others could open until now is told, too, and is no error.
        said = [one for one in errors.splitlines() if "could be opened by other users" not in one]
        assert (found, len(said)) == (69, 1), (folder, errors)
        assert str(tmp_path) in said[0]


@pytest.mark.parametrize("kib", [1, 40, 80, 130])
def test_a_full_disk_at_the_start_is_named(kib: int, tmp_path: Path) -> None:
    """No file can grow beyond so much, which is what a full disk comes to."""

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (kib * 1024, kib * 1024))

    line = [*PELOTON, "minicluster", "--data-dir", str(tmp_path / "d"), *HERE]
    line += ["--backend", "simulated"]
    done = subprocess.run(line, preexec_fn=full, capture_output=True, text=True, timeout=WAIT_S_MAX)
    assert done.returncode == 69, done.stderr
    (said,) = done.stderr.splitlines()
    assert said.startswith("peloton minicluster: ")
    assert "journal.sqlite: " in said and "disk" in said


def test_a_password_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "bin").write_bytes(b"\xff")
    (tmp_path / "d.yaml").write_text(
        "cluster: c\nbackend: {simulated: {hosts: [{name: a}]}}\n"
        "journal: {cassandra: {contacts: [a], username: a, password_file: bin}}\n"
        "zookeeper: {hosts: [a]}\nlisten: {grpc: '127.0.0.1:0', http: '127.0.0.1:0'}\n"
    )
    found, errors = shell(f"peloton daemon --config {tmp_path / 'd.yaml'}")
    assert (found, len(errors.splitlines())) == (69, 1)
    assert "journal.cassandra.password_file: " in errors and "no text in UTF-8" in errors
