"""`peloton doctor --mesos` at a real master, before, while and after a framework is there.

The judgements are tested in tests/backends/mesos/test_doctor.py.
"""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.adapters.mesos.mesos_daemon import EXAMPLE
from tests.adapters.test_daemon_wiring import until
from tests.adapters.test_fleet_words import foreground
from tests.cli.terminal import Printed, typed
from tests.servers import mesos_home
from tests.servers.mesos import PROBE_TIMEOUT_S, Mesos, ask
from tests.servers.zookeeper import ZooKeeper

OURS = "oneofours"


def file_of(folder: Path, master: str) -> Path:
    settings = yaml.safe_load(EXAMPLE.read_text())
    settings["listen"] = dict.fromkeys(settings["listen"], "127.0.0.1:0")
    settings["backend"]["mesos"] |= {"master": master, "framework": OURS}
    file = folder / "doctor.yaml"
    file.write_text(yaml.safe_dump(settings))
    return file


def with_credential(place: str) -> str:
    return place.replace("zk://", "zk://user:secret@")


def doctor(file: Path) -> Printed:
    return typed("doctor", "--mesos", str(file))


@pytest.mark.timeout(240)
def test_the_doctor_sees_a_cluster_and_our_framework_come_and_go(tmp_path: Path) -> None:
    mesos_home.needed_home()
    mesos = Mesos.start(tmp_path / "mesos")
    file = file_of(tmp_path, mesos.address)
    try:
        found = doctor(file)
        assert found.code == 0 and "no framework of ours is registered" in found.out, found
        with foreground(["daemon", "--config", str(file)]):
            until(lambda: f"frame   {OURS}: PARTITION_AWARE" in doctor(file).out)
            found = doctor(file)
            assert found.code == 0 and "agents  1" in found.out, found
            assert f"master  {mesos.address}, version 1." in found.out
            assert "role    peloton: weight 1, no quota" in found.out
            assert f"ok      {mesos.address}: all that hosts of Mesos need" in found.out
        until(lambda: "is not subscribed: after 7 days" in doctor(file).out)
        torn = urllib.request.Request(
            f"http://127.0.0.1:{mesos.leader().port}/api/v1",
            b'{"type":"TEARDOWN","teardown":{"framework_id":{"value":"%s"}}}' % OURS.encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(torn, timeout=PROBE_TIMEOUT_S).close()
        until(lambda: (ask(mesos.leader().port, "/frameworks") or {}).get("frameworks") == [])
        found = doctor(file)
        assert found.code == 1 and "wrong   framework oneofours has been removed" in found.out
        mesos.agents[0].kill()
        assert "agents do not answer from here: h1" in doctor(file).out
        until(lambda: "no agent is registered" in doctor(file).out)
    finally:
        mesos.stop()
    found = doctor(file)
    assert found.code == 69 and "no master answers: " in found.err


@pytest.mark.timeout(240)
def test_the_doctor_finds_the_master_in_zookeeper(tmp_path: Path) -> None:
    mesos_home.needed_home()
    zookeeper = ZooKeeper.start(tmp_path / "zookeeper")
    try:
        mesos = Mesos.start(tmp_path / "mesos", zookeeper=zookeeper.address)
        try:
            found = doctor(file_of(tmp_path, with_credential(mesos.address)))
            assert "secret" not in found.out + found.err
            assert f"master  127.0.0.1:{mesos.leader().port}" in found.out, found
        finally:
            mesos.stop()
        nobody = with_credential(f"zk://{zookeeper.address}/nothing")
        found = doctor(file_of(tmp_path, nobody))
        assert found.code == 69 and "secret" not in found.out + found.err
    finally:
        zookeeper.stop()


def test_a_file_without_mesos_is_said(tmp_path: Path) -> None:
    found = typed("doctor", "--mesos", "examples/daemon.yaml")
    assert found.code == 64 and "has no backend.mesos" in found.err
