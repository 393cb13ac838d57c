"""ResourceManager: errors inside OK answers, in the original's order; usage; reading back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from peloton.actors.resources import Resources
from peloton.actors.respool.messages import (
    ROOT,
    GetPool,
    ListPools,
    PoolConfig,
    PoolView,
    pool_key,
)
from peloton.actors.respool.queries import list_pools
from peloton.actors.respool.state import Pool
from peloton.actors.respool.tree import Tree
from peloton.api.v0.respool import respool_pb2 as respool
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.cluster.cluster_client import all_pages
from peloton.runtime.vocabulary import At
from tests.gateway.fleet_fixture import Deployment, default_config, named, pool_config

NAN = float("nan")
Change = Callable[[Any], Any]


def cpu(**fields: Any) -> Change:
    def change(config: Any) -> None:
        for name, value in fields.items():
            setattr(config.resources[0], name, value)

    return change


CONFIGS: list[tuple[str, Change, str]] = [
    ("nan", cpu(reservation=NAN), "config.resources[cpu].reservation: nan is not a finite"),
    ("inf", cpu(limit=float("inf")), "config.resources[cpu].limit: inf is not a finite"),
    ("minus", cpu(limit=-1.0), "config.resources[cpu].limit: -1.0 is negative"),
    ("share", cpu(share=-1.0), "config.resources[cpu].share: -1.0 is negative"),
    ("kind", cpu(kind="shoes"), "config.resources[0].kind: resource kind 'shoes' must be one of"),
    ("twice", lambda c: c.resources.add(kind="cpu"), "duplicate resource kind cpu"),
    ("policy", lambda c: setattr(c, "policy", 9), "config.policy: unknown scheduling policy 9"),
    ("reservation over limit", cpu(reservation=5.0, limit=4.0),
     "resource cpu: reservation 5 exceeds limit 4"),
    ("no name", lambda c: setattr(c, "name", ""), "name is empty"),
    ("slash", lambda c: setattr(c, "name", "a/b"), "has a slash"),
    ("no parent", lambda c: setattr(c.parent, "value", "nobody"), "not found"),
    ("parent not said", lambda c: c.ClearField("parent"), "not found"),
    ("over the parent", cpu(limit=13.0),
     "resource cpu: limit 13 exceeds limit 12 of parent /, which is what all hosts have together"),
    ("taken", lambda c: setattr(c, "name", "work"), "resource pool /work already exists"),
    ("reservations", cpu(reservation=12.0, limit=12.0), "reservations of all children"),
    ("controllers", lambda c: setattr(c.controllerLimit, "maxPercent", 101.0), "100 percent"),
    ("no percentage", lambda c: setattr(c.slackLimit, "maxPercent", NAN),
     "config.slackLimit.maxPercent: must be ≥ 0, got nan"),
    ("no such rule", lambda c: setattr(c, "withinReservation", "sometimes"),
     "config.withinReservation: must be one of 'never', 'reserved', 'always', got 'sometimes'"),
    ("no such queue", lambda c: setattr(c, "queue", "fifo"),
     "config.queue: must be one of 'best-effort', 'strict', got 'fifo'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "text"), [row[1:] for row in CONFIGS], ids=[row[0] for row in CONFIGS]
)
def test_a_pool_that_cannot_be(deployment: Deployment, change: Change, text: str) -> None:
    if text == "reservations of all children":
        deployment.pools.CreateResourcePool(respool.CreateRequest(config=reserving("holds")))
    config = pool_config("bad")
    change(config)
    before = deployment.pools.Query(respool.QueryRequest()).resourcePools
    answer = deployment.pools.CreateResourcePool(respool.CreateRequest(config=config))
    assert text in answer.error.invalidResourcePoolConfig.message
    assert not answer.HasField("result")
    assert deployment.pools.Query(respool.QueryRequest()).resourcePools == before


def reserving(name: str) -> respool.ResourcePoolConfig:
    config = pool_config(name)
    config.resources[0].reservation = 1.0
    return config


def get(deployment: Deployment, pool_id: str, **more: Any) -> respool.GetResponse:
    return deployment.pools.GetResourcePool(respool.GetRequest(id={"value": pool_id}, **more))


def test_a_pool_is_read_back_with_every_kind(deployment: Deployment) -> None:
    config = respool.ResourcePoolConfig(name="read", owningTeam="o", ldapGroups=["g"])
    config.parent.value = "root"
    config.resources.add(kind="cpu", reservation=0.5, limit=1.5, share=2, type=respool.STATIC)
    config.slackLimit.maxPercent = 33.0
    config.withinReservation = "never"
    config.queue = "strict"
    created = deployment.pools.CreateResourcePool(respool.CreateRequest(config=config)).result.value
    info = get(deployment, created).poolinfo
    assert [one.kind for one in info.config.resources] == ["cpu", "memory", "disk", "gpu"]
    assert info.config.resources[0] == config.resources[0]
    assert (info.config.resources[1].limit, info.config.resources[1].share) == (0.0, 1.0)
    assert info.config.policy == respool.PriorityFIFO
    assert (info.config.owningTeam, info.config.slackLimit.maxPercent) == ("o", 33.0)
    assert (info.config.withinReservation, info.config.queue) == ("never", "strict")
    assert (info.path.value, info.parent.value, info.id.value) == ("/read", "root", created)
    assert [(use.kind, use.allocation, use.slack) for use in info.usage] == [
        (kind, 0.0, 0.0) for kind in ("cpu", "memory", "disk", "gpu")
    ]


def test_a_kind_of_no_type_is_read_back_with_the_type_that_it_has(deployment: Deployment) -> None:
    config = pool_config("typeless")
    assert config.resources[0].type == respool.UNKNOWN_TYPE
    created = deployment.pools.CreateResourcePool(respool.CreateRequest(config=config)).result.value
    found = get(deployment, created).poolinfo.config.resources
    assert {one.type for one in found} == {respool.ELASTIC}


def test_the_root_has_what_the_cluster_has(deployment: Deployment) -> None:
    root = deployment.pools.GetResourcePool(respool.GetRequest(includeChildPools=True))
    assert root.poolinfo.id.value == "root"
    assert root.poolinfo.path.value == "/"
    limits = {one.kind: one.limit for one in root.poolinfo.config.resources}
    assert limits == {"cpu": 12.0, "memory": 6144.0, "disk": 60000.0, "gpu": 0.0}
    assert deployment.pool in {child.id.value for child in root.childPools}
    missing = get(deployment, "nobody").error.notFound
    assert (missing.id.value, missing.message) == ("nobody", "resource pool not found")


def test_lookup(deployment: Deployment) -> None:
    def look(path: str | None) -> respool.LookupResponse:
        sent = respool.LookupRequest()
        if path is not None:
            sent.path.value = path
        return deployment.pools.LookupResourcePoolID(sent)

    assert look("/").id.value == "root"
    assert look("/work").id.value == look("/work/").id.value == deployment.pool
    for bad in (None, "", "work", "../x"):
        assert look(bad).error.HasField("invalidPath")
        assert not look(bad).id.value
    assert look("/nobody").error.HasField("notFound")
    assert not look("/nobody").id.value


def test_deleting(deployment: Deployment) -> None:
    def delete(path: str) -> respool.DeleteResponse.Error:
        sent = respool.DeleteRequest(path={"value": path})
        return deployment.pools.DeleteResourcePool(sent).error

    parent = deployment.make_pool("above")
    child = deployment.make_pool("below", parent)
    assert delete("/nobody").HasField("notFound")
    assert delete("").HasField("notFound")
    assert delete("/").HasField("notDeleted")
    assert delete("/above").isNotLeaf.id.value == parent
    request = deployment.request(1, defaultConfig=default_config(seconds=60))
    request.config.respoolID.value = child
    job_id = deployment.create(request)
    deployment.until(lambda: get(deployment, child).poolinfo.usage[0].allocation == 0.1)
    assert get(deployment, parent).poolinfo.usage[0].allocation == 0.1
    assert delete("/above/below").isBusy.id.value == child
    deployment.tasks.Stop(task.StopRequest(jobId=named(job_id)))
    deployment.ended(job_id)
    deployment.until(lambda: get(deployment, child).poolinfo.usage[0].allocation == 0.0)
    assert delete("/above/below") == delete("/above") == respool.DeleteResponse.Error()
    assert get(deployment, parent).error.HasField("notFound")


def test_updating(deployment: Deployment) -> None:
    pool = deployment.make_pool("changes")

    def update(config: Any, pool_id: str = pool, force: bool = False) -> Any:
        sent = respool.UpdateRequest(id={"value": pool_id}, config=config, Force=force)
        return deployment.pools.UpdateResourcePool(sent).error

    config = pool_config("changed", cpu=2.0)
    assert not update(config).ListFields()
    assert get(deployment, pool).poolinfo.path.value == "/changed"
    assert get(deployment, pool).poolinfo.config.resources[0].limit == 2.0
    assert update(config, "nobody").HasField("notFound")
    assert update(config, "").HasField("invalidResourcePoolConfig")
    assert update(None).HasField("invalidResourcePoolConfig")
    config.parent.value = deployment.make_pool("elsewhere")
    assert "parent override not allowed" in update(config).invalidResourcePoolConfig.message
    config.parent.value = "root"
    config.resources[0].limit = NAN
    for force in (False, True):
        assert "nan" in update(config, force=force).invalidResourcePoolConfig.message
    assert get(deployment, pool).poolinfo.config.resources[0].limit == 2.0


def test_a_request_key_makes_one_pool(deployment: Deployment) -> None:
    sent = respool.CreateRequest(config=pool_config("keyed"))
    key = (("peloton-request-key", "pool-key"),)
    first = deployment.pools.CreateResourcePool(sent, metadata=key)
    again = deployment.pools.CreateResourcePool(sent, metadata=key)
    assert first.result.value == again.result.value != ""


def list_of(tree: Tree, query: ListPools) -> tuple[PoolView, ...]:
    return list_pools(tree.pools[ROOT], query, At(now=0.0, key=ROOT, index=tree))


@pytest.mark.parametrize("most", [1, 2, 3, 7, 8])
def test_pools_are_read_page_by_page(most: int) -> None:
    tree = Tree()
    for name, parent in (("root", "root"), ("b", "root"), ("a", "root"), ("c", "a"), ("d", "a"),
                         ("e", "d"), ("f", "b")):  # fmt: skip
        config = PoolConfig(name, pool_key(parent), Resources(), Resources())
        tree.put(pool_key(name), old=None, new=Pool(config))
    pages = []

    def ask(query: ListPools) -> tuple[PoolView, ...]:
        pages.append(list_of(tree, query))
        return pages[-1]

    found = all_pages(ask, most=most)
    assert [view.path for view in found.values()] == [
        "/", "/a", "/a/c", "/a/d", "/a/d/e", "/b", "/b/f",
    ]  # fmt: skip
    assert all(len(page) <= most for page in pages) and len(pages) <= 7 // most + 1
    below = all_pages(lambda query: list_of(tree, query), parent=pool_key("a"), most=most)
    assert [*below] == [pool_key("c"), pool_key("d")]


@pytest.mark.parametrize("most", [1, 3, 6])
def test_an_owner_that_knows_no_pages_is_understood(most: int) -> None:
    """It answers every page with all pools."""
    tree = Tree()
    for name in ("root", "a", "b"):
        config = PoolConfig(name, ROOT, Resources(), Resources())
        tree.put(pool_key(name), old=None, new=Pool(config))
    found = all_pages(lambda query: list_of(tree, ListPools()), most=most)
    assert [*found] == [ROOT, pool_key("a"), pool_key("b")]


def test_children_are_shown_when_they_are_wanted(deployment: Deployment) -> None:
    root = get(deployment, "root", includeChildPools=True)
    assert [child.id.value for child in root.childPools] == [
        child.value for child in root.poolinfo.children
    ]
    assert root.childPools and not get(deployment, "root").childPools


# ---- what a create needs of its pool ----


def changed(deployment: Deployment, pool_id: str, config: respool.ResourcePoolConfig) -> None:
    sent = respool.UpdateRequest(id={"value": pool_id}, config=config)
    assert not deployment.pools.UpdateResourcePool(sent).HasField("error")


def refusal(deployment: Deployment, pool_id: str) -> str:
    """Why a job in this pool is refused; empty if it is created."""
    request = deployment.request(respoolID={"value": pool_id})
    return str(deployment.jobs.Create(request).error.invalidConfig.message)


def kept(deployment: Deployment, pool_id: str) -> Any:
    """What a create reads of its pool without a turn of the pools' shard."""
    query = GetPool(pool_key(pool_id), config_only=True)
    return deployment.region.read(ROOT, query)


def test_a_second_create_asks_no_pool(deployment: Deployment) -> None:
    pool = deployment.make_pool("kept")
    assert not refusal(deployment, pool)
    before = kept(deployment, pool)
    assert [view.path for view in before] == ["/kept", "/"]
    deployment.ended(deployment.create(deployment.request(respoolID={"value": pool})))
    assert kept(deployment, pool) is before, "jobs come and go, the config is the same"


def test_a_create_sees_every_change_that_was_acknowledged(deployment: Deployment) -> None:
    pool = deployment.make_pool("narrow")
    assert not refusal(deployment, pool)
    changed(deployment, pool, pool_config("narrow", cpu=0.01))
    sent = deployment.request(respoolID={"value": pool})
    answer, call = deployment.jobs.Create.with_call(sent)
    assert not answer.HasField("error"), "it waits"
    warned = dict(call.trailing_metadata())["peloton-warning-bin"].decode()
    assert "the limit of pool /narrow is 0.01" in warned
    changed(deployment, pool, pool_config("narrow", cpu=4.0))
    assert not refusal(deployment, pool)
    below = respool.CreateRequest(config=pool_config("below", pool, cpu=1.0))
    # Refused until the jobs above have ended.
    deployment.until(lambda: not deployment.pools.CreateResourcePool(below).HasField("error"))
    assert refusal(deployment, pool) == "cannot submit jobs to a non leaf resource pool"


def test_a_create_sees_a_deletion_that_was_acknowledged(deployment: Deployment) -> None:
    pool = deployment.make_pool("brief")
    sent = deployment.request(respoolID={"value": pool})
    deployment.ended(deployment.create(sent))
    assert kept(deployment, pool) is not None
    gone = respool.DeleteRequest(path={"value": "/brief"})
    deployment.until(lambda: not deployment.pools.DeleteResourcePool(gone).HasField("error"))
    assert refusal(deployment, pool) == "resource pool not found"
