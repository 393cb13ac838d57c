"""JobService.QueryPods and ListPods: which pods of a job, in which order, and which page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2_grpc
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.api.v1alpha.query import query_pb2 as query
from peloton.gateway.v1alpha.pod_query import to_query_v0
from peloton.gateway.v1alpha.pod_status import pod_state_of
from tests.gateway.fleet_fixture import Deployment, default_config, named, refused

CODE = grpc.StatusCode
NO_JOBS = ["", "nonsense", "8c95fa0c-d174-40cd-ac17-6a1a166ec1a8"]
PODS = 4


@pytest.fixture
def jobs(deployment: Deployment) -> Any:
    return stateless_svc_pb2_grpc.JobServiceStub(deployment.channel)


@pytest.fixture
def job(deployment: Deployment) -> Iterator[str]:
    """A service of four pods: the last one has a name of its own, the first one is stopped."""
    own = default_config(600.0)
    own.name = "last"
    config = default_config(600.0)
    request = deployment.request(PODS, defaultConfig=config, instanceConfig={PODS - 1: own})
    request.config.type = job_pb2.SERVICE
    made = deployment.create(request)
    deployment.until(lambda: deployment.job(made).runtime.taskStats["RUNNING"] == PODS)
    first = [{"from": 0, "to": 1}]
    deployment.tasks.Stop(task.StopRequest(jobId=named(made), ranges=first))
    deployment.until(lambda: deployment.job(made).runtime.taskStats["KILLED"] == 1)
    yield made
    deployment.tasks.Stop(task.StopRequest(jobId=named(made)))


def asked(jobs: Any, job: str, **more: Any) -> svc.QueryPodsResponse:
    return jobs.QueryPods(svc.QueryPodsRequest(job_id={"value": job}, **more))


def numbers(answer: svc.QueryPodsResponse) -> list[int]:
    return [int(one.spec.pod_name.value.rpartition("-")[2]) for one in answer.pods]


def by(name: str, order: int = 1) -> Any:
    return {"pagination": {"order_by": [{"order": order, "property": {"value": name}}]}}


def test_each_part_of_a_query_leaves_pods_out(jobs: Any, job: str) -> None:
    assert numbers(asked(jobs, job)) == [0, 1, 2, 3]
    running, killed = pod.POD_STATE_RUNNING, pod.POD_STATE_KILLED
    assert numbers(asked(jobs, job, spec={"pod_states": [running]})) == [1, 2, 3]
    assert numbers(asked(jobs, job, spec={"pod_states": [killed, running]})) == [0, 1, 2, 3]
    for other in (pod.POD_STATE_FAILED, pod.POD_STATE_INVALID, 999):
        assert numbers(asked(jobs, job, spec={"pod_states": [other]})) == []
    last = {"names": [{"value": "last"}]}
    assert numbers(asked(jobs, job, spec=last)) == [3], "names are those of containers"
    found = asked(jobs, job).pods
    host = found[2].status.host
    on_it = [at for at, one in enumerate(found) if one.status.host == host]
    assert numbers(asked(jobs, job, spec={"hosts": [host]})) == on_it
    assert numbers(asked(jobs, job, spec={"hosts": ["nowhere"]})) == []


def test_pods_come_in_order_and_by_page(jobs: Any, job: str) -> None:
    page = {"pagination": {"offset": 1, "limit": 2}}
    found = asked(jobs, job, spec=page)
    assert numbers(found) == [1, 2] and found.pagination.total == PODS
    assert found.pagination == query.Pagination(total=PODS), "the page is the spec's alone"
    echoed = asked(jobs, job, spec=page, pagination={"offset": 3, "limit": 7})
    assert numbers(echoed) == [1, 2]
    assert echoed.pagination == query.Pagination(offset=3, limit=7, total=PODS)
    for name in ("instanceId", "instance_id"):
        assert numbers(asked(jobs, job, spec=by(name, 2))) == [3, 2, 1, 0]
    assert numbers(asked(jobs, job, spec=by("state", 2)))[0] == 0
    for name in ("creation_time", "host", "message", "name", "reason"):
        assert sorted(numbers(asked(jobs, job, spec=by(name)))) == [0, 1, 2, 3]
    # Whole pods, whether only summaries were asked for or not.
    assert asked(jobs, job, summary_only=True) == asked(jobs, job)


def test_what_cannot_be_ordered_by(jobs: Any, job: str) -> None:
    sent = svc.QueryPodsRequest(job_id={"value": job}, spec=by("nonsense"))
    code, text = refused(jobs.QueryPods, sent)
    assert code is CODE.INVALID_ARGUMENT
    assert text.startswith("spec: no such property to order by: 'nonsense'")


@pytest.mark.parametrize("job_id", NO_JOBS)
def test_pods_of_no_job(jobs: Any, job_id: str) -> None:
    nothing = CODE.NOT_FOUND, "job not found"
    assert refused(jobs.QueryPods, svc.QueryPodsRequest(job_id={"value": job_id})) == nothing
    listed = svc.ListPodsRequest(job_id={"value": job_id})
    assert refused(lambda sent: [*jobs.ListPods(sent)], listed) == nothing


def test_all_pods_are_listed_one_by_one(jobs: Any, job: str) -> None:
    def listed(**more: Any) -> list[pod.PodSummary]:
        messages = [*jobs.ListPods(svc.ListPodsRequest(job_id={"value": job}, **more))]
        assert all(len(message.pods) == 1 for message in messages)
        return [message.pods[0] for message in messages]

    found = listed()
    assert sorted(one.pod_name.value for one in found) == [f"{job}-{at}" for at in range(PODS)]
    whole = {one.spec.pod_name.value: one.status for one in asked(jobs, job).pods}
    assert {one.pod_name.value: one.status for one in found} == whole
    for start, stop, names in ((1, 3, [1, 2]), (3, 2**31 - 1, [3]), (4, 9, []), (2, 1, [])):
        some = listed(range={"from": start, "to": stop})
        assert [one.pod_name.value for one in some] == [f"{job}-{at}" for at in names]


def test_states_keep_their_names_between_the_generations() -> None:
    for name, number in pod.PodState.items():
        (state,) = to_query_v0(pod.QuerySpec(pod_states=[number])).taskStates
        if number != pod.POD_STATE_INVALID:
            assert task.TaskState.Name(state) == name.removeprefix("POD_STATE_")
            assert pod_state_of(state) == number
