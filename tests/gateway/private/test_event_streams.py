"""Event streams: statuses of runs with offsets, and watches of runs and hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import yaml

from peloton.actors.task.messages import End, RunOutcome
from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0.task import task_pb2
from peloton.cli.cluster.internals import print_each
from peloton.gateway.cluster.feed import ClusterFeed
from peloton.gateway.private import host_watches, run_statuses
from peloton.gateway.private.run_statuses import RunStatus, StatusBuffer, status_stream
from peloton.private.eventstream import eventstream_pb2 as v0
from peloton.private.eventstream import eventstream_pb2_grpc as v0_grpc
from peloton.private.eventstream.v1alpha.eventstreamsvc import eventstreamsvc_pb2 as v1
from peloton.private.eventstream.v1alpha.eventstreamsvc import eventstreamsvc_pb2_grpc as v1_grpc
from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc
from peloton.private.hostmgr.hostsvc import hostsvc_pb2_grpc
from peloton.private.hostmgr.v1alpha.svc import hostmgr_svc_pb2 as hostmgr_svc
from peloton.private.hostmgr.v1alpha.svc import hostmgr_svc_pb2_grpc
from peloton.runtime.core.reading.inspection import ChangesPage
from peloton.runtime.vocabulary import Key
from tests.gateway.fleet_fixture import HOSTS, WAIT_S_MAX, Deployment, default_config
from tests.gateway.ops.test_hosts import back_again, forget

JOBMGR, RESMGR = "peloton-jobmgr", "peloton-resmgr"


@pytest.fixture
def events(deployment: Deployment) -> Any:
    return v0_grpc.EventStreamServiceStub(deployment.channel)


def begun(events: Any, client: str = JOBMGR) -> v0.InitStreamResponse:
    return events.InitStream(v0.InitStreamRequest(clientName=client))


def read(events: Any, **asked: Any) -> v0.WaitForEventsResponse:
    return events.WaitForEvents(v0.WaitForEventsRequest(**{"clientName": JOBMGR, **asked}))


def of_job(found: Any, job: str) -> list[tuple[str, int]]:
    statuses = [one.mesosTaskStatus for one in found.events]
    return [(s.task_id.value, s.state) for s in statuses if s.task_id.value.startswith(job)]


def test_starts_and_ends_come_in_order_with_offsets(deployment: Deployment, events: Any) -> None:
    stream = begun(events)
    place = {"streamID": stream.streamID, "beginOffset": stream.minOffset, "limit": 1000}
    good = deployment.create(deployment.request(2))
    bad = deployment.create(deployment.request(1, defaultConfig=default_config(code=3)))
    deployment.ended(good)
    deployment.ended(bad)
    whole = deployment.until(lambda: len(of_job(read(events, **place), good)) == 4) and read(
        events, **place
    )
    runs = [f"{good}-{at}-1" for at in range(2)]
    for run in runs:
        states = [state for name, state in of_job(whole, run)]
        assert states == [mesos.TASK_RUNNING, mesos.TASK_FINISHED]
    (failed,) = [
        one.mesosTaskStatus
        for one in deployment.until(
            lambda: [
                one
                for one in read(events, **place).events
                if one.mesosTaskStatus.state == mesos.TASK_FAILED
                and one.mesosTaskStatus.task_id.value == f"{bad}-0-1"
            ]
        )
    ]
    assert failed.agent_id.value in HOSTS and "3" in failed.message and failed.timestamp > 1e9
    offsets = [one.offset for one in whole.events]
    assert offsets == list(range(stream.minOffset, stream.minOffset + len(offsets)))
    assert {one.type for one in whole.events} == {v0.Event.MESOS_TASK_STATUS}
    assert len({one.mesosTaskStatus.uuid for one in whole.events}) == len(offsets)
    later = read(events, **{**place, "beginOffset": offsets[2], "limit": 1})
    assert [one.offset for one in later.events] == [offsets[2]]
    newer = v1_grpc.EventStreamServiceStub(deployment.channel)
    asked = v1.WaitForEventsRequest(
        client_name=RESMGR, stream_id=stream.streamID, begin_offset=stream.minOffset, limit=1000
    )
    again = newer.WaitForEvents(asked).events
    assert [one.offset for one in again][: len(offsets)] == offsets
    states = [one.pod_event.actual_state for one in again if one.pod_event.pod_id.value == runs[0]]
    assert states == ["POD_STATE_RUNNING", "POD_STATE_SUCCEEDED"]
    kept = hostmgr_svc_pb2_grpc.HostManagerServiceStub(deployment.channel).GetEvents(
        hostmgr_svc.GetEventsRequest()
    )
    assert [one.event_id for one in kept.events] == [one.event_id for one in again]


def test_a_status_goes_once_both_clients_have_read_it(deployment: Deployment, events: Any) -> None:
    stream = begun(events)
    place = {"streamID": stream.streamID, "beginOffset": stream.minOffset}
    job = deployment.create(deployment.request(1))
    deployment.ended(job)
    deployment.until(lambda: len(of_job(read(events, **place, limit=1000), job)) == 2)
    end = stream.minOffset + 2
    read(events, **place | {"beginOffset": end}, purgeOffset=end)
    assert begun(events).minOffset == stream.minOffset, "the other has not read them"
    assert begun(events).previousPurgeOffset == end
    read(events, **place | {"beginOffset": end}, purgeOffset=end, clientName=RESMGR)
    assert begun(events).minOffset == end
    gone = read(events, **place).error.outOfRange
    assert (gone.minOffset, gone.offsetRequested) == (end, stream.minOffset)
    assert gone.streamID == stream.streamID and gone.maxOffset >= end


def test_what_a_stream_refuses(deployment: Deployment, events: Any) -> None:
    stream = begun(events)
    assert begun(events, "somebody").error.clientUnsupported.message == "Client unsupported"
    place = {"streamID": stream.streamID, "beginOffset": stream.minOffset}
    assert read(events, **place, clientName="x").error.HasField("clientUnsupported")
    other = read(events, streamID="other").error.invalidStreamID
    assert other.currentStreamID == stream.streamID
    assert read(events, **place | {"beginOffset": 10**9}).error.HasField("outOfRange")
    wrong = read(events, **place, purgeOffset=10**6).error.invalidPurgeOffset
    assert (wrong.purgeOffset, wrong.beginOffset) == (10**6, stream.minOffset)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"client_name": "somebody"}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"stream_id": "other"}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"begin_offset": 10**9}, grpc.StatusCode.OUT_OF_RANGE),
    ],
)
def test_what_the_newer_stream_refuses(
    deployment: Deployment, change: dict[str, Any], code: grpc.StatusCode
) -> None:
    newer = v1_grpc.EventStreamServiceStub(deployment.channel)
    stream = newer.InitStream(v1.InitStreamRequest(client_name=JOBMGR))
    place = {"client_name": JOBMGR, "stream_id": stream.stream_id}
    place |= {"begin_offset": stream.min_offset}
    newer.WaitForEvents(v1.WaitForEventsRequest(**place))
    with pytest.raises(grpc.RpcError) as caught:
        newer.WaitForEvents(v1.WaitForEventsRequest(**place | change))
    assert caught.value.code() is code
    with pytest.raises(grpc.RpcError) as caught:
        newer.InitStream(v1.InitStreamRequest(client_name="somebody"))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_lost_hosts_end_a_stream(deployment: Deployment, events: Any) -> None:
    """Which runs are lost with a host is not in its feed: clients have to read the tasks."""
    job = deployment.create(deployment.request(1, defaultConfig=default_config(600.0)))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 1)
    stream = begun(events)
    name = deployment.task(job).result.runtime.host
    forget(deployment, name, lose_runs=True)
    deployment.until(lambda: begun(events).streamID != stream.streamID)
    error = read(events, streamID=stream.streamID).error
    assert error.invalidStreamID.currentStreamID == begun(events).streamID
    back_again(deployment, name)


def test_the_oldest_statuses_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_statuses, "STATUSES_MAX", 3)
    buffer = StatusBuffer((JOBMGR, RESMGR))
    outcome = RunOutcome(End.SUCCEEDED)
    for at in range(5):
        buffer.add(RunStatus(f"run-{at}", "a", "SUCCEEDED", float(at), outcome))
    assert (buffer.first, buffer.end) == (2, 5)
    assert [one.offset for one in buffer.read(2, limit=10)] == [2, 3, 4]
    assert [one.status.run for one in buffer.read(3, limit=1)] == ["run-3"]
    buffer.purge(JOBMGR, 4)
    buffer.purge(RESMGR, 3)
    assert (buffer.first, buffer.end) == (3, 5)
    buffer.purge(JOBMGR, 1)
    assert buffer.purged[JOBMGR] == 4, "a client does not unread"
    assert [one.offset for one in buffer.newest(1)] == [4]


class Feed(ClusterFeed):
    """The feed of one host shard that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(self)  # type: ignore[arg-type]
        self.opened = asyncio.Event()
        self.asked = asyncio.Event()

    def shards_of(self, kind: str) -> list[Key]:
        return [Key("shard/hostmgr/0")]

    async def page(self, shard: Key, query: Any, *, patience_s: float | None) -> ChangesPage:
        self.asked.set()
        await self.opened.wait()
        gap = query.mark is not None
        return ChangesPage((), gap, (1, 0), False)


def test_a_caller_that_leaves_while_a_stream_begins_leaves_no_dead_one() -> None:
    async def scene() -> None:
        feed = Feed()
        statuses = status_stream(feed, (JOBMGR, RESMGR))
        leaves = asyncio.create_task(statuses.present())
        await feed.asked.wait()
        leaves.cancel()
        feed.opened.set()
        first = await statuses.present()
        while statuses._present is not None:  # the first page behind the mark has a gap
            await asyncio.to_thread(lambda: None)
        assert await statuses.present() is not first

    asyncio.run(scene())


# ---- watches ----


@pytest.fixture
def hosts(deployment: Deployment) -> Any:
    return hostsvc_pb2_grpc.InternalHostServiceStub(deployment.channel)


def watching(call: Any, topic: str) -> tuple[Any, str, Iterator[Any]]:
    stream = call(hostsvc.WatchEventRequest(topic=topic), timeout=WAIT_S_MAX)
    first = next(stream)
    assert first.topic == topic
    return stream, first.watch_id, stream


def test_a_watch_of_runs_shows_what_follows(deployment: Deployment, hosts: Any) -> None:
    stream, watch, found = watching(hosts.WatchEventStreamEvent, "eventstream")
    job = deployment.create(deployment.request(1))
    seen: list[int] = []
    while mesos.TASK_FINISHED not in seen:
        status = next(found).mesos_task_update.mesosTaskStatus
        if status.task_id.value == f"{job}-0-1":
            seen.append(status.state)
    assert seen == [mesos.TASK_RUNNING, mesos.TASK_FINISHED]
    hosts.CancelWatchEvent(hostsvc.CancelWatchRequest(watch_id=watch))
    with pytest.raises(grpc.RpcError) as caught:
        for _ in stream:
            pass
    assert caught.value.code() is grpc.StatusCode.CANCELLED
    with pytest.raises(grpc.RpcError) as caught:
        hosts.CancelWatchEvent(hostsvc.CancelWatchRequest(watch_id=watch))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_watch_of_hosts_shows_each_change(deployment: Deployment, hosts: Any) -> None:
    stream, watch, found = watching(hosts.WatchHostSummaryEvent, "hostSummary")
    whole = default_config(600.0)
    whole.resource.cpuLimit = 4.0
    job = deployment.create(deployment.request(1, defaultConfig=whole))
    while True:
        summary = next(found).hostSummaryEvent
        if summary.resources.cpu == 0.0:
            break
    assert summary.hostname in HOSTS and summary.resources.memMb == 2047.0
    assert [(one.key, one.value) for one in summary.labels] == [("rack", "r1")]
    assert [(one.begin, one.end) for one in summary.available_ports] == [(31000, 31999)]
    hosts.CancelWatchEvent(hostsvc.CancelWatchRequest(watch_id=watch))
    with pytest.raises(grpc.RpcError) as caught:
        for _ in stream:
            pass
    assert caught.value.code() is grpc.StatusCode.CANCELLED
    deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": job}))
    deployment.ended(job)


@pytest.mark.parametrize(
    ("name", "topic", "text"),
    [
        ("WatchEventStreamEvent", "hosts", "Invalid topic expected eventstream"),
        ("WatchHostSummaryEvent", "eventstream", "Invalid topic expected hostSummary"),
    ],
)
def test_an_unknown_topic(hosts: Any, name: str, topic: str, text: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        next(getattr(hosts, name)(hostsvc.WatchEventRequest(topic=topic)))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == text


def test_watches_are_bounded(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_watches, "WATCHES_MAX", 1)
    stream, watch, _ = watching(hosts.WatchEventStreamEvent, "eventstream")
    with pytest.raises(grpc.RpcError) as caught:
        next(hosts.WatchHostSummaryEvent(hostsvc.WatchEventRequest(topic="hostSummary")))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    stream.cancel()


def test_each_event_is_printed_as_a_document(
    deployment: Deployment, hosts: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    stream, watch, found = watching(hosts.WatchEventStreamEvent, "eventstream")
    job = deployment.create(deployment.request(1))
    message = next(found)
    hosts.CancelWatchEvent(hostsvc.CancelWatchRequest(watch_id=watch))
    bare = hostsvc.WatchEventStreamEventResponse(watch_id=watch)
    print_each(iter([bare, message]), "mesos_task_update")
    (document,) = yaml.safe_load_all(capsys.readouterr().out)
    assert job in str(document["mesosTaskStatus"])
    stream.cancel()
