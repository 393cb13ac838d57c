"""`peloton plan`: what it prints, and its exit codes. The plans are the fake's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peloton.cli.shared import exits
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
        "    to do: it grows",
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


def test_a_pool_is_explained_step_by_step(peloton: Terminal) -> None:
    found = peloton.cluster.explained_pool
    found.pool.path, found.above.path = "/a", "/"
    found.pool.kinds.add(
        kind="cpu", reservation=6, limit=10, share=1, type="ELASTIC", entitlement=7, demand=13,
        allocation=8,
    )  # fmt: skip
    found.steps.add(
        kind="cpu", divided=12, need=10, by_reservation=6, by_need=1, entitlement=7,
        reserved_in_all=10, needed_in_all=26, shares_in_all=2,
    )  # fmt: skip
    beside = found.siblings.add(path="/b")
    beside.kinds.add(kind="cpu", reservation=4, allocation=1, entitlement=5)
    found.siblings.add(path="/c")
    found.waiting_in_all, found.text = 13, "limit of pool /a reached"
    waits = found.waiting.add(job="j", instances=3, priority=2, gang=True, text="it waits")
    waits.need.cpu = 3
    gives = found.giving.add(pool="/a", job="k", instances=1, text="preempted: for /b")
    gives.amount.cpu = 1
    printed = peloton("pool", "explain", "/a")
    assert (printed.code, printed.err) == (0, "")
    assert printed.out.splitlines() == [
        "cpu: entitled to 7 of the 12 of /; it needs 10, and holds 8",
        "  6 of its reservation of 6: what it needs",
        "  1 of what it needs beyond that: 2 are left, 26 are needed, its share is 1 of 2",
        "  0 of what nobody needs: by share, up to its limit of 10",
        "  it gives back 1 when others need it",
        "beside it:",
        "  /b: cpu 1 held, 0 waited for, entitled to 5; it lends 3 of its reservation",
        "  /c: unused",
        "13 tasks wait: limit of pool /a reached",
        "  job j: 3 of priority 2, a gang, cpu 3: it waits",
        "  and 10 more",
        "giving back: 1 of job k in pool /a, which hold cpu 1: preempted: for /b",
    ]
    found.steps[0].scaled_down = True
    scaled = peloton("pool", "explain", "/a").out.splitlines()[1]
    assert scaled.endswith("which is more than there is, so each is served in proportion")
    assert json.loads(peloton("pool", "explain", "/a", "-o", "json").out)["steps"]
    missing = peloton("pool", "explain", "/none")
    assert missing.code != 0 and "no such pool: /none" in missing.err


def test_a_history_has_a_line_for_each_hour_and_kind(peloton: Terminal) -> None:
    found = peloton.cluster.pool_history
    found.path = "/a"
    first = found.hours.add(began=3600, ended=7200, tasks=2)
    first.held.cpu, first.held.memory_mb, first.borrowed.cpu, first.given_back.cpu = 8, 100, 2.5, 1
    last = found.hours.add(began=7200, ended=9000, open=True)
    last.unused.cpu = 0.25
    printed = peloton("pool", "history", "/a")
    assert (printed.code, printed.err) == (0, "")
    head, *lines = [
        [cell.strip() for cell in line.split("|")][:-1] for line in printed.out.splitlines()
    ]
    assert head == [
        "From", "To", "Kind", "Held", "Borrowed", "Unused", "Given Back", "Tasks Ended",
    ]  # fmt: skip
    hour = ["1970-01-01T01:00:00Z", "1970-01-01T02:00:00Z"]
    assert lines == [
        [*hour, "cpu", "8", "2.5", "0", "1", "2"],
        [*hour, "memory", "100", "0", "0", "0", "2"],
        [hour[1], "now", "cpu", "0", "0", "0.25", "0", ""],
    ]
    assert len(json.loads(peloton("pool", "history", "/a", "-o", "json").out)["hours"]) == 2
    missing = peloton("pool", "history", "/none")
    assert missing.code != 0 and "no such pool: /none" in missing.err


@pytest.mark.parametrize(
    "words", [("run", "true"), ("map", "echo {}", ":::", "1"), ("plan", "job")]
)
def test_without_the_default_pool_it_is_said_how_to_make_it(
    peloton: Terminal, tmp_path: Path, words: tuple[str, ...]
) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text("name: a\ninstancecount: 1\ndefaultconfig: {command: {value: 'true'}}\n")
    printed = peloton(*words, *([str(spec)] if words[0] == "plan" else []))
    assert printed.code == (125 if words[0] == "run" else 66)
    assert printed.err == (
        "resource pool not found: /default; `peloton --api "
        f"{peloton.address} respool create /default FILE` makes it: with `name: default` alone in "
        "the FILE it has the limits of its parent, and examples/hello_world_pool.yaml shows what "
        "else there is\n"
    )
