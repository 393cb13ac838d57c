"""JobWaits and watches: told by the feed, resumed without loss, bounded, and without threads."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2, status_pb2
from grpc_status import rpc_status
from structlog.testing import capture_logs

from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.access.authentication import Authentication
from peloton.gateway.cluster import feed
from peloton.gateway.cluster.feed import (
    BadResumeToken,
    ClusterFeed,
    OutOfReach,
    marks_of,
    resume_token,
)
from peloton.gateway.grpc_server import build_server
from peloton.gateway.ops import ops as gateway_ops
from peloton.gateway.ops import watch
from peloton.gateway.ops.waits import JobWaits
from peloton.gateway.server import long_calls, serving
from peloton.gateway.server.intake import Intake
from peloton.gateway.server.long_calls import LongCall
from peloton.gateway.server.serving import Server
from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import ops_pb2_grpc
from peloton.pauses import Pauses
from peloton.runtime.core.reading import followers
from peloton.runtime.core.reading.changes import ALL, CHANGES_MAX, Change
from peloton.runtime.core.reading.inspection import ChangesPage, FollowChanges
from peloton.runtime.vocabulary import Key, ShardDamaged, Unavailable
from tests.gateway.fleet_fixture import (
    OPEN_TO_ALL,
    WAIT_S_MAX,
    Deployment,
    default_config,
    named,
    running,
    until,
)

LONG_S = 1e6
CODE = grpc.StatusCode


def stop(deployment: Deployment, job_id: str, **options: Any) -> None:
    deployment.tasks.Stop(task.StopRequest(jobId=named(job_id)), **options)


def long_job(deployment: Deployment, instances: int = 1) -> str:
    job_id = deployment.create(
        deployment.request(instances, defaultConfig=default_config(seconds=600))
    )
    deployment.until(lambda: deployment.job(job_id).runtime.taskStats["RUNNING"] == instances)
    return job_id


LOCKS = 1
"""Queries that are kept at all times: the daemon's own, which follows the lockdowns."""


def waiting(deployment: Deployment) -> int:
    """Queries of clients that are kept in all shards."""
    found = [
        deployment.region.inspect(shard, lambda core: len(core.followers))
        for shard in deployment.region.owned()
    ]
    return sum(one.result(WAIT_S_MAX) for one in found) - LOCKS


def delivered(deployment: Deployment) -> int:
    """Messages and questions that the shards of jobs were given."""
    shards = [shard for shard in deployment.region.owned() if shard.group == "jobmgr"]
    return sum(
        deployment.region.inspect(shard, lambda core: core.delivered).result(WAIT_S_MAX)
        for shard in shards
    )


def keep(deployment: Deployment, changes: int) -> None:
    """How many changes the shards of jobs keep."""
    for shard in deployment.region.owned():
        if shard.group == "jobmgr":
            look = deployment.region.inspect(
                shard, lambda core: setattr(core.changes, "_max", changes)
            )
            look.result(WAIT_S_MAX)


def watched(deployment: Deployment, **question: Any) -> Any:
    """A stream that has begun, and its first token."""
    stream = deployment.ops.Watch(ops.WatchRequest(**question), timeout=WAIT_S_MAX)
    first = next(stream)
    assert not first.events and not first.gaps
    return stream, first.resume


def events_until(stream: Any, last: str) -> tuple[list[ops.Event], str]:
    """Events up to one of which a fact has this name, and the token behind them."""
    found: list[ops.Event] = []
    for message in stream:
        found += message.events
        if any(last in event.facts for event in message.events):
            return found, message.resume
    raise AssertionError("the stream ended")


def places(events: list[ops.Event]) -> list[tuple[str, int, int]]:
    return [(event.shard, event.position, event.k) for event in events]


def test_a_waiter_is_told_at_once_though_every_timer_is_long(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "FOLLOW_S", LONG_S)
    monkeypatch.setattr(feed, "RETRY", Pauses(LONG_S, LONG_S))
    job_id = long_job(deployment)
    answer = deployment.ops.WaitJob.future(ops.WaitJobRequest(job_id=job_id, timeout_s=600))
    deployment.until(lambda: waiting(deployment) == 1)

    def still() -> bool:
        looks = delivered(deployment)
        threading.Event().wait(0.3)
        return delivered(deployment) == looks

    deployment.until(still)  # who looked again and again would not be
    stop(deployment, job_id)
    assert answer.result(WAIT_S_MAX).state == "KILLED"


def test_a_thousand_waiters_share_one_query_and_hold_no_thread(deployment: Deployment) -> None:
    job_id = long_job(deployment)
    sent = ops.WaitJobRequest(job_id=job_id, timeout_s=600)
    before = threading.active_count()
    answers = [deployment.ops.WaitJob.future(sent) for _ in range(1000)]
    deployment.until(lambda: waiting(deployment) == 1)
    # A waiter begins with a look at the job, on the pool that serves all calls.
    assert threading.active_count() - before <= serving.THREADS_MAX
    threading.Event().wait(0.2)
    assert waiting(deployment) == 1 and not any(answer.done() for answer in answers)
    stop(deployment, job_id)
    assert {answer.result(WAIT_S_MAX).state for answer in answers} == {"KILLED"}


def test_a_job_is_watched_and_resumed_each_event_once_and_in_order(deployment: Deployment) -> None:
    job_id = long_job(deployment, 3)
    stream, begin = watched(deployment, job_id=job_id)
    some = task.StopRequest(jobId=named(job_id))
    some.ranges.add(**{"from": 1, "to": 2})
    deployment.tasks.Stop(some, metadata=[("username", "ann"), ("rpc-caller", "tool")])
    first, middle = events_until(stream, "InstancesStopped")
    stop(deployment, job_id)
    deployment.ended(job_id)
    stream.cancel()
    rest, _ = events_until(
        deployment.ops.Watch(ops.WatchRequest(job_id=job_id, resume=middle)), "JobTallied"
    )
    whole: list[ops.Event] = []
    again = deployment.ops.Watch(ops.WatchRequest(job_id=job_id, resume=begin), timeout=WAIT_S_MAX)
    while len(whole) < len(first) + len(rest):
        whole += next(again).events
    again.cancel()
    for shard in {event.shard for event in whole}:
        seen = [place for place in places(whole) if place[0] == shard]
        parts = [place for place in places(first + rest) if place[0] == shard]
        assert seen == sorted(set(seen)), "in order, none twice"
        assert parts == seen[: len(parts)], "none left out between two streams"
    (order,) = [event for event in whole if "InstancesStopped" in event.facts]
    assert (order.key, order.cause) == (f"job/{job_id}", "StopJob")
    assert order.who == "unverified:ann@127.0.0.1/tool"
    killed = [event for event in whole if event.key == f"task/{job_id}/1"]
    assert killed and [(r.first, r.last) for r in killed[0].instances] == [(1, 1)]
    assert all(job_id in event.key for event in whole)


def test_what_left_the_feed_is_a_gap_and_the_stream_goes_on(deployment: Deployment) -> None:
    stream, begin = watched(deployment, kinds=["job"])
    stream.cancel()
    keep(deployment, 2)
    jobs = [deployment.create(deployment.request(1)) for _ in range(8)]
    for job_id in jobs:
        deployment.ended(job_id)
    keep(deployment, CHANGES_MAX)
    gaps: dict[str, ops.Gap] = {}
    again = deployment.ops.Watch(ops.WatchRequest(kinds=["job"], resume=begin), timeout=WAIT_S_MAX)
    for message in again:
        gaps |= {gap.shard: gap for gap in message.gaps}
        if len(gaps) == 2:
            break
    assert sorted(gaps) == ["jobmgr/0", "jobmgr/1"]
    assert all(gap.until > gap.after for gap in gaps.values())
    job_id = deployment.create(deployment.request(1))
    found, _ = events_until(again, "JobMade")
    assert found[-1].key == f"job/{job_id}"
    again.cancel()


def test_a_pool_is_watched_with_its_jobs_and_no_others(deployment: Deployment) -> None:
    mine = deployment.make_pool("mine")
    stream, _ = watched(deployment, pool="/mine")
    other = deployment.create(deployment.request(1))
    request = deployment.request(1)
    request.config.respoolID.value = mine
    job_id = deployment.create(request)
    deployment.ended(other)
    deployment.ended(job_id)
    keys: set[str] = set()
    while not {f"task/{job_id}/0", f"job/{job_id}"} <= keys:
        keys |= {event.key for event in next(stream).events}
    stream.cancel()
    assert not any(other in key for key in keys)


def test_a_job_that_was_deleted_meanwhile_is_a_gap_of_its_pool(deployment: Deployment) -> None:
    stream, _ = watched(deployment, pool="/work")
    job_id = deployment.create(deployment.request(2))
    _, made = events_until(stream, "JobMade")
    stream.cancel()
    deployment.ended(job_id)
    deployment.jobs.Delete(job.DeleteRequest(id=named(job_id)))
    get = job.GetRequest(id=named(job_id))
    deployment.until(lambda: deployment.jobs.Get(get).HasField("error"))
    shards = {
        deployment.region.shard_of(Key(f"{name}"))
        for name in (f"job/{job_id}", f"slice/{job_id}/0")
    }
    gaps: dict[str, ops.Gap] = {}
    again = deployment.ops.Watch(ops.WatchRequest(pool="/work", resume=made), timeout=WAIT_S_MAX)
    for message in again:
        gaps |= {f"shard/{gap.shard}": gap for gap in message.gaps}
        if shards <= gaps.keys():
            break
    assert all(gap.until >= gap.after for gap in gaps.values())
    again.cancel()


def test_jobs_that_were_refused_are_no_gap(deployment: Deployment) -> None:
    stream, _ = watched(deployment, pool="/work")
    request = deployment.request(1)
    request.config.defaultConfig.ClearField("command")
    for key in ("one", "two"):
        assert deployment.jobs.Create(request, metadata=[("peloton-request-key", key)]).HasField(
            "error"
        )
    deployment.create(deployment.request(1))
    for message in stream:
        assert not message.gaps
        if message.events:
            break
    stream.cancel()


def test_a_quiet_stream_gets_new_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a cluster of its own: queries expire in their order, and others have longer ones."""
    monkeypatch.setattr(followers, "FOLLOW_S", 0.2)
    monkeypatch.setattr(watch, "TOKEN_S", 0.1)
    with running(tmp_path) as deployment:
        quiet = long_job(deployment)
        stream, begin = watched(deployment, job_id=quiet)
        seen = [ops.WatchResponse(resume=begin)]
        reader = threading.Thread(target=lambda: seen.extend(_until_cancelled(stream)))
        reader.start()

        def has_new_token() -> bool:
            # Any job may be in the other shard, whose changes the stream does not read.
            deployment.ended(deployment.create(deployment.request(1)))
            return seen[-1].resume != begin and not seen[-1].events

        deployment.until(has_new_token)
        stream.cancel()
        reader.join(WAIT_S_MAX)
        fresh = seen[-1].resume
        again = deployment.ops.Watch(
            ops.WatchRequest(job_id=quiet, resume=fresh), timeout=WAIT_S_MAX
        )
        stop(deployment, quiet)
        for message in again:
            assert not message.gaps
            if any("StopOrdered" in event.facts for event in message.events):
                break
        again.cancel()


def _until_cancelled(stream: Any) -> Iterator[ops.WatchResponse]:
    with contextlib.suppress(grpc.RpcError):
        yield from stream


@pytest.mark.parametrize(
    ("question", "code", "text"),
    [
        ({}, CODE.INVALID_ARGUMENT, "one of job_id, kinds and pool"),
        ({"kinds": ["job"], "pool": "/work"}, CODE.INVALID_ARGUMENT, "one of"),
        ({"kinds": ["cat"]}, CODE.INVALID_ARGUMENT, "no kind 'cat'"),
        ({"job_id": "x"}, CODE.NOT_FOUND, "job not found"),
        ({"pool": "/nowhere"}, CODE.NOT_FOUND, "no pool /nowhere"),
        ({"kinds": ["job"], "resume": "x"}, CODE.INVALID_ARGUMENT, "resume: "),
        ({"kinds": ["job"], "resume": "jobmgr/0@1"}, CODE.INVALID_ARGUMENT, "another query"),
    ],
)
def test_questions_that_cannot_be_meant(
    deployment: Deployment, question: dict[str, Any], code: Any, text: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        next(deployment.ops.Watch(ops.WatchRequest(**question), timeout=WAIT_S_MAX))
    assert caught.value.code() == code and text in caught.value.details()


def test_there_are_so_many_streams(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "STREAMS_MAX", 1)
    first, _ = watched(deployment, kinds=["host"])
    with pytest.raises(grpc.RpcError) as caught:
        watched(deployment, kinds=["host"])
    assert caught.value.code() == CODE.RESOURCE_EXHAUSTED
    first.cancel()
    deployment.until(lambda: _opens(deployment))


def _opens(deployment: Deployment) -> bool:
    try:
        watched(deployment, kinds=["host"])[0].cancel()
    except grpc.RpcError:
        return False
    return True


def test_the_story_says_who(deployment: Deployment) -> None:
    job_id = deployment.create(deployment.request(1), metadata=[("peloton-user", "bob")])
    lines = deployment.ops.Story(ops.StoryRequest(key=f"job/{job_id}")).lines
    made = next(line for line in lines if "JobMade" in line.facts)
    assert made.who == "unverified:bob@127.0.0.1"
    info = deployment.job(job_id)
    assert info.config.changeLog.updatedBy == info.runtime.revision.updatedBy == made.who
    deployment.ended(job_id)


# ---- tokens, retries ----


def test_tokens_there_and_back() -> None:
    marks = {Key("shard/a/0"): (7, 3), Key("shard/a/11"): (9, ALL)}
    assert resume_token(marks) == "a/0@7.3,a/11@9"
    assert marks_of("a/11@9,a/0@7.3", marks) == marks
    for bad in ("", "a/0", "a/0@x", "a/0@1.", "a/0@1.2.3", "@", "a/0@-1", "a/0@" + "9" * 30):
        with pytest.raises(BadResumeToken):
            marks_of(bad, [Key("shard/a/0")])


class Moving:
    """A cluster whose shard is out of reach for a while."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.asked: list[FollowChanges] = []

    def follow(self, shard: Key, query: FollowChanges) -> Future[Any]:
        self.asked.append(query)
        future: Future[Any] = Future()
        moving = len(self.asked) <= self.refusals
        future.set_result(
            Unavailable("moving") if moving else ChangesPage((), False, (8, 1), False)
        )
        return future


def test_a_shard_that_moves_is_asked_again_with_the_same_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "RETRY", Pauses(0.001, 1.0))
    shard, query = Key("shard/a/0"), FollowChanges((7, 3))
    cluster = Moving(3)
    page = asyncio.run(ClusterFeed(cluster).page(shard, query, patience_s=None))  # type: ignore[arg-type]
    assert page.mark == (8, 1) and cluster.asked == [query] * 4
    with pytest.raises(OutOfReach, match="moving"):
        asyncio.run(ClusterFeed(Moving(9)).page(shard, query, patience_s=0.0))  # type: ignore[arg-type]


class Damaged:
    """A cluster whose only shard answers so many pages, and is damaged then."""

    def __init__(self, pages: int) -> None:
        self.pages = pages

    def shards_of(self, kind: str) -> list[Key]:
        return [Key("shard/jobmgr/0")]

    def follow(self, shard: Key, query: FollowChanges) -> Future[Any]:
        future: Future[Any] = Future()
        self.pages -= 1
        damaged = ShardDamaged("shard jobmgr/0 is damaged: chain break")
        future.set_result(damaged if self.pages < 0 else ChangesPage((), False, (8, 1), False))
        return future

    def changes_in(self, read: ChangesPage) -> list[Change]:
        return []


def end_of_watch(cluster: Damaged) -> tuple[grpc.StatusCode, str]:
    """Code and text with which a stream over this cluster ends."""
    server, (port,) = build_server(cluster, ["127.0.0.1:0"], **OPEN_TO_ALL)  # type: ignore[arg-type]
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = ops_pb2_grpc.OpsStub(channel)
            with pytest.raises(grpc.RpcError) as caught:
                for _ in stub.Watch(ops.WatchRequest(kinds=["job"]), timeout=WAIT_S_MAX):
                    pass
            return caught.value.code(), caught.value.details()
    finally:
        server.stop(0).wait(WAIT_S_MAX)


@pytest.mark.parametrize("pages", [0, 3], ids=["at its beginning", "later"])
def test_a_damaged_shard_ends_a_stream_for_good(pages: int) -> None:
    """With the code of plain calls: a client that came back would only meet it again."""
    code, text = end_of_watch(Damaged(pages))
    assert code == CODE.DATA_LOSS
    assert text == "shard jobmgr/0 is damaged: chain break"


class Mute(Damaged):
    """A cluster whose only shard answers so many pages, and then with something else."""

    def follow(self, shard: Key, query: FollowChanges) -> Future[Any]:
        page = super().follow(shard, query)
        if self.pages < 0:
            page = Future()
            page.set_result(None)
        return page


@pytest.mark.parametrize("pages", [0, 3], ids=["at its beginning", "later"])
def test_a_shard_that_gives_no_page_ends_a_stream(pages: int) -> None:
    """With a code that clients repeat: an older owner may not know the query."""
    code, text = end_of_watch(Mute(pages))
    assert code == CODE.UNAVAILABLE
    assert text == "shard/jobmgr/0 did not answer with changes"


def test_a_damaged_shard_ends_a_wait_for_good() -> None:
    async def wait() -> None:
        feed = ClusterFeed(Waited())  # type: ignore[arg-type]
        await JobWaits(feed).until_ended(Key("job/1"), 20, conclude=never)

    with pytest.raises(serving.CallEnded, match="chain break") as caught:
        asyncio.run(wait())
    assert caught.value.code == CODE.DATA_LOSS


class Waited(Damaged):
    def __init__(self) -> None:
        super().__init__(0)

    def shard_of(self, key: Key) -> Key:
        return Key("shard/jobmgr/0")


async def never(view: Any) -> None:
    raise AssertionError("the job has not ended")


# ---- the server ----


class Fountain:
    """Streams more than anybody can take, or nothing."""

    async def Watch(self, sent: ops.WatchRequest, call: LongCall) -> None:
        await call.write(ops.WatchResponse(resume="begun"))
        while sent.pool:
            await call.write(ops.WatchResponse(resume="x" * 200_000))
        await asyncio.Event().wait()

    def Story(self, sent: ops.StoryRequest, context: Any) -> ops.StoryResponse:
        who = context.principal
        return ops.StoryResponse(lines=[ops.Line(who=who.text)])

    def Why(self, sent: ops.WhyRequest, context: Any) -> ops.WhyResponse:
        status = status_pb2.Status(code=code_pb2.NOT_FOUND, message="no such job")
        status.details.add().Pack(ops.Reason(code="rich"))
        context.abort_with_status(rpc_status.to_status(status))
        raise AssertionError("abort returned")

    def ListHosts(self, sent: ops.ListHostsRequest, context: Any) -> ops.ListHostsResponse:
        raise KeyError("secret")

    async def WaitJob(self, sent: ops.WaitJobRequest, call: LongCall) -> ops.WaitJobResponse:
        raise KeyError("secret")


OPS = ops.DESCRIPTOR.services_by_name["Ops"]


@pytest.fixture
def fountain() -> Iterator[tuple[Server, ops_pb2_grpc.OpsStub]]:
    server = Server(
        [],
        Intake(message_bytes_max=4 << 20, bytes_max=16 << 20),
        authentication=Authentication.open(),
    )
    server.add(OPS, Fountain(), names=[OPS.full_name])
    (port,) = server.listen(["127.0.0.1:0"])
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield server, ops_pb2_grpc.OpsStub(channel)
    server.stop(0).wait(WAIT_S_MAX)


def test_a_slow_reader_is_cut_off_by_name(fountain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, stub = fountain
    quick = stub.Watch(ops.WatchRequest(pool="x"), timeout=WAIT_S_MAX)
    for _ in range(20):
        next(quick)
    quick.cancel()
    monkeypatch.setattr(long_calls, "WRITE_S_MAX", 0.2)
    metadata = [("peloton-user", "sloth"), ("rpc-caller", "tool")]
    with capture_logs() as logged:
        slow = stub.Watch(ops.WatchRequest(pool="x"), metadata=metadata, timeout=WAIT_S_MAX)
        slow.initial_metadata()  # it has begun, and reads no message
        # The slow one takes no place, though it has read nothing.
        until(lambda: not server._core._calls)
        with pytest.raises(grpc.RpcError) as caught:
            for _ in slow:
                pass
        assert caught.value.code() == CODE.RESOURCE_EXHAUSTED
        assert "slow reader unverified:sloth@127.0.0.1/tool (ipv4:127.0.0.1:" in str(
            caught.value.details()
        )
        until(lambda: any("sloth" in line.get("who", "") for line in logged))  # the log names it


def test_a_cancelled_stream_leaves_no_traceback(
    fountain: Any, caplog: pytest.LogCaptureFixture
) -> None:
    streams = [fountain[1].Watch(ops.WatchRequest(pool="x"), timeout=WAIT_S_MAX) for _ in range(8)]
    for stream in streams:
        next(stream)
    for stream in streams:
        stream.cancel()
    until(lambda: not fountain[0]._core._calls and not fountain[0]._long)
    gc.collect()  # a task whose end nobody has looked at says so when it goes
    threading.Event().wait(0.1)
    assert not caplog.records


def test_a_rich_status_reaches_the_client_whole(fountain: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        fountain[1].Why(ops.WhyRequest(), timeout=WAIT_S_MAX)
    found = rpc_status.from_call(caught.value)
    assert found is not None and found.message == "no such job"
    reason = ops.Reason()
    assert found.details[0].Unpack(reason) and reason.code == "rich"


@pytest.mark.parametrize("name", ["ListHosts", "WaitJob"])
def test_a_bug_is_internal_without_its_text(fountain: Any, name: str) -> None:
    sent = ops.ListHostsRequest() if name == "ListHosts" else ops.WaitJobRequest()
    with pytest.raises(grpc.RpcError) as caught:
        getattr(fountain[1], name)(sent, timeout=WAIT_S_MAX)
    assert caught.value.code() == CODE.INTERNAL and "secret" not in caught.value.details()


def test_calls_beyond_a_limit_are_refused(
    fountain: Any, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CALLS_MAX", 0)
    monkeypatch.setattr(gateway_ops, "WAITERS_MAX", 0)
    for call, sent in (
        (fountain[1].Story, ops.StoryRequest()),
        (deployment.ops.WaitJob, ops.WaitJobRequest(job_id="x")),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call(sent, timeout=WAIT_S_MAX)
        assert caught.value.code() == CODE.RESOURCE_EXHAUSTED


def test_streams_end_with_the_server_and_say_so(fountain: Any) -> None:
    server, stub = fountain
    stream = stub.Watch(ops.WatchRequest(), timeout=WAIT_S_MAX)
    next(stream)
    stopping = server.stop(5)
    with pytest.raises(grpc.RpcError) as caught:
        next(stream)
    assert caught.value.code() == CODE.UNAVAILABLE and "is stopping" in caught.value.details()
    assert stopping.wait(WAIT_S_MAX)
