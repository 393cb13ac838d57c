"""JobService.QueryJobs and ListJobs: which jobs, in which order, and which page of them."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2_grpc
from peloton.api.v1alpha.query import query_pb2 as query
from tests.gateway.fleet_fixture import Deployment, default_config, refused
from tests.gateway.service_specs import creation, service_spec

CODE = grpc.StatusCode
NAMES = ("query-c", "query-a", "query-b")


@pytest.fixture
def jobs(deployment: Deployment) -> Any:
    return stateless_svc_pb2_grpc.JobServiceStub(deployment.channel)


@pytest.fixture
def made(deployment: Deployment, jobs: Any) -> Any:
    """Three services, by their names."""
    found = {}
    for at, name in enumerate(NAMES, start=1):
        labels = [{"key": "k", "value": name}, {"key": "all", "value": "of-them"}]
        spec = service_spec(deployment.pool, at, name=name, labels=labels, sla={"priority": at})
        found[name] = jobs.CreateJob(creation(spec)).job_id.value
    yield found
    for job in found.values():
        known = jobs.GetJob(svc.GetJobRequest(job_id={"value": job}, summary_only=True))
        version = known.summary.status.version
        jobs.DeleteJob(svc.DeleteJobRequest(job_id={"value": job}, version=version, force=True))


def asked(jobs: Any, **spec: Any) -> svc.QueryJobsResponse:
    sent = stateless.QuerySpec(**{"name": "query-", **spec})
    answer = jobs.QueryJobs(svc.QueryJobsRequest(spec=sent))
    assert answer.spec == sent
    return answer


def names(answer: svc.QueryJobsResponse) -> list[str]:
    return [one.name for one in answer.records]


def by(name: str, order: int = 1) -> Any:
    return {"order": order, "property": {"value": name}}


def test_jobs_are_found_in_order_and_by_page(
    deployment: Deployment, jobs: Any, made: dict[str, str]
) -> None:
    newest_first = asked(jobs)
    assert names(newest_first) == [*reversed(NAMES)]
    assert newest_first.pagination == query.Pagination(limit=10, total=3)
    found = newest_first.records[0]
    assert (found.job_id.value, found.instance_count) == (made["query-b"], 3)
    assert found.sla.priority == 3 and found.respool_id.value == deployment.pool
    assert found.status.version.value == "1-1-1"

    paged = asked(jobs, pagination={"offset": 1, "limit": 1, "order_by": [by("name")]})
    assert names(paged) == ["query-b"]
    assert paged.pagination == query.Pagination(offset=1, limit=1, total=3)
    assert names(asked(jobs, pagination={"order_by": [by("name", 2)]}))[0] == "query-c"
    few = asked(jobs, pagination={"max_limit": 2})
    assert len(few.records) == few.pagination.total == 2


def test_each_part_of_a_query_leaves_jobs_out(jobs: Any, made: dict[str, str]) -> None:
    pairs = [{"key": "all", "value": "of-them"}, {"key": "k", "value": "query-a"}]
    assert names(asked(jobs, labels=pairs)) == ["query-a"]
    assert names(asked(jobs, keywords=["query-a"])) == ["query-a"]
    assert len(names(asked(jobs, owner="team"))) == 3 and not names(asked(jobs, owner="owner"))
    assert len(names(asked(jobs, respool={"value": "/work"}))) == 3
    assert not names(asked(jobs, respool={"value": "/nowhere"}))
    assert not names(asked(jobs, job_states=[stateless.JOB_STATE_FAILED]))
    living = [stateless.JOB_STATE_PENDING, stateless.JOB_STATE_RUNNING]
    assert len(names(asked(jobs, job_states=living))) == 3
    assert not names(asked(jobs, creation_time_range={"max": Timestamp(seconds=1)}))
    assert len(names(asked(jobs, creation_time_range={"min": Timestamp(seconds=1)}))) == 3
    assert not names(asked(jobs, completion_time_range={"min": Timestamp(seconds=1)}))


def test_without_a_spec_there_is_nothing(jobs: Any, made: dict[str, str]) -> None:
    assert jobs.QueryJobs(svc.QueryJobsRequest()) == svc.QueryJobsResponse()


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"pagination": {"order_by": [by("nonsense")]}}, "no such property to order by"),
        ({"creation_time_range": {"min": {"seconds": 2}, "max": {"seconds": 1}}},
         "creation_time_range: max is before min"),
        ({"completion_time_range": {"min": {"seconds": 2}, "max": {"seconds": 1}}},
         "completion_time_range: max is before min"),
        ({"keywords": [str(number) for number in range(33)]}, "keywords: at most 32"),
        ({"labels": [{"key": "k"}] * 65}, "labels: at most 64"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked(jobs: Any, spec: Any, text: str) -> None:
    code, said = refused(jobs.QueryJobs, svc.QueryJobsRequest(spec=spec))
    assert code is CODE.INVALID_ARGUMENT and said.startswith("spec: " + text), said


def test_all_jobs_are_listed_one_by_one(
    deployment: Deployment, jobs: Any, made: dict[str, str]
) -> None:
    batch = deployment.create(deployment.request(1, defaultConfig=default_config(0.0)))
    messages = [*jobs.ListJobs(svc.ListJobsRequest())]
    assert {len(message.jobs) for message in messages} == {1}
    found = {message.jobs[0].job_id.value: message.jobs[0] for message in messages}
    assert len(found) == len(messages) and {batch, *made.values()} <= set(found)
    assert found[made["query-a"]].sla.priority == 2
    deployment.ended(batch)
