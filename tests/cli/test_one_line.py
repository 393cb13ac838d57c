"""What people mistype, lack or break ends in one line and an exit code, never in a traceback.

Where what Python prints at its very end counts, a line is typed into a process of its own; an
exception that nobody catches ends a test in this process as well.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
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


ONE_BY_ONE = """
import json, sys
from peloton.__main__ import PROCESSES
from peloton.cli.main import root, run_cli
for words in json.loads(sys.argv[1]):
    try:
        code = run_cli(root(PROCESSES), words)
    except SystemExit as ended:
        code = ended.code
    print(f"{code}\\0", end="", file=sys.stderr, flush=True)
"""


def one_after_the_other(
    lines: Sequence[Sequence[str]], *, first: str = ""
) -> list[tuple[int, str]]:
    """The exit code and stderr of each, typed into one process, which does something before."""
    program = [sys.executable, "-c", f"{first}{ONE_BY_ONE}", json.dumps(lines)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=WAIT_S_MAX, check=True)
    assert "Traceback" not in done.stderr, done.stderr
    *parts, last = done.stderr.split("\0")
    assert (len(parts), last) == (len(lines), "")
    found = []
    for part in parts:
        errors, _, code = part.rpartition("\n")
        found.append((int(code), f"{errors}\n"))
    return found


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
        ("peloton daemon --config {empty}", 64),
        ("peloton daemon --config {nothing}", 64),
        ("peloton minicluster --cluster {bin}", 64),
        ("peloton minicluster --cluster {empty}", 64),
        ("peloton minicluster --cluster {nothing}", 64),
        ("peloton schema apply --ca-file {bin} --replication dc1:1", 69),
        ("peloton doctor --ca-file {empty}", 69),
        ("peloton doctor --cassandra nosuch.invalid", 69),
        ("peloton --clusterName x job query", 65),
    ],
)
def test_files_and_names_of_all_sorts(
    line: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    printed = typed(*broken(line, tmp_path).split()[1:])
    assert (printed.code, len(printed.err.splitlines())) == (code, 1), printed.err


def broken(line: str, folder: Path) -> str:
    """The line with the names of files that are no use."""
    (folder / "bin").write_bytes(b"\xff\xfe\x00")
    (folder / "empty").touch()
    (folder / "folder").mkdir()
    (folder / ".peloton").mkdir()
    (folder / ".peloton" / "clusters.json").write_text("[" * 100_000)
    return line.format(**{name: folder / name for name in ("bin", "empty", "folder", "nothing")})


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("peloton job create /p {bin}", 65),
        ("peloton daemon --config {bin}", 64),
        ("peloton job get $'\\xff\\xfe' -t 1s", 64),
    ],
)
def test_what_is_no_text_in_a_process(line: str, code: int, tmp_path: Path) -> None:
    found, errors = shell(broken(line, tmp_path))
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


@pytest.mark.parametrize("gone", ["> /dev/full", ">&-", "2>&-"])
def test_a_minicluster_runs_on_when_nobody_reads_it(gone: str, tmp_path: Path) -> None:
    """It is stopped as ever, and its exit code is that of a stop. It takes signals before it
    prints, and prints before it obeys one."""
    line = f"peloton minicluster --backend simulated --data-dir {tmp_path / 'd'} {' '.join(HERE)}"
    caught = "until grep -Eq 'SigCgt:.*[4-7c-f][0-9a-f]{3}$' /proc/$p/status; do sleep 0.1; done"
    found, errors = shell(f"{line} {gone} & p=$!; {caught}; kill -TERM $p; wait $p")
    assert found == 0, errors


# ---- where it starts ----


def test_a_busy_port_is_named_with_its_setting(busy: int, tmp_path: Path) -> None:
    doors = {"--grpc": "--http", "--http": "--grpc"}
    lines = [
        ["minicluster", "--no-classic-ports", "--data-dir", str(tmp_path / "d"),
         door, f"127.0.0.1:{busy}", other, "127.0.0.1:0"]
        for door, other in doors.items()
    ]  # fmt: skip
    for door, found in zip(doors, one_after_the_other(lines), strict=True):
        assert found == (
            69,
            f"peloton minicluster: {door}: 127.0.0.1:{busy} is busy: another program listens "
            "there. Stop it, or start a second one with --grpc, --http and --data-dir of its own\n",
        )
    assert not (tmp_path / "d").exists(), "nothing is left behind"


def test_a_daemon_names_a_busy_port_by_its_field(busy: int, tmp_path: Path) -> None:
    lines = []
    for door in ("grpc", "http"):
        listen = {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"} | {door: f"127.0.0.1:{busy}"}
        (tmp_path / door).write_text(
            f"cluster: c\njournal: {{sqlite: {{folder: data}}}}\nlisten: {listen}\n"
            "backend: {simulated: {hosts: [{name: a}]}}\n"
        )
        lines.append(["daemon", "--config", str(tmp_path / door)])
    for door, (code, errors) in zip(("grpc", "http"), one_after_the_other(lines), strict=True):
        assert code == 69
        assert f"peloton daemon: listen.{door}: 127.0.0.1:{busy} is busy" in errors


def test_a_data_folder_of_all_sorts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "a" / "journal.sqlite").mkdir(parents=True)
    for name, data in {"b/journal.sqlite": os.urandom(9000), "c/backend": b"\xff"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(data)
    (tmp_path / "d" / "lock").mkdir(parents=True)
    (tmp_path / "e" / "backend.new").mkdir(parents=True)
    folders = [str(tmp_path / folder) for folder in ("file/x", "a", "b", "c", "d", "e")]
    for folder, (code, errors) in zip(folders, starts_in(folders), strict=True):
        # What others could open until now is told, too, and is no error.
        said = [one for one in errors.splitlines() if "could be opened by other users" not in one]
        assert (code, len(said)) == (69, 1), (folder, errors)
        assert str(tmp_path) in said[0]


def starts_in(folders: list[str], *options: str) -> list[tuple[int, str]]:
    """How each start in a folder ends that is refused."""
    start = ["minicluster", "--backend", "simulated", *HERE, *options, "--data-dir"]
    return one_after_the_other([[*start, folder] for folder in folders])


@pytest.mark.parametrize("options", [(), ("--fresh",)])
def test_a_folder_of_somebody_else_is_left_as_it_is(tmp_path: Path, options: tuple[str]) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    ((code, errors),) = starts_in([str(tmp_path)], *options)
    assert code == 69 and "Peloton did not make (thesis.tex)" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_a_folder_of_another_backend_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").touch()
    (tmp_path / "backend").write_text("process\n")
    ((code, errors),) = starts_in([str(tmp_path)])
    assert code == 69 and "--backend process" in errors


@pytest.mark.parametrize("kib", [1, 80])
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
