"""`peloton plan`: what it prints, and its exit codes. The plans are the fake's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peloton.cli import exits
from peloton.ops.v1 import plans_pb2 as plans
from tests.cli.terminal import Terminal

JOB_FILE = """\
name: a
instancecount: 7
defaultconfig: {command: {value: ls}, resource: {cpulimit: 0.5, memlimitmb: 1, disklimitmb: 1}}
"""
POOL_FILE = "name: new\nresources: [{kind: cpu, limit: 2}]\n"


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    file = tmp_path / "job.yaml"
    file.write_text(JOB_FILE)
    return str(file)


@pytest.fixture
def pool_file(tmp_path: Path) -> str:
    file = tmp_path / "pool.yaml"
    file.write_text(POOL_FILE)
    return str(file)


def make_pool(peloton: Terminal, path: str, tmp_path: Path) -> None:
    file = tmp_path / "made.yaml"
    file.write_text(POOL_FILE.replace("new", path.strip("/")))
    assert peloton("respool", "create", path, str(file)).code == 0


def test_a_job_that_would_start(peloton: Terminal, job_file: str, tmp_path: Path) -> None:
    make_pool(peloton, "/default", tmp_path)
    found = peloton.cluster.planned_job
    found.pool, found.instances, found.admitted, found.placed = "/default", 7, 7, 7
    found.hosts_in_all = 12
    for number in range(11):
        found.hosts.add(name=f"h{number}", instances=1)
    printed = peloton("plan", "job", job_file)
    assert (printed.code, printed.err) == (0, "")
    first, hosts = printed.out.splitlines()
    assert first == (
        "of 7 instances 7 would be admitted by pool /default at once, and 7 would get a host"
    )
    assert hosts.startswith("hosts: h0 (1), h1 (1)") and hosts.endswith("h9 (1) and 2 more")
    sent = peloton.cluster.called("PlanJob")[0].request.config
    assert sent.instanceCount == 7 and sent.respoolID.value
    assert not peloton.cluster.called("Create")
    assert json.loads(peloton("plan", "job", job_file, "-o", "json").out)["admitted"] == 7


def test_a_job_that_would_wait_or_evict(peloton: Terminal, job_file: str, tmp_path: Path) -> None:
    make_pool(peloton, "/default", tmp_path)
    found = peloton.cluster.planned_job
    found.pool, found.instances, found.verdict = "/default", 7, plans.VERDICT_PREEMPTS
    wait = found.waits.add(instances=7, code="pool-limit", text="full")
    wait.blockers.add(code="pool-limit", text="limit of pool /default: cpu 1", change="it grows")
    wait.estimate.basis = "no task has released cpu lately"
    given = found.given_back.add(pool="/b", job="x", instances=3)
    given.amount.cpu, given.amount.memory_mb = 3, 30
    found.given_back.add(instances=1)
    found.admitted_later, found.preempts_after_s = 4, 300
    printed = peloton("plan", "job", job_file)
    assert printed.code == exits.PLAN_PREEMPTS == 82
    assert printed.out.splitlines()[1:] == [
        "7 would wait: pool-limit: full",
        "  pool-limit: limit of pool /default: cpu 1",
        "    until it grows",
        "  no estimate: no task has released cpu lately",
        "preempted: 3 of job x in pool /b, which hold cpu 3, memory 30 MB",
        "preempted: 1 of a pool of others, which hold nothing",
        "4 more would be admitted once these have ended: they are asked after about 5 min",
    ]
    for verdict, code in ((plans.VERDICT_WAITS, 80), (plans.VERDICT_NEVER, 81)):
        found.verdict = verdict
        assert peloton("plan", "job", job_file).code == code
        assert f"\n    {code}  some" in peloton("plan", "job", "--help").out


def test_a_pool(peloton: Terminal, pool_file: str, tmp_path: Path) -> None:
    found = peloton.cluster.planned_pool
    share = found.shares.add(path="/new")
    share.after.cpu, share.wanted.cpu = 2, 1
    printed = peloton("plan", "pool", pool_file)
    lines = [line.split() for line in printed.out.splitlines()]
    assert printed.code == 0 and lines[1][0].startswith("/new")
    assert printed.out.splitlines()[-1] == (
        "nobody who waits would be admitted, and nobody would be ended"
    )
    assert peloton.cluster.called("PlanPool")[0].request.pool_id == ""
    assert not peloton.cluster.called("CreateResourcePool")
    make_pool(peloton, "/new", tmp_path)
    found.admitted.add(pool="/new", job="x", instances=3)
    found.given_back.add(pool="/b", job="y", instances=2)
    found.preempts_after_s = 30
    last = peloton("plan", "pool", pool_file, "/new").out.splitlines()[-3:]
    assert last == [
        "admitted: 3 of job x in pool /new",
        "preempted: 2 of job y in pool /b, which hold nothing",
        "they are asked after about 30 s",
    ]
    assert peloton.cluster.called("PlanPool")[1].request.pool_id


def test_a_wrong_file(peloton: Terminal, tmp_path: Path) -> None:
    make_pool(peloton, "/default", tmp_path)
    file = tmp_path / "wrong.yaml"
    file.write_text("name: a\ninstancecuont: 1\n")
    printed = peloton("plan", "job", str(file))
    assert printed.code == exits.BAD_SPEC and "instancecuont" in printed.err
    assert "did you mean instanceCount" in printed.err
