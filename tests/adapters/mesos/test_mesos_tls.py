"""A master and agents behind TLS: what is carried, and what is said of who is not whom we expect.

They are scripted, behind an end of TLS of ours: the Mesos that tests have speaks none.
"""

from __future__ import annotations

import contextlib
import json
import stat
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kazoo.client import KazooClient

from peloton import http_client
from peloton.actors.host import messages as m
from peloton.actors.task.messages import End
from peloton.assembly.daemon import Daemon
from peloton.assembly.mesos_access import tls_of
from peloton.backends.mesos.agent_files import AgentFiles
from peloton.backends.mesos.masters import driver as drivers
from peloton.backends.mesos.masters import leading_master
from peloton.backends.mesos.masters.agent_book import AgentBook
from peloton.backends.mesos.masters.driver import MesosDriver
from peloton.backends.mesos.masters.leading_master import LeadingMaster
from peloton.backends.mesos.masters.operator_api import Credential, NoAnswer
from peloton.runtime.far_files import FarRun, FilesAway
from peloton.settings.backend import MesosBackendSettings, MesosTls
from peloton.settings.daemon import parse
from tests.adapters.pems import Authority
from tests.adapters.test_daemon_wiring import until
from tests.cli.terminal import Printed, typed
from tests.contracts.backends import HOST
from tests.contracts.mesos_backends import ScriptedMesosRig
from tests.contracts.mesos_calls import framework
from tests.servers import zookeeper
from tests.servers.scripted_agent import scripted
from tests.servers.scripted_http import Reply
from tests.servers.scripted_master import ScriptedMaster
from tests.servers.tls_front import TlsFront

RUN = "6b3f0a1e-93a5-5d09-9b0a-3f2f5a1f7c11-0-1"
SECRET = "the-secret-of-our-principal"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pems") / "ca")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that nobody here believes."""
    return Authority(tmp_path_factory.mktemp("pems") / "other")


def believing(authority: Authority, name: str = "") -> Any:
    """What a setting makes of it; with the certificate of this name."""
    ours = authority.issue(name) if name else None
    files = MesosTls(
        ca=authority.ca,
        certificate=ours.certificate if ours else None,
        key=ours.key if ours else None,
    )
    return tls_of(MesosBackendSettings(master="m:1", tls=files), field="backend.mesos")


# ---- what is carried ----


def test_a_run_lives_and_ends_over_tls(authority: Authority) -> None:
    with (
        ScriptedMaster(agents=2) as master,
        TlsFront(master.port, authority.issue("master")) as front,
    ):
        rig = ScriptedMesosRig(master, at=front.address, tls=believing(authority))
        try:
            rig.next_report(m.BackendUp)
            rig.order(m.StartRuns(HOST, 1, (rig.gated("r-0-1"),)))
            rig.next_report(m.RunsStarted)
            rig.open_gate("r-0-1")
            assert rig.ends("r-0-1")["r-0-1"].outcome.end == End.SUCCEEDED
            assert not front.failures
        finally:
            rig.close()


def test_an_event_of_more_than_one_read_comes_whole(authority: Authority) -> None:
    """What lies decrypted in a connection wakes no selector, and nothing comes after it."""
    heard: list[Any] = []
    with (
        ScriptedMaster(agents=0, heartbeat_s=3600.0) as master,
        TlsFront(master.port, authority.issue("master")) as front,
    ):
        driver = MesosDriver(front.address, framework(), heard=heard.append, ended=heard.append)
        driver.tls = believing(authority)
        driver.start()
        try:
            until(lambda: heard)
            texts = ["one" * 3000, "two" * 30_000]
            for number, text in enumerate(texts):
                master.send({"type": "MESSAGE", "message": {"data": text}})
                until(lambda wanted=number + 2: len(heard) == wanted)  # type: ignore[misc]
            assert [event["message"]["data"] for event in heard[1:]] == texts
        finally:
            driver.stop(failover=True)
            driver.join()


def test_a_master_that_asks_for_a_certificate_gets_ours(authority: Authority) -> None:
    with (
        ScriptedMaster(agents=2) as master,
        TlsFront(master.port, authority.issue("master"), asks=True) as front,
    ):
        rig = ScriptedMesosRig(master, at=front.address, tls=believing(authority, "ours"))
        try:
            rig.next_report(m.BackendUp)
        finally:
            rig.close()


def test_a_master_that_does_not_lead_sends_us_on_in_tls(authority: Authority) -> None:
    keys = authority.issue("master")
    with (
        ScriptedMaster(agents=2) as master, TlsFront(master.port, keys) as front,
        ScriptedMaster() as standby, TlsFront(standby.port, keys) as its_front,
    ):  # fmt: skip
        # The scheme that it names is not what we go by.
        sent_on = Reply(307, location=f"http://{front.address}/master/api/v1")
        standby.reply("SUBSCRIBE", sent_on)
        standby.reply("GET_AGENTS", sent_on)
        rig = ScriptedMesosRig(master, at=its_front.address, tls=believing(authority))
        try:
            rig.next_report(m.BackendUp)
            leading = LeadingMaster(its_front.address, Credential(), tls=believing(authority))
            found = leading.connect({"type": "GET_AGENTS"})
            found.api.close()
            assert str(found.api.door) == front.address
        finally:
            rig.close()


def test_of_a_master_in_zookeeper_the_name_counts_and_the_address_is_dialled(
    authority: Authority,
) -> None:
    server, folder = zookeeper.shared(), f"/tls-{uuid.uuid4().hex}"
    client = KazooClient(server.address)
    client.start(timeout=30.0)
    named = authority.issue("named", says="DNS:master.example")
    heard: list[Any] = []
    with ScriptedMaster() as master, TlsFront(master.port, named) as front:
        words = {"hostname": "master.example", "ip": "127.0.0.1", "port": front.port}
        client.create(
            f"{folder}/json.info_", json.dumps({"address": words}).encode(),
            sequence=True, makepath=True,
        )  # fmt: skip
        place = f"zk://{server.address}{folder}"
        driver = MesosDriver(place, framework(), heard=heard.append, ended=heard.append)
        driver.tls = believing(authority)
        driver.start()
        try:
            until(lambda: heard)
            assert heard[0]["type"] == "SUBSCRIBED", heard
        finally:
            driver.stop(failover=True)
            driver.join()
        found = LeadingMaster(place, Credential(), tls=believing(authority))
        found.connect({"type": "GET_AGENTS"}).api.close()
        with pytest.raises(NoAnswer, match="address mismatch"):
            LeadingMaster(front.address, Credential(), tls=believing(authority)).connect(
                {"type": "GET_AGENTS"}
            )
    client.delete(folder, recursive=True)
    client.stop()
    client.close()


# ---- files of agents ----


def test_the_files_of_agents_are_read_from_whom_has_their_name(authority: Authority) -> None:
    """Master and agent are one server here, and so is the end of TLS."""
    both = authority.issue("both", says="IP:127.0.0.1,DNS:h1")
    with scripted("ours") as agent, TlsFront(agent.port, both) as front:
        agent.folders[agent.sandbox(RUN)] = {"stdout": b"hello\n", "deep": stat.S_IFDIR | 0o755}
        agent.hostnames = ["h1", "h2"]
        agent.advertised = front.address
        context, us = believing(authority), Credential("us", SECRET)
        agent.authorization = us.headers["Authorization"]
        book = AgentBook(LeadingMaster(front.address, us, tls=context))
        files = AgentFiles("west", book, framework="ours", credential=us)
        with files.open(FarRun("west.h1", RUN), ("stdout",)) as file:
            assert file.read(0, file.size) == b"hello\n"
        asked = len(agent.asked)
        with pytest.raises(FilesAway, match="not valid for 'h2'") as said:
            files.listing(FarRun("west.h2", RUN), ())
        assert SECRET not in str(said.value) and len(agent.asked) == asked, "it was told nothing"


# ---- who is not whom we expect ----


@contextlib.contextmanager
def daemon(folder: Path, master: str, files: dict[str, str]) -> Iterator[Daemon]:
    (folder / "secret").write_text(SECRET)
    (folder / "secret").chmod(0o600)
    made = Daemon(parse(settings(master, files), folder), failed=lambda: None)
    try:
        yield made
    finally:
        made.stop()


def settings(master: str, files: dict[str, str]) -> dict[str, Any]:
    return {
        "cluster": "test",
        "listen": dict.fromkeys(("grpc", "http"), "127.0.0.1:0"),
        "journal": {"sqlite": {"folder": "data"}},
        "backend": {
            "mesos": {
                "master": master, "principal": "us", "secret_file": "secret", "tls": files,
            },
        },
        "shards": {"jobmgr": 1, "hostmgr": 1},
    }  # fmt: skip


def noted(made: Daemon) -> str:
    """What /health says."""
    with urllib.request.urlopen(f"http://{made.http}/health") as answer:
        return str(answer.read().decode())


def pems(authority: Authority) -> dict[str, str]:
    return {"ca": str(authority.ca)}


def said_of(
    case: str, folder: Path, authority: Authority, other: Authority
) -> tuple[str, str, list[Any]]:
    """What /health, and the doctor, say of such a master; and what the master was asked."""
    issuer = other if case == "another authority" else authority
    name = "DNS:elsewhere" if case == "another name" else "IP:127.0.0.1"
    keys = issuer.issue("bad", says=name)
    asks, mute = case == "wants a certificate", case == "mute"
    with ScriptedMaster() as master, TlsFront(master.port, keys, asks=asks, mute=mute) as front:
        at = master.address if case == "plain" else front.address
        with daemon(folder, at, pems(authority)) as made:
            health = until(lambda: noted(made), lambda text: f"the master at {at}: " in text)
            assert SECRET not in health
        file = folder / "daemon.yaml"
        file.write_text(yaml.safe_dump(settings(at, pems(authority))))
        found = typed("doctor", "--mesos", str(file))
        assert found.code == 69 and SECRET not in found.out + found.err
        return health, found.err, master.calls


BAD = {
    "another authority": "its certificate is not accepted: ",
    "another name": "its certificate is not accepted: IP address mismatch",
    "plain": "it does not speak TLS (WRONG_VERSION_NUMBER)",
    "wants a certificate": "it does not accept us: see `certificate` and `key` of `tls`",
}


@pytest.mark.parametrize("case", BAD)
def test_who_is_not_whom_we_expect_is_told_nothing(
    case: str, tmp_path: Path, authority: Authority, other: Authority
) -> None:
    health, doctor, calls = said_of(case, tmp_path, authority, other)
    assert BAD[case] in health and BAD[case] in doctor
    assert not calls


def test_one_that_never_answers_in_tls_is_given_up(
    tmp_path: Path, authority: Authority, other: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "HANDSHAKE_S", 0.2)
    monkeypatch.setattr(drivers, "HTTP_TIMEOUT_S", 0.5)
    monkeypatch.setattr(leading_master, "SILENCE_S_MAX", 0.2)
    health, doctor, calls = said_of("mute", tmp_path, authority, other)
    assert "no TLS in 0.2 s" in health and "does not answer in time" in doctor
    assert not calls


def test_a_master_whose_name_nobody_knows_is_said_soon(tmp_path: Path) -> None:
    ended: list[str] = []
    driver = MesosDriver("no.such.host.invalid:5050", framework(), heard=print, ended=ended.append)
    driver.start()
    try:
        until(lambda: ended)
        assert len(ended) == 1 and "is not known" in ended[0]
    finally:
        driver.stop(failover=True)
        driver.join()
    assert len(ended) == 1


def test_the_doctor_looks_at_a_cluster_in_tls(tmp_path: Path, authority: Authority) -> None:
    keys = authority.issue("well")
    with ScriptedMaster() as master, TlsFront(master.port, keys) as front:
        file = tmp_path / "daemon.yaml"
        file.write_text(yaml.safe_dump(settings(front.address, pems(authority))))
        (tmp_path / "secret").write_text(SECRET)
        (tmp_path / "secret").chmod(0o600)
        found = typed("doctor", "--mesos", str(file))
        assert found.code == 0 and f"master  {front.address}" in found.out, found
        assert "agents do not answer from here: h1 (" in found.out


# ---- the settings ----


def checked(folder: Path, files: dict[str, str]) -> Printed:
    file = folder / "daemon.yaml"
    file.write_text(yaml.safe_dump(settings("127.0.0.1:5050", files)))
    return typed("daemon", "--config", str(file), "--check")


def test_the_check_names_what_is_wrong_by_its_field(
    tmp_path: Path, authority: Authority, other: Authority
) -> None:
    one, two = authority.issue("one"), other.issue("two")
    ours = {"certificate": str(one.certificate), "key": str(one.key)}
    (tmp_path / "junk").write_text("junk")
    found = checked(tmp_path, {"ca": "no.pem", **ours, "key": "none.key"})
    assert found.code == 69
    at = "backend.mesos"
    assert [line.partition("backend.")[2] for line in found.err.splitlines()] == [
        f"mesos.secret_file: {tmp_path / 'secret'}: No such file or directory",
        f"mesos.tls.ca: {tmp_path / 'no.pem'}: No such file or directory",
        f"mesos.tls.key: {tmp_path / 'none.key'}: No such file or directory",
    ]
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "secret").chmod(0o600)
    assert f"{at}.tls.ca: {tmp_path / 'junk'}: " in checked(tmp_path, {"ca": "junk"}).err
    found = checked(tmp_path, {**pems(authority), **ours, "key": str(two.key)})
    assert f"{at}.tls.certificate: " in found.err and "MISMATCH" in found.err
    assert checked(tmp_path, {**pems(authority), **ours}).code == 0
    one.key.chmod(0o644)
    assert f"{at}.tls.key: " in checked(tmp_path, {**pems(authority), **ours}).err
