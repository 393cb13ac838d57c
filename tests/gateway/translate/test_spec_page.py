"""docs/specs.md names every key of the files, and what it says of each is what the code does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peloton.actors.resources import BadAmount
from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.respool import respool_pb2 as respool
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.run_as import RunAs
from peloton.gateway.translate.translate_job import to_spec
from peloton.gateway.translate.translate_pool import to_pool
from peloton.sdk import specs
from peloton.settings.config import HostSetting

ROW = re.compile(r"^\| `(\w+)` \| (supported|refused|no effect) \|", re.M)
PAGE = (Path(__file__).parents[3] / "docs" / "specs.md").read_text(encoding="utf-8")
SECTIONS = {part.splitlines()[0]: dict(ROW.findall(part)) for part in PAGE.split("\n## ")[1:]}
MESSAGES: dict[str, Any] = {
    "Job": job.JobConfig,
    "`sla` of a job": job.SlaConfig,
    "Task config": task.TaskConfig,
    "`retry` of a task": task.RetryConfig,
    "`resource` of a task": task.ResourceConfig,
    "`command` of a task": mesos.CommandInfo,
    "Resource pool": respool.ResourcePoolConfig,
    "`resources` of a pool": respool.ResourceConfig,
}
PLACES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "Job": lambda given: given,
    "`sla` of a job": lambda given: {"sla": given},
    "Task config": lambda given: {"defaultConfig": {"command": {"value": "x"}} | given},
    "`retry` of a task": lambda given: {
        "defaultConfig": {"command": {"value": "x"}, "retry": given}
    },
    "`resource` of a task": lambda given: {
        "defaultConfig": {"command": {"value": "x"}, "resource": given}
    },
    "`command` of a task": lambda given: {"defaultConfig": {"command": {"value": "x"} | given}},
}
"""Where a key of a section stands in the file of a job."""
SAMPLES: dict[str, Any] = {
    "type": "BATCH", "labels": [{"key": "k", "value": "v"}], "instanceCount": 2, "sla": {},
    "defaultConfig": {"command": {"value": "x"}}, "respoolID": {"value": "p"},
    "instanceConfig": {0: {"command": {"value": "y"}}}, "ldapGroups": ["g"], "changeLog": {},
    "placementStrategy": "PLACEMENT_STRATEGY_SPREAD_JOB",
    "minimumRunningInstances": 2, "preemptible": True, "revocable": True, "controller": True,
    "maximumRunningInstances": 1, "priority": 3, "maxRunningTime": 60,
    "maximumUnavailableInstances": 1, "killGracePeriodSeconds": 5,
    "resource": {"cpuLimit": 1}, "command": {"value": "x"}, "restartPolicy": {"maxFailures": 1},
    "ports": [{"name": "http", "value": 80}],
    "container": {"type": "DOCKER", "docker": {"image": "debian"}},
    "constraint": {"type": "LABEL_CONSTRAINT", "labelConstraint": {
        "kind": "TASK", "condition": "CONDITION_EQUAL", "label": {"key": "a", "value": "b"},
        "requirement": 1,
    }},
    "preemptionPolicy": {"killOnPreempt": True},
    "healthCheck": {"enabled": True, "type": "HTTP", "httpCheck": {"port": 80}},
    "environment": {"variables": [{"name": "A", "value": "b"}]},
    "executor": {"executorId": {"value": "e"}}, "volume": {"containerPath": "x", "sizeMB": 1},
    "cpuLimit": 1, "memLimitMb": 1, "diskLimitMb": 1, "gpuLimit": 1, "fdLimit": 1,
    "retry": {"on": [75]}, "pauseSeconds": 1.5, "maxPauseSeconds": 5, "on": [1], "never": [2],
    "shell": True, "arguments": ["a"], "uris": [{"value": "http://x"}],
}  # fmt: skip
JOB_KEYS = [(title, key, verdict) for title in PLACES for key, verdict in SECTIONS[title].items()]


@pytest.mark.parametrize("title", MESSAGES)
def test_every_key_is_named(title: str) -> None:
    fields = {field.name for field in MESSAGES[title].DESCRIPTOR.fields}
    assert {*SECTIONS[title]} == fields


def test_every_key_of_a_host_is_named_and_supported() -> None:
    assert SECTIONS["Host"] == {
        field.name: "supported" for field in msgspec.structs.fields(HostSetting)
    }


@pytest.mark.parametrize(("title", "key", "verdict"), JOB_KEYS)
def test_what_is_refused_is_refused_and_nothing_else(title: str, key: str, verdict: str) -> None:
    whole = {"name": "j", "instanceCount": 2, "defaultConfig": {"command": {"value": "x"}}}
    given = PLACES[title]({key: SAMPLES.get(key, "x")})
    if key == "controller":
        given = {"instanceConfig": {0: {"controller": True}}}
    if key in ("healthCheck", "volume"):
        given["type"] = "SERVICE"
    sent, owner = specs.build(job.JobConfig, whole | given), RunAs(any_user=True)
    if verdict != "refused":
        to_spec(sent, owner)
        return
    with pytest.raises((BadField, BadAmount), match=key):
        to_spec(sent, owner)


def test_the_keys_of_a_pool_are_taken() -> None:
    """Of those without effect, only what is checked reaches the pool."""
    resource = {"kind": "cpu", "reservation": 1, "limit": 2, "share": 3, "type": "STATIC"}
    whole = {
        "name": "p", "policy": "PriorityFIFO", "resources": [resource], "owningTeam": "o",
        "ldapGroups": ["g"], "description": "d", "controllerLimit": {"maxPercent": 5},
        "slackLimit": {"maxPercent": 5}, "changeLog": {}, "parent": {"value": "root"},
        "withinReservation": "always", "queue": "strict",
    }  # fmt: skip
    assert {*whole} == {*SECTIONS["Resource pool"]}
    assert {*resource} == {*SECTIONS["`resources` of a pool"]}
    assert not to_pool(specs.build(respool.ResourcePoolConfig, whole)).problem
