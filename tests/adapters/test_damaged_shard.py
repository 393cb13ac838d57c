"""A shard whose journal cannot be read: it is named everywhere, and nobody is told to ask again."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import grpc
import pytest

from peloton.api.v0.job import job_pb2, job_pb2_grpc
from peloton.assembly.daemon import Daemon
from peloton.sdk.client import Client
from peloton.sdk.errors import PelotonError, ServerError, ServiceUnavailable
from peloton.settings.config import Address
from tests.adapters.test_daemon_wiring import WAIT_S_MAX, alone, deployment, until
from tests.channels import channel_to
from tests.gateway.fleet_fixture import named


def damage(file: Path, group: str) -> int:
    """Change a byte in a journaled frame of a shard of this group; its number."""
    with sqlite3.connect(file) as db:
        found = db.execute(
            "SELECT shard_number, position, body FROM journal WHERE shard_group = ?"
            " ORDER BY position DESC LIMIT 1",
            (group,),
        ).fetchone()
        number, position, body = found
        bad = body[:-1] + bytes([body[-1] ^ 1])
        where = "shard_group = ? AND shard_number = ? AND position = ?"
        db.execute(f"UPDATE journal SET body = ? WHERE {where}", (bad, group, number, position))
    return int(number)


def fetched(address: Address, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_daemon_is_live_never_ready_and_answers_data_loss(tmp_path: Path) -> None:
    daemon = Daemon(alone(tmp_path), failed=lambda: None)
    with deployment(daemon) as clients:
        job = clients.create(clients.request(instances=1))
        assert clients.ended(job).done
    assert daemon.stop()
    number = damage(tmp_path / "data" / "journal.sqlite", "jobmgr")
    daemon = Daemon(alone(tmp_path), failed=lambda: None)
    try:
        until(lambda: daemon._root.opened.done())
        until(lambda: len(daemon._region.daemon_health().reasons) == 1 or daemon.greeted.done())
        name = f"shard jobmgr/{number}"
        assert fetched(daemon.http, "/health")[0] == 200
        status, text = fetched(daemon.http, "/ready")
        assert status == 503 and name in text and "damaged" in text
        reasons = json.loads(fetched(daemon.http, "/ready?format=json")[1])["reasons"]
        assert [one["shards"] for one in reasons if one["damaged"]] == [[f"jobmgr/{number}"]]
        request = job_pb2.GetRequest(id=named(job))
        with (
            channel_to(daemon.grpc) as channel,
            pytest.raises(grpc.RpcError) as caught,
        ):
            job_pb2_grpc.JobManagerStub(channel).Get(request, timeout=60)
        assert caught.value.code() is grpc.StatusCode.DATA_LOSS
        text = caught.value.details()
        assert name in text and "differs from what was written" in text
        # Whoever asked again and again would do so until the test is given up.
        with Client(str(daemon.grpc), timeout_s=3600.0) as client:
            with pytest.raises(PelotonError) as seen:
                client.jobs.query()
            assert isinstance(seen.value, ServerError) and not isinstance(
                seen.value, ServiceUnavailable
            )
            assert name in str(seen.value)
        assert not daemon.greeted.done(), "it is never ready"
    finally:
        daemon.stop()


def minicluster(folder: Path) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "peloton", "minicluster", "--backend", "simulated"]
    line += ["--data-dir", str(folder), "--no-classic-ports"]
    line += ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_minicluster_says_what_is_damaged_instead_of_ready(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with minicluster(folder) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready: grpc ")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT_S_MAX)
    number = damage(folder / "journal.sqlite", "hostmgr")
    with minicluster(folder) as process:
        watch = threading.Timer(WAIT_S_MAX, process.kill)
        watch.start()
        out, errors = process.communicate()
        watch.cancel()
    assert (process.returncode, out) == (69, ""), errors
    (line,) = errors.splitlines()
    assert line.startswith(f"peloton minicluster: shard hostmgr/{number}: damaged: "), errors
