"""Who may call a daemon: passwords, certificates and tokens by its settings, as clients see it.

Whole daemons in this process with simulated runs, called by the SDK and the command line.
"""

from __future__ import annotations

import contextlib
import json
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from peloton.assembly.access import ClientAccess
from peloton.assembly.daemon import Daemon
from peloton.failures import CannotStart
from peloton.processes.preflight import of_daemon
from peloton.runtime.adapters.grpc_certificates import ListenerPems
from peloton.sdk.client import Client
from peloton.sdk.credentials import (
    CallRoute,
    ClientTlsFiles,
    Credentials,
    Login,
    Routes,
    from_environment,
)
from peloton.sdk.errors import BadSpec, Denied, PelotonError, ServiceUnavailable
from peloton.settings import access_files
from peloton.settings.access_files import BadSecretFile, ClusterEntry
from peloton.settings.config import BadSetting
from peloton.settings.daemon import DaemonSettings, parse
from tests.adapters.pems import Authority
from tests.adapters.test_daemon_wiring import HOSTS, SHARDS, WAIT_S_MAX, Fleet
from tests.cli.terminal import typed
from tests.gateway.access.test_authentication import USERS

SECRET = "canary-7Qz-of-a-password"
HERE = {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"}
ANYWHERE = HERE | {"grpc": "0.0.0.0:0"}


def settings(folder: Path, **changes: Any) -> DaemonSettings:
    raw = {
        "cluster": "test",
        "listen": HERE,
        "journal": {"sqlite": {"folder": "data"}},
        "backend": {"simulated": {"hosts": HOSTS}},
        "shards": SHARDS,
    }
    return parse(raw | changes, folder)


def users_in(folder: Path, mode: int = 0o600) -> dict[str, str]:
    """The settings of BASIC, with the users of a file."""
    file = folder / "users.yaml"
    users = [user | {"password": SECRET} for user in USERS["users"]]  # type: ignore[operator]
    file.write_text(yaml.safe_dump(USERS | {"users": users}))
    file.chmod(mode)
    return {"type": "BASIC", "file": "users.yaml"}


@contextlib.contextmanager
def running(wanted: DaemonSettings) -> Iterator[Daemon]:
    daemon = Daemon(wanted, failed=lambda: None)
    try:
        daemon.greeted.result(WAIT_S_MAX)
        yield daemon
    finally:
        daemon.stop()


def at(daemon: Daemon) -> str:
    return f"127.0.0.1:{daemon.grpc.port}"


def answered(address: str, credentials: Credentials | None = None) -> bool:
    with Client(address, credentials=credentials, timeout_s=20.0) as client:
        client.jobs.query()
        return True


# ---- passwords ----


def test_users_of_a_file_call_with_their_passwords(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(settings(tmp_path, auth=users_in(tmp_path))) as daemon:
        ann = Credentials(login=Login("ann", SECRET))
        assert answered(at(daemon), ann)
        with pytest.raises(Denied, match="invalid Username/Password combination"):
            answered(at(daemon), Credentials(login=Login("ann", SECRET[:-1])))
        with pytest.raises(Denied, match="invalid Username/Password combination"):
            answered(at(daemon))
        with pytest.raises(Denied, match=r"not permitted to call Query in peloton\.api\.v0\.job"):
            answered(at(daemon), Credentials(login=Login("bob", SECRET)))
        assert access_files.entry_of(at(daemon)) is None, "there is no token"
        assert not (tmp_path / "data" / "api.sock").exists()
        password = tmp_path / "password"
        password.write_text(f"{SECRET}\n")
        password.chmod(0o600)
        login = tmp_path / "login.yaml"
        login.write_text(yaml.safe_dump({"username": "ann", "password": SECRET}))
        named = ["--username", "ann", "--password-file", str(password)]
        for words in (named, ["--basicAuthConfig", str(login)]):
            done = typed("--api", at(daemon), *words, "job", "query")
            assert done.code == 0, done.err
        assert typed("--api", at(daemon), "job", "query").code == 77
        with Client(at(daemon), credentials=ann) as client:
            pool = client.pools.create("/p", {"name": "p", "resources": []})
            assert "basic:ann@" in str(client.ops.story(f"respool/{pool}"))
    mine = {"users.yaml", "password", "login.yaml"}
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name not in mine:
            assert SECRET.encode() not in path.read_bytes(), path
    printed = capsys.readouterr()
    assert SECRET not in printed.out + printed.err


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620])
def test_a_file_of_users_that_others_can_open_is_refused(tmp_path: Path, mode: int) -> None:
    wanted = settings(tmp_path, auth=users_in(tmp_path, mode))
    with pytest.raises(CannotStart, match=r"^auth\.file: .*users\.yaml holds secrets.*chmod 600"):
        Daemon(wanted, failed=lambda: None)
    assert not (tmp_path / "data").exists(), "before anything was made"
    assert [text for text in of_daemon(wanted) if text.startswith("auth.file: ")]


def test_a_file_of_users_with_mistakes_is_refused_without_its_secrets(tmp_path: Path) -> None:
    auth = users_in(tmp_path)
    file = tmp_path / "users.yaml"
    for text in (
        file.read_text().replace("role: readers", "role: writers", 1),
        file.read_text() + f"\n  - username: x\n password: {SECRET}\n",
        f"users: [{{username: a, password: {SECRET}}}]\ninternal_user: a\nusers: [{SECRET}]",
        f"{SECRET}",
        f"- {SECRET}\n: {SECRET}: {SECRET}",
        f"{SECRET}: 1\nusers: [{{{SECRET}: x, {SECRET}-2: y}}]",
        f"users: [{{username: a, role: {SECRET}: {SECRET}}}]",
    ):
        file.write_text(text)
        with pytest.raises(CannotStart, match=r"^auth\.file: .*users\.yaml") as caught:
            Daemon(settings(tmp_path, auth=auth), failed=lambda: None)
        assert SECRET not in str(caught.value)


# ---- beyond loopback ----


def refusal(folder: Path, **changes: Any) -> str:
    with pytest.raises(BadSetting) as caught:
        settings(folder, **changes)
    return str(caught.value)


TLS_FILES = {"certificate": "d.pem", "key": "d.key"}
MUTUAL = TLS_FILES | {"client_ca": "ca.pem"}
BASIC = {"type": "BASIC", "file": "users.yaml"}


@pytest.mark.parametrize("auth", [None, {"type": "NOOP"}, BASIC, BASIC | {"plain_text": True}])
@pytest.mark.parametrize("tls", [None, TLS_FILES, MUTUAL])
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_beyond_loopback_callers_prove_who_they_are_and_send_nothing_in_clear(
    tmp_path: Path, auth: Any, tls: Any, is_open: bool, host: str
) -> None:
    listen: dict[str, Any] = HERE | {"grpc": f"{host}:0", "open_loopback": is_open}
    listen |= {"tls": tls} if tls is not None else {}
    changes = {"listen": listen} | ({"auth": auth} if auth is not None else {})
    basic, mutual = auth is not None and auth["type"] == "BASIC", tls is MUTUAL
    proven = basic or mutual
    private = tls is not None or bool(auth and auth.get("plain_text"))
    if (host == "127.0.0.1" or (proven and private)) and not (is_open and proven):
        assert settings(tmp_path, **changes).callers.is_open == (
            not proven and (is_open or auth is not None)
        )
        return
    text = refusal(tmp_path, **changes)
    if is_open and proven:
        assert "listen.open_loopback: not with" in text
    else:
        assert text.startswith(f"listen.grpc: {host} is not a loopback address.")
        assert "listen.tls" in text and ("auth.plain_text" in text) == basic


@pytest.mark.parametrize(
    ("auth", "text"),
    [
        ({"type": "basic"}, "auth.type: 'basic' must be NOOP or BASIC"),
        ({"type": "BASIC"}, "auth.file: required with auth.type BASIC"),
        ({"file": "x"}, "auth.file: only with auth.type BASIC"),
        ({"type": "NOOP", "plain_text": True}, "auth.plain_text: only with auth.type BASIC"),
        ({"type": "NOOP", "token_file": "x"}, "auth.token_file: not with auth.type"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    tmp_path: Path, auth: dict[str, Any], text: str
) -> None:
    assert text in refusal(tmp_path, auth=auth)


def test_mutual_tls_serves_whoever_has_a_certificate(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    ours, ann = authority.issue("daemon"), authority.issue("ann", says="DNS:ann.example.org")
    mallory = other.issue("mallory", says="DNS:ann.example.org")
    files = {"certificate": ours.certificate, "key": ours.key, "client_ca": authority.ca}
    tls = {field: str(path) for field, path in files.items()}
    with running(settings(tmp_path, listen=ANYWHERE | {"tls": tls})) as daemon:
        ca = str(authority.ca)
        known = ClientTlsFiles(ca, str(ann.certificate), str(ann.key))
        with Client(at(daemon), credentials=Credentials(tls=known)) as client:
            pool = client.pools.create("/p", {"name": "p", "resources": []})
            assert "tls:ann.example.org@127.0.0.1" in str(client.ops.story(f"respool/{pool}"))
        words = ["--tls-ca", ca, "--tls-cert", known.certificate, "--tls-key", known.key]
        done = typed("--api", at(daemon), *words, "job", "query")
        assert done.code == 0, done.err
        stranger = ClientTlsFiles(ca, str(mallory.certificate), str(mallory.key))
        for tried in (ClientTlsFiles(ca), stranger, None):
            with pytest.raises(ServiceUnavailable):
                answered(at(daemon), Credentials(tls=tried))
        assert access_files.entry_of(at(daemon)) is None, "there is no token"


def test_passwords_over_tls_beyond_loopback(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    ours = authority.issue("daemon")
    tls = {"certificate": str(ours.certificate), "key": str(ours.key)}
    wanted = settings(tmp_path, listen=ANYWHERE | {"tls": tls}, auth=users_in(tmp_path))
    with running(wanted) as daemon:
        known = Credentials(login=Login("ann", SECRET), tls=ClientTlsFiles(str(authority.ca)))
        assert answered(at(daemon), known)
        with pytest.raises(Denied):
            answered(at(daemon), known._replace(login=Login("ann", "x")))


@pytest.mark.parametrize("field", ["certificate", "key", "client_ca"])
def test_a_missing_certificate_is_refused_before_anything_is_made(
    tmp_path: Path, field: str
) -> None:
    for name in MUTUAL.values():
        (tmp_path / name).write_text("x")
    (tmp_path / "d.key").chmod(0o600)
    (tmp_path / MUTUAL[field]).unlink()
    wanted = settings(tmp_path, listen=HERE | {"tls": MUTUAL})
    with pytest.raises(CannotStart, match=rf"^listen\.tls: .*/{MUTUAL[field]}: No such file"):
        Daemon(wanted, failed=lambda: None)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("wrong", ["certificate", "key", "client_ca"])
def test_certificates_that_do_not_fit_are_named(tmp_path: Path, wrong: str) -> None:
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    ours, theirs = authority.issue("daemon"), other.issue("daemon")
    tls = {"certificate": ours.certificate, "key": ours.key, "client_ca": authority.ca}
    others = {"certificate": theirs.certificate, "key": theirs.key, "client_ca": ours.key}
    tls[wrong] = others[wrong]
    listen = HERE | {"tls": {field: str(path) for field, path in tls.items()}}
    wanted = settings(tmp_path, listen=listen)
    (text,) = [one for one in of_daemon(wanted) if one.startswith("listen.tls: ")]
    assert str(tls[wrong]) in text
    with pytest.raises(CannotStart, match="^listen.tls: "):
        Daemon(wanted, failed=lambda: None)


@pytest.mark.parametrize("mode", [0o644, 0o620])
def test_a_key_that_others_can_open_is_refused(tmp_path: Path, mode: int) -> None:
    ours = Authority(tmp_path / "ca").issue("daemon")
    ours.key.chmod(mode)
    tls = {"certificate": str(ours.certificate), "key": str(ours.key)}
    wanted = settings(tmp_path, listen=HERE | {"tls": tls})
    assert [text for text in of_daemon(wanted) if text.startswith("listen.tls.key: ")]
    with pytest.raises(CannotStart, match=r"^listen\.tls\.key: .*daemon\.key holds secrets"):
        Daemon(wanted, failed=lambda: None)
    ours.key.chmod(0o640)  # the group of those who may read keys
    with running(wanted):
        pass


# ---- what clients send where ----


def test_no_text_of_an_object_has_its_secrets() -> None:
    login = Login("ann", SECRET)
    route = CallRoute("127.0.0.1:1", (("username", "ann"), ("password", SECRET)))
    tls = ListenerPems(b"certificate", SECRET.encode(), None)
    for one in (login, Credentials(login=login), route, tls, [tls]):
        assert SECRET not in f"{one} {one!r} {one!s}"
    assert "ann" in repr(login) and "password" in repr(route) and "127.0.0.1:1" in repr(route)


@pytest.mark.parametrize("address", ["10.0.0.7:5397", "example.org:5397", "localhost.evil.org:1"])
def test_a_secret_is_not_sent_in_clear_to_another_machine(address: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    made = access_files.made_token(token)
    login = Credentials(login=Login("ann", SECRET))
    with pytest.raises(Denied, match="in clear.*--tls-ca.*--plain-text"):
        Routes(login).to(address)
    allowed = Routes(login._replace(plain_text=True)).to(address)
    assert ("password", SECRET) in allowed.metadata
    assert Routes(Credentials(token_file=str(token))).to(address).metadata == ()
    near = Routes(Credentials(token_file=str(token))).to("localhost:5397")
    assert near.metadata == (("authorization", f"Bearer {made}"),)


def test_the_environment_names_credentials_for_programs(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("two words\nand a line that does not count\n")
    password.chmod(0o600)
    named = {
        "PELOTON_USERNAME": "ann",
        "PELOTON_PASSWORD_FILE": str(password),
        "PELOTON_TOKEN_FILE": "t",
        "PELOTON_TLS_CA": "ca.pem",
        "PELOTON_PLAIN_TEXT": "true",
    }
    assert from_environment(named) == Credentials(
        Login("ann", "two words"), "t", ClientTlsFiles("ca.pem"), plain_text=True
    )
    assert from_environment({}) == Credentials()
    with pytest.raises(BadSpec, match="PELOTON_PASSWORD_FILE go together"):
        from_environment({"PELOTON_USERNAME": "ann"})


# ---- tokens of daemons ----


def test_daemons_of_a_fleet_share_the_token_of_their_user(tmp_path: Path) -> None:
    fleet = Fleet()
    try:
        one, two = fleet.start("one"), fleet.start("two")
        for daemon in (one, two):
            daemon.greeted.result(WAIT_S_MAX)
            assert answered(at(daemon))
        entries = [access_files.entry_of(at(daemon)) for daemon in (one, two)]
        (file,) = {entry.token_file for entry in entries if entry is not None}
        assert Path(file) == access_files.state_folder() / "token"
        assert stat.S_IMODE(Path(file).stat().st_mode) == 0o600
    finally:
        fleet.close()
    assert [access_files.entry_of(at(daemon)) for daemon in (one, two)] == [None, None]


def test_a_token_file_may_be_named_and_files_are_for_who_has_it(tmp_path: Path) -> None:
    with running(settings(tmp_path, auth={"token_file": "shared"})) as daemon:
        token = access_files.read_token(tmp_path / "shared")
        assert not (tmp_path / "data" / "token").exists()
        assert answered(at(daemon), Credentials(token_file=str(tmp_path / "shared")))
        url = f"http://{daemon.http}/files/x/stdout"
        for bearer, code in ((token, 404), ("x" * 43, 403)):
            sent = urllib.request.Request(url, headers={"Authorization": f"Bearer {bearer}"})
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(sent, timeout=20)
            assert caught.value.code == code
            caught.value.close()


def test_noop_is_open_and_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(settings(tmp_path, auth={"type": "NOOP"})) as daemon:
        assert answered(at(daemon), Credentials())
        assert daemon.ready_text.startswith("ready: grpc (open to all users of this machine) ")
        with urllib.request.urlopen(f"http://{daemon.http}/ready?format=json", timeout=20) as got:
            found = json.loads(got.read())
        assert found["ready"] and [one["component"] for one in found["reasons"]] == ["access"]
    assert "warning: open to all users of this machine" in capsys.readouterr().err


@pytest.mark.parametrize("reject", [[], ["peloton.api.v0.job.JobManager:Delete"]])
def test_a_default_user_who_may_call_everything_is_open_and_warns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reject: list[str]
) -> None:
    wanted = settings(tmp_path, auth=users_in(tmp_path))
    file, role = tmp_path / "users.yaml", {"role": "anybody", "accept": ["*"], "reject": reject}
    users = [one for one in USERS["users"] if "username" in one]  # type: ignore[attr-defined]
    raw = USERS | {"users": [*users, {"role": "anybody"}], "roles": [*USERS["roles"], role]}  # type: ignore[misc]
    file.write_text(yaml.safe_dump(raw))
    with running(wanted) as daemon:
        assert answered(at(daemon), Credentials())
        assert daemon.ready_text.startswith("ready: grpc (open to all who reach its port) ")
        with urllib.request.urlopen(f"http://{daemon.http}/ready?format=json", timeout=20) as got:
            (found,) = json.loads(got.read())["reasons"]
        assert found["component"] == "access" and "auth.file" in found["text"]
    assert "warning: open to all who reach its port: " in capsys.readouterr().err


def fleet_warnings(folder: Path, **changes: Any) -> tuple[list[str], list[str]]:
    """What a daemon of a fleet warns of, and the parts that its health tells of."""
    raw = {
        "cluster": "test",
        "listen": HERE,
        "journal": {"cassandra": {"contacts": ["127.0.0.1"]}},
        "zookeeper": {"hosts": ["127.0.0.1:2181"]},
        "backend": {"simulated": {"hosts": HOSTS}},
    }
    texts = list[str]()
    found = ClientAccess(parse(raw | changes, folder), report=texts.append)
    return texts, [note.component for note in found.notes]


def test_an_exchange_without_tls_is_open_and_warns(tmp_path: Path) -> None:
    basic = users_in(tmp_path)
    (text,), noted = fleet_warnings(tmp_path, auth=basic)
    assert "listen.exchange" in text and text.startswith("warning: ") and "Give tls" in text
    assert noted == ["exchange"]
    _, noted = fleet_warnings(tmp_path, auth={"type": "NOOP"})
    assert noted == ["access", "exchange"]
    ours = Authority(tmp_path / "ca").issue("daemon")
    files = {"ca": tmp_path / "ca.pem", "certificate": ours.certificate, "key": ours.key}
    tls = {name: str(path) for name, path in files.items()}
    assert fleet_warnings(tmp_path, auth=basic, tls=tls) == ([], [])
    alone = ClientAccess(settings(tmp_path, auth=basic), report=lambda text: None)
    assert alone.notes == (), "it has no exchange"


def test_one_authority_for_clients_and_daemons_warns(tmp_path: Path) -> None:
    daemons, clients = Authority(tmp_path / "daemons"), Authority(tmp_path / "clients")
    ours = daemons.issue("daemon")
    pair = {"certificate": str(ours.certificate), "key": str(ours.key)}
    both, copy = tmp_path / "both.pem", tmp_path / "copy.pem"
    both.write_bytes(clients.ca.read_bytes() + daemons.ca.read_bytes())
    copy.write_bytes(b"# a comment\r\n" + daemons.ca.read_bytes().replace(b"\n", b"\r\n"))
    for client_ca, warns in ((daemons.ca, 1), (copy, 1), (both, 1), (clients.ca, 0)):
        listen = HERE | {"tls": pair | {"client_ca": str(client_ca)}}
        texts, noted = fleet_warnings(tmp_path, listen=listen, tls=pair | {"ca": str(daemons.ca)})
        assert len(texts) == warns and not noted
        assert all("listen.tls.client_ca" in text and "tls.ca" in text for text in texts)


def test_a_socket_of_a_living_process_is_not_replaced(tmp_path: Path) -> None:
    assert (made := settings(tmp_path)).journal.sqlite is not None
    with running(made):
        pass
    path = tmp_path / "data" / "api.sock"
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(path))
        living.listen(1)
        with pytest.raises(CannotStart, match="api.sock is busy: another process listens there"):
            Daemon(made, failed=lambda: None)
        assert path.exists()
    with running(made) as daemon:  # it was left behind
        assert answered(f"unix:{path}") and answered(at(daemon))
    assert not path.exists()


def test_a_folder_whose_name_is_too_long_for_a_socket_has_a_token(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    with running(settings(deep)) as daemon:
        entry = access_files.entry_of(at(daemon))
        assert entry is not None and not entry.socket
        assert answered(at(daemon))
    assert not (deep / "data" / "api.sock").exists()


# ---- the files ----


def test_an_entry_counts_only_for_its_writer_while_that_lives(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as other, contextlib.ExitStack() as at_end:
        at_end.callback(other.kill)
        born = access_files.birth_of(other.pid)
        here = access_files.pid_space(), access_files.boot_id()
        living = ClusterEntry("127.0.0.1:1", other.pid, born, "t", "s", *here)
        elsewhere = living._replace(address="127.0.0.1:4", space="pid:[1]")
        later = living._replace(address="127.0.0.1:2", born=f"{born}0")
        access_files.publish([living, later, elsewhere], tmp_path)
        assert access_files.entry_of("127.0.0.1:1", tmp_path) == living
        assert access_files.entry_of("localhost:1", tmp_path) == living
        assert access_files.entry_of("127.0.0.1:2", tmp_path) is None, "a later process"
        assert access_files.entry_of("127.0.0.1:4", tmp_path) is None, "in another container"
        assert access_files.entry_of("10.0.0.1:1", tmp_path) is None
        assert access_files.entry_of("[::1]:1", tmp_path) is None, "another listener may be there"
        access_files.withdraw([living._replace(pid=1)], tmp_path)
        assert access_files.entry_of("127.0.0.1:1", tmp_path) == living, "that of another"
        (tmp_path / "clusters" / "127.0.0.1:1").chmod(0o666)
        assert access_files.entry_of("127.0.0.1:1", tmp_path) is None, "anybody may have written it"
        (tmp_path / "clusters" / "127.0.0.1:1").chmod(0o600)
    assert access_files.entry_of("127.0.0.1:1", tmp_path) is None
    (tmp_path / "clusters" / "127.0.0.1:3").write_text("[[[")
    assert access_files.entry_of("127.0.0.1:3", tmp_path) is None
    access_files.publish([], tmp_path)
    left = sorted(path.name for path in (tmp_path / "clusters").iterdir())
    assert left == ["127.0.0.1:3", "127.0.0.1:4"], "what ended, as far as can be seen from here"


@pytest.mark.parametrize("text", ["", "short", "two words of a token that is long", "x" * 2000])
def test_a_file_that_is_no_token_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(BadSecretFile, match=str(file)) as caught:
        access_files.made_token(file)
    assert not text or text not in str(caught.value)
    assert file.read_text() == text, "nor is it replaced"
    with pytest.raises(BadSpec):
        Client("127.0.0.1:1", credentials=Credentials(token_file=str(file)))


def test_of_daemons_that_make_one_token_at_once_all_have_the_same(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "token"
    program = (
        "import sys; from pathlib import Path; "
        "from peloton.settings.access_files import made_token; "
        "print(made_token(Path(sys.argv[1])))"
    )
    line = [sys.executable, "-c", program, str(file)]
    several = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    made = {process.communicate(timeout=60)[0] for process in several}
    assert made == {file.read_text()} and len(made.pop()) > 40
    assert sorted(path.name for path in file.parent.iterdir()) == ["token"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_who_is_known_by_a_password_may_do_what_the_rules_say(tmp_path: Path) -> None:
    """From the password over the role to the permission, the creator and the audit log."""
    users = [{"username": name, "password": SECRET, "role": name} for name in ("boss", "ann")]
    everything = [{"role": role, "accept": ["*"]} for role in ("boss", "ann", "internal")]
    internal = {"username": "internal", "password": SECRET, "role": "internal"}
    (tmp_path / "users.yaml").write_text(
        yaml.safe_dump(
            {"users": [*users, internal], "roles": everything, "internal_user": "internal"}
        )
    )
    (tmp_path / "users.yaml").chmod(0o600)
    (tmp_path / "access.yaml").write_text(
        "pools:\n  /: {administer: ['role:boss']}\n  /mine: {submit: [ann]}\n"
    )
    wanted = settings(tmp_path, auth=BASIC, access={"file": "access.yaml"})
    boss, ann = (Credentials(login=Login(name, SECRET)) for name in ("boss", "ann"))
    spec = {
        "name": "n",
        "instanceCount": 1,
        "defaultConfig": {"command": {"shell": True, "value": "true"}},
    }
    with (
        running(wanted) as daemon,
        Client(at(daemon), credentials=boss, timeout_s=20.0) as root,
        Client(at(daemon), credentials=ann, timeout_s=20.0) as user,
    ):
        for name in ("mine", "theirs"):
            root.pools.create(f"/{name}", {"name": name})
        with pytest.raises(Denied, match="ann has no permission to administer in pool /mine"):
            user.pools.create("/mine/x", {"name": "x"})
        mine = user.jobs.create("/mine", spec).jobId.value
        theirs = root.jobs.create("/theirs", spec).jobId.value
        assert [one.id.value for one in user.jobs.query().results] == [mine]
        assert {one.id.value for one in root.jobs.query().results} == {mine, theirs}
        with pytest.raises(PelotonError, match="not found"):
            user.jobs.get(theirs)
        user.jobs.stop(mine)
    lines = (tmp_path / "data" / "audit.log").read_text()
    assert SECRET not in lines
    found = [json.loads(line) for line in lines.splitlines()]
    assert {(line["who"], line["how"], line["role"]) for line in found} == {
        ("boss", "basic", "boss"),
        ("ann", "basic", "ann"),
    }
    assert found[-1]["objects"] == {"job": mine} and found[-1]["answer"] == "OK"


@pytest.mark.parametrize("opened", [{"listen": HERE | {"open_loopback": True}}, {"auth": "NOOP"}])
def test_with_rules_files_need_a_link_also_where_the_daemon_is_open(
    tmp_path: Path, opened: dict[str, Any]
) -> None:
    """BrowseSandbox asks for permissions, and its link is the proof of its answer."""
    (tmp_path / "rules.yaml").write_text("pools:\n  /: {administer: [root], see: ['*']}\n")
    changes = {"auth": {"type": "NOOP"}} if "auth" in opened else opened
    for more, code in (({}, 404), ({"access": {"file": "rules.yaml"}}, 403)):
        with running(settings(tmp_path, **changes, **more)) as daemon:
            url = f"http://127.0.0.1:{daemon.http.port}/files/some-run/stdout"
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(url, timeout=WAIT_S_MAX)
            assert caught.value.code == code
