"""Refuses jobs that want what the hosts of this cluster cannot do, naming the field.

These are files to fetch, and checks by a command of what runs from an image: such a check is a
process beside its run, with the files of the host, and would find in a container neither the
program nor its files. A check by HTTP needs only a port.
"""

from __future__ import annotations

from peloton.actors.job.slice.task_config import TaskConfig, effective
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.translate_job import ParsedJob
from peloton.gateway.translate.translate_task import LATER

_HEALTH = "healthCheck.commandCheck"
_READINESS = "executor.containers[0].readiness_check.command_check"


def refuse_uris(wanted: ParsedJob) -> None:
    """Raise BadField if an instance has files to fetch."""
    refuse_uris_of(wanted.spec.default, "config.defaultConfig")
    for piece in wanted.pieces.values():
        for override in piece:
            refuse_uris_of(override.config, f"config.instanceConfig[{override.instance}]")


def refuse_uris_of(config: TaskConfig, field: str) -> None:
    """Raise BadField if one config has files to fetch."""
    if config.command is not None and config.command.uris:
        raise BadField(f"{field}.command.uris", f"fetching files {LATER}")


def refuse_commands_in_images(wanted: ParsedJob) -> None:
    """Raise BadField if an instance has an image, and a check by a command."""
    default = wanted.spec.default
    _refuse(default, "config.defaultConfig")
    for piece in wanted.pieces.values():
        for override in piece:
            own = override.config
            saying = own.health_check or bool(own.containers)
            field = f"config.instanceConfig[{override.instance}]"
            found = effective(default, own)
            _refuse(found, field if saying else "config.defaultConfig")


def _refuse(config: TaskConfig, field: str) -> None:
    check = config.check
    if not config.image or check is None or not check.by_command:
        return
    text = f"a check by a command in a container of an image {LATER}; a request by HTTP is"
    raise BadField(f"{field}.{_HEALTH if check.command else _READINESS}", text)
