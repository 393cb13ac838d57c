"""A minicluster with a file of permissions, as a process: refused, changed, logged."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from peloton.sdk.errors import PelotonError
from tests.e2e import cluster as c

OPEN = "pools:\n  /: {administer: ['*']}\n"
CLOSED = "pools:\n  /: {administer: [], see: ['*']}\n"


def until(wanted: Callable[[], str | bool]) -> str | bool:
    end_s = time.monotonic() + c.WAIT_MAX_S
    while time.monotonic() < end_s:
        found = wanted()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it never came to be")


def test_permissions_of_a_real_cluster(tmp_path: Path) -> None:
    rules = tmp_path / "access.yaml"
    rules.write_text(OPEN)
    options = ("--backend", "simulated", "--access", str(rules))
    with c.running(tmp_path, *options) as cluster, cluster.client() as client:
        c.pool(client)
        job = str(client.jobs.create("/tests", c.job(1, "true")).jobId.value)
        rules.write_text(CLOSED)

        def denied() -> str:
            try:
                client.jobs.create("/tests", c.job(1, "true"))
            except PelotonError as error:
                return str(error)
            return ""

        assert "no permission to submit in pool /tests" in str(until(denied))
        assert client.jobs.get(job), "it may still be seen"
        log = tmp_path / "data" / "audit.log"
        until(lambda: "PERMISSION_DENIED" in log.read_text())
        cluster.kill()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line for line in lines if line["objects"].get("job") == job]
    assert [line for line in lines if line["answer"] == "PERMISSION_DENIED"]


@pytest.mark.parametrize("check", [(), ("--check",)])
def test_a_bad_file_is_refused_by_line(tmp_path: Path, check: tuple[str, ...]) -> None:
    rules = tmp_path / "access.yaml"
    rules.write_text("pools:\n  /: {adminster: []}\n")
    line = [sys.executable, "-m", "peloton", "minicluster", "--access", str(rules), *check]
    found = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert found.returncode == 64
    assert found.stderr.startswith(
        f"peloton minicluster: --access: {rules}: line 2: pools./: unknown permission `adminster`"
    )
