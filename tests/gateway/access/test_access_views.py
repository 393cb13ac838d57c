"""What a caller may not see: it is in no answer, total, stream, reason or error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.respool import respool_pb2 as respool
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.access import permissions
from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import ops_pb2_grpc
from peloton.runtime.core.principal import BASIC, Principal
from tests.gateway.access_fixture import (
    JOBS,
    OPS,
    POOLS,
    ROLES,
    RULES,
    TASKS,
    Guarded,
    create_request,
    guarded,
    said_by,
    unknown_id,
)
from tests.gateway.fleet_fixture import WAIT_S_MAX, default_config, named, pool_config

CODE = grpc.StatusCode
VERA, SUE, ADMIN = ROLES["viewer"], ROLES["submitter"], ROLES["administrator"]
STRANGER, OLGA = ROLES["stranger"], Principal("olga", BASIC)
CANARY = "canary"
OF_JOBS = ["job", "slice", "task", "lot", "respool"]


def canary_job(fleet: Guarded) -> str:
    """A job in a pool that the viewer does not see, with a mark in all that clients choose."""
    default = default_config(seconds=6000)
    default.name = f"{CANARY}-task"
    default.command.environment.variables.add(name="SECRET", value=CANARY)
    request = create_request(
        fleet.pools["/other/jobs"], name=f"{CANARY}-job", owningTeam=CANARY, owner=CANARY
    )
    request.config.defaultConfig.CopyFrom(default)
    request.config.labels.add(key=CANARY, value=CANARY)
    return fleet.open.create(request, metadata=said_by(Principal(CANARY, BASIC)))


def canary_pool(fleet: Guarded) -> str:
    name = f"{CANARY}-{unknown_id()}"
    return fleet.open.make_pool(name, fleet.pools["/other"], cpu=0.1)


def reads(job_id: str, pool: str, path: str) -> Iterator[tuple[str, Any]]:
    """Every read that names an object, of these; and every listing."""
    yield f"{JOBS}.Get", job.GetRequest(id=named(job_id))
    yield f"{JOBS}.GetActiveJobs", job.GetActiveJobsRequest()
    for only in (True, False):
        for spec in (
            {},
            {"name": "test"},
            {"name": CANARY},
            {"owner": CANARY},
            {"keywords": [CANARY]},
            {"labels": [{"key": CANARY, "value": CANARY}]},
            {"respool": {"value": path}},
            {"pagination": {"limit": 1000, "maxLimit": 1000}},
        ):
            yield f"{JOBS}.Query", job.QueryRequest(spec=spec, summaryOnly=only)
        spec = {"pagination": {"limit": 100}}
        yield (
            f"{JOBS}.Query",
            job.QueryRequest(spec=spec, summaryOnly=only, respoolID={"value": pool}),
        )
    yield f"{TASKS}.Get", task.GetRequest(jobId=named(job_id))
    yield f"{TASKS}.List", task.ListRequest(jobId=named(job_id))
    yield f"{TASKS}.Query", task.QueryRequest(jobId=named(job_id))
    yield f"{TASKS}.GetPodEvents", task.GetPodEventsRequest(jobId=named(job_id))
    yield f"{TASKS}.BrowseSandbox", task.BrowseSandboxRequest(jobId=named(job_id))
    for children in (True, False):
        for one in (pool, "", "root"):
            yield (
                f"{POOLS}.GetResourcePool",
                respool.GetRequest(id={"value": one}, includeChildPools=children),
            )
    yield f"{POOLS}.LookupResourcePoolID", respool.LookupRequest(path={"value": path})
    yield f"{POOLS}.Query", respool.QueryRequest()
    yield f"{OPS}.Why", ops.WhyRequest(job_id=job_id)
    yield f"{OPS}.WaitJob", ops.WaitJobRequest(job_id=job_id, timeout_s=0.1)
    yield f"{OPS}.ListPools", ops.ListPoolsRequest()
    yield f"{OPS}.ListHosts", ops.ListHostsRequest()
    yield f"{OPS}.ListQuarantine", ops.ListQuarantineRequest()
    for key in (
        f"job/{job_id}", f"slice/{job_id}/0", f"task/{job_id}/0", f"lot/{job_id}/0/0",
        f"respool/{pool}", "host/a", "inventory/0",
    ):  # fmt: skip
        yield f"{OPS}.Story", ops.StoryRequest(key=key)


def test_two_viewers_and_no_canary(fleet: Guarded) -> None:
    """Nothing of an invisible pool is in any answer to somebody who sees others."""
    hidden, pool = canary_job(fleet), canary_pool(fleet)
    (view,) = [
        info
        for info in fleet.open.pools.Query(respool.QueryRequest()).resourcePools
        if info.id.value == pool
    ]
    marks = [CANARY, "other", hidden, pool, fleet.pools["/other"], fleet.pools["/other/jobs"]]
    for caller in (VERA, SUE, STRANGER, ROLES["unverified"], ROLES["pool admin"]):
        for method, sent in reads(hidden, pool, view.path.value):
            code, text, data = fleet.call(method, sent, caller)
            # What the caller has named is repeated, and tells them nothing.
            asked = sent.SerializeToString()
            leaked = [
                mark
                for mark in marks
                if mark.encode() in data + text.encode() and mark.encode() not in asked
            ]
            assert not leaked, (method, sent, caller, text, data)
            assert code != CODE.INTERNAL
    seen = 0
    for method, sent in reads(hidden, pool, view.path.value):
        code, text, data = fleet.call(method, sent, OLGA)
        seen += CANARY.encode() in data
    assert seen > 15, "the same reads show the marks to who may see them"


def test_what_is_hidden_is_answered_like_what_is_not_there(fleet: Guarded) -> None:
    """The same bytes, but for the id that was asked for: whatever a guess was combined with."""
    hidden, pool = canary_job(fleet), canary_pool(fleet)
    path = "/other/jobs"
    nowhere = {"job": unknown_id(), "pool": unknown_id(), "path": "/other/nine"}
    there = [*reads(hidden, pool, path), *changes(hidden, pool, path)]
    nothing = [
        *reads(nowhere["job"], nowhere["pool"], nowhere["path"]),
        *changes(nowhere["job"], nowhere["pool"], nowhere["path"]),
    ]
    assert len(there) == len(nothing) > 50
    for caller in (VERA, STRANGER, ROLES["unverified"]):
        for (method, sent), (_, other) in zip(there, nothing, strict=True):
            got = [fleet.call(method, one, caller) for one in (sent, other)]
            assert _plain(*got[0], path) == _plain(*got[1], nowhere["path"]), (method, sent)
    for method, sent in changes(nowhere["job"], nowhere["pool"], nowhere["path"]):
        got = [fleet.call(method, sent, by) for by in (VERA, ADMIN)]
        assert _plain(*got[0], "") == _plain(*got[1], ""), "and so it is to all"


def test_who_waits_for_a_hidden_job_is_told_at_once(fleet: Guarded) -> None:
    """As for one that does not exist: the time would tell. Who waited would meet the deadline."""
    sent = ops.WaitJobRequest(job_id=canary_job(fleet), timeout_s=100 * WAIT_S_MAX)
    assert fleet.call(f"{OPS}.WaitJob", sent, VERA)[0] == CODE.NOT_FOUND


def changes(job_id: str, pool: str, path: str) -> Iterator[tuple[str, Any]]:
    """Every change, right and wrong, of these objects."""
    yield f"{JOBS}.Create", create_request(pool)
    wrong = create_request(pool)
    wrong.config.defaultConfig.resource.cpuLimit = -1
    yield f"{JOBS}.Create", wrong
    yield f"{JOBS}.Delete", job.DeleteRequest(id=named(job_id))
    yield f"{TASKS}.Stop", task.StopRequest(jobId=named(job_id))
    yield f"{TASKS}.Stop", task.StopRequest(jobId=named(job_id), ranges=[{"from": 5, "to": 7}])
    yield f"{TASKS}.Start", task.StartRequest(jobId=named(job_id))
    for name in ("new", "", "a/b"):
        config = pool_config(name, pool)
        yield f"{POOLS}.CreateResourcePool", respool.CreateRequest(config=config)
        for force in (False, True):
            yield (
                f"{POOLS}.UpdateResourcePool",
                respool.UpdateRequest(id={"value": pool}, config=config, Force=force),
            )
    bad = pool_config("new", pool)
    bad.resources.add(kind="strange")
    yield f"{POOLS}.CreateResourcePool", respool.CreateRequest(config=bad)
    yield f"{POOLS}.DeleteResourcePool", respool.DeleteRequest(path={"value": path})


IDS = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def _plain(code: Any, text: str, data: bytes, path: str) -> tuple[Any, bytes, bytes]:
    mark = path.encode() or b"/nowhere"
    shown = [IDS.sub(b"ID", one).replace(mark, b"PATH") for one in (text.encode(), data)]
    return code, shown[0], re.sub(rb"\n.PATH", b"PATH", shown[1])


def test_totals_and_pages_count_what_is_seen(fleet: Guarded) -> None:
    owner = f"team-{unknown_id()}"
    for path in ("/team/jobs", "/other/jobs", "/team/jobs", "/other/jobs", "/other/jobs"):
        fleet.job(path, owningTeam=owner)

    def listed(by: Principal, **pages: int) -> Any:
        spec = {"owner": owner, "pagination": pages}
        code, _, data = fleet.call(
            f"{JOBS}.Query", job.QueryRequest(spec=spec, summaryOnly=True), by
        )
        assert code == CODE.OK
        return job.QueryResponse.FromString(data)

    for by, count in ((VERA, 2), (OLGA, 3), (STRANGER, 0), (ADMIN, 5)):
        answer = listed(by, limit=100)
        assert (len(answer.results), answer.pagination.total) == (count, count), by
    second = listed(VERA, limit=1, offset=1)
    assert (len(second.results), second.pagination.total) == (1, 2)
    full = job.QueryRequest(spec={"owner": owner, "keywords": ["test"]})
    _, _, data = fleet.call(f"{JOBS}.Query", full, VERA)
    answer = job.QueryResponse.FromString(data)
    assert (len(answer.records), answer.pagination.total) == (2, 2)


def test_own_jobs_are_listed_wherever_they_are(fleet: Guarded) -> None:
    pat = Principal("pat", BASIC)
    mine, other = fleet.job("/other/jobs", pat), fleet.job("/other/jobs")
    _, _, data = fleet.call(f"{JOBS}.GetActiveJobs", job.GetActiveJobsRequest(), pat)
    assert [one.value for one in job.GetActiveJobsResponse.FromString(data).ids] == [mine]
    stop = task.StopRequest(jobId=named(mine))
    assert fleet.call(f"{TASKS}.Stop", stop, pat)[0] == CODE.OK
    assert fleet.open.ended(mine).state == "KILLED"
    stop = task.StopRequest(jobId=named(other))
    _, _, data = fleet.call(f"{TASKS}.Stop", stop, pat)
    assert task.StopResponse.FromString(data).error.HasField("notFound")
    assert fleet.open.job(other).runtime.state != job.KILLED


def test_pools_are_listed_without_their_hidden_children(fleet: Guarded) -> None:
    _, _, data = fleet.call(f"{POOLS}.Query", respool.QueryRequest(), VERA)
    pools = respool.QueryResponse.FromString(data).resourcePools
    seen = {pool.path.value for pool in pools}
    assert {"/team", "/team/jobs", "/team/more"} <= seen
    assert all(path.startswith("/team") for path in seen)
    _, _, data = fleet.call(f"{OPS}.ListPools", ops.ListPoolsRequest(), VERA)
    assert {pool.path for pool in ops.ListPoolsResponse.FromString(data).pools} == seen
    root = respool.GetRequest(includeChildPools=True)
    _, _, data = fleet.call(f"{POOLS}.GetResourcePool", root, VERA)
    assert respool.GetResponse.FromString(data).error.HasField("notFound")
    team = respool.GetRequest(id={"value": fleet.pools["/team"]}, includeChildPools=True)
    _, _, data = fleet.call(f"{POOLS}.GetResourcePool", team, VERA)
    answer = respool.GetResponse.FromString(data)
    assert len(answer.childPools) == len(answer.poolinfo.children) >= 2


def test_hidden_children_of_children_are_not_even_ids(tmp_path: Path) -> None:
    with guarded(tmp_path, RULES + "  /team/mid/deep: {see: [], stop: []}\n") as fleet:
        middle = fleet.open.make_pool("mid", fleet.pools["/team"], cpu=0.1)
        deep = fleet.open.make_pool("deep", middle, cpu=0.1)
        team = respool.GetRequest(id={"value": fleet.pools["/team"]}, includeChildPools=True)
        answers = [fleet.call(f"{POOLS}.GetResourcePool", team, by)[2] for by in (VERA, ADMIN)]
        assert [deep.encode() in data for data in answers] == [False, True]
        assert all(middle.encode() in data for data in answers)


def test_children_that_are_hidden_are_not_even_ids(tmp_path: Path) -> None:
    rules = RULES + "  /team/more: {see: [], stop: [], submit: [], administer: []}\n"
    with guarded(tmp_path, rules) as fleet:
        more = fleet.pools["/team/more"].encode()
        jobs = fleet.pools["/team/jobs"].encode()
        for sent in (
            respool.GetRequest(id={"value": fleet.pools["/team"]}),
            respool.GetRequest(id={"value": fleet.pools["/team"]}, includeChildPools=True),
        ):
            _, _, data = fleet.call(f"{POOLS}.GetResourcePool", sent, VERA)
            assert jobs in data and more not in data
        _, _, data = fleet.call(f"{POOLS}.Query", respool.QueryRequest(), VERA)
        assert jobs in data and more not in data
        # And what an administrator of the parent may not change, he may not make or rename either.
        paula = ROLES["pool admin"]
        rename = respool.UpdateRequest(
            id={"value": fleet.pools["/team/jobs"]},
            config=pool_config("more", fleet.pools["/team"]),
        )
        code, text, _ = fleet.call(f"{POOLS}.UpdateResourcePool", rename, paula)
        assert code == CODE.PERMISSION_DENIED
        assert (
            text == f"{POOLS}.UpdateResourcePool: paula has no permission to administer in "
            "pool /team/more"
        )
        create = respool.CreateRequest(config=pool_config("more", fleet.pools["/team"]))
        assert fleet.call(f"{POOLS}.CreateResourcePool", create, paula)[0] == code


def test_a_story_that_outlives_its_job_is_hidden(fleet: Guarded) -> None:
    default = default_config(seconds=0.01)
    job_id = fleet.open.create(
        create_request(fleet.pools["/other/jobs"], defaultConfig=default, name=CANARY)
    )
    fleet.open.tasks.Stop(task.StopRequest(jobId=named(job_id)))
    fleet.open.ended(job_id)
    fleet.open.jobs.Delete(job.DeleteRequest(id=named(job_id)))
    sent = ops.StoryRequest(key=f"job/{job_id}")
    assert fleet.call(f"{OPS}.Story", sent, ADMIN)[0] == CODE.OK
    for by in (VERA, STRANGER):
        assert fleet.call(f"{OPS}.Story", sent, by)[0] == CODE.NOT_FOUND


# ---- streams ----


def stream(fleet: Guarded, by: Principal, **question: Any) -> Any:
    stub = ops_pb2_grpc.OpsStub(fleet.channel)
    found = stub.Watch(ops.WatchRequest(**question), metadata=said_by(by), timeout=WAIT_S_MAX)
    next(found)
    return found


def keys_until(found: Any, last: str) -> list[str]:
    """The keys of events up to one that names this id."""
    keys: list[str] = []
    for message in found:
        keys += [event.key for event in message.events]
        if any(last in key for key in keys):
            found.cancel()
            return keys
    raise AssertionError("the stream ended")


@pytest.mark.parametrize("question", [{"kinds": OF_JOBS}, {"pool": "/team/jobs"}])
def test_a_stream_shows_what_may_be_seen(fleet: Guarded, question: dict[str, Any]) -> None:
    found = stream(fleet, VERA, **question)
    hidden = fleet.job("/other/jobs")
    pool = canary_pool(fleet)
    seen = fleet.job("/team/jobs")
    keys = keys_until(found, seen)
    assert not [key for key in keys if hidden in key or pool in key]
    if "kinds" in question:
        admins = stream(fleet, ADMIN, **question)
        hidden, seen = fleet.job("/other/jobs"), fleet.job("/team/jobs")
        del seen
        assert keys_until(admins, hidden)


def test_streams_of_pools_and_own_jobs(fleet: Guarded) -> None:
    """Who may only submit sees of a pool's jobs their own."""
    found = stream(fleet, SUE, pool="/team/jobs")
    other = fleet.job("/team/jobs")
    mine = fleet.job("/team/jobs", SUE)
    assert not [key for key in keys_until(found, mine) if other in key]
    renamed = fleet.open.make_pool(f"p-{unknown_id()}", fleet.pools["/team"])
    events = stream(fleet, VERA, kinds=["respool"])
    below = fleet.open.make_pool(f"p-{unknown_id()}", fleet.pools["/team"])
    assert keys_until(events, below) and renamed != below


def test_streams_that_nobody_but_administrators_may_have(fleet: Guarded) -> None:
    stub = ops_pb2_grpc.OpsStub(fleet.channel)
    for sent, code in (
        (ops.WatchRequest(kinds=["host"]), CODE.PERMISSION_DENIED),
        (ops.WatchRequest(kinds=["job", "inventory"]), CODE.PERMISSION_DENIED),
        (ops.WatchRequest(pool="/other/jobs"), CODE.NOT_FOUND),
        (ops.WatchRequest(pool=fleet.pools["/other/jobs"]), CODE.NOT_FOUND),
        (ops.WatchRequest(pool="/"), CODE.NOT_FOUND),
        (ops.WatchRequest(job_id=fleet.job("/other/jobs")), CODE.NOT_FOUND),
    ):
        found = stub.Watch(sent, metadata=said_by(VERA), timeout=WAIT_S_MAX)
        with pytest.raises(grpc.RpcError) as caught:
            next(found)
        assert caught.value.code() == code, sent


def test_rules_that_change_hold_for_open_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permissions, "SETTLED_S", 0.0)
    with guarded(tmp_path) as fleet:
        job_id = fleet.job("/team/jobs")
        found = stream(fleet, VERA, job_id=job_id)
        file = tmp_path / "access.yaml"
        file.write_text("pools:\n  /: {administer: ['role:admin']}\n  /x: {see: [vera]}\n")
        get = job.GetRequest(id=named(job_id))

        def gone() -> bool:
            _, _, data = fleet.call(f"{JOBS}.Get", get, VERA)
            return job.GetResponse.FromString(data).HasField("error")

        fleet.open.until(gone)
        fleet.open.tasks.Stop(task.StopRequest(jobId=named(job_id)))
        fleet.open.ended(job_id)
        file.write_text(RULES)
        fleet.open.until(lambda: not gone())
        fleet.open.jobs.Delete(job.DeleteRequest(id=named(job_id)))
        facts = []
        for message in found:
            facts += [fact for event in message.events for fact in event.facts]
            if "DeletionOrdered" in facts:
                break
        found.cancel()
        assert "StopOrdered" not in facts


# ---- denials ----


def test_a_denial_names_the_permission_and_the_pool(fleet: Guarded) -> None:
    code, text, _ = fleet.call(f"{JOBS}.Create", create_request(fleet.pools["/team/jobs"]), VERA)
    assert (code, text) == (
        CODE.PERMISSION_DENIED,
        f"{JOBS}.Create: vera has no permission to submit in pool /team/jobs",
    )
    code, text, _ = fleet.call(f"{OPS}.ForgetHost", ops.ForgetHostRequest(name="a"), STRANGER)
    assert (code, text) == (
        CODE.PERMISSION_DENIED, f"{OPS}.ForgetHost: zoe has no permission to administer in pool /",
    )  # fmt: skip


def test_a_large_request_is_denied_before_any_piece_of_it_is_sent(fleet: Guarded) -> None:
    sent = create_request(fleet.pools["/team/jobs"])
    sent.id.value = unknown_id()
    sent.config.instanceCount = 3000
    for instance in range(3000):
        own = sent.config.instanceConfig[instance]
        own.labels.add(key="k", value="v" * 1000)
    before = fleet.digest()
    assert fleet.call(f"{JOBS}.Create", sent, VERA)[0] == CODE.PERMISSION_DENIED
    assert fleet.digest() == before
    story = ops.StoryRequest(key=f"job/{sent.id.value}")
    assert fleet.call(f"{OPS}.Story", story, ADMIN)[0] == CODE.NOT_FOUND
