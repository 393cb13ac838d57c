"""What a client is told of an answer that is none: each of the cluster's, over a cluster in a list.

No server: `ClusterClient` and the pieces of requests alone.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from peloton.actors.host.stages import HostStates
from peloton.actors.host.state import Host
from peloton.actors.job.slice.task_config import TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import ENDED_NAMES
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.messages import ROOT, GetPool, ListPools, PoolConfig, PoolView
from peloton.api.v0.job import job_pb2 as job
from peloton.gateway.access.guard import CallEnded
from peloton.gateway.cluster import cluster_client
from peloton.gateway.cluster.cluster_client import ClusterClient
from peloton.gateway.cluster.feed import BadResumeToken, marks_of
from peloton.gateway.cluster.requests import (
    REQUEST_KEY,
    REQUEST_KEY_LENGTH_MAX,
    request_of,
)
from peloton.gateway.ops.hosts import host_with_runs
from peloton.gateway.private.internal_tasks import states_of
from peloton.gateway.private.job_cache import JobManagerService
from peloton.gateway.server.calls import CallContext, Later
from peloton.gateway.translate.actor_keys import parse_number
from peloton.gateway.translate.translate_job import ParsedJob
from peloton.gateway.v0.pool_limits import warning_of_limits
from peloton.ops.v1 import ops_pb2 as ops
from peloton.private.jobmgrsvc import jobmgrsvc_pb2 as jobmgrsvc
from peloton.runtime.core.reading.changes import ALL
from peloton.runtime.core.reading.listing import Listed, ListViews
from peloton.runtime.vocabulary import Absent, DeadLettered, Key, ShardDamaged, Unavailable

CODE = grpc.StatusCode
KEY = Key("job/x")
COMMAND: Any = object()  # whatever is no query


class Cluster:
    """Answers everything with one thing, or not at all."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.pages: dict[Key, Any] = {}

    def ask(self, key: Key, message: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.answer is not None:
            future.set_result(self.answer)
        return future

    def read(self, key: Key, query: Any) -> Any:
        return self.pages.get(key)

    def shards_of(self, kind: str) -> list[Key]:
        return [*self.pages]


class Call(CallContext):
    """A call with metadata."""

    def __init__(self, **metadata: str) -> None:
        super().__init__()
        self._metadata = tuple((name.replace("_", "-"), text) for name, text in metadata.items())

    def invocation_metadata(self) -> Any:
        return self._metadata

    def time_remaining(self) -> float | None:
        return 0.0


def ended(work: Any) -> tuple[Any, str, bool]:
    """How the work ends its call: the code, the text, and whether a repeat is said to be safe."""
    with pytest.raises(CallEnded) as caught:
        work()
    details: list[Any] = []
    for _, data in caught.value.trailing:
        details += status_pb2.Status.FromString(data).details
    retry = any(each.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for each in details)
    return caught.value.code, caught.value.details, retry


def client(answer: Any = None) -> ClusterClient:
    return ClusterClient(Cluster(answer))  # type: ignore[arg-type]


def ask(answer: Any, message: Any = COMMAND, request: Any = None) -> tuple[Any, str, bool]:
    call = client(answer)
    return ended(lambda: call.ask(KEY, message, context=Call(), request=request))


def later(request: Any) -> Later:
    found = client().command_later(
        KEY, COMMAND, context=Call(), request=request, encode=lambda answer: b""
    )
    assert isinstance(found, Later)
    return found


@pytest.mark.parametrize(("request_key", "safe"), [(None, False), (("k", b"d"), True)])
def test_only_a_command_with_a_request_key_is_safe_to_repeat(request_key: Any, safe: bool) -> None:
    assert ask(Unavailable("moving"), request=request_key) == (CODE.UNAVAILABLE, "moving", safe)
    found = later(request_key)
    assert ended(lambda: found.encode(Unavailable("moving")))[2] is safe
    code, text, retry = ended(found.late)
    assert (code, retry) == (CODE.UNAVAILABLE, safe)
    assert text.endswith("a change may have happened nevertheless: check, then repeat")


def test_a_query_is_safe_to_repeat_and_changes_nothing() -> None:
    assert ask(Unavailable("moving"), GetPool(ROOT)) == (CODE.UNAVAILABLE, "moving", True)
    assert ask(None, GetPool(ROOT)) == (CODE.UNAVAILABLE, "no answer in time from job/x", True)
    assert "may have happened" in ask(None)[1]


def test_what_a_repeat_does_not_mend_is_not_unavailable() -> None:
    code, text, retry = ask(ShardDamaged("the shard is damaged"), request=("k", b"d"))
    assert (code, text, retry) == (CODE.DATA_LOSS, "the shard is damaged", False)
    code, text, retry = ask(DeadLettered("ValueError"), request=("k", b"d"))
    assert code is CODE.INTERNAL and "dead letter: ValueError" in text and not retry


def test_without_a_root_nothing_is_said_of_pools() -> None:
    starting = client(Absent(ROOT))
    for work in (
        lambda: starting.pool(GetPool(ROOT), Call()),
        lambda: starting.pools(Call()),
        lambda: starting.pool_history("/work", Call()),
    ):
        code, text, retry = ended(work)
        assert code is CODE.UNAVAILABLE and "still starting" in text and retry


def test_slack_that_was_taken_back_is_not_less_than_none() -> None:
    """The runs on it are still ending, and the list of hosts says so already."""
    room = Resources(cpu=4 * UNIT, slack=UNIT)
    used = Resources(cpu=UNIT, slack=3 * UNIT)
    found = Host(HostStates.UP, room, (), Key("x/b"), (0, 1), 60.0, used=used)
    sent = ops.ShowHostRequest(name="a")
    shown = host_with_runs(client(found), sent, context=Call()).host
    assert (shown.free.cpu, shown.free.slack, shown.capacity.slack) == (3.0, 0.0, 1.0)


def test_pools_of_many_pages_are_all_found() -> None:
    class View:
        def __init__(self, number: int) -> None:
            self.pool = Key(f"respool/{number}")
            self.config = self
            self.name, self.parent = str(number), ROOT

    pages = [tuple(View(n) for n in some) for some in ((1, 2), (3, 4), (5,))]
    asked: list[ListPools] = []

    def answer(query: ListPools) -> Any:
        asked.append(query)
        return pages[len(asked) - 1]

    assert len(cluster_client.all_pages(answer, most=2)) == 5
    assert [query.after for query in asked[:2]] == [None, (("2", Key("respool/2")),)]


def test_a_listing_that_is_not_all_there_at_once_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_client, "AT_ONCE_S_MAX", 60.0)
    call = client()
    cluster: Any = call.cluster
    query = ListViews("job")
    cluster.pages = {Key("shard/a"): Listed("job", ()), Key("shard/b"): Listed("job", ())}
    assert call.listing_at_once(query) is not None
    cluster.pages[Key("shard/b")] = Listed("job", (), after=Key("job/z"))
    assert call.listing_at_once(query) is None
    cluster.pages[Key("shard/b")] = None
    assert call.listing_at_once(query) is None


# ---- requests ----


def test_a_request_key_stands_for_one_body() -> None:
    one, other = (job.CreateRequest(config=job.JobConfig(name=name)) for name in ("a", "b"))
    call = Call(**{REQUEST_KEY.replace("-", "_"): "k"})
    first, again, second = (request_of(sent, call) for sent in (one, one, other))
    assert first == again and first is not None and second is not None
    assert first[0] == second[0] and first[1] != second[1]
    assert request_of(one, Call()) is None


def test_a_request_key_has_a_limit() -> None:
    name = REQUEST_KEY.replace("-", "_")
    sent = job.CreateRequest()
    call = Call(**{name: "k" * REQUEST_KEY_LENGTH_MAX})
    assert request_of(sent, call) is not None
    long = Call(**{name: "k" * (REQUEST_KEY_LENGTH_MAX + 1)})
    assert ended(lambda: request_of(sent, long))[0] is CODE.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("text", "number"),
    [("4294967295", 2**32 - 1), ("4294967296", None), ("9999999999", None), ("²", None)],
)
def test_a_number_in_a_key_has_32_bits(text: str, number: int | None) -> None:
    assert parse_number(text) == number


@pytest.mark.parametrize("token", ["jobmgr/0@1", "jobmgr/0@1,jobmgr/1@1,jobmgr/2@1"])
def test_a_token_has_the_shards_of_its_query_and_no_others(token: str) -> None:
    shards = [Key("shard/jobmgr/0"), Key("shard/jobmgr/1")]
    assert marks_of("jobmgr/0@1,jobmgr/1@2.7", shards) == dict(
        zip(shards, [(1, ALL), (2, 7)], strict=True)
    )
    with pytest.raises(BadResumeToken, match="of another query"):
        marks_of(token, shards)


# ---- limits of pools ----


def limited(name: str, cpu: int, parent: Key) -> PoolView:
    config = PoolConfig(name, parent, Resources(), Resources(cpu=cpu, memory=UNIT, disk=UNIT))
    return PoolView(Key(f"respool/{name}"), f"/{name}", config, (), Resources(), Resources())


@pytest.mark.parametrize("narrow", ["leaf", "above"])
def test_an_instance_fits_its_pool_and_all_above_it(narrow: str) -> None:
    """Where it would never be admitted its job waits for ever, and that is said at once."""
    cpu = {"leaf": 4 * UNIT, "above": 4 * UNIT, narrow: UNIT}
    above = limited("above", cpu["above"], ROOT)
    pools = [limited("leaf", cpu["leaf"], above.pool), above]
    for wanted, fits in ((UNIT, True), (2 * UNIT, False)):
        default = TaskConfig(resources=Resources(cpu=wanted))
        parsed = ParsedJob(JobSpec("job", "ann", pools[0].pool, 3, default), {})
        warning = warning_of_limits(parsed, pools)
        assert (f"the limit of pool /{narrow} is 1" in warning) != fits and bool(warning) != fits


def test_an_answer_of_too_many_jobs_is_refused() -> None:
    cluster = Cluster(Listed("job", (), 3))
    cluster.pages[Key("shard")] = None
    for most, refused in ((2, True), (3, False)):
        service = JobManagerService(ClusterClient(cluster), jobs_max=most)  # type: ignore[arg-type]

        def asked(service: JobManagerService = service) -> Any:
            return service.QueryJobCache(jobmgrsvc.QueryJobCacheRequest(), Call())

        def pods(service: JobManagerService = service) -> Any:
            return service.GetThrottledPods(jobmgrsvc.GetThrottledPodsRequest(), Call())

        if refused:
            assert ended(pods)[:2] == (CODE.RESOURCE_EXHAUSTED, "more than 2 services")
            assert ended(asked)[:2] == (
                CODE.RESOURCE_EXHAUSTED, "more than 2 jobs: name a job or labels"
            )  # fmt: skip
        else:
            assert not asked().result and not pods().throttled_pods


def test_only_instances_that_may_be_in_a_wanted_state_are_asked_for() -> None:
    assert states_of(["RUNNING"]) == ("RUNNING",) and states_of(["SUCCEEDED"]) == ()
    waiting = states_of(["PLACING"])
    assert "PENDING" in waiting and "LAUNCHED" in waiting and "RUNNING" not in waiting
    assert {*states_of([])} == {"RUNNING", "KILLING", "PREEMPTING", *waiting}
    assert not {*states_of([])} & {*ENDED_NAMES}
