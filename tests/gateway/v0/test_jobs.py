"""JobManager: create, get, query, delete, under both of its names."""

from __future__ import annotations

import time
import uuid

import grpc
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.query import query_pb2 as query
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.access.guard import CallEnded
from peloton.gateway.cluster import cluster_client
from peloton.gateway.cluster.cluster_client import ClusterClient
from peloton.gateway.server.calls import CallContext, Later
from peloton.gateway.v0 import job_create
from peloton.gateway.v0.job_create import Creation
from peloton.ops.v1 import ops_pb2 as ops
from tests.gateway.fleet_fixture import WAIT_S_MAX, Deployment, default_config, named


def test_a_job_from_creation_to_end(deployment: Deployment) -> None:
    job_id = deployment.create(
        deployment.request(3, ldapGroups=["g"], labels=[{"key": "a", "value": "b"}])
    )
    ended = deployment.ended(job_id)
    assert (ended.state, ended.exit_code, dict(ended.counts)) == ("SUCCEEDED", 0, {"SUCCEEDED": 3})
    info = deployment.job(job_id)
    assert info.runtime.state == info.runtime.goalState == job.SUCCEEDED
    assert dict(info.runtime.taskStats) == {"SUCCEEDED": 3}
    assert (info.runtime.configurationVersion, info.runtime.desiredStateVersion) == (1, 1)
    times = [info.runtime.creationTime, info.runtime.startTime, info.runtime.completionTime]
    assert times == sorted(times)
    assert all(len(text) == len("2019-10-01T00:00:00.000000000Z") for text in times)
    assert info.config.respoolID.value == deployment.pool
    assert list(info.config.ldapGroups) == ["g"]
    assert info.config.labels[0] == peloton_pb2.Label(key="a", value="b")


def test_a_config_is_read_back_as_it_was_written(deployment: Deployment) -> None:
    request = deployment.request(3)
    default = request.config.defaultConfig
    default.container.type = default.container.DOCKER
    default.container.docker.image = "debian"
    default.container.docker.parameters.add(key="env", value="X")
    default.ports.add(name="web", value=0, envName="WEB")
    default.constraint.type = task.Constraint.LABEL_CONSTRAINT
    label = default.constraint.labelConstraint
    label.kind, label.condition, label.requirement = 2, 2, 1
    label.label.key, label.label.value = "rack", "r1"
    own = request.config.instanceConfig[1]
    own.name, own.command.value = "other", "false"
    read = deployment.job(deployment.create(request)).config
    assert read.changeLog.version == 1
    read.ClearField("changeLog")
    assert read == request.config


def test_an_id_of_the_clients_choice_is_taken_once(deployment: Deployment) -> None:
    request = deployment.request()
    request.id.value = str(uuid.uuid4())
    assert deployment.create(request) == request.id.value
    again = deployment.jobs.Create(request)
    assert again.jobId == again.error.alreadyExists.id == request.id
    assert "already exists" in again.error.alreadyExists.message


def test_a_request_key_makes_one_job_whatever_happens(deployment: Deployment) -> None:
    request = deployment.request()
    key = (("peloton-request-key", f"k-{uuid.uuid4()}"),)
    first = deployment.create(request, metadata=key)
    assert deployment.create(request, metadata=key) == first
    request.config.name = "another"
    with pytest.raises(grpc.RpcError) as caught:
        deployment.jobs.Create(request, metadata=key)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "another body" in caught.value.details()


def test_a_job_too_large_for_one_message_is_said_in_pieces(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_create, "WHOLE_BYTES_MAX", 1000)
    request = deployment.request(2500)
    for instance in range(0, 2500, 5):
        request.config.instanceConfig[instance].labels.add(key="filler", value="x" * 300)
    key = (("peloton-request-key", f"k-{uuid.uuid4()}"),)
    job_id = deployment.create(request, metadata=key)
    assert deployment.create(request, metadata=key) == job_id
    assert len(deployment.job(job_id).config.instanceConfig) == 500
    story = deployment.ops.Story(ops.StoryRequest(key=f"job/{job_id}")).lines
    assert [line.cause for line in story].count("AddOverrides") == 3
    deployment.tasks.Stop(task.StopRequest(jobId=named(job_id)))
    deployment.ended(job_id)


def test_a_job_that_failed_says_its_code(deployment: Deployment) -> None:
    job_id = deployment.create(deployment.request(2, defaultConfig=default_config(code=3)))
    ended = deployment.ended(job_id)
    assert (ended.state, ended.exit_code) == ("FAILED", 3)


def test_unknown_jobs(deployment: Deployment) -> None:
    for name in (str(uuid.uuid4()), "x", ""):
        answer = deployment.jobs.Get(job.GetRequest(id=named(name)))
        assert answer.error.getRuntimeFail.message == "job not found"
        assert not answer.error.HasField("notFound"), "one error, as in the original"
        with pytest.raises(grpc.RpcError) as caught:
            deployment.jobs.Delete(job.DeleteRequest(id=named(name)))
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
        assert caught.value.details() == "job not found"


def test_the_cache_of_a_job_has_what_the_original_keeps(deployment: Deployment) -> None:
    request = deployment.request(2, name="cached")
    request.config.sla.priority = 3
    job_id = deployment.create(request)
    deployment.ended(job_id)
    found = deployment.jobs.GetCache(job.GetCacheRequest(id=named(job_id)))
    assert found.runtime == deployment.job(job_id).runtime
    config = found.config
    assert (config.instanceCount, config.type, config.sla.priority) == (2, job.BATCH, 3)
    assert config.respoolID.value == deployment.pool and config.changeLog.version == 1
    assert not config.name and not config.HasField("defaultConfig")
    for name in (str(uuid.uuid4()), "x", ""):
        with pytest.raises(grpc.RpcError) as caught:
            deployment.jobs.GetCache(job.GetCacheRequest(id=named(name)))
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
        assert caught.value.details() == "Job not found in cache"


def test_a_job_is_deleted_once_it_has_ended(deployment: Deployment) -> None:
    job_id = deployment.create(deployment.request(2, defaultConfig=default_config(seconds=60)))
    with pytest.raises(grpc.RpcError) as caught:
        deployment.jobs.Delete(job.DeleteRequest(id=named(job_id)))
    assert caught.value.code() == grpc.StatusCode.INTERNAL
    assert "Job is not in a terminal state" in caught.value.details()
    active = deployment.jobs.GetActiveJobs(job.GetActiveJobsRequest()).ids
    assert job_id in {found.value for found in active}
    deployment.tasks.Stop(task.StopRequest(jobId=named(job_id)))
    assert deployment.ended(job_id).state == "KILLED"
    assert deployment.job(job_id).runtime.goalState == job.KILLED
    deployment.jobs.Delete(job.DeleteRequest(id=named(job_id)))
    assert deployment.jobs.Get(job.GetRequest(id=named(job_id))).error.HasField("getRuntimeFail")
    assert job_id not in ids(deployment, job.QuerySpec(name="test"))


def test_the_short_names_of_older_clients(deployment: Deployment) -> None:
    job_id = deployment.create(deployment.request())
    for name, sent, kind in (
        ("peloton.api.job.JobManager/Get", job.GetRequest(id=named(job_id)), job.GetResponse),
        (
            "peloton.api.task.TaskManager/Get",
            task.GetRequest(jobId=named(job_id)),
            task.GetResponse,
        ),
    ):
        call = deployment.channel.unary_unary(
            f"/{name}",
            request_serializer=type(sent).SerializeToString,
            response_deserializer=kind.FromString,
        )
        headers = (("rpc-caller", "x"), ("rpc-service", "y"), ("rpc-encoding", "proto"))
        assert job_id in str(call(sent, metadata=headers))


# ---- queries ----


def ids(deployment: Deployment, spec: job.QuerySpec, **more: object) -> list[str]:
    request = job.QueryRequest(spec=spec, summaryOnly=True, **more)  # type: ignore[arg-type]
    request.spec.pagination.limit = request.spec.pagination.limit or 100
    answer = deployment.jobs.Query(request)
    assert not answer.HasField("error"), answer
    return [found.id.value for found in answer.results]


def test_queries_choose(deployment: Deployment) -> None:
    mark = str(uuid.uuid4())
    label = peloton_pb2.Label(key="mark", value=mark)
    made = []
    for name in ("one", "two", "three"):
        request = deployment.request(name=f"{name}-{mark}", labels=[label], owningTeam=f"of-{name}")
        if name == "two":
            request.config.defaultConfig.command.value = f"echo {mark[:8]}-needle"
        made.append(deployment.create(request))
        deployment.ended(made[-1])
    one, two, three = made
    Q = job.QuerySpec
    cases = [
        (Q(labels=[label]), {one, two, three}),
        (Q(labels=[peloton_pb2.Label(key="other", value=mark)]), set()),
        (Q(labels=[peloton_pb2.Label(value=mark)]), {one, two, three}),
        (Q(labels=[label], name="wo-"), {two}),
        (Q(labels=[label], owner="of-three"), {three}),
        (Q(labels=[label], owner="of"), set()),
        (Q(labels=[label], jobStates=[job.SUCCEEDED]), {one, two, three}),
        (Q(labels=[label], jobStates=[job.FAILED, job.KILLED]), set()),
        (Q(labels=[label], keywords=[f"{mark[:8].upper()}-NEEDLE"]), {two}),
        (Q(labels=[label], keywords=["*needle*"]), {two}),
        (Q(labels=[label], respool={"value": "/nowhere"}), set()),
        (Q(labels=[label], respool={"value": "/work"}), {one, two, three}),
        (Q(labels=[label], creationTimeRange={"max": {"seconds": 1}}), set()),
        (Q(labels=[label], creationTimeRange={"min": {"seconds": 1}}), {one, two, three}),
    ]
    for spec, wanted in cases:
        assert set(ids(deployment, spec)) == wanted, spec
    assert ids(deployment, Q(labels=[label])) == [three, two, one]  # the newest first
    assert ids(deployment, Q(labels=[label]), respoolID={"value": "root"}) == []
    by_name = query.OrderBy(order=query.OrderBy.ASC, property={"value": "name"})
    pages = query.PaginationSpec(orderBy=[by_name], offset=1, limit=1)
    assert ids(deployment, Q(labels=[label], pagination=pages)) == [three]
    pages = query.PaginationSpec(orderBy=[by_name], maxLimit=2)
    assert ids(deployment, Q(labels=[label], pagination=pages)) == [one, three]


def test_queries_that_cannot_be_meant(deployment: Deployment) -> None:
    pages = query.PaginationSpec(orderBy=[query.OrderBy(property={"value": "shoe_size"})])
    backwards = {"min": {"seconds": 9}, "max": {"seconds": 1}}
    for spec, text in (
        (job.QuerySpec(pagination=pages), "shoe_size"),
        (job.QuerySpec(creationTimeRange=backwards), "creationTimeRange: max is before min"),
        (job.QuerySpec(completionTimeRange=backwards), "completionTimeRange"),
    ):
        assert text in deployment.jobs.Query(job.QueryRequest(spec=spec)).error.err.message


def test_a_query_without_a_spec_is_empty_and_one_with_records_has_configs(
    deployment: Deployment,
) -> None:
    request = deployment.request(2, name=f"n-{time.time()}")
    request.config.instanceConfig[0].command.value = "x"
    deployment.create(request)
    assert deployment.jobs.Query(job.QueryRequest()) == job.QueryResponse()
    found = deployment.jobs.Query(job.QueryRequest(spec=job.QuerySpec(name=request.config.name)))
    assert found.pagination.total == 1
    assert found.records[0].config.defaultConfig == request.config.defaultConfig
    assert not found.records[0].config.instanceConfig
    assert found.results[0].owner == found.results[0].owningTeam == "team"


def test_a_listing_at_once_is_the_listing(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [deployment.create(deployment.request(name="at once")) for _ in range(3)]
    for job_id in ids:
        deployment.ended(job_id)
    sent = job.QueryRequest(summaryOnly=True, spec=job.QuerySpec(name="at once"))
    at_once = deployment.jobs.Query(sent)
    assert {line.id.value for line in at_once.results} == {*ids}
    monkeypatch.setattr(cluster_client, "AT_ONCE_S_MAX", -1.0)
    assert deployment.jobs.Query(sent) == at_once, "one that takes too long runs on a thread"
    bad = job.QueryRequest(summaryOnly=True, spec=job.QuerySpec())
    bad.spec.pagination.orderBy.add().property.value = "shoes"
    assert deployment.jobs.Query(bad).error.err.message


def test_a_get_shows_a_job_as_soon_as_it_is_created_and_stopped(deployment: Deployment) -> None:
    lasting = default_config(seconds=600.0)  # on a busy machine a short one may end before
    for _ in range(20):
        job_id = deployment.create(deployment.request(defaultConfig=lasting))
        version = deployment.job(job_id).runtime.desiredStateVersion
        deployment.tasks.Stop(task.StopRequest(jobId=named(job_id)))
        info = deployment.job(job_id)
        assert info.runtime.goalState == job.KILLED
        assert info.runtime.desiredStateVersion == version + 1


def test_a_small_create_holds_no_thread(deployment: Deployment) -> None:
    deployment.jobs.Create(deployment.request())  # from now on the pool's config is known
    client, context = ClusterClient(deployment.region), CallContext()
    later = Creation(client, deployment.request(), context=context).at_once()
    assert isinstance(later, Later)
    created = job.CreateResponse.FromString(later.encode(later.future.result(WAIT_S_MAX)))
    info = deployment.jobs.Get(job.GetRequest(id=created.jobId)).jobInfo
    assert info.config.name == "test"
    with pytest.raises(CallEnded) as caught:
        later.late()
    assert "a change may have happened" in caught.value.details
    wrong = deployment.request()
    wrong.id.value = "no id"
    refused = Creation(client, wrong, context=context).at_once()
    assert isinstance(refused, bytes)
    assert job.CreateResponse.FromString(refused).error.HasField("invalidJobId")
