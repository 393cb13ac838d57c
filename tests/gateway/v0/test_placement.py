"""Where instances run, as a client asks for it: spread, near to and far from other tasks, by ports.

The hosts are those of the fixture: three alike ones. Each test ends what it has started.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from peloton.actors.host.messages import ConfigureHost, GetHost
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.translate.strategy_choice import StrategyChoice
from peloton.gateway.translate.translate_job import to_spec
from peloton.placement.messages import Label
from peloton.placement.strategies import STRATEGIES
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import key
from tests.gateway.fleet_fixture import HOSTS, ROOM, WAIT_S_MAX, Deployment, default_config, named

LONG_S = 600.0
KINDS = {"task": task.LabelConstraint.TASK, "host": task.LabelConstraint.HOST}
CONDITIONS = {"less": 1, "equal": 2, "greater": 3}


def config(seconds: float = LONG_S, constraint: Any = None, **labels: str) -> task.TaskConfig:
    made = default_config(seconds)
    for name, value in labels.items():
        made.labels.add(key=name, value=value)
    if constraint is not None:
        made.constraint.CopyFrom(constraint)
    return made


def condition(kind: str, name: str, value: str, how: str, number: int) -> task.Constraint:
    return task.Constraint(
        type=task.Constraint.LABEL_CONSTRAINT,
        labelConstraint=task.LabelConstraint(
            kind=KINDS[kind],
            condition=CONDITIONS[how],
            label=peloton_pb2.Label(key=name, value=value),
            requirement=number,
        ),
    )


def all_of(*members: task.Constraint) -> task.Constraint:
    return task.Constraint(
        type=task.Constraint.AND_CONSTRAINT,
        andConstraint=task.AndConstraint(constraints=members),
    )


def any_of(*members: task.Constraint) -> task.Constraint:
    return task.Constraint(
        type=task.Constraint.OR_CONSTRAINT, orConstraint=task.OrConstraint(constraints=members)
    )


@contextlib.contextmanager
def started(deployment: Deployment, request: job.CreateRequest) -> Iterator[str]:
    """A job, which is stopped and over afterwards."""
    job_id = deployment.create(request)
    try:
        yield job_id
    finally:
        deployment.tasks.Stop(task.StopRequest(jobId=named(job_id)))
        deployment.ended(job_id)


def infos(deployment: Deployment, job_id: str, instances: int) -> list[task.TaskInfo]:
    return [deployment.task(job_id, at).result for at in range(instances)]


def hosts_of(deployment: Deployment, job_id: str, *, instances: int, running: int) -> list[str]:
    """The hosts of those that run, once there are so many."""

    def enough() -> list[str] | None:
        found = infos(deployment, job_id, instances)
        names = [each.runtime.host for each in found if each.runtime.state == task.RUNNING]
        return names if len(names) == running else None

    found: list[str] = deployment.until(enough)
    return found


def waiting(deployment: Deployment, job_id: str, *, instances: int, text: str) -> None:
    """One of them waits for a host, and says why."""

    def says_why() -> bool:
        return any(text in each.runtime.message for each in infos(deployment, job_id, instances))

    deployment.until(says_why)


def test_a_spread_job_gives_each_host_one_before_any_gets_another(deployment: Deployment) -> None:
    request = deployment.request(3, defaultConfig=config())
    request.config.placementStrategy = job.PLACEMENT_STRATEGY_SPREAD_JOB
    with started(deployment, request) as job_id:
        assert sorted(hosts_of(deployment, job_id, instances=3, running=3)) == [*HOSTS]
        assert deployment.job(job_id).config.placementStrategy == request.config.placementStrategy
    request.config.instanceCount = 5
    with started(deployment, request) as job_id:
        found = Counter(hosts_of(deployment, job_id, instances=5, running=5))
        assert sorted(found.values()) == [1, 2, 2]


def test_a_label_names_the_strategy(deployment: Deployment) -> None:
    """The hosts are alike, so each instance goes to one that has none yet."""
    request = deployment.request(3, defaultConfig=config())
    request.config.labels.add(key="peloton.strategy", value="MIMIR")
    request.config.defaultConfig.resource.diskLimitMb = 1
    with started(deployment, request) as job_id:
        assert sorted(hosts_of(deployment, job_id, instances=3, running=3)) == [*HOSTS]


@pytest.mark.parametrize(
    ("strategy", "label", "by_type", "chosen"),
    [
        (job.PLACEMENT_STRATEGY_INVALID, "", {}, ""),
        (job.PLACEMENT_STRATEGY_INVALID, "", {"BATCH": "mimir"}, "mimir"),
        (job.PLACEMENT_STRATEGY_PACK_HOST, "", {"BATCH": "mimir"}, ""),
        (job.PLACEMENT_STRATEGY_SPREAD_JOB, "", {"BATCH": "mimir"}, ""),
        (job.PLACEMENT_STRATEGY_SPREAD_JOB, "mimir", {}, "mimir"),
        (job.PLACEMENT_STRATEGY_SPREAD_JOB, "Pack", {}, "pack"),
        (job.PLACEMENT_STRATEGY_PACK_HOST, "spread", {}, "spread"),
        (job.PLACEMENT_STRATEGY_INVALID, "pack", {"BATCH": "mimir"}, ""),
    ],
)
def test_the_label_comes_before_the_field_and_that_before_the_type(
    strategy: int, label: str, by_type: dict[str, str], chosen: str
) -> None:
    sent = job.JobConfig(name="j", instanceCount=1, placementStrategy=strategy)  # type: ignore[arg-type]
    sent.defaultConfig.CopyFrom(config())
    if label:
        sent.labels.add(key="peloton.strategy", value=label)
    spec = StrategyChoice(STRATEGIES, by_type).chosen(to_spec(sent).spec, sent)
    assert spec.strategy == chosen


def test_two_spread_jobs_do_not_regard_each_other(deployment: Deployment) -> None:
    request = deployment.request(3, defaultConfig=config())
    request.config.placementStrategy = job.PLACEMENT_STRATEGY_SPREAD_JOB
    with started(deployment, request) as one, started(deployment, request) as two:
        for job_id in (one, two):
            assert sorted(hosts_of(deployment, job_id, instances=3, running=3)) == [*HOSTS]


def test_at_most_one_per_host_by_a_label_of_its_own(deployment: Deployment) -> None:
    """The limit of the original: those that find no host wait until one has ended."""
    alone = condition("task", "app", "one", "less", 1)
    request = deployment.request(4, defaultConfig=config(constraint=alone, app="one"))
    with started(deployment, request) as job_id:
        assert sorted(hosts_of(deployment, job_id, instances=4, running=3)) == [*HOSTS]
        text = "no host fits: 3 of 3 hosts have a task with app=one"
        waiting(deployment, job_id, instances=4, text=text)
        ran = [each for each in infos(deployment, job_id, 4) if each.runtime.host]
        first = ran[0].instanceId
        some = task.InstanceRange(**{"from": first, "to": first + 1})
        deployment.tasks.Stop(task.StopRequest(jobId=named(job_id), ranges=[some]))
        deployment.until(lambda: deployment.task(job_id, first).result.runtime.state == task.KILLED)
        assert sorted(hosts_of(deployment, job_id, instances=4, running=3)) == [*HOSTS]


def test_near_to_one_task_and_far_from_another(deployment: Deployment) -> None:
    on_b = condition("host", "hostname", "b", "equal", 1)
    near, far = (
        condition("task", "app", "db", "greater", 0),
        condition("task", "x", "y", "equal", 0),
    )
    request = deployment.request(2, defaultConfig=config(constraint=all_of(near, far)))
    with started(deployment, request) as client:
        waiting(deployment, client, instances=2, text="3 of 3 hosts have no task with app=db")
        database = deployment.request(1, defaultConfig=config(constraint=on_b, app="db"))
        with started(deployment, database) as job_id:
            assert hosts_of(deployment, job_id, instances=1, running=1) == ["b"]
            assert hosts_of(deployment, client, instances=2, running=2) == ["b", "b"]


def test_one_of_two_conditions_is_enough(deployment: Deployment) -> None:
    on_c, rack = (
        condition("host", "hostname", "c", "greater", 0),
        condition("host", "rack", "r1", "less", 1),
    )
    few = condition("task", "app", "few", "less", 1)
    either = any_of(rack, all_of(on_c, few))
    request = deployment.request(2, defaultConfig=config(constraint=either, app="few"))
    with started(deployment, request) as job_id:
        assert hosts_of(deployment, job_id, instances=2, running=1) == ["c"]


def test_no_port_is_given_twice_on_a_host_and_each_is_given_back(deployment: Deployment) -> None:
    default = config()
    default.ports.add(name="web", value=8080, envName="WEB_PORT")
    default.ports.add(name="rpc", envName="RPC_PORT")
    request = deployment.request(4, defaultConfig=default)
    for _ in range(2):  # the second job gets what the first one has given back
        with started(deployment, request) as job_id:
            assert sorted(hosts_of(deployment, job_id, instances=4, running=3)) == [*HOSTS]
            text = "no host fits: port 8080 is taken on 3 of 3 hosts"
            waiting(deployment, job_id, instances=4, text=text)
            found = [each for each in infos(deployment, job_id, 4) if each.runtime.host]
            assert [dict(each.runtime.ports) for each in found] == [{"web": 8080, "rpc": 31000}] * 3


def test_picked_ports_differ_on_one_host(deployment: Deployment) -> None:
    default = config(constraint=condition("host", "hostname", "a", "greater", 0))
    default.ports.add(name="rpc", envName="RPC_PORT")
    default.ports.add(name="web", envName="WEB_PORT")
    with started(deployment, deployment.request(3, defaultConfig=default)) as job_id:
        assert hosts_of(deployment, job_id, instances=3, running=3) == ["a"] * 3
        ports = [each.runtime.ports[name] for each in infos(deployment, job_id, 3)
                 for name in ("rpc", "web")]  # fmt: skip
        assert sorted(ports) == [*range(31000, 31006)]


@pytest.mark.parametrize("how", ["less", "equal", "greater"])
def test_every_condition_on_labels_of_hosts(deployment: Deployment, how: str) -> None:
    holds = {"less": 2, "equal": 1, "greater": 0}[how]
    rack = condition("host", "rack", "r1", how, holds)
    with started(deployment, deployment.request(1, defaultConfig=config(0.01, rack))) as job_id:
        assert deployment.ended(job_id)
    wrong = condition("host", "rack", "r1", how, {"less": 1, "equal": 0, "greater": 1}[how])
    with started(deployment, deployment.request(1, defaultConfig=config(0.01, wrong))) as job_id:
        waiting(deployment, job_id, instances=1, text="it can never fit on the hosts")


def test_an_exclusive_host_is_for_those_that_name_it(deployment: Deployment) -> None:
    host = deployment.region.ask(key("host", "c"), GetHost()).result(WAIT_S_MAX)
    labels = (*host.labels, Label("peloton/exclusive", "gold"))
    configure = ConfigureHost(ROOM, labels, host.backend)
    deployment.region.tell([Envelope(key("host", "c"), configure)])

    def is_exclusive() -> bool:
        return bool(
            deployment.region.ask(key("host", "c"), GetHost()).result(WAIT_S_MAX).labels == labels
        )

    deployment.until(is_exclusive)
    request = deployment.request(3, defaultConfig=config())
    request.config.placementStrategy = job.PLACEMENT_STRATEGY_SPREAD_JOB
    with started(deployment, request) as job_id:
        assert {*hosts_of(deployment, job_id, instances=3, running=3)} == {"a", "b"}
    gold = condition("host", "peloton/exclusive", "gold", "greater", 0)
    request = deployment.request(2, defaultConfig=config(constraint=gold))
    with started(deployment, request) as job_id:
        assert hosts_of(deployment, job_id, instances=2, running=2) == ["c", "c"]
    silver = condition("host", "peloton/exclusive", "silver", "greater", 0)
    with started(deployment, deployment.request(1, defaultConfig=config(9, silver))) as job_id:
        waiting(deployment, job_id, instances=1, text="requires peloton/exclusive=silver")
