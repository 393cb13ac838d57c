"""Clusters, journals and keeper folders that are mixed up: each is refused by name, none is harmed.

Whole daemons in one process, with real keepers and real tasks; the store and the membership are
those of this process. A task that must not be started twice writes a line when it starts.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.assembly.daemon import Daemon, ExternalServices
from peloton.assembly.readiness import Readiness
from peloton.failures import CannotStart, ClusterFailed
from peloton.ops.v1 import ops_pb2, ops_pb2_grpc
from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.settings.daemon import parse
from peloton.settings.start_options import STANDARD_START, StartOptions
from tests.adapters.local_membership import LocalMembership, Service
from tests.adapters.test_daemon_wiring import (
    SHARDS,
    SharedRows,
    state_at,
    until,
)
from tests.channels import channel_to
from tests.cli.terminal import typed
from tests.e2e.cluster import until_there
from tests.gateway.fleet_fixture import Deployment, default_config

WAIT_S_MAX = 60.0
HOSTS = [{"name": "a", "cpus": 12.0, "memory_mb": 6144, "disk_mb": 60000}]


class Fleet:
    """Daemons on one store and one membership service, each with a keeper folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows, self.service = SharedRows(), Service()
        self.daemons: list[Daemon] = []

    def start(self, name: str, *, keeper: str = "keeper", cluster: str = "west") -> Daemon:
        raw: dict[str, Any] = {
            "cluster": cluster,
            "listen": dict.fromkeys(("exchange", "grpc", "http"), "127.0.0.1:0"),
            "zookeeper": {"hosts": ["none"]},
            "journal": {"cassandra": {"contacts": ["none"]}},
            "backend": {"process": {"folder": keeper, "hosts": HOSTS}},
            "shards": SHARDS,
        }
        journal = FencedRows(self.rows, process=name.encode().ljust(16, b"-"))
        outside = ExternalServices(journal, LocalMembership(self.service))
        daemon = Daemon(parse(raw, self.folder), failed=lambda: None, outside=outside)
        self.daemons.append(daemon)
        return daemon

    def stop(self, daemon: Daemon) -> None:
        self.daemons.remove(daemon)
        assert daemon.stop()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    for daemon in fleet.daemons:
        with contextlib.suppress(ClusterFailed):
            daemon.stop()
    for keeper in tmp_path.glob("keeper*"):
        shutil.rmtree(keeper, ignore_errors=True)  # its keeper ends its runs, and leaves


@contextlib.contextmanager
def deployment(daemon: Daemon) -> Iterator[Deployment]:
    """What clients of this daemon see, once its host is up."""
    daemon.greeted.result(WAIT_S_MAX)
    with channel_to(daemon.grpc) as channel:
        yield Deployment(daemon._region, channel, http=daemon.http)


def marking_until(file: Path) -> task_pb2.TaskConfig:
    """A task that marks its start, and runs until the file is made."""
    config = default_config()
    config.command.value = f"echo >> {file}.ran; {until_there(file)}"
    return config


def why_down(daemon: Daemon) -> str:
    return " ".join(Readiness(daemon._region, daemon._inventories).down())


@pytest.mark.timeout(300)
def test_a_daemon_with_another_keeper_folder_neither_loses_a_run_nor_starts_it_anew(
    fleet: Fleet,
) -> None:
    """What docs/fleet.md led to, when the copy of the config lay in another folder."""
    one, go = fleet.start("one"), fleet.folder / "go"
    with deployment(one) as clients:
        job = clients.create(clients.request(instances=2, defaultConfig=marking_until(go)))
        clients.until(lambda: clients.job(job).runtime.state == job_pb2.RUNNING)
        ran = fleet.folder / "go.ran"
        clients.until(lambda: ran.exists() and ran.read_text() == "\n\n")
    wrong = fleet.start("two", keeper="elsewhere/keeper")
    fleet.stop(one)
    down = until(lambda: [text for text in [why_down(wrong)] if "another keeper" in text])[0]
    for folder in ("elsewhere/keeper", "keeper"):
        identity = (fleet.folder / folder / "identity").read_text().strip()
        assert f"{identity} in {fleet.folder / folder}" in down
    assert "host/a is RECONCILING" in down and not wrong.greeted.done()
    condition = wrong._region.daemon_health()
    assert condition.live and not condition.ready
    until(lambda: "another keeper" in str(wrong.health()[1]))
    assert state_at(wrong, job) == job_pb2.RUNNING
    fleet.start("three")
    fleet.stop(wrong)
    (right,) = fleet.daemons
    right.greeted.result(WAIT_S_MAX)
    assert state_at(right, job) == job_pb2.RUNNING
    go.touch()
    until(lambda: state_at(right, job) == job_pb2.SUCCEEDED)
    assert (fleet.folder / "go.ran").read_text() == "\n\n", "each ran once"
    assert not (fleet.folder / "elsewhere" / "keeper" / "runs").exists() or not [
        *(fleet.folder / "elsewhere" / "keeper" / "runs").iterdir()
    ]


@pytest.mark.timeout(300)
def test_a_person_gives_up_the_runs_of_a_keeper_that_is_lost(fleet: Fleet) -> None:
    one, go = fleet.start("one"), fleet.folder / "go"
    with deployment(one) as clients:
        request = clients.request(instances=1, defaultConfig=marking_until(go))
        job = clients.create(request)
        clients.until(lambda: clients.job(job).runtime.state == job_pb2.RUNNING)
    fleet.stop(one)
    shutil.rmtree(fleet.folder / "keeper")  # its disk is gone, and what ran there
    two = fleet.start("two", keeper="keeper-2")
    until(lambda: "another keeper" in why_down(two))
    with channel_to(two.grpc) as channel:
        ops = ops_pb2_grpc.OpsStub(channel)
        answer = ops.ForgetHost(ops_pb2.ForgetHostRequest(name="a", lose_runs=True))
        assert answer.runs_lost == 1
    fleet.stop(two)
    three = fleet.start("three", keeper="keeper-2")
    three.greeted.result(WAIT_S_MAX)
    go.touch()
    until(lambda: state_at(three, job) == job_pb2.SUCCEEDED)


def test_a_journal_of_another_cluster_is_refused_before_anything_is_touched(fleet: Fleet) -> None:
    west = fleet.start("one")
    until(lambda: len(fleet.service.owners) == sum(SHARDS.values()))
    before = dict(fleet.service.owners), dict(fleet.service.members)
    with pytest.raises(CannotStart, match="journal: .*'west'.*'east'"):
        fleet.start("two", cluster="east", keeper="keeper-east")
    assert (fleet.service.owners, fleet.service.members) == before
    assert not (fleet.folder / "keeper-east").exists()
    assert west._region.owned()


# ---- a new journal over an old keeper folder ----


def alone(folder: Path, data: str) -> dict[str, Any]:
    return {
        "cluster": "west",
        "listen": dict.fromkeys(("grpc", "http"), "127.0.0.1:0"),
        "journal": {"sqlite": {"folder": data}},
        "backend": {"process": {"folder": "keeper", "hosts": HOSTS}},
        "shards": SHARDS,
    }


Start = Callable[..., Daemon]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Daemon] = []

    def one(data: str, options: StartOptions = STANDARD_START) -> Daemon:
        settings = parse(alone(tmp_path, data), tmp_path)
        made.append(Daemon(settings, failed=lambda: None, options=options))
        return made[-1]

    yield one
    for daemon in made:
        if not daemon._region.closed:
            daemon.stop()
    for keeper in tmp_path.glob("keeper*"):
        shutil.rmtree(keeper, ignore_errors=True)


@pytest.mark.timeout(300)
def test_a_new_journal_over_an_old_keeper_folder_is_refused_or_taken_by_a_persons_word(
    tmp_path: Path, start: Start
) -> None:
    first, go = start("old"), tmp_path / "go"
    with deployment(first) as clients:
        job = clients.create(clients.request(instances=1, defaultConfig=marking_until(go)))
        clients.until(lambda: clients.job(job).runtime.state == job_pb2.RUNNING)
    assert first.stop()
    with pytest.raises(CannotStart, match="keeper serves cluster west.*--adopt-keeper") as refused:
        start("new")
    assert str(tmp_path / "keeper") in str(refused.value)
    again = start("old")
    again.greeted.result(WAIT_S_MAX)
    assert state_at(again, job) == job_pb2.RUNNING, "being refused harmed nobody"
    assert again.stop()
    taken = start("new", StartOptions(adopt_keeper=True))
    with deployment(taken) as clients:
        other = clients.create(clients.request(instances=1))
        assert clients.ended(other).done
    (ran,) = (tmp_path / "keeper.old-1" / "runs").iterdir()
    assert job in ran.name, "what it wrote is kept"
    with pytest.raises(CannotStart, match="serves cluster west"):
        start("old")
    taken.stop()
    start("new").greeted.result(WAIT_S_MAX)


def refused(file: Path) -> str:
    """The line of a daemon that does not start, beside the warning of one that runs as root."""
    printed = typed("daemon", "--config", str(file))
    lines = printed.err.splitlines()
    (line,) = [one for one in lines if not one.startswith("warning: tasks run as root")]
    assert printed.code == 69
    return line


def test_the_command_says_in_one_line_whose_the_folder_is(tmp_path: Path, start: Start) -> None:
    first = start("old")
    first.greeted.result(WAIT_S_MAX)
    assert first.stop()
    file = tmp_path / "daemon.yaml"
    file.write_text(yaml.safe_dump(alone(tmp_path, "new")))
    line = refused(file)
    assert line.startswith("peloton daemon: keeper folder ") and "--adopt-keeper" in line
    file.write_text(yaml.safe_dump(alone(tmp_path, "old") | {"cluster": "east"}))
    line = refused(file)
    assert "'west'" in line and "'east'" in line
