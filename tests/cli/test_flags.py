"""The flags every command takes, wherever they are typed, and what outranks what.

`respool dump` stands for all commands.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import grpc
import pytest

from peloton import __version__
from peloton.__main__ import PROCESSES
from peloton.cli.main import root, run_cli
from peloton.cli.shared.options import program
from peloton.cli.shared.values import INSTANCE_MAX, duration, from_to, labels, words
from peloton.processes.minicluster import _settings as minicluster_settings
from peloton.settings import config
from peloton.settings.config import BadSetting, loopback
from peloton.settings.notify import LOOPBACK
from tests.cli.terminal import Terminal, typed

NOBODY = "127.0.0.1:1"
PATIENT = "30s"
"""Nobody is there: that is found out at once, yet with too little time none is left to say so."""


def test_flags_hold_before_and_after_the_command(peloton: Terminal) -> None:
    for line in (
        ["--api", peloton.address, "respool", "dump"],
        ["respool", "--api", peloton.address, "dump"],
        ["respool", "dump", "--api", peloton.address],
        ["--api", NOBODY, "respool", "dump", "--api", peloton.address],
        ["--api", NOBODY, "-v", peloton.address, "respool", "dump"],
        ["respool", "dump", "-v", peloton.address],
    ):
        assert typed(*line).code == 0, line


def test_the_environment_is_asked_and_a_flag_outranks_it(
    peloton: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PELOTON_API", peloton.address)
    assert typed("respool", "dump").code == 0
    monkeypatch.setenv("PELOTON_API", NOBODY)
    assert typed("respool", "dump", "-t", PATIENT).code == 69
    assert typed("--api", peloton.address, "respool", "dump").code == 0
    monkeypatch.setenv("RESMGR_URL", peloton.address)
    assert typed("respool", "dump").code == 0
    monkeypatch.setenv("TIMEOUT", "soon")
    assert typed("respool", "dump").code == 64


def test_a_port_that_cannot_be_is_refused_by_its_number() -> None:
    # gRPC would take it modulo 65536 and complain of another port.
    for line in (["--api", "127.0.0.1:99999"], ["-m", "127.0.0.1:0"]):
        printed = typed(*line, "job", "query")
        port = line[1].rpartition(":")[2]
        assert printed.code == 64
        assert f"port {port} is not between 1 and 65535" in printed.err


def test_what_is_proposed_is_for_the_same_cluster(
    peloton: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = typed("--api", NOBODY, "respool", "dump", "-t", PATIENT)
    assert f"`peloton minicluster --grpc {NOBODY}` starts one here" in printed.err
    monkeypatch.setenv("PELOTON_API", NOBODY)
    printed = typed("respool", "dump", "-t", PATIENT)
    assert "`peloton minicluster` starts one here" in printed.err
    assert "`peloton daemon --config FILE` one of your settings" in printed.err
    monkeypatch.setenv("PELOTON_API", f"{NOBODY},{NOBODY}")
    assert "are the daemons running?" in typed("respool", "dump", "-t", PATIENT).err


def test_a_server_that_answers_is_not_asked_whether_it_runs(peloton: Terminal) -> None:
    peloton.cluster.fail("Redrive", grpc.StatusCode.UNAVAILABLE, text="nobody owns resmgr/0")
    printed = peloton("admin", "quarantine", "redrive", "a", "b")
    assert printed.code == 69 and "nobody owns resmgr/0" in printed.err
    assert "running" not in printed.err


def test_the_hosts_are_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster.yaml"
    for flag, text in (
        ("--hosts", "hosts: [{name: a}]"),
        ("--host-cpus", "backend: {process: {hosts: [{name: a}]}}"),
    ):
        file.write_text(text)
        assert left_with(["minicluster", "--cluster", str(file), flag, "3"]) == 64
        assert f"hosts: not together with {flag}" in capsys.readouterr().err


def test_a_minicluster_keeps_what_its_file_does_not_say(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("backend: {simulated: {seed: 3}}\npreemption: {enabled: false}\n")
    options = {"cluster": file, "data_dir": tmp_path / "data", "backend": None, "hosts": 2}
    options |= {"host_cpus": 8.0, "host_memory_mb": None, "host_disk_mb": None}
    options |= {"grpc": None, "http": "127.0.0.1:0", "open_loopback": False}
    made = minicluster_settings(options)
    assert (made.backend.name, made.preemption.after, made.preemption.enabled) == (
        "simulated", "30s", False,
    )  # fmt: skip
    assert [(host.cpus, host.memory_mb) for host in made.backend.hosts] == [(8.0, 2048.0)] * 2
    assert (made.listen.grpc, made.listen.http) == (config.GRPC_DEFAULT, "127.0.0.1:0")
    assert made.notify.allow == [LOOPBACK], "a daemon allows none by default"
    file.write_text("notify: {allow: []}\nlisten: {grpc: '127.0.0.1:7', http: '127.0.0.1:8'}")
    made = minicluster_settings(options)
    assert (made.backend.name, made.notify.allow) == ("process", [])
    assert (made.listen.grpc, made.listen.http) == ("127.0.0.1:7", "127.0.0.1:0")
    for text, why in (
        ("listen: {grpc: '0.0.0.0:7'}", "line 1: listen.grpc: "),
        ("journal: {sqlite: {folder: x}}", "line 1: journal: a minicluster keeps it in --data-dir"),
        ("zookeeper: {hosts: [a]}", "journal.sqlite: other daemons cannot read it"),
        ("backend: {mesos: {master: 'a:1'}}", "backend: give one of process and mesos"),
    ):
        file.write_text(text)
        with pytest.raises(BadSetting, match=re.escape(why)):
            minicluster_settings(options)


def left_with(line: list[str]) -> object:
    """The code with which a command that starts a process leaves it by itself."""
    with pytest.raises(SystemExit) as left:
        run_cli(root(PROCESSES), line)
    return left.value.code


def test_addresses_of_a_minicluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert str(loopback("[::1]:80", "--http")) == "[::1]:80"
    assert str(loopback("127.0.0.1:80", "--http")) == "127.0.0.1:80"
    assert left_with(["minicluster", "--grpc", "127.0.0.1:99999"]) == 64
    told = capsys.readouterr().err
    assert told == "peloton minicluster: --grpc: port 99999 is not between 0 and 65535\n"


def test_json_anywhere(peloton: Terminal) -> None:
    for line in (
        ["-j", "respool", "dump"],
        ["respool", "dump", "-j"],
        ["respool", "dump", "--json"],
    ):
        assert json.loads(peloton(*line).out)["resourcePools"][0]["id"] == {"value": "root"}


def test_a_login_is_read_from_its_file(peloton: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "auth.yaml"
    file.write_text("username: ann\npassword: 0123\n")
    file.chmod(0o644)
    printed = peloton("--basicAuthConfig", str(file), "respool", "dump")
    assert printed.code == 0
    assert printed.err == (
        f"warning: {file} holds secrets, and other users can open it (mode 0644): chmod 600 it\n"
    )
    file.chmod(0o600)
    assert peloton("--basicAuthConfig", str(file), "respool", "dump")[::2] == (0, "")
    metadata = peloton.cluster.calls[0].metadata
    assert (metadata["username"], metadata["password"]) == ("ann", "0123")
    file.write_text("username: ann\n")
    assert peloton("--basicAuthConfig", str(file), "respool", "dump").code == 65


def test_nobody_there() -> None:
    printed = typed("--api", NOBODY, "-t", PATIENT, "job", "get", "x")
    assert printed.code == 69
    assert printed.err.startswith("127.0.0.1:1 does not answer")
    assert "peloton minicluster" in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20s", 20), ("1m30s", 90), ("500ms", 0.5), ("1.5h", 5400), ("3", 3), (".5s", 0.5), (2, 2)],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        (":", (0, INSTANCE_MAX)),
        ("1:5", (1, 5)),
        ("3:", (3, INSTANCE_MAX)),
        (":7", (0, 7)),
        ("5", (5, 6)),
    ],
)
def test_ranges(text: str, pair: tuple[int, int]) -> None:
    assert from_to(text) == pair


def test_what_cannot_be_meant() -> None:
    for read, texts in (
        (from_to, ["", "-1:3", "a:b", "1:-2", "1:2:3", "5:1"]),
        (duration, ["", "5q", "s", "1m 30s"]),
        (labels, ["a", "a=b,c", "=b"]),
    ):
        for text in texts:
            with pytest.raises(click.BadParameter):
                read(text)


def test_lists() -> None:
    assert words("a, b,,c") == ("a", "b", "c")
    assert labels("a=b,c=d=e") == (("a", "b"), ("c", "d=e"))


def test_help_names_the_variable_that_says_which_cluster() -> None:
    assert "PELOTON_API" in typed("--help").out
    assert "FROM:TO" in typed("task", "list", "--help").out
    assert "kept for a while" in typed("task", "logs", "--help").out.replace("\n", " ")


@pytest.mark.parametrize("time", ["nan", "inf", "-5", "0", "0s", "9" * 400, "1e300", "-1s"])
def test_a_timeout_in_which_no_call_can_succeed_is_refused(time: str) -> None:
    printed = typed(f"--timeout={time}", "job", "query")
    assert (printed.code, printed.out) == (64, "") and "--timeout" in printed.err


@pytest.mark.parametrize("time", ["nan", "-5"])
def test_a_wait_within_no_time_is_refused(time: str) -> None:
    printed = typed("wait", "JOB", f"--within={time}")
    assert printed.code == 64 and "--within" in printed.err


@pytest.mark.parametrize("key", ["schl\u00fcssel", "a\nb", ""])
def test_a_request_key_that_cannot_be_sent_is_a_usage_error(
    peloton: Terminal, key: str, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text("name: a")
    printed = peloton("job", "create", "/hello", str(tmp_path / "job.yaml"), "--request-key", key)
    assert printed.code == 64 and "--request-key" in printed.err
    assert not peloton.cluster.calls


@pytest.mark.parametrize("field", ["username", "password"])
@pytest.mark.parametrize("value", ["j\u00f6rg", "[a]"])
def test_a_login_that_cannot_be_sent_names_the_field(
    peloton: Terminal, field: str, value: str, tmp_path: Path
) -> None:
    login = {"username": "a", "password": "b", field: value}
    (tmp_path / "login").write_text("\n".join(f"{name}: {text}" for name, text in login.items()))
    (tmp_path / "login").chmod(0o600)
    printed = peloton("--basicAuthConfig", str(tmp_path / "login"), "job", "query")
    text = f"{field}: must be printable ASCII characters\n"
    assert printed == (65, "", text)


def test_a_count_of_runs_is_no_negative_number(peloton: Terminal) -> None:
    printed = peloton("pod", "events", "JOB", "0", "--limit", "-1")
    assert printed.code == 64 and "--limit" in printed.err


@pytest.mark.parametrize(
    "words",
    [
        ["--username", "ann"],
        ["--password-file", "x"],
        ["--tls-ca", "x", "--tls-cert", "x"],
        ["--tls-ca", "x", "--tls-key", "x"],
        ["--tls-key", "x", "--tls-cert", "x"],
    ],
)
def test_credentials_that_go_together_are_given_together(
    peloton: Terminal, words: list[str]
) -> None:
    printed = peloton(*words, "job", "query")
    assert printed.code == 64 and words[-2] in printed.err, printed.err
    assert not peloton.cluster.calls


def test_a_line_to_type_next_begins_as_this_one_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that is not on PATH cannot be typed by its name."""
    ours, other = tmp_path / "ours" / "peloton", tmp_path / "other" / "peloton"
    for file in (ours, other):
        file.parent.mkdir()
        file.touch(0o755)
    python = str(ours.with_name("python"))
    module = [python, "-m", "peloton"]
    for path, script, as_module in (
        ("/nowhere", [str(ours)], module),
        (ours.parent, ["peloton"], ["peloton"]),
        (other.parent, [str(ours)], module),
    ):
        monkeypatch.setenv("PATH", str(path))
        assert program(str(ours)) == script
        assert program("/lib/peloton/__main__.py", python) == as_module
        assert program("/usr/bin/pytest") == ["peloton"]


def test_a_folder_named_as_the_package_hides_it_from_no_program(tmp_path: Path) -> None:
    """A clone in the home directory, and a program beside it."""
    (tmp_path / "peloton" / "docs").mkdir(parents=True)
    (tmp_path / "sample.py").write_text("import peloton.sdk\nprint(peloton.__version__)\n")
    done = subprocess.run(
        [sys.executable, "sample.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == (f"{__version__}\n", "")


def test_what_cannot_be_taken_along_is_said(
    peloton: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several managers may be anywhere; one cluster on loopback is here."""
    monkeypatch.setenv("VIRTUAL_ENV", "/only/here")
    words = ("run", "--dry-run", "--cpus", "1", "--mem", "1m")
    here = peloton(*words, "true")
    assert "/only/here" in here.out and "not taken along" not in here.err
    for options, out, err in (
        ((), False, True),
        (("--env", "VIRTUAL_ENV"), True, False),
        (("--clean-env",), False, False),
    ):
        elsewhere = peloton("-m", peloton.address, *words, *options, "true")
        assert elsewhere.code == 0, elsewhere.err
        assert ("/only/here" in elsewhere.out) == out
        assert ("not taken along" in elsewhere.err and "VIRTUAL_ENV" in elsewhere.err) == err
