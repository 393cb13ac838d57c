"""The maintenance of a host at a real master of Mesos: into its schedule, down, up, and used again.

The master is asked what it knows, and a second framework what it is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peloton.backends.mesos.masters.calls import CallRefused
from peloton.backends.mesos.masters.driver import MesosDriver
from tests.adapters.mesos.mesos_daemon import job_file, on_mesos, operated, said
from tests.adapters.test_daemon_wiring import until
from tests.contracts.mesos_calls import framework
from tests.e2e.cluster import until_there
from tests.servers import mesos_home
from tests.servers.mesos import Mesos

LATER_S = 86_400


def on(agent: str) -> dict[str, Any]:
    """The constraint that names one agent."""
    label = {"key": "host", "value": agent}
    equal = {"kind": "HOST", "condition": "CONDITION_EQUAL", "label": label, "requirement": 1}
    return {"type": "LABEL_CONSTRAINT", "labelconstraint": equal}


def machines(mesos: Mesos) -> tuple[list[str], list[str]]:
    """Who is in the schedule of the master, and who is down there."""
    schedule = operated(mesos, "GET_MAINTENANCE_SCHEDULE")["schedule"]
    status = operated(mesos, "GET_MAINTENANCE_STATUS")["status"]
    entered = [one for window in schedule.get("windows", ()) for one in window["machine_ids"]]
    down = status.get("down_machines", ())
    return sorted(one["hostname"] for one in entered), sorted(one["hostname"] for one in down)


def state(host: str, say: Callable[..., str] = said) -> str:
    """The state of a host as `host query` says it; empty for one that is not there yet."""
    rows = [line.split("|") for line in say("host", "query").splitlines()]
    found = [row[2].strip() for row in rows if row[0].strip() == host]
    assert len(found) <= 1, found
    return found[0] if found else ""


def running(job: str, host: str) -> int:
    """How many instances of a job run on a host."""
    rows = [line for line in said("task", "list", job).splitlines() if "RUNNING" in line]
    return sum(host in line for line in rows)


@pytest.mark.timeout(300)
def test_a_host_is_maintained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mesos_home.needed_home()
    gate = tmp_path / "gate"
    with on_mesos(tmp_path, monkeypatch) as mesos:
        said("respool", "create", "/HelloWorldPool", "examples/hello_world_pool.yaml")
        command = f"trap '{until_there(gate)}; exit 1' TERM; {until_there(gate)}"
        stubborn = job_file(tmp_path, command)
        job = said("job", "create", "/HelloWorldPool", stubborn).split()[1]
        until(lambda: sum(running(job, f"mesos.{one.hostname}") for one in mesos.agents) == 4)
        agent, other = sorted(mesos.agents, key=lambda one: -running(job, f"mesos.{one.hostname}"))
        ours, theirs, host = agent.hostname, other.hostname, f"mesos.{agent.hostname}"
        schedule = scheduled_later(mesos, theirs)
        said("host", "maintenance", "start", host)
        until(lambda: machines(mesos) == (["h1", "h2"], []))
        assert state(host) == "DRAINING"
        gate.touch()
        until(lambda: state(host) == "DOWN")
        assert machines(mesos) == (["h1", "h2"], [ours])
        mesos.wait_gone(agent)
        said("host", "maintenance", "complete", host)
        until(lambda: machines(mesos) == ([theirs], []))
        assert operated(mesos, "GET_MAINTENANCE_SCHEDULE") == schedule, "theirs is as it was"
        agent.kill()  # the master has ended it; this waits for that
        mesos.restart(agent)
        until(lambda: state(host) == "UP")
        assert "4 SUCCEEDED" in said("job", "wait", job)
        pinned = job_file(tmp_path, "true", task={"constraint": on(ours)})
        job = said("job", "create", "/HelloWorldPool", pinned).split()[1]
        assert "4 SUCCEEDED" in said("job", "wait", job)


def scheduled_later(mesos: Mesos, hostname: str) -> dict[str, Any]:
    """An operator of Mesos has entered a machine; the schedule."""
    window = {
        "machine_ids": [{"hostname": hostname, "ip": "127.0.0.1"}],
        "unavailability": {"start": {"nanoseconds": int((time.time() + LATER_S) * 1e9)}},
    }
    schedule = {"schedule": {"windows": [window]}}
    operated(mesos, "UPDATE_MAINTENANCE_SCHEDULE", schedule)
    return schedule


@pytest.mark.timeout(120)
def test_what_a_master_refuses_its_operators_is_told_apart(tmp_path: Path) -> None:
    mesos_home.needed_home()
    mesos = Mesos.start(tmp_path / "mesos")
    try:
        ended: list[str] = []
        heard: list[Any] = []
        driver = MesosDriver(mesos.address, framework(), heard=heard.append, ended=ended.append)
        driver.start()
        try:
            until(lambda: driver.connected)
            body = {"machines": [{"hostname": "h1", "ip": "127.0.0.1"}]}
            with pytest.raises(CallRefused, match=r"^the master refuses STOP_.*: 400 Machine.*h1"):
                driver.ask({"type": "STOP_MAINTENANCE", "stop_maintenance": body})
            assert driver.ask({"type": "GET_VERSION"})["type"] == "GET_VERSION"
        finally:
            driver.stop()
            driver.join()
    finally:
        mesos.stop()
