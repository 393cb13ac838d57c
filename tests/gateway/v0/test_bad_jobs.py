"""Invalid jobs: refused at once, with the field named, and nothing changed."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.task import task_pb2 as task
from peloton.placement.strategies import STRATEGIES
from tests.gateway.fleet_fixture import Deployment, default_config

NAN, INF = float("nan"), float("inf")
Change = Callable[[Any], Any]


def default(field: str, value: Any) -> Change:
    def change(config: Any) -> None:
        *path, last = field.split(".")
        target = config.defaultConfig
        for name in path:
            target = getattr(target, name)
        setattr(target, last, value)

    return change


def field(name: str, value: Any) -> Change:
    def change(config: Any) -> None:
        *path, last = name.split(".")
        target = config
        for part in path:
            target = getattr(target, part)
        setattr(target, last, value)

    return change


def timed(value: str) -> Change:
    return lambda config: config.defaultConfig.labels.add(
        key="peloton.task.max_running_time_s", value=value
    )


def job_label(key: str, value: str) -> Change:
    return lambda config: config.labels.add(key=key, value=value)


def own(instance: int, **fields: Any) -> Change:
    return lambda config: config.instanceConfig[instance].MergeFrom(task.TaskConfig(**fields))


def constraint(**fields: Any) -> Change:
    sent = task.Constraint(**fields)
    return lambda config: config.defaultConfig.constraint.CopyFrom(sent)


def retry(**rules: list[int]) -> Change:
    return lambda config: config.defaultConfig.retry.MergeFrom(task.RetryConfig(**rules))


def daemon(config: Any) -> None:
    config.type = job.DAEMON
    config.instanceCount = 0


PREEMPTIBLE = task.PreemptionPolicy(type=task.PreemptionPolicy.TYPE_PREEMPTIBLE)


def beside_tasks(config: Any) -> None:
    leaf = task.LabelConstraint(
        kind=task.LabelConstraint.TASK,
        condition=task.LabelConstraint.CONDITION_LESS_THAN,
        label={"key": "a", "value": "b"},
        requirement=1,
    )
    constraint(type=task.Constraint.LABEL_CONSTRAINT, labelConstraint=leaf)(config)


def both(*changes: Change) -> Change:
    return lambda config: [change(config) for change in changes]


CONFIGS: list[tuple[str, Change, str]] = [
    ("nan", default("resource.cpuLimit", NAN), "config.defaultConfig.resource.cpuLimit: nan"),
    ("inf", default("resource.memLimitMb", INF), "config.defaultConfig.resource.memLimitMb: inf"),
    ("minus", default("resource.diskLimitMb", -1.0), "resource.diskLimitMb: -1.0 is negative"),
    ("huge", default("resource.gpuLimit", 1e300), "config.defaultConfig.resource.gpuLimit: 1e+300"),
    ("a part of a gpu", default("resource.gpuLimit", 0.5),
     "config.defaultConfig.resource.gpuLimit: 0.5 is not a whole number"),
    ("one and a half", own(0, resource=task.ResourceConfig(gpuLimit=1.5)),
     "config.instanceConfig[0].resource.gpuLimit: 1.5 is not a whole number"),
    ("no gpus", default("resource.gpuLimit", -1.0), "resource.gpuLimit: -1.0 is negative"),
    ("nan of one", own(0, resource=task.ResourceConfig(cpuLimit=NAN)),
     "config.instanceConfig[0].resource.cpuLimit: nan"),
    ("too many", field("instanceCount", 100_001),
     "config.instanceCount: Requested tasks: 100001 for job is greater than supported: "
     "100000 tasks/job"),
    ("far too many", field("instanceCount", 2**32 - 1), "is greater than supported"),
    ("none", field("instanceCount", 0), "config.instanceCount"),
    ("daemon of a number", field("type", job.DAEMON),
     "config.instanceCount: must be 0 for a daemon job, which has one on each host"),
    ("daemon of some", both(daemon, own(0)),
     "config.instanceConfig: the instances of a daemon job have no configs of their own"),
    ("daemon of a limit", both(daemon, field("sla.maximumRunningInstances", 2)),
     "config.sla.maximumRunningInstances: MaximumRunningInstances should be 0"),
    ("daemon of a gang", both(daemon, field("sla.minimumRunningInstances", 2)),
     "config.sla.minimumRunningInstances: MinimumRunningInstances should be 0"),
    ("daemon that spreads", both(daemon, field("placementStrategy",
                                               job.PLACEMENT_STRATEGY_SPREAD_JOB)),
     "config.placementStrategy: a daemon job has one instance on each host"),
    ("daemon with a throttle", both(daemon, job_label("peloton.throttle", "1/s")),
     "config.labels: peloton.throttle: a daemon job has no throttle"),
    ("daemon beside tasks", both(daemon, beside_tasks),
     "config.defaultConfig.constraint: a daemon job chooses hosts by their labels"),
    ("daemon that may be first", both(daemon, job_label("peloton.daemon.first", "maybe")),
     "config.labels[0]: peloton.daemon.first: 'maybe' is neither true nor false"),
    ("first that is no daemon", job_label("peloton.daemon.first", "true"),
     "config.labels: peloton.daemon.first: the job is no daemon job"),
    ("of no type", field("type", 77), "config.type: invalid job type: 77"),
    ("service of a limit", both(field("type", job.SERVICE),
                                field("sla.maximumRunningInstances", 2)),
     "config.sla.maximumRunningInstances: MaximumRunningInstances should be 0 for stateless job"),
    ("gang of very many", both(field("instanceCount", 2000),
                               field("sla.minimumRunningInstances", 1001)),
     "config.sla.minimumRunningInstances: a gang of more than 1000 instances is not supported"),
    ("retry of a service", both(field("type", job.SERVICE), default("retry.pauseSeconds", 1.0)),
     "is of batch jobs: a service is run again however it ends"),
    ("pause below nothing", default("retry.pauseSeconds", -1.0),
     "config.defaultConfig.retry.pauseSeconds: must be between 0 and 86400, got -1"),
    ("pause beyond the longest", both(default("retry.pauseSeconds", 9.0),
                                      default("retry.maxPauseSeconds", 5.0)),
     "config.defaultConfig.retry.maxPauseSeconds: must be ≥ pauseSeconds, 9, got 5"),
    ("retry after success", retry(on=[0]), "retry.on[0]: an exit code of a failure is between"),
    ("retry after no code", retry(never=[1, 256]), "config.defaultConfig.retry.never[1]: an exit"),
    ("retry of both", retry(on=[3], never=[3]), "retry.never: 3 is in `on` as well"),
    ("gang that is none", job_label("peloton.gang", "restart-together"),
     "config.labels: peloton.gang: there is no gang: sla.minimumRunningInstances is not above 1"),
    ("gang of no rule", job_label("peloton.gang", "sometimes"),
     "config.labels[0]: peloton.gang: 'sometimes' is not one of restart-together, retry-alone"),
    ("rest of a batch job", job_label("peloton.healthy_after", "10m"),
     "config.labels: peloton.healthy_after: only a service waits before it runs again"),
    ("rest of no length", job_label("peloton.healthy_after", "soon"),
     "config.labels[0]: peloton.healthy_after: 'soon' is not a length of time such as 90s or 10m"),
    ("strategy of no name", job_label("peloton.strategy", " "),
     "config.labels[0]: peloton.strategy: names no strategy"),
    ("strategy that nobody has", job_label("peloton.strategy", "best"),
     "config.labels[0]: peloton.strategy: unknown placement strategy 'best': there are "
     + ", ".join(sorted(STRATEGIES))),
    ("preemption of one", both(field("sla.minimumRunningInstances", 1),
                               own(0, preemptionPolicy=PREEMPTIBLE)),
     "config.instanceConfig[0].preemptionPolicy: can't override the preemption policy of a task"),
    ("preemption of all", both(field("sla.minimumRunningInstances", 1),
                               default("preemptionPolicy.type", PREEMPTIBLE.type)),
     "config.defaultConfig.preemptionPolicy: can't override the preemption policy of a task"),
    ("gang of too many", field("sla.minimumRunningInstances", 4),
     "Job specified MinimumRunningInstances > MaximumRunningInstances"),
    ("limited to too many", field("sla.maximumRunningInstances", 4),
     "Job specified MaximumRunningInstances > InstanceCount"),
    ("of no strategy", field("placementStrategy", 77),
     "config.placementStrategy: unknown placement strategy 77"),
    ("timed by a word", timed("soon"),
     "config.defaultConfig.labels[0]: peloton.task.max_running_time_s must be a number of seconds "
     "above 0, got 'soon'"),
    ("timed by nothing", timed("0"), "above 0, got '0'"),
    ("no command", lambda config: config.defaultConfig.ClearField("command"),
     "config.defaultConfig.command: missing command info for instance 1: the default config "
     "has none"),
    ("no config", lambda config: config.ClearField("defaultConfig"),
     "missing task config for instance 0"),
    ("port without a name", lambda config: config.defaultConfig.ports.add(value=80),
     "Port name is missing"),
    ("dynamic port", lambda config: config.defaultConfig.ports.add(name="web"),
     "Env name is missing for dynamic port"),
    ("strange port", lambda config: config.defaultConfig.ports.add(name="web", value=70000),
     "config.defaultConfig.ports[0].value: must be ≤ 65535, got 70000"),
    ("port twice",
     lambda config: config.defaultConfig.ports.MergeFrom(
         [task.PortConfig(name="a", value=80), task.PortConfig(name="b", value=80)]
     ),
     "config.defaultConfig.ports[0].value: port 80 is named twice"),
    ("controller", own(1, controller=True), "only task 0 can be controller task"),
    ("health check", lambda config: config.defaultConfig.healthCheck.SetInParent(),
     "Batch job task should not set health check "),
    ("volume", lambda config: config.defaultConfig.volume.SetInParent(),
     "config.defaultConfig.volume.sizeMB: must be at least 1"),
    ("NUL", default("command.value", "a\0b"),
     "config.defaultConfig.command.value: must not contain a NUL"),
    ("files", lambda config: config.defaultConfig.command.uris.add(value="http://x"),
     "config.defaultConfig.command.uris"),
    ("own files", lambda config: config.instanceConfig[1].command.uris.add(value="http://x"),
     "config.instanceConfig[1].command.uris"),
    ("a file of no address", lambda config: config.defaultConfig.command.uris.add(value=""),
     "config.defaultConfig.command.uris[0].value: must have 1 to 4096 printable characters"),
    ("a file outside", lambda config: config.defaultConfig.command.uris.add(
        value="http://x", output_file="a/../../b"),
     "config.defaultConfig.command.uris[0].output_file: must be a path in the sandbox"),
    ("beyond", own(3, name="x"), "config.instanceConfig[3]: instance 3 is not below 3"),
    ("of no constraint", constraint(), "config.defaultConfig.constraint.type"),
    ("of no kind", constraint(type=task.Constraint.LABEL_CONSTRAINT),
     "config.defaultConfig.constraint.labelConstraint.kind: unknown kind 0"),
    ("of too many conditions",
     constraint(
         type=task.Constraint.AND_CONSTRAINT,
         andConstraint=task.AndConstraint(
             constraints=[
                 task.Constraint(
                     type=task.Constraint.LABEL_CONSTRAINT,
                     labelConstraint=task.LabelConstraint(kind=1, condition=1),
                 )
             ] * 101
         ),
     ),
     "config.defaultConfig.constraint: 101 conditions, the limit is 100"),
    ("of no condition",
     constraint(
         type=task.Constraint.AND_CONSTRAINT,
         andConstraint=task.AndConstraint(
             constraints=[
                 task.Constraint(
                     type=task.Constraint.LABEL_CONSTRAINT,
                     labelConstraint=task.LabelConstraint(kind=task.LabelConstraint.HOST),
                 )
             ]
         ),
     ),
     "constraint.andConstraint.constraints[0].labelConstraint.condition: unknown condition 0"),
    ("no pool", lambda config: config.ClearField("respoolID"), "resource pool ID is null"),
    ("root pool", field("respoolID.value", "root"),
     "cannot submit jobs to the `root` resource pool"),
    ("missing pool", field("respoolID.value", "nothing"), "resource pool not found"),
    ("strange pool", field("respoolID.value", "a/b/../c"), "resource pool not found"),
    ("a text that no program can be given", default("command.value", "ü" * 65_536),
     "config.defaultConfig.command.value: 131072 bytes, the kernel's limit of one argument is "
     "131071"),
    ("a variable that none can have", own(0, environment={"variables": [
        {"name": "A", "value": "x" * 131_070}]}),
     "config.instanceConfig[0].environment.variables[0]: 131072 bytes, the kernel's limit"),
    ("large", default("command.value", "x" * 2_000_000), "bytes, the limit is"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "text"), [row[1:] for row in CONFIGS], ids=[row[0] for row in CONFIGS]
)
def test_a_config_that_cannot_be_meant(deployment: Deployment, change: Change, text: str) -> None:
    request = deployment.request(3)
    request.id.value = str(uuid.uuid4())
    change(request.config)
    answer = deployment.jobs.Create(request)
    assert text in answer.error.invalidConfig.message
    assert answer.error.invalidConfig.id == request.id
    assert deployment.jobs.Get(job.GetRequest(id=request.id)).error.HasField("getRuntimeFail")


@pytest.mark.parametrize(
    "name", ["x", "../../etc", "0" * 32, "{9f6b1c1e-0d5c-4b7e-8a6f-1f2e3d4c5b6a}", " "]
)
def test_an_id_that_is_no_uuid(deployment: Deployment, name: str) -> None:
    request = deployment.request()
    request.id.value = name
    error = deployment.jobs.Create(request).error
    assert error.invalidJobId.message == "JobID must be valid UUID"
    assert error.invalidJobId.id.value == name


def test_the_id_is_looked_at_before_the_pool_and_the_pool_before_the_config(
    deployment: Deployment,
) -> None:
    request = deployment.request()
    request.config.instanceCount = 0
    request.config.respoolID.value = "nothing"
    assert deployment.jobs.Create(request).error.invalidConfig.message == "resource pool not found"
    request.id.value = "x"
    assert deployment.jobs.Create(request).error.HasField("invalidJobId")


def test_a_pool_with_children_takes_no_jobs(deployment: Deployment) -> None:
    parent = deployment.make_pool("parent")
    deployment.make_pool("child", parent, cpu=0.0)
    request = deployment.request()
    request.config.respoolID.value = parent
    text = deployment.jobs.Create(request).error.invalidConfig.message
    assert text == "cannot submit jobs to a non leaf resource pool"


def test_secrets_are_refused(deployment: Deployment) -> None:
    request = deployment.request()
    request.secrets.append(peloton_pb2.Secret(path="/x"))
    with pytest.raises(grpc.RpcError) as caught:
        deployment.jobs.Create(request)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "secrets not supported by cluster"


def test_a_request_without_anything(deployment: Deployment) -> None:
    answer = deployment.jobs.Create(job.CreateRequest())
    assert answer.error.invalidConfig.message == "resource pool ID is null"


def test_more_bytes_than_a_server_takes(deployment: Deployment) -> None:
    request = deployment.request(100)
    for instance in range(100):
        config = default_config()
        config.command.value = "x" * 200_000
        request.config.instanceConfig[instance].CopyFrom(config)
    with pytest.raises(grpc.RpcError) as caught:
        deployment.jobs.Create(request)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_files_that_no_host_could_find(deployment: Deployment) -> None:
    request = deployment.request(1)
    request.files["script"] = b"#!/bin/sh"
    with pytest.raises(grpc.RpcError) as caught:
        deployment.jobs.Create(request)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "files: this daemon is not beside the hosts" in caught.value.details()


def test_own_configs_that_no_entry_could_hold(deployment: Deployment) -> None:
    request = deployment.request(1000)
    for instance in range(1000):
        request.config.instanceConfig[instance].command.value = "x" * 1500
    text = deployment.jobs.Create(request).error.invalidConfig.message
    assert "own configs of a slice's instances take more than 4000000 bytes" in text


def test_own_configs_larger_than_a_part_of_a_checkpoint(deployment: Deployment) -> None:
    for _ in range(3):
        request = deployment.request(1000)
        for instance in range(1000):
            request.config.instanceConfig[instance].command.value = "x" * 800
        made = deployment.jobs.Create(request)
        assert made.jobId.value, made.error
        assert (
            deployment.jobs.Get(job.GetRequest(id=made.jobId)).jobInfo.config.instanceCount == 1000
        )
