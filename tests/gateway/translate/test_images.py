"""Container images: what is refused where they are run, and what events say of them.

Checks by commands are refused where images are run, and events say nothing of an image where
nothing ran.
"""

from __future__ import annotations

from typing import Any

import pytest

from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.resources import Resources
from peloton.actors.task.messages import End, RunOutcome, TaskGoals
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.host_abilities import refuse_commands_in_images
from peloton.gateway.translate.stateless_specs import spec_text, to_config_v0
from peloton.gateway.translate.translate_job import to_spec
from peloton.gateway.translate.translate_run import Translator
from peloton.runtime.vocabulary import Key
from peloton.sdk import specs

COMMAND = {"enabled": True, "type": "COMMAND", "commandCheck": {"command": "true"}}
HTTP = {"enabled": True, "type": "HTTP", "httpCheck": {"port": 80}}
_DEBIAN = {"type": "DOCKER", "docker": {"name": "debian"}}
IMAGE = {"container": {"type": "MESOS", "mesos": {"image": _DEBIAN}}}
LATER = "a check by a command in a container of an image is not supported yet"


def service(default: dict[str, Any], own: dict[int, Any] | None = None) -> job.JobConfig:
    config = {"name": "j", "instanceCount": 2, "type": "SERVICE"}
    default = {"command": {"value": "x"}, **default}
    return specs.build(
        job.JobConfig, {**config, "defaultConfig": default, "instanceConfig": own or {}}
    )


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        (service({"healthCheck": COMMAND, **IMAGE}), "config.defaultConfig"),
        (service({"healthCheck": COMMAND}, {1: IMAGE}), "config.defaultConfig"),
        (service(IMAGE, {1: {"healthCheck": COMMAND}}), "config.instanceConfig[1]"),
        (service({"healthCheck": COMMAND}), ""),
        (service({"healthCheck": HTTP, **IMAGE}), ""),
        (service({"healthCheck": HTTP, **IMAGE}, {1: {"healthCheck": HTTP}}), ""),
    ],
)
def test_only_a_command_in_an_image_is_refused(sent: job.JobConfig, field: str) -> None:
    wanted = to_spec(sent)
    if not field:
        refuse_commands_in_images(wanted)
        return
    with pytest.raises(BadField) as bad:
        refuse_commands_in_images(wanted)
    assert str(bad.value).startswith(f"{field}.healthCheck.commandCheck: {LATER}")


@pytest.mark.parametrize("check", ["liveness_check", "readiness_check"])
def test_clients_of_v1alpha_are_told_their_own_field(check: str) -> None:
    command = {"type": "HEALTH_CHECK_TYPE_COMMAND", "command_check": {"command": "true"}}
    one = {"image": "debian", "entrypoint": {"value": "x"}, check: {"enabled": True, **command}}
    sent = specs.build(stateless.JobSpec, {
        "name": "j", "instance_count": 1, "default_spec": {"containers": [one]}
    })  # fmt: skip
    wanted = to_spec(to_config_v0(sent, images_run=True))
    with pytest.raises(BadField) as bad:
        refuse_commands_in_images(wanted)
    text = spec_text(str(bad.value), sent)
    assert text.startswith(f"spec.default_spec.containers[0].{check}.command_check: {LATER}")


# ---- what the events of a pod say of its image ----

CONFIG = TaskConfig(resources=Resources(), command=Command("true"), image="debian")
SPEC = JobSpec(name="j", owner="o", pool=Key("respool/p"), instances=1, default=CONFIG)
REFUSED = RunOutcome(End.FAILED, reason="container image refused", message="image debian: no")


def view(started_at: float | None, ended_at: float | None) -> InstanceView:
    return InstanceView(
        instance=0, state="FAILED", goal=next(iter(TaskGoals)), run=1, failures=0, host="host/a",
        created_at=1.0, launched_at=2.0, started_at=started_at, ended_at=ended_at,
        outcome=REFUSED if ended_at is not None else None, runs=(), config=CONFIG,
        lot=Key("lot/x"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("started_at", "ended_at", "says"), [(None, None, True), (3.0, 4.0, True), (None, 4.0, False)]
)
def test_an_image_is_not_said_to_be_ignored_where_nothing_ran(started_at, ended_at, says):
    job_id = "c92956cf-cd8e-5e45-8242-808ffe31a2fb"
    for images_run in (False, True):
        translator = Translator(job_id, SPEC, images_run=images_run)
        events = translator.events(view(started_at, ended_at), runs_max=1, only=None)
        texts = [event.message for event in events]
        assert any("is ignored" in text for text in texts) == (says and not images_run), texts
