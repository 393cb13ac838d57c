"""VolumeService of both generations: the volumes of services, found and deleted."""

from __future__ import annotations

import contextlib
from typing import Any

import grpc
import pytest

from peloton.actors.host.machine_messages import VolumeConfig
from peloton.actors.host.messages import Launch
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.job.slice.messages import LeaveVolume, slice_key
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import crowd_key
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v0.volume import volume_pb2 as volume
from peloton.api.v0.volume.svc import volume_svc_pb2 as svc
from peloton.api.v0.volume.svc import volume_svc_pb2_grpc
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.api.v1alpha.volume import volume_pb2 as volume_v1
from peloton.api.v1alpha.volume.svc import volume_svc_pb2 as svc_v1
from peloton.api.v1alpha.volume.svc import volume_svc_pb2_grpc as volume_svc_v1_pb2_grpc
from peloton.gateway.translate.pod_specs import pod_spec_of, to_task
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Bits, key
from tests.gateway.fleet_fixture import Deployment, default_config, named, refused

CODE = grpc.StatusCode
NOBODY = "8c95fa0c-d174-40cd-ac17-6a1a166ec1a8"
NOT_FOUND = (CODE.NOT_FOUND, "volume not found")
STOP_FIRST = (
    CODE.FAILED_PRECONDITION,
    "the instance is to run: stop it first, then delete its volume",
)


def config(**more: Any) -> task.TaskConfig:
    found = default_config(600.0)
    found.volume.containerPath, found.volume.sizeMB = "/data", 5
    found.MergeFrom(task.TaskConfig(**more))
    return found


def service(deployment: Deployment, instances: int = 2) -> str:
    request = deployment.request(instances, defaultConfig=config(), name="db")
    request.config.type = job_pb2.SERVICE
    job = deployment.create(request)
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == instances)
    return job


def stop(deployment: Deployment, job: str, instances: int = 2) -> None:
    deployment.tasks.Stop(task.StopRequest(jobId=named(job)))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["KILLED"] == instances)


def volumes(deployment: Deployment) -> Any:
    return volume_svc_pb2_grpc.VolumeServiceStub(deployment.channel)


def listed(deployment: Deployment, job: str) -> dict[str, Any]:
    """By name; a map on the wire has no order."""
    answer = volumes(deployment).ListVolumes(svc.ListVolumesRequest(jobId=named(job)))
    return dict(sorted(answer.volumes.items()))


def test_the_volumes_of_a_job_are_listed_in_both_generations(deployment: Deployment) -> None:
    job = service(deployment)
    found = listed(deployment, job)
    assert sorted(found) == [f"{job}-0", f"{job}-1"]
    first = found[f"{job}-0"]
    host = first.hostname
    assert host in ("a", "b", "c") and first.createTime == first.updateTime != ""
    assert (first.id.value, first.jobId.value, first.instanceId) == (f"{job}-0", job, 0)
    assert (first.sizeMB, first.containerPath) == (5, "/data")
    assert (first.state, first.goalState) == (volume.CREATED, volume.CREATED)
    one = volumes(deployment).GetVolume(svc.GetVolumeRequest(id={"value": f"{job}-0"})).result
    assert one == first

    later = volume_svc_v1_pb2_grpc.VolumeServiceStub(deployment.channel)
    shown = later.ListVolumes(svc_v1.ListVolumesRequest(job_id={"value": job})).volumes
    assert sorted(shown) == sorted(found)
    again = later.GetVolume(svc_v1.GetVolumeRequest(volume_id={"value": f"{job}-0"})).result
    assert again == shown[f"{job}-0"]
    assert (again.pod_name.value, again.hostname, again.size_mb) == (f"{job}-0", host, 5)
    assert again.desired_state == again.state == volume_v1.VOLUME_STATE_CREATED


def test_a_volume_is_deleted_once_its_instance_is_stopped(deployment: Deployment) -> None:
    job = service(deployment)
    sent = svc.DeleteVolumeRequest(id={"value": f"{job}-1"})
    assert refused(volumes(deployment).DeleteVolume, sent) == STOP_FIRST
    stop(deployment, job)
    assert len(listed(deployment, job)) == 2
    volumes(deployment).DeleteVolume(sent)
    deployment.until(lambda: [*listed(deployment, job)] == [f"{job}-0"])
    assert refused(volumes(deployment).DeleteVolume, sent) == NOT_FOUND
    later = volume_svc_v1_pb2_grpc.VolumeServiceStub(deployment.channel)
    later.DeleteVolume(svc_v1.DeleteVolumeRequest(volume_id={"value": f"{job}-0"}))
    deployment.until(lambda: not listed(deployment, job))


def test_a_deletion_that_was_cut_off_is_done_by_a_repeat(deployment: Deployment) -> None:
    """Its slice has forgotten the volume, the host has not been asked."""
    request = deployment.request(3, defaultConfig=config(), name="db")
    request.config.type = job_pb2.SERVICE
    request.config.placementStrategy = job_pb2.PLACEMENT_STRATEGY_SPREAD_JOB
    job = deployment.create(request)
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 3)
    stop(deployment, job, 3)
    deployment.region.ask(slice_key(job, 0), LeaveVolume(1)).result(60.0)
    volumes(deployment).DeleteVolume(svc.DeleteVolumeRequest(id={"value": f"{job}-1"}))
    deployment.until(lambda: [*listed(deployment, job)] == [f"{job}-0", f"{job}-2"])
    for instance in (0, 2):
        sent = svc.DeleteVolumeRequest(id={"value": f"{job}-{instance}"})
        volumes(deployment).DeleteVolume(sent)


def test_volumes_outlive_their_job(deployment: Deployment) -> None:
    job = service(deployment, 1)
    stop(deployment, job, 1)
    deployment.jobs.Delete(job_pb2.DeleteRequest(id=named(job)))
    sent = job_pb2.GetRequest(id=named(job))
    deployment.until(lambda: deployment.jobs.Get(sent).HasField("error"))
    assert [*listed(deployment, job)] == [f"{job}-0"]
    volumes(deployment).DeleteVolume(svc.DeleteVolumeRequest(id={"value": f"{job}-0"}))
    deployment.until(lambda: not listed(deployment, job))


def test_volumes_of_removed_instances_are_listed(deployment: Deployment) -> None:
    """Another one of the job has its home on one host only, which is not all that there is."""
    request = deployment.request(2, defaultConfig=config(), name="db")
    request.config.type = job_pb2.SERVICE
    request.config.placementStrategy = job_pb2.PLACEMENT_STRATEGY_SPREAD_JOB
    job = deployment.create(request)
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 2)
    stop(deployment, job)
    deployment.region.ask(slice_key(job, 0), LeaveVolume(1)).result(60.0)  # as if it had forgotten
    assert [*listed(deployment, job)] == [f"{job}-0", f"{job}-1"]
    for instance in (0, 1):
        sent = svc.DeleteVolumeRequest(id={"value": f"{job}-{instance}"})
        volumes(deployment).DeleteVolume(sent)


def test_a_volume_on_another_host_than_its_home_is_an_orphan(deployment: Deployment) -> None:
    """It is listed by its host, and deleted by that name, while its instance runs elsewhere."""
    job = service(deployment, 1)
    home = listed(deployment, job)[f"{job}-0"].hostname
    other = next(name for name in ("a", "b", "c") if name != home)
    stray = f"{job}-0@{other}"
    spec = RunSpec(Resources(UNIT), "true", volume=VolumeConfig("/data", 5))
    launch = Launch(9, spec)
    lost = Envelope(key("host", other), launch, sender=crowd_key(job, 0), origin=Bits.of(0).raw)
    deployment.region.tell([lost])
    deployment.until(lambda: [*listed(deployment, job)] == [f"{job}-0", stray])
    found = listed(deployment, job)
    assert found[f"{job}-0"].hostname == home and found[stray].hostname == other
    deleted = svc.DeleteVolumeRequest(id={"value": stray})

    def is_deleted() -> bool:
        """Once its run there, which nobody wants, has ended."""
        with contextlib.suppress(grpc.RpcError):
            volumes(deployment).DeleteVolume(deleted)
            return True
        return False

    deployment.until(is_deleted)
    deployment.until(lambda: [*listed(deployment, job)] == [f"{job}-0"])
    deployment.tasks.Stop(task.StopRequest(jobId=named(job)))


@pytest.mark.parametrize("name", ["", "x", *(f"{NOBODY}-{end}" for end in ("x", "0", "0@a", "01"))])
def test_there_is_no_such_volume(deployment: Deployment, name: str) -> None:
    stub = volumes(deployment)
    assert refused(stub.GetVolume, svc.GetVolumeRequest(id={"value": name})) == NOT_FOUND
    sent = svc.DeleteVolumeRequest(id={"value": name})
    assert refused(stub.DeleteVolume, sent) == NOT_FOUND
    assert listed(deployment, NOBODY) == {}
    code, text = refused(stub.ListVolumes, svc.ListVolumesRequest(jobId=named("x")))
    assert (code, text) == (CODE.INVALID_ARGUMENT, "jobID is not valid UUID")


BAD_PATH = "no path of letters, digits and . _ - in folders"


@pytest.mark.parametrize(
    ("path", "size_mb", "text"),
    [
        ("", 1, f"volume.containerPath: {BAD_PATH}: ''"),
        ("/", 1, f"volume.containerPath: {BAD_PATH}: '/'"),
        ("/a:b", 1, f"volume.containerPath: {BAD_PATH}: '/a:b'"),
        ("/a/../b", 1, "volume.containerPath: must name a folder of its own: '/a/../b'"),
        ("stdout", 1, "volume.containerPath: must name a folder of its own: 'stdout'"),
        ("/data", 0, "volume.sizeMB: must be at least 1"),
    ],
)
def test_a_volume_has_a_path_and_a_size(
    deployment: Deployment, path: str, size_mb: int, text: str
) -> None:
    wrong = default_config(600.0)
    wrong.volume.containerPath, wrong.volume.sizeMB = path, size_mb
    request = deployment.request(1, defaultConfig=wrong)
    request.config.type = job_pb2.SERVICE
    assert text in answer_of(deployment, request)


@pytest.mark.parametrize("path", ["preempted", "/checkpointed/x", "web.stdout", "/log.stderr/deep"])
def test_no_volume_is_where_a_run_has_a_file(deployment: Deployment, path: str) -> None:
    """Also of one container of several, which have logs of their own."""
    spec = pod.PodSpec(volume={"container_path": path, "size_mb": 5})
    for name in ("web", "log"):
        one = spec.containers.add(name=name)
        one.command.value = "true"
    request = deployment.request(1, defaultConfig=to_task(spec, "spec"))
    request.config.type = job_pb2.SERVICE
    text = answer_of(deployment, request)
    assert "config.defaultConfig.volume" in text and f"the path '{path}' of the volume" in text


def test_only_services_have_volumes(deployment: Deployment) -> None:
    text = answer_of(deployment, deployment.request(1, defaultConfig=config()))
    assert "config.defaultConfig.volume" in text
    assert "only a job of type SERVICE may have volumes" in text
    revocable = deployment.request(1, defaultConfig=config(revocable=True))
    revocable.config.type = job_pb2.SERVICE
    revocable.config.sla.revocable = revocable.config.sla.preemptible = True
    assert "a revocable job cannot have volumes" in answer_of(deployment, revocable)


def test_a_pod_has_the_same_volume() -> None:
    spec = pod.PodSpec(volume={"container_path": "/data", "size_mb": 5})
    found = to_task(spec, "spec")
    assert (found.volume.containerPath, found.volume.sizeMB) == ("/data", 5)
    assert pod_spec_of(found).volume == spec.volume


def answer_of(deployment: Deployment, request: Any) -> str:
    """What the creation of a job is refused with, as an error of the answer or of the call."""
    try:
        return str(deployment.jobs.Create(request).error.invalidConfig.message)
    except grpc.RpcError as error:
        return str(error.details())
