"""Secrets on a real cluster: the tasks have them, and nothing that we write or say does.

Each value is a canary: after all that a cluster does with secrets, every file that was written and
every answer is searched for its bytes, its base64 and its hex. What is in memory, such as the files
that the tasks read, is not searched.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.job import job_pb2_grpc
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v0.task import task_pb2_grpc
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2_grpc
from tests.channels import channel_to
from tests.e2e import cluster as c
from tests.e2e import health

SUMS = 'for f in token etc/app/key; do sha256sum < "$f"; stat -L -c %a "$f"; done'


class Canaries:
    """Values that are found wherever they are, and what was said to clients."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.said: list[bytes] = []

    def draw(self) -> bytes:
        self.values.append(secrets.token_hex(12).encode() + os.urandom(12))
        return self.values[-1]

    def heard(self, answer: Any) -> Any:
        """An answer of any form, kept for the search."""
        if isinstance(answer, bytes | str):
            self.said.append(answer.encode() if isinstance(answer, str) else answer)
        elif isinstance(answer, grpc.RpcError):
            self.said.append(repr((answer.details(), answer.trailing_metadata())).encode())
        else:
            self.said.append(answer.SerializeToString() + str(answer).encode())
        return answer

    def forms(self) -> Iterator[bytes]:
        """What must be nowhere. Of base64 the middle: it may begin at any of three bytes."""
        for value in self.values:
            yield value
            yield value[:24]
            yield value.hex().encode()
            for shift in range(3):
                yield base64.b64encode(b"x" * shift + value)[4:-4]

    def found_in(self, data: bytes) -> bool:
        return any(form in data for form in self.forms())


def key_file(folder: Path) -> Path:
    file = folder / "secrets.key"
    file.write_text(base64.b64encode(os.urandom(32)).decode() + "\n")
    file.chmod(0o600)
    return file


def secret(path: str, data: bytes) -> dict[str, Any]:
    return {"path": path, "value": {"data": base64.b64encode(data)}}


def sums(*values: bytes) -> list[str]:
    """What `SUMS` prints."""
    return [line for one in values for line in (f"{hashlib.sha256(one).hexdigest()}  -", "400")]


class World:
    """One cluster with keys, its calls, and the canaries."""

    def __init__(self, cluster: c.Cluster, folder: Path) -> None:
        self.cluster, self.folder, self.canaries = cluster, folder, Canaries()
        self.data = folder / "data"
        with cluster.client() as client:
            self.pool = str(client.pools.lookup(c.pool(client)))

    def config(self, command: str, instances: int = 1, **extra: Any) -> job.JobConfig:
        return job.JobConfig(
            name="secretive",
            type=job.BATCH,
            respoolID={"value": self.pool},
            instanceCount=instances,
            defaultConfig={
                "resource": {"cpuLimit": 0.01, "memLimitMb": 1.0, "diskLimitMb": 1.0},
                "command": {"shell": True, "value": command},
            },
            **extra,
        )

    def call(self, stub: Any, name: str, request: Any, **more: Any) -> Any:
        """An answer, or the error; either is kept."""
        with channel_to(self.cluster.address) as channel:
            try:
                return self.canaries.heard(getattr(stub(channel), name)(request, **more))
            except grpc.RpcError as error:
                return self.canaries.heard(error)

    def create(self, config: job.JobConfig, *given: dict[str, Any], **more: Any) -> Any:
        request = job.CreateRequest(config=config, secrets=given, id=more.pop("id", None))
        return self.call(job_pb2_grpc.JobManagerStub, "Create", request, **more)

    def get(self, job_id: str) -> Any:
        request = job.GetRequest(id={"value": job_id})
        return self.call(job_pb2_grpc.JobManagerStub, "Get", request)

    def ended(self, job_id: str) -> tuple[str, dict[str, int]]:
        with self.cluster.client() as client:
            return c.ended(client, job_id)

    def outputs(self, job_id: str, instance: int = 0) -> list[str]:
        """The lines that the newest run of an instance has printed."""
        found = sorted((self.data / "keeper" / "runs").glob(f"{job_id}-{instance}-*"))
        if not found or not (found[-1] / "stdout").exists():
            return []
        return (found[-1] / "stdout").read_text().splitlines()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("secrets")
    keys = key_file(tmp_path_factory.mktemp("keys"))
    with c.running(folder, secrets={"key_file": str(keys)}) as cluster:
        yield World(cluster, folder)


def test_a_batch_job_has_its_secrets_and_an_update_other_values(world):
    one, two, three = (world.canaries.draw() for _ in range(3))
    gate = world.folder / "gate-1"
    config = world.config(f"{SUMS}; {c.until_there(gate)}")
    made = world.create(config, secret("token", one), secret("/etc/app/key", two)).jobId.value
    c.wait_for(lambda: world.outputs(made) == sums(one, two), "the sums of both values")
    shown = world.get(made)
    assert [found.path for found in shown.secrets] == ["token", "/etc/app/key"]
    assert not shown.jobInfo.config.defaultConfig.HasField("container")
    assert not any(found.value.data for found in shown.secrets)

    def update(*given: dict[str, Any]) -> Any:
        config.instanceCount = 2
        request = job.UpdateRequest(id={"value": made}, config=config, secrets=given)
        return world.call(job_pb2_grpc.JobManagerStub, "Update", request)

    fewer = update(secret("token", three))
    assert (fewer.code(), "fewer secrets" in fewer.details()) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        True,
    )
    other = update(secret("token", three), secret("elsewhere", two))
    assert other.details() == f"request missing secret with id {shown.secrets[1].id.value}"
    by_id = secret("token", three) | {"id": shown.secrets[0].id}
    assert update(by_id, secret("etc/app/key", two)).message == "added 1 instances"
    c.wait_for(lambda: world.outputs(made, 1) == sums(three, two), "the sums of the new instance")
    gate.touch()
    assert world.ended(made)[0] == "SUCCEEDED"
    runs = (world.data / "keeper" / "runs").glob(f"{made}-*")
    assert [os.path.lexists(run / "token") and (run / "token").exists() for run in runs] == [
        False,
        False,
    ]
    world.call(job_pb2_grpc.JobManagerStub, "Delete", job.DeleteRequest(id={"value": made}))
    assert rows(world, made) == 0


def rows(world: World, job_id: str) -> int:
    with sqlite3.connect(world.data / "secrets.sqlite") as store:
        query = "SELECT count(*) FROM secrets WHERE job = ?"
        return int(store.execute(query, (job_id,)).fetchone()[0])


def test_what_is_wrong_is_refused_and_leaves_nothing(world):
    value = world.canaries.draw()
    config = world.config("true")
    texts = {
        "secret does not have a path": [secret("", value)],
        "failed to decode secret with error": [{"path": "a", "value": {"data": value}}],
        "leaves the sandbox": [secret("../a", value)],
        "are the same file": [secret("/a", value), secret("a", value)],
        "which is a file": [secret("a", value), secret("a/b", value)],
    }
    for text, given in texts.items():
        error = world.create(config, *given)
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert text in error.details()
    config.defaultConfig.container.docker.image = "debian"
    config.defaultConfig.container.type = config.defaultConfig.container.DOCKER
    error = world.create(config, secret("a", value))
    assert error.details() == "container type DOCKER does not match MESOS"
    config = world.config("true")
    volume = config.defaultConfig.container.volumes.add(container_path="a", mode=1)
    config.defaultConfig.container.type = config.defaultConfig.container.MESOS
    volume.source.type = volume.source.SECRET
    assert "adding secret volumes directly" in world.create(config).details()
    config = world.config("true")
    taken = str(uuid.uuid4())
    assert world.create(config, secret("a", value), id={"value": taken}).jobId.value == taken
    assert rows(world, taken) == 1
    again = world.create(config, secret("a", world.canaries.draw()), id={"value": taken})
    assert again.error.HasField("alreadyExists")
    assert rows(world, taken) == 1, "a create that is refused changes no secret"
    config.respoolID.value = str(uuid.uuid4())
    assert world.create(config, secret("a", value)).error.HasField("invalidConfig")


def test_a_create_under_a_key_is_done_once(world):
    value = world.canaries.draw()
    metadata = [("peloton-request-key", "secret-key-1")]
    config = world.config("true")
    first = world.create(config, secret("token", value), metadata=metadata)
    second = world.create(config, secret("token", value), metadata=metadata)
    assert first.jobId == second.jobId and not second.HasField("error")
    assert rows(world, first.jobId.value) == 1
    third = world.create(config, secret("token", world.canaries.draw()), metadata=metadata)
    assert isinstance(third, grpc.RpcError) or third.HasField("error")
    # Its value stays for the sweep: a repeat must never delete what the job may name by now.
    assert 1 <= rows(world, first.jobId.value) <= 2


def test_a_secret_that_is_gone_ends_the_instance(world):
    value, gate = world.canaries.draw(), world.folder / "gate-2"
    config = world.config(c.until_there(gate), 2, sla={"maximumRunningInstances": 1})
    config.defaultConfig.restartPolicy.maxFailures = 5
    made = world.create(config, secret("token", value)).jobId.value
    c.wait_for(lambda: world.outputs(made) == [] and _started(world, made), "the first instance")
    with sqlite3.connect(world.data / "secrets.sqlite") as store:
        store.execute("DELETE FROM secrets WHERE job = ?", (made,))
    gate.touch()
    state, counts = world.ended(made)
    assert (state, counts) == ("KILLED", {"SUCCEEDED": 1, "KILLED": 1})
    request = task.GetPodEventsRequest(jobId={"value": made}, instanceId=1, limit=100)
    events = world.call(task_pb2_grpc.TaskManagerStub, "GetPodEvents", request)
    assert {event.reason for event in events.result} >= {"REASON_SECRET_NOT_FOUND"}
    request = task.GetRequest(jobId={"value": made}, instanceId=1)
    info = world.call(task_pb2_grpc.TaskManagerStub, "Get", request)
    runtime = info.result.runtime
    assert (runtime.state, runtime.goalState) == (task.KILLED, task.KILLED)
    assert runtime.mesosTaskId.value.endswith("-1-1"), "no attempt would find it"


def _started(world: World, job_id: str) -> bool:
    return any((world.data / "keeper" / "runs").glob(f"{job_id}-*"))


def service_spec(world: World, command: str) -> stateless.JobSpec:
    container = {
        "resource": {"cpu_limit": 0.01, "mem_limit_mb": 1.0, "disk_limit_mb": 1.0},
        "entrypoint": {"value": command},
    }
    return stateless.JobSpec(
        name="service",
        owning_team="team",
        instance_count=1,
        respool_id={"value": world.pool},
        sla={"preemptible": True},
        default_spec={"containers": [container]},
    )


def test_a_service_gets_other_values_by_a_replacement(world):
    stub = stateless_svc_pb2_grpc.JobServiceStub
    one, two, three = (world.canaries.draw() for _ in range(3))
    spec = service_spec(world, f"{SUMS}; sleep 1000")
    request = svc.CreateJobRequest(
        spec=spec, secrets=[secret("token", one), secret("/etc/app/key", two)]
    )
    made = world.call(stub, "CreateJob", request)
    job_id = made.job_id.value
    c.wait_for(lambda: world.outputs(job_id) == sums(one, two), "the sums of both values")
    found = world.call(stub, "GetJob", svc.GetJobRequest(job_id=made.job_id))
    assert [one.path for one in found.secrets] == ["token", "/etc/app/key"]
    world.cluster.kill()
    world.cluster.start()
    wrong = svc.ReplaceJobRequest(
        job_id=made.job_id,
        version={"value": "7-7-7"},
        spec=spec,
        secrets=[secret("token", world.canaries.draw())],
    )
    assert world.call(stub, "ReplaceJob", wrong).code() == grpc.StatusCode.ABORTED
    assert rows(world, job_id) == 2
    version = world.call(stub, "GetJob", svc.GetJobRequest(job_id=made.job_id))
    wrong.version.CopyFrom(version.job_info.status.version)
    del wrong.secrets[:]
    wrong.secrets.add(**secret("token", three))
    assert world.call(stub, "ReplaceJob", wrong).version.value
    c.wait_for(lambda: world.outputs(job_id) == sums(three, two), "the sum of the new value")
    again = world.call(stub, "GetJob", svc.GetJobRequest(job_id=made.job_id))
    ids = {one.path: one.secret_id.value for one in again.secrets}
    before = {one.path: one.secret_id.value for one in found.secrets}
    assert ids["token"] != before["token"]
    assert ids["/etc/app/key"] == before["/etc/app/key"]
    stop = svc.StopJobRequest(job_id=made.job_id, version=again.job_info.status.version)
    assert world.call(stub, "StopJob", stop).version.value


def test_a_command_that_cannot_run_and_the_command_line(world):
    value, file = world.canaries.draw(), world.folder.parent / f"value-{uuid.uuid4().hex}"
    file.write_bytes(value)
    config = world.config("true")
    config.defaultConfig.command.shell = False
    config.defaultConfig.command.value = "/no/such/program"
    made = world.create(config, secret("token", value)).jobId.value
    assert world.ended(made)[0] == "FAILED"
    spec = world.folder / "spec.yaml"
    spec.write_text(
        "name: typed\ninstanceCount: 1\ndefaultConfig:\n"
        "  resource: {cpuLimit: 0.01, memLimitMb: 1, diskLimitMb: 1}\n"
        "  command: {shell: true, value: sha256sum < token}\n"
    )
    typed = ("--secret-path", "token", "--secret-file", str(file))
    done = world.cluster.cli("job", "create", "/tests", str(spec), *typed)
    world.canaries.heard(done.stdout + done.stderr)
    job_id = done.stdout.split()[1]
    assert world.ended(job_id)[0] == "SUCCEEDED"
    assert world.outputs(job_id) == sums(value)[:1]
    shown = world.cluster.cli("job", "get", job_id).stdout
    assert "token" in world.canaries.heard(shown)
    file.unlink()


def test_no_file_and_no_answer_has_a_value(world):
    """The last: it searches what all the others left."""
    canaries, cluster = world.canaries, world.cluster
    query = job.QueryRequest(spec={"pagination": {"limit": 100}})
    with channel_to(cluster.address) as channel:
        for line in job_pb2_grpc.JobManagerStub(channel).Query(query).records:
            canaries.heard(line)
    for said in (health.ready(cluster)[1], repr(health.figures(cluster))):
        canaries.heard(said)
    for words in (("health",), ("job", "list"), ("dead-letters", "list")):
        done = cluster.cli(*words, check=False)
        canaries.heard(done.stdout + done.stderr)
    for place in (world.folder / "backup", None):
        words = ["journal", "dump", str(world.data)]
        if place is not None:
            words = ["backup", str(world.data), str(place)]
        command = [sys.executable, "-m", "peloton", *words]
        dumped = subprocess.run(command, capture_output=True, timeout=120, check=False)
        canaries.heard(dumped.stdout + dumped.stderr)
    assert cluster.stop() == 0
    assert len(canaries.values) >= 12 and len(canaries.said) > 30
    searched = 0
    for path in world.folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            searched += 1
            assert not canaries.found_in(path.read_bytes()), f"{path} has a secret"
    assert searched > 10
    for said in canaries.said:
        assert not canaries.found_in(said), said[:200]
    left = [one for one in Path("/dev/shm").glob("peloton-*") if _of(one, world)]  # noqa: S108
    assert left == []


def _of(place: Path, world: World) -> bool:
    identity = (world.data / "keeper" / "identity").read_text().strip()
    return place.name.startswith(f"peloton-{identity}")


def test_without_a_key_there_are_no_secrets(tmp_path):
    with c.running(tmp_path) as cluster:
        world = World(cluster, tmp_path)
        error = world.create(world.config("true"), secret("token", b"x"))
        assert error.details() == "secrets not supported by cluster"
        spec = service_spec(world, "true")
        request = svc.CreateJobRequest(spec=spec, secrets=[secret("token", b"x")])
        error = world.call(stateless_svc_pb2_grpc.JobServiceStub, "CreateJob", request)
        assert error.details() == "secrets not enabled in cluster"


def test_a_key_file_that_others_can_read_is_refused(tmp_path):
    keys = key_file(tmp_path)
    keys.chmod(0o644)
    file = tmp_path / "cluster.yaml"
    file.write_text(f"secrets: {{key_file: {keys}}}")
    command = [sys.executable, "-m", "peloton", "minicluster", "--cluster", str(file)]
    command += ["--data-dir", str(tmp_path / "data"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "secrets.key_file" in done.stderr and "chmod 600" in done.stderr
