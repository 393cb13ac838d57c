"""Pods of several containers on a real cluster, whose daemon and keeper are killed in between."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2_grpc
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as pod_svc
from peloton.api.v1alpha.pod.svc import pod_svc_pb2_grpc
from peloton.api.v1alpha.watch.svc import watch_svc_pb2 as watch_svc
from peloton.api.v1alpha.watch.svc import watch_svc_pb2_grpc
from tests.channels import channel_to
from tests.e2e import cluster as c

SERVE = 'echo "$PELOTON_CONTAINER_NAME $PELOTON_TASK_ID $HTTP"; exec sleep 1000'


def container(name: str, value: str, **more: Any) -> dict[str, Any]:
    need = {"cpu_limit": 0.01, "mem_limit_mb": 1.0, "disk_limit_mb": 1.0}
    return {"name": name, "resource": need, "entrypoint": {"value": value}, **more}


def spec_of(pool: str, gate: Path, *, code: int = 5) -> stateless.JobSpec:
    """A pod of which the first container waits for a file, and one main container for another."""
    return stateless.JobSpec(
        name="pods",
        owning_team="team",
        instance_count=1,
        respool_id={"value": pool},
        default_spec={
            "init_containers": [
                container("wait", f"echo first > order; while [ ! -e {gate} ]; do sleep .05; done"),
                container("prepare", "echo second >> order"),
            ],
            "containers": [
                container("web", SERVE, ports=[{"name": "http", "env_name": "HTTP"}]),
                container("side", f"{SERVE[:-15]} while [ ! -e {gate}.2 ]; do sleep .05; done;"
                          f" exit {code}"),
            ],
            "kill_grace_period_seconds": 5,
        },
    )  # fmt: skip


def test_a_pod_goes_on_while_its_daemon_and_its_keeper_are_killed(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with c.running(tmp_path) as cluster:
        with cluster.client() as client:
            pool = str(client.pools.lookup(c.pool(client)))
        with channel_to(cluster.address) as channel:
            jobs = stateless_svc_pb2_grpc.JobServiceStub(channel)
            sent = spec_of(pool, gate)
            job = jobs.CreateJob(svc.CreateJobRequest(spec=sent)).job_id
            c.wait_for(lambda: _found(cluster, "order"), "the first container")
            c.wait_for(lambda: _pods(jobs, job) == {"POD_STATE_LAUNCHED": 1}, "it to be launched")
            back = jobs.GetJob(svc.GetJobRequest(job_id=job)).job_info.spec.default_spec
            for one in (*back.containers, *back.init_containers):
                one.ClearField("command")
            assert back.containers == sent.default_spec.containers
            assert back.init_containers == sent.default_spec.init_containers
        cluster.kill()
        gate.touch()  # the init containers end, and the others start, while there is no daemon
        box = _found(cluster, "order")[0].parent
        c.wait_for(lambda: _said(box, "web") and _said(box, "side"), "the main containers")
        cluster.start()
        with channel_to(cluster.address) as channel:
            jobs = stateless_svc_pb2_grpc.JobServiceStub(channel)
            c.wait_for(lambda: _pods(jobs, job) == {"POD_STATE_RUNNING": 1}, "the pod to run")
            assert (box / "order").read_text().split() == ["first", "second"]
            name, pod, port = _said(box, "web")
            assert (name, pod) == ("web", f"{job.value}-0") and int(port) > 0
            assert _said(box, "side") == ["side", pod, port]
        os.kill(int((box.parent.parent / "lock").read_text()), signal.SIGKILL)
        (tmp_path / "gate.2").touch()
        with cluster.client() as client:
            c.wait_for(lambda: _ends(client, job.value), "the pod to end")
            event, waits = sorted(_ends(client, job.value), key=lambda one: one.reason)
            assert (event.actualState, event.reason) == ("FAILED", "exited")
            assert event.message == "container side: exit code 5"
            assert waits.reason.startswith("waits after failure 1, next attempt at ")


def test_each_container_of_a_running_pod_is_seen_by_itself(tmp_path: Path) -> None:
    """Also what one did while there was no daemon."""
    gate = tmp_path / "gate"
    with c.running(tmp_path) as cluster:
        with cluster.client() as client:
            pool = str(client.pools.lookup(c.pool(client)))
        with channel_to(cluster.address) as channel:
            jobs = stateless_svc_pb2_grpc.JobServiceStub(channel)
            sent = svc.CreateJobRequest(spec=spec_of(pool, gate, code=0))
            job = jobs.CreateJob(sent).job_id.value
            want = {"wait": "RUNNING", "prepare": "PENDING", "web": "PENDING", "side": "PENDING"}
            c.wait_for(lambda: _there(channel, job), "the workflow to add the pod")
            c.wait_for(lambda: _seen(channel, job) == want, "the first container to be seen")
            watched = watch_svc.WatchRequest(pod_filter={"job_id": {"value": job}})
            watches = watch_svc_pb2_grpc.WatchServiceStub(channel)
            stream = watches.Watch(watched, timeout=c.WAIT_MAX_S)
            assert next(stream).watch_id
            gate.touch()
            done = {"wait": "SUCCEEDED", "prepare": "SUCCEEDED"}
            want = {**done, "web": "RUNNING", "side": "RUNNING"}
            seen = (_states(one.status) for message in stream for one in message.pods)
            assert any(each == want for each in seen), "a watch tells of it"
            stream.cancel()
            assert _seen(channel, job) == want
        cluster.kill()
        Path(f"{gate}.2").touch()
        box = _found(cluster, "order")[0].parent
        c.wait_for(lambda: "container side: exit code 0" in (box / "stdout").read_text(), "its end")
        cluster.start()
        with channel_to(cluster.address) as channel:
            want = {**done, "web": "RUNNING", "side": "SUCCEEDED"}
            c.wait_for(lambda: _seen(channel, job) == want, "what has ended to be seen")
            found = _status(channel, job)
            assert found.state == pod.POD_STATE_RUNNING
            web, side = found.containers_status
            assert web.start_time and not web.completion_time
            assert side.start_time < side.completion_time
            pods = pod_svc_pb2_grpc.PodServiceStub(channel)
            cached = pods.GetPodCache(pod_svc.GetPodCacheRequest(pod_name={"value": f"{job}-0"}))
            assert _states(cached.status) == want


def _status(channel: Any, job: str) -> pod.PodStatus:
    pods = pod_svc_pb2_grpc.PodServiceStub(channel)
    return pods.GetPod(pod_svc.GetPodRequest(pod_name={"value": f"{job}-0"})).current.status


def _there(channel: Any, job: str) -> bool:
    jobs = stateless_svc_pb2_grpc.JobServiceStub(channel)
    found = jobs.ListPods(svc.ListPodsRequest(job_id={"value": job}))
    return any(len(answer.pods) for answer in found)


def _seen(channel: Any, job: str) -> dict[str, str]:
    return _states(_status(channel, job))


def _states(status: pod.PodStatus) -> dict[str, str]:
    """What each container does."""
    name = pod.ContainerState.Name
    found = (*status.init_containers_status, *status.containers_status)
    return {one.name: name(one.state).removeprefix("CONTAINER_STATE_") for one in found}


def _pods(jobs: Any, job: Any) -> dict[str, int]:
    found = jobs.GetJob(svc.GetJobRequest(job_id=job, summary_only=True))
    return dict(found.summary.status.pod_stats)


def _said(box: Path, name: str) -> list[str]:
    return (box / f"{name}.stdout").read_text().split()


def _found(cluster: c.Cluster, name: str) -> list[Path]:
    return [*(cluster.folder / "data").rglob(f"runs/*/{name}")]


def _ends(client: Any, job: str) -> list[task.PodEvent]:
    events = client.tasks.events(job, 0).result
    return [event for event in events if event.actualState in c.ENDED]
