"""Checks by commands are refused where images are run, by their fields."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.api.v0.job import job_pb2 as job
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.gateway.host_abilities import refuse_commands_in_images
from peloton.gateway.stateless_specs import spec_text, to_config_v0
from peloton.gateway.translate_job import to_spec
from peloton.gateway.translate_task import BadConfig
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
    with pytest.raises(BadConfig) as bad:
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
    with pytest.raises(BadConfig) as bad:
        refuse_commands_in_images(wanted)
    text = spec_text(str(bad.value), sent)
    assert text.startswith(f"spec.default_spec.containers[0].{check}.command_check: {LATER}")
