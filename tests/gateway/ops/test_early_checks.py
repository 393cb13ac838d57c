"""What will be in the way of an instance that waits for its job: of pools and hosts in a list.

No server, and no cluster: the checks alone.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import Future
from typing import Any

import pytest
from msgspec.structs import replace

from peloton.actors.host.inventory.messages import HostView, inventory_key
from peloton.actors.host.stages import HostStates
from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.job.slice.task_config import TaskConfig
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.messages import ROOT, PoolConfig, PoolView
from peloton.gateway.cluster import soon
from peloton.gateway.cluster.cluster_client import ClusterClient, unopened
from peloton.gateway.ops import early_checks
from peloton.gateway.ops.early_checks import EarlyChecks
from peloton.ops.v1 import ops_pb2 as ops
from peloton.placement.messages import Constraint
from peloton.placement.reasons import OPEN_SETS_MAX
from peloton.runtime.vocabulary import Key
from tests.gateway.cluster.test_answers import Call
from tests.gateway.v0.test_task_query import job_of
from tests.placement.hosts import host, label

ROOM = Resources(cpu=4 * UNIT, memory=4 * UNIT, slack=2 * UNIT)
POOL = Key("respool/p")
JOB = job_of(5)


def pool(key: Key, path: str, limit: Resources) -> PoolView:
    config = PoolConfig(path.strip("/"), ROOT, Resources(), limit)
    return PoolView(key, path, config, (), Resources(), Resources())


class Cluster:
    """Answers with these pools and hosts, or, where there are none, not at all."""

    def __init__(self, *hosts: HostView) -> None:
        self.hosts = hosts
        self.asked: list[Key] = []

    def ask(self, key: Key, query: Any) -> Future[Any]:  # noqa: ARG002
        self.asked.append(key)
        future: Future[Any] = Future()
        if self.hosts:
            # As clients write it: they have no word for slack.
            mine = pool(POOL, "/p", ROOM.with_slack(0))
            future.set_result((mine, pool(ROOT, "/", ROOM)) if key == ROOT else self.hosts)
        return future

    def shards_of(self, kind: str) -> list[Key]:
        return [Key(f"{kind}/0")]


UP = HostView(replace(host("a", ROOM), up=True), HostStates.UP, 0)


def checks_of(cluster: Cluster) -> EarlyChecks:
    return EarlyChecks(ClusterClient(cluster), scarce_gpu=False)  # type: ignore[arg-type]


def waiting(need: Resources, where: Constraint | None = None) -> InstanceView:
    of = TaskConfig(name="one", resources=need, constraint=where)
    return replace(unopened(JOB, 0), code="LIMIT", config=of)


def told(checks: EarlyChecks, *views: InstanceView) -> list[ops.Blocker]:
    job, reason = checks.of_job(JOB, Call()), ops.Reason()
    for view in views:
        job.add(reason, view)
    return [*reason.blockers]


def test_what_fits_is_not_held_up_by_pools_or_hosts() -> None:
    assert told(checks_of(Cluster(UP)), waiting(Resources(cpu=4 * UNIT))) == []


def test_no_pool_has_a_limit_of_slack() -> None:
    assert told(checks_of(Cluster(UP)), waiting(Resources(slack=UNIT, memory=UNIT))) == []
    more = told(checks_of(Cluster(UP)), waiting(Resources(slack=3 * UNIT)))
    assert [(each.code, each.pool, each.never) for each in more] == [
        ("cluster-full", "/", False),
        ("hosts", "", False),
    ]


def test_for_one_answer_what_does_not_come_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (early_checks, soon):
        monkeypatch.setattr(module, "READ_S_MAX", 0.0)
    cluster = Cluster()
    assert told(checks_of(cluster), *[waiting(Resources(cpu=9 * UNIT))] * 3) == []
    assert cluster.asked == [ROOT, inventory_key(0)]


def test_what_is_known_of_hosts_is_read_by_one_thread_at_a_time() -> None:
    checks, errors = checks_of(Cluster(UP)), list[BaseException]()
    most = OPEN_SETS_MAX

    def ask(name: str) -> None:
        try:
            for number in range(2 * most):
                where = label("host", "rack", f"{name}{number}")
                assert told(checks, waiting(Resources(cpu=UNIT), where))
        except BaseException as error:
            errors.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=ask, args=(name,)) for name in "abcd"]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(before)
    assert errors == []
