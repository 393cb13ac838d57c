"""Daemons as they are wired, several in one process: real shells, streams and doors.

The store and the membership are those of this process, without servers. What a fleet survives is
tested elsewhere.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
import yaml

from peloton.api.v0.job import job_pb2, job_pb2_grpc
from peloton.assembly.daemon import Daemon, ExternalServices
from peloton.assembly.listeners import ChosenPorts
from peloton.assembly.readiness import Readiness
from peloton.failures import CannotStart, ClusterFailed
from peloton.gateway.server import carrier, completions
from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.journal.statements import Statement, StatementFailed, StatementReply
from peloton.runtime.core.owning.ownership import ranked
from peloton.runtime.simulation.memory_rows import MemoryRows
from peloton.runtime.vocabulary import key
from peloton.settings.daemon import DaemonSettings, Listen, parse
from tests.adapters.local_membership import LocalMembership, Service
from tests.adapters.pems import Authority
from tests.channels import channel_to
from tests.cli.terminal import typed
from tests.gateway.fleet_fixture import Deployment, named

SHARDS = {"jobmgr": 10, "resmgr": 1, "hostmgr": 6}
"""So many that of two daemons, whose ids are drawn, none is first for nothing."""
HOSTS: list[dict[str, str]] = [{"name": "a"}, {"name": "b"}, {"name": "c"}]
WAIT_S_MAX = 60.0


class SharedRows(MemoryRows):
    """One store for journals on several threads."""

    def __init__(self) -> None:
        super().__init__()
        self._one = threading.Lock()
        self.gate = threading.Event()
        self.gate.set()
        self.away = ""

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        self.gate.wait()
        if self.away:
            return [StatementFailed(self.away) for _ in statements]
        with self._one:
            return super().run(statements)

    def close(self) -> None:
        """The others go on with it."""


class Fleet:
    """Daemons on one store and one membership service."""

    def __init__(self, authority: Authority | None = None) -> None:
        self.rows, self.service = SharedRows(), Service()
        self.daemons: dict[str, Daemon] = {}
        self.lines: dict[str, LocalMembership] = {}
        self._authority = authority
        self._folder = tempfile.TemporaryDirectory()  # for their audit logs

    def start(
        self,
        name: str,
        roles: str = "jobmgr,resmgr,hostmgr,placement,api",
        *,
        hosts: Sequence[dict[str, str]] = HOSTS,
    ) -> Daemon:
        raw: dict[str, Any] = {
            "cluster": "test",
            "roles": roles.split(","),
            "listen": dict.fromkeys(("exchange", "grpc", "http"), "127.0.0.1:0"),
            "zookeeper": {"hosts": ["none"]},
            "journal": {"cassandra": {"contacts": ["none"]}},
            "backend": {"simulated": {"hosts": hosts}},
            "shards": SHARDS,
        }
        if self._authority is not None:
            tls = self._authority.issue(name)
            files = {"ca": tls.ca, "certificate": tls.certificate, "key": tls.key}
            raw["tls"] = {field: str(path) for field, path in files.items()}
        self.lines[name] = LocalMembership(self.service)
        journal = FencedRows(self.rows, process=name.encode().ljust(16, b"-"))
        outside = ExternalServices(journal, self.lines[name])
        daemon = Daemon(parse(raw, Path(self._folder.name)), failed=lambda: None, outside=outside)
        self.daemons[name] = daemon
        return daemon

    def settled(self) -> bool:
        """Every shard has the owner that all rank first and that lives, and all has been told."""
        with self.service.lock:
            owners, members = dict(self.service.owners), dict(self.service.members)
        owned = sum(len(daemon._region.owned()) for daemon in self.daemons.values())
        everywhere = all(daemon.greeted.done() for daemon in self.daemons.values())
        return (
            owned == sum(SHARDS.values()) == len(owners)
            and not any(node.aside for node in members.values())
            and all(ranked(shard, members)[0] == owner for shard, owner in owners.items())
            and everywhere
        )

    def close(self) -> None:
        for daemon in self.daemons.values():
            with contextlib.suppress(ClusterFailed):
                daemon.stop()
        self._folder.cleanup()


def until(wanted: Callable[[], Any], fits: Callable[[Any], bool] = bool) -> Any:
    """Ask until there is an answer that fits; who waits in vain reads the last one."""
    end_s, pause = time.monotonic() + WAIT_S_MAX, threading.Event()
    found = None
    while time.monotonic() < end_s:
        found = wanted()
        if fits(found):
            return found
        pause.wait(0.02)
    raise AssertionError(f"it never came to be: {found!r}")


@pytest.fixture
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    """Without TLS, unless a test asks for it."""
    tls = getattr(request, "param", "plain") == "tls"
    fleet = Fleet(Authority(tmp_path / "pems") if tls else None)
    yield fleet
    fleet.close()


@contextlib.contextmanager
def deployment(daemon: Daemon) -> Iterator[Deployment]:
    """What clients of this daemon see, once the root pool has heard of all hosts."""

    muster = Readiness(daemon._region, daemon._inventories)
    until(lambda: muster.all_up([key("host", host["name"]) for host in HOSTS], alone=True))
    with channel_to(daemon.grpc) as channel:
        yield Deployment(daemon._region, channel, http=daemon.http)


def state_at(daemon: Daemon, job: str) -> int:
    """The state of a job, as any client of this daemon sees it."""
    with channel_to(daemon.grpc) as channel:
        answer = job_pb2_grpc.JobManagerStub(channel).Get(job_pb2.GetRequest(id=named(job)))
        return int(answer.jobInfo.runtime.state)


# ---- daemons that are many ----


@pytest.mark.parametrize("fleet", ["plain", "tls"], indirect=True)
def test_jobs_run_on_two_daemons_and_are_seen_at_both(fleet: Fleet) -> None:
    one, two = fleet.start("one"), fleet.start("two")
    until(fleet.settled)
    assert one._region.owned() and two._region.owned(), "else nothing is proved"
    with deployment(one) as clients:
        jobs = [clients.create(clients.request(instances=5)) for _ in range(4)]
        assert all(clients.ended(job).done for job in jobs)
    for daemon in (one, two):
        assert {state_at(daemon, job) for job in jobs} == {job_pb2.SUCCEEDED}
        assert daemon.health() == (True, [])


def test_a_daemon_that_leaves_hands_over_all_it_owns(fleet: Fleet) -> None:
    one, two = fleet.start("one"), fleet.start("two")
    until(fleet.settled)
    with deployment(one) as clients:
        jobs = [clients.create(clients.request(instances=2)) for _ in range(4)]
        assert all(clients.ended(job).done for job in jobs)
    assert one.stop()
    assert not fleet.daemons.pop("one")._region.owned()
    assert [*fleet.service.members.values()] and len(fleet.service.members) == 1
    until(fleet.settled)
    assert {state_at(two, job) for job in jobs} == {job_pb2.SUCCEEDED}


def test_a_daemon_whose_session_ended_is_taken_over_from_and_comes_back(fleet: Fleet) -> None:
    one, _ = fleet.start("one"), fleet.start("two")
    until(fleet.settled)
    before = fleet.lines["one"].member
    fleet.lines["one"].expire()
    until(lambda: fleet.lines["one"].member not in ("", before))
    until(fleet.settled)
    assert one._region.owned()


def test_health_says_what_a_client_would_meet_though_nobody_writes(fleet: Fleet) -> None:
    """Of a store that hangs or refuses, and of its return: no shard has anything to commit."""
    one = fleet.start("one")
    fleet.start("two")
    until(fleet.settled)
    until(lambda: one.health() == (True, []))
    fleet.rows.gate.clear()
    until(lambda: not one.health()[0] and "it does not answer a write" in str(one.health()[1]))
    fleet.rows.gate.set()
    until(lambda: one.health() == (True, []))
    fleet.rows.away = "no quorum"
    until(lambda: not one.health()[0] and "no quorum" in str(one.health()[1]))
    fleet.rows.away = ""
    until(lambda: one.health() == (True, []))


def test_roles_are_kept_apart(fleet: Fleet) -> None:
    """Only what has the role owns or chooses, and a daemon that has neither answers clients."""
    fleet.start("jobs", "jobmgr,resmgr")
    fleet.start("hosts", "hostmgr")
    fleet.start("places", "placement")
    door = fleet.start("door", "api")
    until(fleet.settled)
    owned = {
        name: {shard.group for shard in daemon._region.owned()}
        for name, daemon in fleet.daemons.items()
    }
    assert owned == {
        "jobs": {"jobmgr", "resmgr"},
        "hosts": {"hostmgr"},
        "places": set(),
        "door": set(),
    }
    with deployment(door) as clients:
        job = clients.create(clients.request(instances=3))
        assert clients.ended(job).done
    assert state_at(door, job) == job_pb2.SUCCEEDED
    assert not hasattr(fleet.daemons["jobs"], "grpc")


class Named:
    """A soft machine that only keeps what it is called."""

    wake_at: float | None = None
    own_thread = False
    name = ""

    def receive(self, envelopes: list[Any], now: float) -> Sequence[Any]:
        return ()

    def reset(self) -> None:
        """It holds nothing."""

    def rename(self, member: str, *, number: int, count: int) -> None:
        self.name = member


def test_a_machine_that_comes_after_the_session_began_is_told_its_name(fleet: Fleet) -> None:
    """A placer that did not know it asked for its hosts under a name that is nobody's."""
    daemon = fleet.start("one")
    until(fleet.settled)
    late = Named()
    daemon._region.register_service("late", late)
    assert until(lambda: late.name) == fleet.lines["one"].member


# ---- one that is alone, and its end ----


def alone(folder: Path) -> DaemonSettings:
    return parse(
        {
            "cluster": "test",
            "listen": dict.fromkeys(("grpc", "http"), "127.0.0.1:0"),
            "journal": {"sqlite": {"folder": "data"}},
            "backend": {"simulated": {"hosts": HOSTS}},
            "shards": SHARDS,
        },
        folder,
    )


def test_a_daemon_alone_runs_jobs_and_finds_them_again(tmp_path: Path) -> None:
    daemon = Daemon(alone(tmp_path), failed=lambda: None)
    with deployment(daemon) as clients:
        job = clients.create(clients.request(instances=3))
        assert clients.ended(job).done
        # What simulated hosts cost can be told apart.
        assert any("backend/simulated" in thread.name for thread in threading.enumerate())
    assert daemon.stop()
    again = Daemon(alone(tmp_path), failed=lambda: None)
    again.greeted.result(WAIT_S_MAX)
    assert state_at(again, job) == job_pb2.SUCCEEDED
    assert again.stop()


def test_a_folder_is_one_daemons(tmp_path: Path) -> None:
    daemon = Daemon(alone(tmp_path), failed=lambda: None)
    with pytest.raises(CannotStart, match=r"in use by the daemon with pid \d+"):
        Daemon(alone(tmp_path), failed=lambda: None)
    assert daemon.stop()


def test_a_cluster_of_other_sizes_is_refused_and_all_is_let_go(tmp_path: Path) -> None:
    assert Daemon(alone(tmp_path), failed=lambda: None).stop()
    other = msgspec.structs.replace(alone(tmp_path), shards=SHARDS | {"jobmgr": 4})
    with pytest.raises(CannotStart, match=r"journal .*journal\.sqlite: .*jobmgr"):
        Daemon(other, failed=lambda: None)
    assert Daemon(alone(tmp_path), failed=lambda: None).stop()


def test_a_daemon_that_cannot_go_on_says_why(tmp_path: Path) -> None:
    failed = threading.Event()
    daemon = Daemon(alone(tmp_path), failed=failed.set)
    daemon._root.give_up("the thread of the shards ended")
    assert failed.wait(WAIT_S_MAX)
    with pytest.raises(ClusterFailed, match="the thread of the shards ended"):
        daemon.stop()
    assert Daemon(alone(tmp_path), failed=lambda: None).stop()


# ---- the command ----


def command(file: Path, *more: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "peloton", "daemon", "--config", str(file), *more]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_sigterm_ends_a_daemon_with_0(tmp_path: Path) -> None:
    file = tmp_path / "daemon.yaml"
    raw = {"cluster": "c", "journal": {"sqlite": {"folder": "data"}}, "shards": SHARDS}
    raw["listen"] = dict.fromkeys(("grpc", "http"), "127.0.0.1:0")
    raw["backend"] = {"simulated": {"hosts": HOSTS}}
    file.write_text(yaml.safe_dump(raw))
    with command(file) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready: grpc 127.0.0.1:")
        process.terminate()
        _, errors = process.communicate(timeout=WAIT_S_MAX)
    assert process.returncode == 0, errors
    assert errors.splitlines()[-1] == "leaving"


@pytest.mark.parametrize(
    ("content", "code", "text"),
    [
        ("cluster: c\njournal: {}\n", 64, "journal: give one of sqlite and cassandra"),
        ("cluster: [", 64, "not YAML"),
    ],
)
def test_a_file_that_cannot_be_used_ends_it_at_once(
    tmp_path: Path, content: str, code: int, text: str
) -> None:
    file = tmp_path / "daemon.yaml"
    file.write_text(content)
    printed = typed("daemon", "--config", str(file))
    assert (printed.code, text in printed.err) == (code, True), printed
    assert "Traceback" not in printed.err


# ---- who did what ----


def test_a_daemon_logs_changes_and_its_health_says_what_is_wrong(tmp_path: Path) -> None:
    rules = tmp_path / "access.yaml"
    rules.write_text("pools:\n  /: {administer: ['*']}\n")
    setting = alone(tmp_path)
    access = msgspec.structs.replace(setting.access, file=rules)
    daemon = Daemon(msgspec.structs.replace(setting, access=access), failed=lambda: None)
    log = tmp_path / "data" / "audit.log"
    try:
        with deployment(daemon) as clients:
            job = clients.create(clients.request())
            until(lambda: job in log.read_text())

            def health() -> str:
                clients.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest())
                with urllib.request.urlopen(f"http://{daemon.http}/health") as answer:
                    return answer.read().decode()

            until(health, lambda found: found == "OK\n")
            rules.write_text("pools: {}\n")
            text = until(health, lambda found: "access" in found)
            assert "\naccess: access.file: " in text and "administer" in text
    finally:
        assert daemon.stop()
    assert [line for line in log.read_text().splitlines() if job in line]
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_daemon_serves_though_the_core_of_grpc_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(completions, "NAMES", ("Gone",))
    carrier.core_trouble.cache_clear()
    daemon = Daemon(alone(tmp_path), failed=lambda: None)
    try:
        with deployment(daemon) as clients:
            assert clients.create(clients.request())
            with urllib.request.urlopen(f"http://{daemon.http}/health") as answer:
                health = answer.read().decode()
    finally:
        assert daemon.stop()
        carrier.core_trouble.cache_clear()
    for text in (health, "".join(capsys.readouterr())):
        assert f"grpc: {carrier.SLOWER} (grpcio {grpc.__version__}: there is no Gone)" in text


def test_each_daemon_of_a_fleet_has_a_log_of_its_own(tmp_path: Path) -> None:
    fleet = Fleet()
    try:
        fleet.start("one")
        fleet.start("two")
        until(fleet.settled)
        for daemon in fleet.daemons.values():
            with channel_to(daemon.grpc) as channel:
                delete = job_pb2_grpc.JobManagerStub(channel).Delete
                with pytest.raises(grpc.RpcError):
                    delete(job_pb2.DeleteRequest(id=named("x")))
        folder = Path(fleet._folder.name) / "audit"
        names = {f"audit-{daemon.grpc}.log" for daemon in fleet.daemons.values()}
        assert {file.name for file in folder.iterdir()} == names and len(names) == 2
        assert folder.stat().st_mode & 0o777 == 0o700
        until(lambda: all("Delete" in (folder / name).read_text() for name in names))
    finally:
        fleet.close()


def test_rules_that_cannot_be_used_prevent_the_start(tmp_path: Path) -> None:
    rules = tmp_path / "access.yaml"
    rules.write_text("pools: {}\n")
    setting = alone(tmp_path)
    access = msgspec.structs.replace(setting.access, file=rules)
    with pytest.raises(CannotStart, match="access.file: .*: line 1: pools./: missing required"):
        Daemon(msgspec.structs.replace(setting, access=access), failed=lambda: None)
    assert not (tmp_path / "data").exists(), "nothing was made"


def test_an_audit_log_that_cannot_be_opened_prevents_the_start(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "audit.log").mkdir()
    with pytest.raises(CannotStart, match=r"access.audit_folder: .*/data/audit.log: "):
        Daemon(alone(tmp_path), failed=lambda: None)


def test_an_audit_folder_that_is_a_link_prevents_the_start(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / "logs").symlink_to(tmp_path / "target")
    setting = alone(tmp_path)
    access = msgspec.structs.replace(setting.access, audit_folder=tmp_path / "logs")
    with pytest.raises(CannotStart, match=r"access.audit_folder: .*/logs: it is a symbolic link"):
        Daemon(msgspec.structs.replace(setting, access=access), failed=lambda: None)
    assert not [*(tmp_path / "target").iterdir()]


def test_a_chosen_port_is_nobody_elses_before_the_daemon_listens(tmp_path: Path) -> None:
    with contextlib.closing(Fleet()) as fleet:
        settings = fleet.start("one")._settings
    everywhere = dict.fromkeys(("exchange", "grpc", "http"), "127.0.0.1:0")
    chosen = ChosenPorts(
        msgspec.structs.replace(settings, listen=msgspec.convert(everywhere, Listen))
    )
    at = chosen.settings.http
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((at.host, at.port))
    with socket.create_server((at.host, at.port)):  # as a server does
        chosen.close()
