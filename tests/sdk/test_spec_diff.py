"""What differs between two specs, and which instances that changes, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.api.v0.job.job_pb2 import JobConfig
from peloton.api.v1alpha.job.stateless.stateless_pb2 import JobSpec
from peloton.sdk import specs
from peloton.sdk.spec_diff import (
    InstanceChanges,
    field_changes,
    instance_changes,
    is_of_v1alpha,
    spans,
)

POD = "default_spec.containers[0]"


def spec(**container: Any) -> JobSpec:
    return specs.build(JobSpec, {"name": "n", "default_spec": {"containers": [container]}})


def told(old: Any, new: Any) -> list[str]:
    return [f"{one.field}: {one.old} -> {one.new}" for one in field_changes(old, new)]


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ({"image": "a"}, {"image": "b"}, [f"{POD}.image: a -> b"]),
        ({}, {"image": "b"}, [f"{POD}.image:  -> b",
                              "default_spec.mesos_spec.type:  -> CONTAINER_TYPE_MESOS"]),
        ({"ports": [{"name": "x", "value": 1}, {"name": "y"}]},
         {"ports": [{"name": "y"}, {"name": "x", "value": 2, "type": 1}]},
         [f"{POD}.ports[x].value: 1 -> 2"]),
        ({"environment": [{"name": "A", "value": "1"}]}, {},
         [f"{POD}.environment[A].name: A -> ", f"{POD}.environment[A].value: 1 -> "]),
        # The older form of a command says the same as the newer one.
        ({"command": {"value": "x", "environment": {"variables": [{"name": "A", "value": "1"}]}}},
         {"entrypoint": {"value": "x"}, "environment": [{"name": "A", "value": "1"}]}, []),
        ({"command": {"value": "x", "shell": False}}, {"entrypoint": {"value": "x"}},
         ["default_spec.mesos_spec.shell:  -> True"]),
        ({"container": {"type": "MESOS",
                        "mesos": {"image": {"type": "DOCKER", "docker": {"name": "a"}}}}},
         {"image": "a"}, []),
    ],
)  # fmt: skip
def test_fields_of_pods(old: Any, new: Any, changes: list[str]) -> None:
    assert told(spec(**old), spec(**new)) == changes
    assert told(spec(**new), spec(**new)) == []


def test_what_the_server_writes_is_not_compared() -> None:
    old = specs.build(JobSpec, {"name": "n", "respool_id": {"value": "p"}, "owner": "a"})
    old.revision.version = 7
    assert told(old, specs.build(JobSpec, {"name": "n", "owner": "b"})) == ["owner: a -> b"]
    labels = [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]
    one, other = (
        specs.build(JobConfig, {"name": "n", "labels": some}) for some in (labels, labels[::-1])
    )
    other.changeLog.version = 3
    assert told(one, other) == []


DEFAULT = {"name": "t", "command": {"value": "x"}, "resource": {"cpuLimit": 1}}


def config(count: int, own: Any = None, **default: Any) -> JobConfig:
    return specs.build(
        JobConfig,
        {
            "instanceCount": count,
            "defaultConfig": {**DEFAULT, **default},
            "instanceConfig": own or {},
        },
    )


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        (config(3), config(3), InstanceChanges(unchanged=((0, 2),))),
        (config(3), config(5), InstanceChanges(unchanged=((0, 2),), added=((3, 4),))),
        (config(3), config(1), InstanceChanges(unchanged=((0, 0),), removed=((1, 2),))),
        (config(3), config(3, resource={"cpuLimit": 2}), InstanceChanges(updated=((0, 2),))),
        # A name is no reason for a new run.
        (config(2), config(2, name="other"), InstanceChanges(unchanged=((0, 1),))),
        # An instance that has its own command does not see another default of it.
        (config(3, {1: {"command": {"value": "y"}}}),
         config(3, {1: {"command": {"value": "y"}}}, command={"value": "z"}),
         InstanceChanges(updated=((0, 0), (2, 2)), unchanged=((1, 1),))),
        # What it says itself as the default does is nothing new.
        (config(2), config(2, {0: {"command": {"value": "x"}}}),
         InstanceChanges(unchanged=((0, 1),))),
        (config(4), config(4, {2: {"resource": {"cpuLimit": 3}}}),
         InstanceChanges(updated=((2, 2),), unchanged=((0, 1), (3, 3)))),
    ],
)  # fmt: skip
def test_instances_of_configs(old: JobConfig, new: JobConfig, changes: InstanceChanges) -> None:
    assert instance_changes(old, new) == changes


def test_files_of_both_generations_are_told_apart() -> None:
    for key in ("default_spec", "defaultSpec", "instancespec"):
        assert is_of_v1alpha({"name": "n", key: {}})
    assert not is_of_v1alpha({"name": "n", "defaultconfig": {}, "instanceCount": 1})


def test_spans_include_their_ends() -> None:
    assert spans([0, 1, 2, 5, 7, 8]) == ((0, 2), (5, 5), (7, 8)) and spans([]) == ()
