"""A daemon that is told to read its files anew: users, tokens and certificates of one that runs.

Whole daemons in this process; what becomes of the signal is in tests/cli/test_foreground.py, and a
process that gets it at the end of this page.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from peloton.assembly.daemon import Daemon
from peloton.runtime.adapters.grpc_exchange import GrpcExchange, Tls
from peloton.sdk.client import Client
from peloton.sdk.credentials import ClientTlsFiles, Credentials, Login
from peloton.sdk.errors import Denied, ServiceUnavailable
from peloton.settings import access_files
from peloton.settings.config import BadSetting
from peloton.settings.daemon import DaemonSettings
from tests.adapters.listener import Diary
from tests.adapters.pems import Authority
from tests.adapters.test_client_access import HERE, answered, at, running, settings
from tests.adapters.test_daemon_wiring import HOSTS, SHARDS, WAIT_S_MAX, Fleet, until
from tests.conftest import ROOT
from tests.gateway.access.test_authentication import USERS

OLD, NEW = "the-password-of-monday", "the-password-of-tuesday"


def users(file: Path, *passwords: str) -> None:
    """One user, who may do everything; the second password is valid as well."""
    names = ("password", "second_password")
    ann = {"username": "ann", "role": "all"} | dict(zip(names, passwords, strict=False))
    file.write_text(yaml.safe_dump(USERS | {"users": [ann]}))
    file.chmod(0o600)


def ann(password: str) -> Credentials:
    return Credentials(login=Login("ann", password))


def notes(daemon: Daemon) -> str:
    with urllib.request.urlopen(f"http://{daemon.http}/health", timeout=WAIT_S_MAX) as answer:
        return str(answer.read().decode())


def tls_of(files: Tls, folder: Path, name: str) -> dict[str, str]:
    """Copies under the names that the settings have, with the modes that they must have."""
    for source, end in ((files.certificate, "pem"), (files.key, "key")):
        shutil.copy(source, folder / f"{name}.{end}")
        (folder / f"{name}.{end}").chmod(0o600)
    return {"certificate": f"{name}.pem", "key": f"{name}.key"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pems") / "ours")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pems") / "other")


# ---- what is taken ----


def test_a_password_is_rotated_while_both_are_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "users.yaml"
    users(file, OLD)
    wanted = settings(tmp_path, auth={"type": "BASIC", "file": "users.yaml"})
    with running(wanted) as daemon:
        assert answered(at(daemon), ann(OLD))
        for passwords, valid, refused in (
            ((NEW, OLD), (OLD, NEW), ()),
            ((NEW,), (NEW,), (OLD,)),
        ):
            users(file, *passwords)
            assert answered(at(daemon), ann(OLD)), "nobody was told yet"
            daemon.reload(lambda: wanted)
            assert "reload: in force: auth.file\n" in capsys.readouterr().err
            for password in valid:
                assert answered(at(daemon), ann(password))
            for password in refused:
                with pytest.raises(Denied, match="invalid Username/Password"):
                    answered(at(daemon), ann(password))
        daemon.reload(lambda: wanted)
        assert capsys.readouterr().err.endswith("reload: no file has changed\n")


def test_a_file_of_users_under_another_name_is_taken(tmp_path: Path) -> None:
    users(tmp_path / "one.yaml", OLD)
    users(tmp_path / "two.yaml", NEW)
    auth = {"type": "BASIC"}
    one, two = (settings(tmp_path, auth=auth | {"file": f"{n}.yaml"}) for n in ("one", "two"))
    with running(one) as daemon:
        daemon.reload(lambda: two)
        assert answered(at(daemon), ann(NEW))
        users(tmp_path / "two.yaml", OLD)
        daemon.reload(lambda: two)
        assert answered(at(daemon), ann(OLD)), "from now on that one is read"


def test_a_token_is_rotated_while_both_are_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy, file = tmp_path / "copy", tmp_path / "token"
    wanted = settings(tmp_path, auth={"token_file": "token"}, journal={"sqlite": {"folder": "d"}})
    with running(wanted) as daemon:
        daemon.reload(lambda: wanted)
        assert capsys.readouterr().err.endswith("reload: no file has changed\n")
        old = access_files.read_token(file)
        access_files.made_token(copy)
        new = access_files.read_token(copy)

        def knows(token: str) -> bool:
            asked = urllib.request.Request(
                f"http://{daemon.http}/files/no-run/stdout",
                headers={"Authorization": f"Bearer {token}"},
            )
            with pytest.raises(urllib.error.HTTPError) as answer:  # there is no such file
                urllib.request.urlopen(asked, timeout=WAIT_S_MAX)
            answer.value.close()
            return answer.value.code != 403

        assert (knows(old), knows(new)) == (True, False)
        file.write_text(f"{new}\n{old}\n")
        daemon.reload(lambda: wanted)
        assert (knows(old), knows(new)) == (True, True)
        assert access_files.read_token(file) == new, "what clients of our user show"
        file.write_text(f"{new}\n")
        daemon.reload(lambda: wanted)
        assert (knows(old), knows(new)) == (False, True)
        file.unlink()
        daemon.reload(lambda: wanted)
        assert (knows(new), knows(access_files.read_token(file))) == (False, True)


def test_a_client_that_is_there_takes_the_token_that_was_replaced(tmp_path: Path) -> None:
    """Over TCP: the socket needs no token."""
    folder = tmp_path / ("x" * 100)  # no room for the name of a socket
    folder.mkdir()
    wanted = settings(folder)
    named = tmp_path / "named"
    with running(wanted) as daemon:
        shutil.copy(folder / "data" / "token", named)
        credentials = Credentials(token_file=str(named))
        with Client(at(daemon)) as found, Client(at(daemon), credentials=credentials) as told:
            found.jobs.query()
            told.jobs.query()
            (folder / "data" / "token").unlink()
            daemon.reload(lambda: wanted)
            found.jobs.query()
            with pytest.raises(Denied, match="wrong token"):
                told.jobs.query()
            shutil.copy(folder / "data" / "token", named)
            told.jobs.query()


def test_certificates_of_the_listener_change_for_new_connections(
    tmp_path: Path, authority: Authority, other: Authority
) -> None:
    listen = HERE | {"tls": tls_of(authority.issue("one"), tmp_path, "daemon")}
    users(tmp_path / "users.yaml", OLD)
    wanted = settings(tmp_path, listen=listen, auth={"type": "BASIC", "file": "users.yaml"})
    trusts = [ann(OLD)._replace(tls=ClientTlsFiles(str(one.ca))) for one in (authority, other)]
    with running(wanted) as daemon, Client(at(daemon), credentials=trusts[0]) as there:
        there.jobs.query()
        with pytest.raises(ServiceUnavailable):
            answered(at(daemon), trusts[1])
        tls_of(other.issue("two"), tmp_path, "daemon")
        daemon.reload(lambda: wanted)
        assert answered(at(daemon), trusts[1])
        with pytest.raises(ServiceUnavailable):
            answered(at(daemon), trusts[0])
        there.jobs.query()  # its connection is that of before


def test_health_and_clients_name_a_certificate_that_has_expired(
    tmp_path: Path, authority: Authority
) -> None:
    tls = tls_of(authority.issue("one"), tmp_path, "daemon") | {"client_ca": str(authority.ca)}
    wanted = settings(tmp_path, listen=HERE | {"tls": tls})
    old = authority.expired("old")
    shown = f"tls.certificate: {old.certificate} expired on 2020-01-02 00:00 UTC"
    files = ClientTlsFiles(str(old.ca), str(old.certificate), str(old.key))
    with running(wanted) as daemon:
        with pytest.raises(ServiceUnavailable, match=re.escape(shown)):
            answered(at(daemon), Credentials(tls=files))
        assert "certificates" not in notes(daemon)
        tls_of(old, tmp_path, "daemon")
        daemon.reload(lambda: wanted)
        file = tmp_path / "daemon.pem"
        assert f"listen.tls.certificate: {file} expired on 2020-01-02" in notes(daemon)


def test_the_authority_of_clients_changes(
    tmp_path: Path, authority: Authority, other: Authority
) -> None:
    shutil.copy(authority.ca, tmp_path / "clients.pem")
    tls = tls_of(authority.issue("one"), tmp_path, "daemon") | {"client_ca": "clients.pem"}
    wanted = settings(tmp_path, listen=HERE | {"tls": tls})

    def shows(files: Tls) -> Credentials:
        pair = str(files.certificate), str(files.key)
        return Credentials(tls=ClientTlsFiles(str(authority.ca), *pair))

    old, new = shows(authority.issue("ann")), shows(other.issue("ann"))
    with running(wanted) as daemon:
        assert answered(at(daemon), old)
        both = authority.ca.read_text() + other.ca.read_text()
        for text, good in ((both, (old, new)), (other.ca.read_text(), (new,))):
            (tmp_path / "clients.pem").write_text(text)
            daemon.reload(lambda: wanted)
            for one in good:
                assert answered(at(daemon), one)
        with pytest.raises(ServiceUnavailable):
            answered(at(daemon), old)


@pytest.fixture
def exchanges() -> Iterator[list[GrpcExchange]]:
    made: list[GrpcExchange] = []
    yield made
    for one in made:
        one.stop()


def test_daemons_know_each_other_while_their_authority_is_replaced(
    tmp_path: Path, authority: Authority, other: Authority, exchanges: list[GrpcExchange]
) -> None:
    """First all accept both authorities, then one after the other shows the new certificate."""
    both = tmp_path / "both.pem"
    both.write_text(authority.ca.read_text() + other.ca.read_text())
    old, new = authority.issue("a"), other.issue("a")
    a, b = (GrpcExchange("127.0.0.1:0", tls=old) for _ in range(2))
    exchanges += [a, b]
    heard = Diary()
    a.listen(Diary())
    b.listen(heard)
    for of_a, of_b in (
        (old, old), (old._replace(ca=both), old), (old._replace(ca=both), old._replace(ca=both)),
        (new._replace(ca=both), old._replace(ca=both)), (new._replace(ca=both), new), (new, new),
    ):  # fmt: skip
        a.replace(of_a)
        b.replace(of_b)
        count = len(heard.frames)
        a.send(a.dial(b.address), b"hello")
        heard.wait(lambda count=count: len(heard.frames) == count + 1)
    b.replace(old)
    stranger = Diary()
    c = GrpcExchange("127.0.0.1:0", tls=new._replace(ca=both))
    exchanges.append(c)
    c.listen(stranger)
    stream = c.dial(b.address)
    stranger.wait(lambda: stream in dict(stranger.ends))


class Bridging:
    """Certificates of the other authority, for daemons that accept those of both."""

    def __init__(self, other: Authority, both: Path) -> None:
        self._other, self._both = other, both

    def issue(self, name: str) -> Tls:
        return self._other.issue(name)._replace(ca=self._both)


def test_a_daemon_of_a_fleet_accepts_another_authority_once_it_is_told(
    tmp_path: Path, other: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Authority(tmp_path / "first")
    both = tmp_path / "both.pem"
    both.write_text(first.ca.read_text() + other.ca.read_text())
    fleet = Fleet(first)
    try:
        one = fleet.start("one")
        until(fleet.settled)
        before = one._settings
        assert before.tls is not None
        wanted = replace(before, tls=replace(before.tls, ca=both))
        one.reload(lambda: wanted)
        assert "reload: in force: tls.ca\n" in capsys.readouterr().err
        fleet._authority = Bridging(other, both)  # type: ignore[assignment]
        fleet.start("two")
        until(fleet.settled)
    finally:
        fleet.close()


# ---- what is refused ----


def test_of_one_bad_file_nothing_is_taken_and_health_says_so(
    tmp_path: Path,
    authority: Authority,
    other: Authority,
    capsys: pytest.CaptureFixture[str],
) -> None:
    listen = HERE | {"tls": tls_of(authority.issue("one"), tmp_path, "daemon")}
    users(tmp_path / "users.yaml", OLD)
    wanted = settings(tmp_path, listen=listen, auth={"type": "BASIC", "file": "users.yaml"})
    trusts = ann(OLD)._replace(tls=ClientTlsFiles(str(authority.ca)))
    with running(wanted) as daemon:
        tls_of(other.issue("two"), tmp_path, "daemon")
        (tmp_path / "users.yaml").write_text("users: [{username: ann, password: 12}]\n")
        daemon.reload(lambda: wanted)
        said = capsys.readouterr().err
        assert "users[0].password: must be a text, in quotes" in said
        assert "reload: nothing was taken: what was read before it is still in force" in said
        assert answered(at(daemon), trusts), "neither the users nor the certificate"
        found = json.dumps(notes(daemon))
        assert "users[0].password: must be a text" in found and "still in force" in found

        tls_of(authority.issue("three"), tmp_path, "daemon")
        users(tmp_path / "users.yaml", NEW)
        (tmp_path / "daemon.key").write_text("no key")
        daemon.reload(lambda: wanted)
        assert "listen.tls: " in capsys.readouterr().err
        assert answered(at(daemon), trusts)

        tls_of(authority.issue("three"), tmp_path, "daemon")
        daemon.reload(lambda: wanted)
        assert "in force: auth.file, listen.tls.certificate, listen.tls.key" in (
            capsys.readouterr().err
        )
        assert answered(at(daemon), ann(NEW)._replace(tls=trusts.tls))
        assert "reload" not in notes(daemon)


def test_of_bad_rules_nothing_is_taken_though_the_settings_name_another_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the file that the daemon began with whose rules are in force."""
    users(tmp_path / "users.yaml", OLD)
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    for file in (one, two):
        file.write_text("pools:\n  /: {administer: [ann]}\n")
    auth = {"type": "BASIC", "file": "users.yaml"}
    wanted = settings(tmp_path, auth=auth, access={"file": "one.yaml"})
    other = settings(tmp_path, auth=auth, access={"file": "two.yaml"})
    with running(wanted) as daemon:
        users(tmp_path / "users.yaml", NEW)
        one.write_text("pools:\n  /: {rule: [ann]}\n")
        for again in (wanted, other):
            daemon.reload(lambda again=again: again)
            said = capsys.readouterr().err
            assert f"reload: access.file: {one}: " in said and "in force:" not in said
        assert answered(at(daemon), ann(OLD))
        one.write_text("pools:\n  /: {administer: [ann], see: [bob]}\n")
        daemon.reload(lambda: wanted)
        assert "reload: in force: access.file, auth.file\n" in capsys.readouterr().err
        assert answered(at(daemon), ann(NEW))


def test_settings_that_cannot_be_read_leave_all_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users(tmp_path / "users.yaml", OLD)
    wanted = settings(tmp_path, auth={"type": "BASIC", "file": "users.yaml"})

    def unreadable() -> DaemonSettings:
        raise BadSetting("daemon.yaml, line 3: cluster: required", "daemon.yaml: and more")

    with running(wanted) as daemon:
        users(tmp_path / "users.yaml", NEW)
        daemon.reload(unreadable)
        said = capsys.readouterr().err
        assert "reload: daemon.yaml, line 3: cluster: required\nreload: daemon.yaml: and" in said
        assert answered(at(daemon), ann(OLD))


def test_a_file_that_cannot_even_be_looked_for_ends_no_daemon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one below a folder of another user; root finds only names too long."""
    users(tmp_path / "users.yaml", OLD)
    wanted = settings(tmp_path, auth={"type": "BASIC", "file": "users.yaml"})
    with running(wanted) as daemon:
        daemon.reload(lambda: settings(tmp_path, auth={"type": "BASIC", "file": "x" * 300}))
        assert "reload: nothing was taken" in capsys.readouterr().err
        assert answered(at(daemon), ann(OLD))


def test_what_needs_a_restart_is_named_and_the_rest_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users(tmp_path / "users.yaml", OLD)
    auth = {"type": "BASIC", "file": "users.yaml"}
    wanted = settings(tmp_path, auth=auth)
    changed = settings(
        tmp_path,
        auth=auth | {"plain_text": True},
        listen=HERE | {"grpc": "127.0.0.1:5999"},
        limits={"watches": wanted.limits.watches + 1},
    )
    one, *more = changed.backend.hosts
    host = replace(one, cpus=one.cpus + 1)
    simulated = replace(changed.backend.simulated, hosts=[host, *more])  # type: ignore[type-var]
    changed = replace(changed, backend=replace(changed.backend, simulated=simulated))
    with running(wanted) as daemon:
        users(tmp_path / "users.yaml", NEW)
        for _ in range(2):  # as long as it is so
            daemon.reload(lambda: changed)
            lines = capsys.readouterr().err.splitlines()
            assert [line.split()[1] for line in lines if "needs a restart" in line] == [
                "auth.plain_text",
                "backend.simulated.hosts[0].cpus",
                "limits.watches",
                "listen.grpc",
            ]
        assert answered(at(daemon), ann(NEW))
        daemon.reload(lambda: wanted)
        assert capsys.readouterr().err == "reload: no file has changed\n"


# ---- a process ----


def test_a_daemon_goes_on_at_sighup_with_new_users_and_a_new_log(tmp_path: Path) -> None:
    users(tmp_path / "users.yaml", OLD)
    file, log = tmp_path / "daemon.yaml", tmp_path / "daemon.log"
    raw: dict[str, Any] = {
        "cluster": "test",
        "listen": HERE,
        "auth": {"type": "BASIC", "file": "users.yaml"},
        "journal": {"sqlite": {"folder": "data"}},
        "backend": {"simulated": {"hosts": HOSTS}},
        "shards": SHARDS,
    }
    file.write_text(yaml.safe_dump(raw))
    command = [sys.executable, "-m", "peloton", "daemon", "--config", str(file)]
    with (
        log.open("a") as stderr,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=ROOT
        ) as process,
    ):
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            assert answered(address, ann(OLD))
            users(tmp_path / "users.yaml", NEW)
            file.write_text(yaml.safe_dump(raw | {"limits": {"watches": 7}}))
            log.rename(tmp_path / "daemon.log.1")
            process.send_signal(signal.SIGHUP)
            until(lambda: log.exists() and "limits.watches has changed" in log.read_text())
            assert "reload: in force: auth.file\n" in log.read_text()
            assert answered(address, ann(NEW))
            assert os.stat(log).st_mode == os.stat(tmp_path / "daemon.log.1").st_mode
        finally:
            process.terminate()
        assert process.wait(WAIT_S_MAX) == 0
    assert log.read_text().endswith("leaving\n")
    assert "leaving" not in (tmp_path / "daemon.log.1").read_text()
