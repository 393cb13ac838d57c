"""WatchService: services and pods as they change, resumed without loss, and each refusal."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as jobs_svc
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2_grpc
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.api.v1alpha.watch.svc import watch_svc_pb2 as svc
from peloton.api.v1alpha.watch.svc import watch_svc_pb2_grpc
from peloton.cli.shared import exits
from peloton.gateway.grpc_server import ServerOptions
from peloton.gateway.v1alpha import service_watches
from peloton.sdk.client import Client as PelotonClient
from tests.cli.terminal import typed
from tests.gateway.fleet_fixture import HOSTS, Deployment, default_config, named, refused, running
from tests.gateway.service_specs import creation, pod_spec, service_spec

CODE = grpc.StatusCode
NOBODY = "8c95fa0c-d174-40cd-ac17-6a1a166ec1a8"
STREAM_S = 60.0


class Client:
    """The stubs of one deployment."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.jobs = stateless_svc_pb2_grpc.JobServiceStub(deployment.channel)
        self.watches = watch_svc_pb2_grpc.WatchServiceStub(deployment.channel)

    def service(self, instances: int = 2, **more: Any) -> str:
        """A new service that runs."""
        spec = service_spec(self.deployment.pool, instances, **more)
        job = str(self.jobs.CreateJob(creation(spec)).job_id.value)
        self.deployment.until(
            lambda: self.deployment.job(job).runtime.taskStats["RUNNING"] == instances
        )
        return job

    def stop(self, job: str, *instances: int) -> None:
        sent = task.StopRequest(jobId=named(job))
        for one in instances:
            sent.ranges.add(**{"from": one, "to": one + 1})
        self.deployment.tasks.Stop(sent)

    def delete(self, job: str) -> None:
        sent = jobs_svc.GetJobRequest(job_id={"value": job}, summary_only=True)
        version = self.jobs.GetJob(sent).summary.status.version
        self.jobs.DeleteJob(
            jobs_svc.DeleteJobRequest(job_id={"value": job}, version=version, force=True)
        )

    def watch(self, sent: svc.WatchRequest) -> tuple[Any, svc.WatchResponse]:
        """A stream that has begun, and its first message."""
        stream = self.watches.Watch(sent, timeout=STREAM_S)
        first = next(stream)
        assert first.watch_id and first.revision and not told(first)
        return stream, first


@pytest.fixture
def client(deployment: Deployment) -> Client:
    return Client(deployment)


def told(message: svc.WatchResponse) -> list[str]:
    """What a message tells of, as text."""
    found = [one.job_id.value for one in message.stateless_jobs]
    found += [f"no {one.value}" for one in message.stateless_jobs_not_found]
    found += [one.pod_name.value for one in message.pods]
    return found + [f"no {one.value}" for one in message.pods_not_found]


def until(stream: Any, wanted: Callable[[svc.WatchResponse], Any]) -> list[svc.WatchResponse]:
    """The messages up to one that is wanted."""
    found = []
    for message in stream:
        found.append(message)
        if wanted(message):
            return found
    raise AssertionError("the stream ended")


def of_jobs(*jobs: str, start: int = 0, **labels: str) -> svc.WatchRequest:
    sent = svc.WatchRequest(start_revision=start)
    sent.stateless_job_filter.SetInParent()
    for job in jobs:
        sent.stateless_job_filter.job_ids.add(value=job)
    for key, value in labels.items():
        sent.stateless_job_filter.labels.add(key=key, value=value)
    return sent


def of_pods(job: str = "", *names: str, start: int = 0, **labels: str) -> svc.WatchRequest:
    sent = svc.WatchRequest(start_revision=start)
    sent.pod_filter.SetInParent()
    if job:
        sent.pod_filter.job_id.value = job
    for name in names:
        sent.pod_filter.pod_names.add(value=name)
    for key, value in labels.items():
        sent.pod_filter.labels.add(key=key, value=value)
    return sent


def is_killed(message: svc.WatchResponse) -> bool:
    return any(one.status.state == stateless.JOB_STATE_KILLED for one in message.stateless_jobs)


def has_state(name: str, state: Any) -> Callable[[svc.WatchResponse], bool]:
    return lambda message: any(
        one.pod_name.value == name and one.status.state == state for one in message.pods
    )


def ended(stream: Any) -> tuple[Any, str]:
    with pytest.raises(grpc.RpcError) as caught:
        for _ in stream:
            pass
    return caught.value.code(), caught.value.details()


def revisions(messages: list[svc.WatchResponse]) -> list[int]:
    return [message.revision for message in messages]


def test_a_service_is_watched_until_it_is_gone(client: Client) -> None:
    job, other = client.service(), client.service()
    stream, first = client.watch(of_jobs(job))
    assert first.watch_id.startswith("job_")
    client.stop(other)
    client.stop(job)
    found = until(stream, is_killed)
    assert {name for message in found for name in told(message)} == {job}
    assert {message.watch_id for message in found} == {first.watch_id}
    client.delete(job)
    found += until(stream, lambda message: told(message) == [f"no {job}"])
    numbers = revisions(found)
    assert numbers == sorted(set(numbers)) and numbers[0] > first.revision


def test_pods_are_watched_by_job_name_and_labels(client: Client) -> None:
    spec = pod_spec(labels=[{"key": "a", "value": "1"}, {"key": "b", "value": "2"}])
    job = client.service(3, default_spec=spec)
    names = [f"{job}-{number}" for number in range(3)]
    by_job, first = client.watch(of_pods(job))
    assert first.watch_id.startswith("task_")
    by_name, _ = client.watch(of_pods("", names[1]))
    by_labels, _ = client.watch(of_pods("", a="1", b="2"))
    by_others, not_them = client.watch(of_pods(job, a="1", b="1"))
    both = of_pods(job)
    both.stateless_job_filter.job_ids.add(value=job)
    pods_win, began = client.watch(both)
    assert began.watch_id.startswith("task_")
    client.stop(job, 0, 1)
    killed = has_state(names[1], pod.POD_STATE_KILLED)
    for stream in (by_job, by_labels, pods_win):
        seen = {name for message in until(stream, killed) for name in told(message)}
        assert names[1] in seen and seen <= {*names}
    found = until(by_name, killed)
    assert {name for message in found for name in told(message)} == {names[1]}
    status = found[-1].pods[0].status
    assert status.pod_id.value == f"{names[1]}-1" and status.host and status.completion_time
    client.watches.Cancel(svc.CancelRequest(watch_id=not_them.watch_id))
    assert [*passed(by_others)] == [], "not all labels are theirs"


def passed(stream: Any) -> Iterator[svc.WatchResponse]:
    """What comes before the end."""
    with contextlib.suppress(grpc.RpcError):
        yield from stream


def test_batch_jobs_are_not_told(client: Client) -> None:
    deployment = client.deployment
    stream, _ = client.watch(of_jobs())
    pods, _ = client.watch(of_pods())
    batch = deployment.create(deployment.request(2, defaultConfig=default_config()))
    deployment.ended(batch)
    job = client.service(1)
    client.stop(job)
    # Services of other tests may still change, so what is told is not of this one alone.

    def ended(message: svc.WatchResponse) -> bool:
        return is_killed(message) and job in told(message)

    seen = {name for message in until(stream, ended) for name in told(message)}
    assert batch not in seen
    killed = has_state(f"{job}-0", pod.POD_STATE_KILLED)
    seen = {name for one in until(pods, killed) for name in told(one)}
    assert f"{job}-0" in seen and not [name for name in seen if name.startswith(batch)]
    named_batch, _ = client.watch(of_jobs(batch))
    assert told(next(named_batch)) == [f"no {batch}"]


def test_daemon_jobs_are_told_with_the_pods_that_they_have(client: Client) -> None:
    deployment = client.deployment
    any_job, _ = client.watch(of_jobs())
    request = deployment.request(0, defaultConfig=default_config(600.0))
    request.config.type = job_pb2.DAEMON
    job = deployment.create(request)
    until(any_job, lambda message: job in told(message))
    there = client.watch(of_pods(job, start=1))[0]
    until(there, lambda message: any(one.status.host for one in message.pods))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == len(HOSTS))
    pods, _ = client.watch(of_pods(job, start=1))
    found = until(pods, lambda message: not told(message))[:-1]
    assert [one.pods[0].status.state for one in found] == [pod.POD_STATE_RUNNING] * len(HOSTS)
    client.delete(job)
    until(any_job, lambda message: f"no {job}" in told(message))
    until(pods, lambda message: f"no {told(found[0])[0]}" in told(message))


def test_a_watch_resumes_behind_each_revision(client: Client) -> None:
    job = client.service(3)
    stream, first = client.watch(of_pods(job))
    client.stop(job)
    every = []
    last = {f"{job}-{number}" for number in range(3)}
    while last:
        message = next(stream)
        every.append(message)
        if message.pods[0].status.state == pod.POD_STATE_KILLED:
            last.discard(told(message)[0])
    # Behind each of them come the objects that have changed since, each as it is now.
    for at in range(-1, len(every)):
        revision = every[at].revision if at >= 0 else first.revision
        later = {name for message in every[at + 1 :] for name in told(message)}
        again, _ = client.watch(of_pods(job, start=revision))
        found: list[svc.WatchResponse] = []
        while later - {name for message in found for name in told(message)}:
            found.append(next(again))
        assert all(one.pods[0].status.state == pod.POD_STATE_KILLED for one in found)
        numbers = revisions(found)
        assert numbers == sorted(set(numbers)) and all(number > revision for number in numbers)
        again.cancel()


def test_a_watch_from_the_beginning_tells_what_there_is(client: Client) -> None:
    job = client.service(3, labels=[{"key": "snap", "value": "yes"}])
    stream, first = client.watch(of_jobs(start=1, snap="yes"))
    assert first.revision == 1
    assert told(next(stream)) == [job]
    end = next(stream)
    assert not told(end) and end.revision > 1, "the snapshot ends with its revision"
    client.stop(job)
    assert until(stream, is_killed)[0].revision > end.revision
    pods, _ = client.watch(of_pods(job, start=1))
    found = until(pods, lambda message: not told(message))
    assert [told(message) for message in found[:-1]] == [[f"{job}-{at}"] for at in range(3)]


def test_what_is_named_and_not_there_is_not_found(client: Client) -> None:
    job = client.service(1)
    stream, _ = client.watch(of_jobs(job, NOBODY, "nonsense"))
    assert sorted(told(next(stream)) + told(next(stream))) == [f"no {NOBODY}", "no nonsense"]
    names = [f"{job}-0", f"{job}-7", f"{NOBODY}-0", "x"]
    pods, _ = client.watch(of_pods("", *names))
    missing = {told(next(pods))[0] for _ in range(3)}
    assert missing == {f"no {name}" for name in names[1:]}
    others, _ = client.watch(of_pods(job, f"{NOBODY}-0"))
    assert told(next(others)) == [f"no {NOBODY}-0"], "it is no pod of that job"


@pytest.mark.parametrize("sent", [of_jobs(), of_pods()], ids=["jobs", "pods"])
def test_a_watch_is_cancelled_by_its_id(client: Client, sent: svc.WatchRequest) -> None:
    stream, first = client.watch(sent)
    client.watches.Cancel(svc.CancelRequest(watch_id=first.watch_id))
    assert ended(stream) == (CODE.CANCELLED, f"watch cancelled: {first.watch_id}")
    again = svc.CancelRequest(watch_id=first.watch_id)
    client.deployment.until(
        lambda: refused(client.watches.Cancel, again) == (CODE.NOT_FOUND, "invalid watch id")
    )


@pytest.mark.parametrize("watch_id", ["", "x", f"job_{NOBODY}", f"task_{NOBODY}"])
def test_an_unknown_watch_is_not_found(client: Client, watch_id: str) -> None:
    sent = svc.CancelRequest(watch_id=watch_id)
    assert refused(client.watches.Cancel, sent) == (CODE.NOT_FOUND, "invalid watch id")


def test_a_watch_without_a_filter_is_refused(client: Client) -> None:
    stream = client.watches.Watch(svc.WatchRequest(), timeout=STREAM_S)
    assert ended(stream) == (CODE.INVALID_ARGUMENT, "not supported watch type")


@pytest.mark.parametrize("job", ["x", NOBODY[:-1], f"{{{NOBODY}}}", f"{NOBODY}-0"])
def test_a_watch_of_the_pods_of_no_job_is_refused(client: Client, job: str) -> None:
    for sent in (of_pods(job), of_pods(job, f"{NOBODY}-0")):
        code, text = ended(client.watches.Watch(sent, timeout=STREAM_S))
        assert code == CODE.INVALID_ARGUMENT
        assert text == "pod_filter.job_id: JobID must be of UUID format"


def test_revisions_of_others_are_refused_or_begin_anew(client: Client) -> None:
    job = client.service(1)
    for revision in (2, 1 << 40, (1 << 64) - 1):
        stream = client.watches.Watch(of_jobs(start=revision), timeout=STREAM_S)
        code, text = ended(stream)
        assert code is CODE.OUT_OF_RANGE and f"revision {revision} is not known here" in text
        one, first = client.watch(of_jobs(job, start=revision))
        assert first.revision == revision and told(next(one)) == [job]
        assert not told(next(one))


def test_a_quiet_stream_gets_newer_revisions_whatever_it_began_with(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another daemon, whose clock is ahead, gave the revision."""
    monkeypatch.setattr(service_watches, "BOOKMARK_S", 0.2)
    job = client.service(1)
    stream, _ = client.watch(of_jobs(job, start=(1 << 64) - 1))
    end = until(stream, lambda message: not told(message))[-1]
    client.service(1)
    later = until(stream, lambda message: message.revision > end.revision)
    assert not any(map(told, later))


def test_a_slow_reader_is_told_that_it_was_too_slow(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = client.service(3)
    stream, first = client.watch(of_pods(job))
    monkeypatch.setattr(service_watches, "CHANGED_MAX", 0)
    client.stop(job)
    assert ended(stream) == (CODE.ABORTED, f"event overflow: {first.watch_id}")


def test_a_server_has_a_limit_of_watches(tmp_path: Path) -> None:
    with running(tmp_path, options=ServerOptions(watches=1)) as deployment:
        client = Client(deployment)
        stream, _ = client.watch(of_jobs())
        another = client.watches.Watch(of_pods(), timeout=STREAM_S)
        code, text = ended(another)
        assert code == CODE.RESOURCE_EXHAUSTED and text.startswith("max client reached: ")
        stream.cancel()
        deployment.until(lambda: began(client))


def began(client: Client) -> bool:
    stream = client.watches.Watch(of_pods(), timeout=STREAM_S)
    try:
        return bool(next(stream).watch_id)
    except grpc.RpcError:
        return False


def test_a_named_watch_resumes_across_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as deployment:
        client = Client(deployment)
        job, gone = client.service(2), client.service(1)
        jobs, first = client.watch(of_jobs(job, gone))
        client.stop(job)
        last = until(jobs, is_killed)[-1].revision
        client.delete(gone)  # of which this client does not learn any more
        deployment.until(lambda: deployment.jobs.Get(of_job(gone)).HasField("error"))
    with running(tmp_path) as deployment:
        client = Client(deployment)
        for revision in (first.revision, last):
            again, begun = client.watch(of_jobs(job, gone, start=revision))
            assert begun.revision == revision
            found = until(again, lambda message: not told(message))
            names = [name for message in found for name in told(message)]
            assert sorted(names) == sorted([job, f"no {gone}"])
            assert any(map(is_killed, found))
            assert found[-1].revision > last, "numbers grow, whoever gives them"
            again.cancel()
        code, text = ended(client.watches.Watch(of_jobs(start=last), timeout=STREAM_S))
        assert code is CODE.OUT_OF_RANGE and f"revision {last} is not known here" in text


def of_job(job: str) -> job_pb2.GetRequest:
    return job_pb2.GetRequest(id=named(job))


def test_a_watch_is_printed_until_it_is_cancelled(client: Client) -> None:
    job = client.service(1, labels=[{"key": "printed", "value": "yes"}])
    api = ("--api", client.deployment.api, "watch")
    words = (*api, "job", "--labels", "printed:yes", "--start-revision", "1", "-o", "json")
    line = [sys.executable, "-m", "peloton", *words]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        begun = json.loads(process.stdout.readline())
        assert begun.keys() == {"watch_id", "revision"}
        assert json.loads(process.stdout.readline())["stateless_jobs"][0]["job_id"]["value"] == job
        client.stop(job)
        state = ""
        while state != "JOB_STATE_KILLED":
            message = json.loads(process.stdout.readline())
            state = message["stateless_jobs"][0]["status"]["state"]
        client.watches.Cancel(svc.CancelRequest(watch_id=begun["watch_id"]))
        rest, errors = process.communicate(timeout=STREAM_S)
    assert (process.returncode, errors) == (0, b"")
    for told in rest.splitlines():  # what changed of it before the watch was cancelled
        assert json.loads(told)["stateless_jobs"][0]["job_id"]["value"] == job
    gone = typed(*api, "cancel", begun["watch_id"])
    assert gone.code == exits.NOT_FOUND_EXIT and "invalid watch id" in gone.err
    wrong = typed(*api, "pod", job, "--labels", "x")
    assert wrong.code == exits.USAGE and "'x' is not KEY:VALUE" in wrong.err


def test_a_client_of_the_sdk_is_told_of_gaps(client: Client) -> None:
    job = client.service(1)
    with PelotonClient(client.deployment.api) as peloton:
        told = peloton.services.watch_jobs(since=2)
        first = next(told)
        assert "revision 2 is not known here" in first.gap and first.message.revision == 1
        second = next(told)
        assert not second.gap and second.message.stateless_jobs
        told.close()
        pods = peloton.services.watch_pods(job, since=1)
        assert not next(pods).gap
        assert next(pods).message.pods[0].pod_name.value == f"{job}-0"
        pods.close()
