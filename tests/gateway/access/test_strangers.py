"""No answer, text or status names what its caller may not see: every call is walked for it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

import pytest

from peloton.actors.job.messages import GetJob
from peloton.actors.mentions import job_mention, pool_mention, unnamed
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.access.access_table import ACCESS_TABLE, OPS, PLANS
from peloton.gateway.access.permissions import Rights
from peloton.gateway.cluster.cluster_client import ClusterClient
from peloton.gateway.cluster.names_in_texts import ASK_S_MAX, TEXTS, ReaderSight, TextGate
from peloton.gateway.server.calls import CallContext
from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import plans_pb2 as plans
from peloton.runtime.core.principal import Principal
from peloton.runtime.vocabulary import Key, Refused, ShardDamaged
from peloton.settings.permissions_file import parse_access
from tests.gateway.access.test_access_cells import REQUESTS, Objects, _first, methods
from tests.gateway.access_fixture import (
    JOBS,
    ROLES,
    RULES,
    TASKS,
    Guarded,
    create_request,
    said_by,
)
from tests.gateway.fleet_fixture import default_config, named

VERA, SUE, ADMIN = ROLES["viewer"], ROLES["submitter"], ROLES["administrator"]
CALLERS = (VERA, SUE, ROLES["operator"], ROLES["stranger"], ROLES["pool admin"])
MARK = b"<job ", b"<pool "


class Crowded(NamedTuple):
    """A job in a pool of others that holds nearly all there is, one that waits for it, and one of
    the same pool before that."""

    hidden: str
    first: str
    waits: str


@pytest.fixture(scope="module")
def crowded(fleet: Guarded) -> Crowded:
    large = default_config(seconds=6000)
    large.resource.cpuLimit = 3.5

    def made(path: str, **more: Any) -> str:
        sent = create_request(fleet.pools[path], defaultConfig=large, **more)
        return fleet.open.create(sent)

    hidden = made("/other/jobs", instanceCount=3)
    fleet.open.until(lambda: fleet.open.job(hidden).runtime.taskStats["RUNNING"] == 3)
    found = Crowded(hidden, made("/team/jobs"), made("/team/jobs"))
    why = ops.WhyRequest(job_id=found.waits)
    fleet.open.until(lambda: hidden in str(fleet.open.ops.Why(why)))
    return found


def leaked(fleet: Guarded, crowd: Crowded, asked: Any, said: bytes) -> list[bytes]:
    """What a caller who sees only /team has been told of others, and has not named."""
    marks = [crowd.hidden, "/other", fleet.pools["/other"], fleet.pools["/other/jobs"]]
    sent = asked.SerializeToString()
    return [mark for mark in (*map(str.encode, marks), *MARK) if mark in said and mark not in sent]


def reads(crowd: Crowded, pool: str) -> Iterator[tuple[str, Any]]:
    """What tells why a job waits, and what would happen."""
    for each in (crowd.first, crowd.waits):
        yield f"{OPS}.Why", ops.WhyRequest(job_id=each)
        yield f"{OPS}.Why", ops.WhyRequest(job_id=each, instance=0)
        yield f"{OPS}.Story", ops.StoryRequest(key=f"job/{each}")
        yield f"{OPS}.Story", ops.StoryRequest(key=f"task/{each}/0")
        yield f"{OPS}.Story", ops.StoryRequest(key=f"lot/{each}/0/0")
        yield f"{TASKS}.Get", task.GetRequest(jobId=named(each))
        yield f"{TASKS}.List", task.ListRequest(jobId=named(each))
        yield f"{TASKS}.Query", task.QueryRequest(jobId=named(each))
        yield f"{TASKS}.GetPodEvents", task.GetPodEventsRequest(jobId=named(each))
        yield f"{JOBS}.Get", job.GetRequest(id=named(each))
    large = create_request(pool).config
    large.defaultConfig.resource.cpuLimit = 3.5
    yield f"{PLANS}.PlanJob", plans.PlanJobRequest(config=large)
    for path in ("/team", "/team/jobs"):
        yield f"{PLANS}.ExplainPool", plans.ExplainPoolRequest(path=path)
    yield f"{OPS}.Story", ops.StoryRequest(key=f"respool/{pool}")


def test_why_a_job_waits_names_no_stranger(fleet: Guarded, crowded: Crowded) -> None:
    pool, told = fleet.pools["/team/jobs"], 0
    for method, sent in reads(crowded, pool):
        for by in CALLERS:
            code, text, data = fleet.call(method, sent, by)
            found = leaked(fleet, crowded, sent, text.encode() + data)
            assert not found, (method, sent, by, text, data)
            told += b"another job" in data
        data = fleet.call(method, sent, ADMIN)[2]
        assert not any(mark in data for mark in MARK), "a mention was left as it is"
    assert told > 8, "so many answers would have named the job"
    every = b"".join(fleet.call(*each, ADMIN)[2] for each in reads(crowded, pool))
    assert f"job {crowded.hidden} holds".encode() in every


def test_who_may_not_list_hosts_gets_no_name_of_one_by_a_plan(
    fleet: Guarded, crowded: Crowded
) -> None:
    sent = plans.PlanJobRequest(config=create_request(fleet.pools["/team/more"]).config)
    sent.config.defaultConfig.resource.cpuLimit = 0.1
    for by, named_hosts in ((SUE, False), (ADMIN, True)):
        data = fleet.call(f"{PLANS}.PlanJob", sent, by)[2]
        answer = plans.PlanJobResponse.FromString(data)
        assert answer.hosts_in_all == 1 and bool(answer.hosts) is named_hosts


def test_the_first_of_the_queue_is_named_to_who_may_see_it(
    fleet: Guarded, crowded: Crowded
) -> None:
    """A submitter sees the pool, and of its jobs their own."""
    own = create_request(fleet.pools["/team/jobs"])
    own.config.defaultConfig.resource.cpuLimit = 3.5
    waits = fleet.open.create(own, metadata=said_by(SUE))
    sent = ops.WhyRequest(job_id=waits)

    def place(by: Principal) -> Any:
        answer = ops.WhyResponse.FromString(fleet.call(f"{OPS}.Why", sent, by)[2])
        every = (one for reason in answer.reasons for one in reason.blockers)
        return next((one for one in every if one.code == "queue"), None)

    found = fleet.open.until(lambda: place(VERA))
    assert found.queue.head_job == crowded.first and f"job {crowded.first} of" in found.text
    found = place(SUE)
    assert not found.queue.head_job and "the first is another job of priority" in found.text
    assert "queue of pool /team/jobs" in found.text


def test_no_answer_of_any_method_names_a_stranger(fleet: Guarded, crowded: Crowded) -> None:
    """Of their own objects, of others in their pool, and of none; the last, as it changes much."""
    objects, called = Objects(fleet), 0
    for method in methods():
        for by in (VERA, SUE) if method in ACCESS_TABLE else ():
            for relation in ("own", "same pool", "unknown"):
                sent = REQUESTS[method](objects, relation, by)
                streams = methods()[method].server_streaming
                call = _first if streams else type(fleet).call
                code, text, data = call(fleet, method, sent, by)
                found = leaked(fleet, crowded, sent, text.encode() + data)
                assert not found, (method, sent, by, text, data)
                called += 1
    assert called > 900


# ---- the gate alone ----

ID, OTHER = "5bd4ab6a-39f5-4a0c-8d2c-6a8e7f0b7a51", "9c1f5f0e-6a51-4b8e-9d3f-5f0a3b1c2d4e"


class NoCluster:
    """Knows no job."""

    def read(self, key: Any, query: Any) -> None:
        """Nothing that is known at once."""

    def ask(self, key: Any, query: Any) -> Future[Any]:
        """That nobody knows."""
        found: Future[Any] = Future()
        found.set_result(ShardDamaged(f"{key} cannot be read"))
        return found


class ByRules:
    """The rights of one caller."""

    def __init__(self, by: Principal) -> None:
        self._rights = Rights(parse_access(RULES, "rules"), by)

    def rights(self, context: Any) -> Rights | None:
        """None where they may see everything."""
        return None if self._rights.everything else self._rights


def sight(by: Principal) -> ReaderSight:
    client = ClusterClient(NoCluster(), ByRules(by))  # type: ignore[arg-type]
    return ReaderSight(client, CallContext(), waits=False)  # type: ignore[arg-type]


class SlowCall(CallContext):
    """A call whose questions nobody answers, on a clock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s, self.waits = 0.0, list[float]()

    def await_answer(self, future: Any, wait_s: float) -> Any:
        self.waits.append(wait_s)
        self.now_s += 0.75
        raise TimeoutError


def test_an_answer_waits_once_for_all_the_jobs_that_it_mentions() -> None:
    client, call = ClusterClient(NoCluster(), ByRules(VERA)), SlowCall()  # type: ignore[arg-type]
    reader = ReaderSight(client, call, clock=lambda: call.now_s)  # type: ignore[arg-type]
    texts = [reader.told(job_mention(f"{number:08x}{ID[8:]}")) for number in range(50)]
    assert texts == ["another job"] * 50
    assert call.waits == [ASK_S_MAX, ASK_S_MAX - 0.75, ASK_S_MAX - 1.5]


class Refuses(NoCluster):
    """A shard whose refusal names others."""

    def ask(self, key: Any, query: Any, **more: Any) -> Future[Any]:
        found: Future[Any] = Future()
        text = f"its name is that of {job_mention(ID)} in {pool_mention('/other/a b')}"
        found.set_result(Refused("BUSY", text))
        return found


def test_a_refusal_names_no_stranger() -> None:
    for by, told in (
        (VERA, "its name is that of another job in another pool"),
        (ADMIN, f"its name is that of job {ID} in pool /other/a b"),
    ):
        client, call = ClusterClient(Refuses(), ByRules(by)), CallContext()  # type: ignore[arg-type]
        found = client.ask(Key("job/x"), GetJob(), context=call)  # type: ignore[arg-type]
        assert TextGate(client).status(found.text, call) == told  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            f"limit of {pool_mention('/team/a b')} reached; {job_mention(ID)} holds 1",
            "limit of pool /team/a b reached; another job holds 1",
        ),
        (f"{pool_mention('/other/a>b%')} waits", "another pool waits"),
        ("a job of its own, in a pool of 3", "a job of its own, in a pool of 3"),
    ],
)
def test_a_text_is_told_as_its_reader_may_see_it(text: str, told: str) -> None:
    assert sight(VERA).told(text) == told
    assert "another" not in sight(ADMIN).told(text)
    assert "<" not in sight(ADMIN).told(text)


def test_a_program_that_is_preempted_reads_of_no_stranger() -> None:
    text = f"preempted: {pool_mention('/other')} waits; for {job_mention(ID)}"
    assert unnamed(text) == "preempted: another pool waits; for another job"


def test_what_a_client_has_written_stays_as_it_is() -> None:
    """Configs, whatever stands in them, beside texts that are said otherwise."""
    mention = job_mention(ID)
    answer = job.GetResponse()
    answer.jobInfo.config.description = answer.jobInfo.config.name = mention
    answer.jobInfo.config.labels.add(key="text", value=mention)
    answer.jobInfo.config.defaultConfig.command.value = f"echo 'job {OTHER}' {mention}"
    before = answer.SerializeToString()
    for by in (VERA, ADMIN):
        client = ClusterClient(NoCluster(), ByRules(by))  # type: ignore[arg-type]
        context: Any = CallContext()
        assert TextGate(client).at_once(before, context, kind=job.GetResponse) == before


def test_a_text_in_any_depth_and_in_any_map_is_told() -> None:
    answer = task.ListResponse()
    answer.result.value[7].runtime.message = f"{job_mention(ID)} holds 1"
    answer.result.value[7].config.name = job_mention(ID)
    client = ClusterClient(NoCluster(), ByRules(VERA))  # type: ignore[arg-type]
    context: Any = CallContext()
    data = TextGate(client).encoded(answer, context)
    found = task.ListResponse.FromString(data).result.value[7]
    assert found.runtime.message == "another job holds 1"
    assert found.config.name == job_mention(ID)


def test_every_field_that_speaks_to_people_is_a_text() -> None:
    """Of the services for people: what else is a string is a name, a value or of a config."""
    own = {"Reason", "Blocker", "Estimate", "Event", "Line", "Host", "PlannedWait", "WaitingTasks",
           "GivingTasks", "PlanJobResponse", "ExplainPoolResponse"}  # fmt: skip
    values = {"code", "state", "pool", "job", "resource", "rule", "key", "shard", "facts", "who",
              "name"}  # fmt: skip
    known = {
        field.name
        for module in (ops, plans)
        for name, described in module.DESCRIPTOR.message_types_by_name.items()
        for field in described.fields
        if name in own and field.type == field.TYPE_STRING
    }
    assert known <= values | TEXTS and len(known & TEXTS) > 6
