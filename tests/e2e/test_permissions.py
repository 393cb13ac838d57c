"""A minicluster with a file of permissions, as a process: refused, changed, logged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from peloton.sdk.errors import PelotonError
from tests.e2e import cluster as c

OPEN = "pools:\n  /: {administer: ['*']}\n"
CLOSED = "pools:\n  /: {administer: [], see: ['*']}\n"


def test_permissions_of_a_real_cluster(tmp_path: Path) -> None:
    rules = tmp_path / "access.yaml"
    rules.write_text(OPEN)
    options = ("--backend", "simulated")
    with (
        c.running(tmp_path, *options, access={"file": str(rules)}) as cluster,
        cluster.client() as client,
    ):
        c.pool(client)
        job = str(client.jobs.create("/tests", c.job(1, "true")).jobId.value)
        rules.write_text(CLOSED)

        def denied() -> str:
            try:
                client.jobs.create("/tests", c.job(1, "true"))
            except PelotonError as error:
                return str(error)
            return ""

        assert "no permission to submit in pool /tests" in str(
            c.wait_for(denied, "the rules to be read")
        )
        assert client.jobs.get(job), "it may still be seen"
        log = tmp_path / "data" / "audit.log"
        c.wait_for(lambda: "PERMISSION_DENIED" in log.read_text(), "the line")
        cluster.kill()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line for line in lines if line["objects"].get("job") == job]
    assert [line for line in lines if line["answer"] == "PERMISSION_DENIED"]


@pytest.mark.parametrize("check", [(), ("--check",)])
def test_a_bad_file_is_refused_by_line(tmp_path: Path, check: tuple[str, ...]) -> None:
    rules = tmp_path / "access.yaml"
    rules.write_text("pools:\n  /: {adminster: []}\n")
    file = tmp_path / "cluster.yaml"
    file.write_text("access: {file: access.yaml}")
    line = [sys.executable, "-m", "peloton", "minicluster", "--cluster", str(file), *check]
    found = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert found.returncode == 64
    assert found.stderr.startswith(
        f"peloton minicluster: --cluster: {file}: line 1: access.file: {rules}: line 2: pools./: "
        "unknown permission `adminster`"
    )
