"""A daemon without others: its config is the whole cluster, its data folder is bound to a backend.

Whole daemons in this process with simulated runs. What a minicluster prints is tested elsewhere.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from peloton.actors.host.messages import StartMaintenance
from peloton.api.v0.job import job_pb2, job_pb2_grpc
from peloton.assembly.daemon import Daemon, ExternalServices
from peloton.assembly.readiness import Readiness
from peloton.failures import CannotStart
from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.ports import ClusterRecord, JournalRefused
from peloton.runtime.simulation.memory_rows import MemoryRows
from peloton.runtime.vocabulary import key
from peloton.settings.daemon import DaemonSettings, parse
from peloton.settings.start_options import STANDARD_START, StartOptions
from tests.adapters.test_daemon_wiring import (
    HOSTS,
    SHARDS,
    WAIT_S_MAX,
    Fleet,
    deployment,
    until,
)
from tests.adapters.test_damaged_shard import damage
from tests.channels import channel_to
from tests.gateway.fleet_fixture import default_config, named

SIMULATED = {"simulated": {"hosts": HOSTS}}
HERE = {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"}


def settings(folder: Path, **backend: Any) -> DaemonSettings:
    raw = {
        "cluster": "test",
        "listen": HERE,
        "journal": {"sqlite": {"folder": "data"}},
        "backend": backend or SIMULATED,
        "shards": SHARDS,
    }
    return parse(raw, folder)


def started(wanted: DaemonSettings, options: StartOptions = STANDARD_START) -> Daemon:
    """A daemon that is ready."""
    daemon = Daemon(wanted, failed=lambda: None, options=options)
    daemon.greeted.result(WAIT_S_MAX)
    return daemon


def hosts_of(daemon: Daemon) -> list[str]:
    found = Readiness(daemon._region, daemon._inventories).hosts()
    return sorted(view.summary.host for view in found)


def stats_at(daemon: Daemon, job: str) -> dict[str, int]:
    """The instances of a job by state, as any client of this daemon sees them."""
    with channel_to(daemon.grpc) as channel:
        answer = job_pb2_grpc.JobManagerStub(channel).Get(job_pb2.GetRequest(id=named(job)))
        return {state: count for state, count in answer.jobInfo.runtime.taskStats.items() if count}


# ---- hosts that left the config ----


def test_a_host_gone_from_the_config_is_retired_with_its_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The config of the backend says how long runs last that it finds after a restart.
    lasting = {"hosts": HOSTS, "duration_s": 600.0}
    daemon = started(settings(tmp_path, simulated=lasting))
    with deployment(daemon) as clients:
        config = default_config(seconds=600.0)
        config.resource.cpuLimit = 3.0  # one for each host
        job = clients.create(clients.request(instances=3, defaultConfig=config))
        clients.until(lambda: clients.job(job).runtime.taskStats["RUNNING"] == 3)
    assert daemon.stop()
    assert "warning" not in capsys.readouterr().err
    fewer = settings(tmp_path, simulated={**lasting, "hosts": HOSTS[:2]})
    daemon = started(fewer)
    assert hosts_of(daemon) == ["host/a", "host/b"]
    warning = "warning: host/c is not part of the cluster any more: its tasks are lost\n"
    assert capsys.readouterr().err == warning
    wanted = {"RUNNING": 2, "PENDING": 1}
    until(lambda: stats_at(daemon, job), lambda found: bool(found == wanted))
    assert daemon.stop()
    daemon = started(fewer)
    assert capsys.readouterr().err == "", "it is gone for good"
    assert daemon.stop()
    daemon = started(settings(tmp_path))
    assert hosts_of(daemon) == ["host/a", "host/b", "host/c"], "and may come back"
    assert daemon.stop()


def test_a_fleet_retires_no_host_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    fleet = Fleet()
    try:
        fleet.start("one").greeted.result(WAIT_S_MAX)
        assert fleet.daemons.pop("one").stop()
        fewer = fleet.start("two", hosts=HOSTS[:2])
        fewer.greeted.result(WAIT_S_MAX)
        assert hosts_of(fewer) == ["host/a", "host/b", "host/c"]
        assert "not part of the cluster" not in capsys.readouterr().err
    finally:
        fleet.close()


def test_a_daemon_is_ready_while_a_host_is_down_for_maintenance(tmp_path: Path) -> None:
    """The root pool does not count it, and is not waited for."""
    daemon, host = started(settings(tmp_path)), key("host", "a")
    assert daemon._region.ask(host, StartMaintenance()).result(WAIT_S_MAX)
    assert daemon.stop()
    daemon = started(settings(tmp_path))
    found = Readiness(daemon._region, daemon._inventories).hosts()
    assert [view.summary.host for view in found if view.maintenance] == [host]
    assert daemon.stop()


# ---- the data folder ----


def test_a_folder_keeps_the_backend_it_was_created_with(tmp_path: Path) -> None:
    assert started(settings(tmp_path)).stop()
    assert (tmp_path / "data" / "backend").read_text() == "simulated\n"
    process = settings(tmp_path, process={"folder": "keeper", "hosts": HOSTS})
    with pytest.raises(CannotStart, match="simulated backend.* Start it with backend.simulated"):
        Daemon(process, failed=lambda: None)
    assert not (tmp_path / "keeper").exists(), "nothing was touched"
    assert started(settings(tmp_path)).stop(), "and the folder was let go"


@pytest.mark.parametrize("name", ["simulated", "process"])
def test_a_folder_that_has_no_mark_gets_one(tmp_path: Path, name: str) -> None:
    wanted = {"hosts": HOSTS} | ({"folder": "elsewhere/keeper"} if name == "process" else {})
    try:
        assert started(settings(tmp_path, **{name: wanted})).stop()
        mark = tmp_path / "data" / "backend"
        mark.unlink()
        assert started(settings(tmp_path, **{name: wanted})).stop()
        assert mark.read_text() == f"{name}\n"
    finally:
        shutil.rmtree(tmp_path / "elsewhere", ignore_errors=True)  # its keeper leaves


def test_fresh_begins_anew(tmp_path: Path) -> None:
    assert started(settings(tmp_path)).stop()
    journal = SqliteJournal(tmp_path / "data" / "journal.sqlite")
    before = journal.bootstrap(SHARDS).cluster_id
    journal.close()
    daemon = started(settings(tmp_path), StartOptions(fresh=True))
    assert daemon._record.cluster_id != before
    assert daemon.stop()


# ---- all or nothing ----


def test_all_or_nothing_is_ready_once_it_is_made(tmp_path: Path) -> None:
    daemon = Daemon(
        settings(tmp_path), failed=lambda: None, options=StartOptions(all_or_nothing=True)
    )
    assert daemon.greeted.done() and daemon.health() == (True, [])
    assert daemon.stop()


def test_all_or_nothing_lets_go_of_everything_when_a_shard_is_damaged(tmp_path: Path) -> None:
    assert started(settings(tmp_path)).stop()
    number = damage(tmp_path / "data" / "journal.sqlite", "hostmgr")
    for _ in range(2):
        with pytest.raises(CannotStart, match=f"^shard hostmgr/{number}: damaged: "):
            started(settings(tmp_path), StartOptions(all_or_nothing=True))


# ---- letting go ----


def breaks() -> None:
    raise ZeroDivisionError("no room")


WARNING = "warning: breaks failed: ZeroDivisionError: no room"


def test_a_step_that_fails_is_reported_and_all_others_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = started(settings(tmp_path))
    capsys.readouterr()
    daemon._undo[1:1] = [breaks]
    daemon._undo.append(breaks)
    assert daemon.stop()
    assert capsys.readouterr().err.splitlines() == [WARNING, WARNING]
    assert started(settings(tmp_path)).stop(), "journal and folder were released"


class BreaksAtLast(Daemon):
    """A bug in the hand-over."""

    def _hand_over(self) -> bool:
        super()._hand_over()
        raise ZeroDivisionError("no room")


def test_a_stop_that_breaks_lets_go_of_everything(tmp_path: Path) -> None:
    daemon = BreaksAtLast(settings(tmp_path), failed=lambda: None)
    daemon.greeted.result(WAIT_S_MAX)
    with pytest.raises(ZeroDivisionError, match="no room"):
        daemon.stop()
    assert started(settings(tmp_path)).stop()


class BreaksAtClosing(FencedRows):
    """A journal that can be neither used nor closed."""

    def bootstrap(
        self, groups: Mapping[str, int], *, name: str = "", level: int = 0
    ) -> ClusterRecord:
        raise JournalRefused("another cluster's")

    def close(self) -> None:
        breaks()


def test_a_start_that_fails_says_why_and_not_what_failed_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = ExternalServices(BreaksAtClosing(MemoryRows(), process=bytes(16)))
    with pytest.raises(CannotStart, match="another cluster's"):
        Daemon(settings(tmp_path), failed=lambda: None, outside=outside)
    assert "BreaksAtClosing.close failed: ZeroDivisionError" in capsys.readouterr().err


def test_a_line_for_people_goes_nowhere_when_stderr_is_closed() -> None:
    """Not to stdout, which programs read."""
    program = 'from peloton.assembly.process_log import log_line; log_line("warning")'
    line = f"{sys.executable} -c '{program}' 2>&-"
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=WAIT_S_MAX)
    assert (done.returncode, done.stdout) == (0, b"")
