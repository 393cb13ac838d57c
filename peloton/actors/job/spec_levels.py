"""What of a spec needs a feature level that the cluster may not have yet.

Turns a spec and a level into a refusal or None. Must not check anything else of a spec.
"""

from __future__ import annotations

from collections.abc import Iterable

from peloton.actors.host.messages import MesosWords
from peloton.actors.job.spec import DEFAULT, OLDER_LEVEL, JobSpec, Override
from peloton.actors.levels import below_level
from peloton.actors.task.messages import LEVEL_GANGS, LEVEL_SERVICES, LEVEL_SLACK
from peloton.runtime.vocabulary import Refused


def check_gang(spec: JobSpec, *, level: int) -> Refused | None:
    """Whether the cluster can run its gang, if it has one."""
    if not spec.gang or level >= LEVEL_GANGS:
        return None
    return _below(LEVEL_GANGS, "gangs", field="sla.minimumRunningInstances", level=level)


def check_service(spec: JobSpec, *, level: int) -> Refused | None:
    """Whether the cluster can run it, if it is a service."""
    if not spec.is_service or level >= LEVEL_SERVICES:
        return None
    return _below(LEVEL_SERVICES, "services", field="type", level=level)


def check_secrets(spec: JobSpec, *, level: int) -> Refused | None:
    """Whether the cluster can give it secrets: earlier versions would start it without them."""
    if not spec.default.secrets or level >= LEVEL_SERVICES:
        return None
    return _below(LEVEL_SERVICES, "secrets", field=DEFAULT, level=level)


def check_configs(spec: JobSpec, overrides: Iterable[Override], *, level: int) -> Refused | None:
    """Whether the cluster can run what is to run on slack, and fetch files, if anything is."""
    configs = (spec.default, *(override.config for override in overrides))
    if level < LEVEL_SLACK and any(one.resources and one.resources.slack for one in configs):
        return _below(LEVEL_SLACK, "revocable jobs", field="sla.revocable", level=level)
    if level < LEVEL_SERVICES and any(one.command and one.command.uris for one in configs):
        # Earlier versions would start them without these.
        return _below(
            LEVEL_SERVICES, "files to fetch", field=f"{DEFAULT}.command.uris", level=level
        )
    if level < LEVEL_SERVICES and any(isinstance(one.executor, MesosWords) for one in configs):
        what = "executors and containers of Mesos"
        return _below(LEVEL_SERVICES, what, field=DEFAULT, level=level)
    return None


def _below(needed: int, what: str, *, field: str, level: int) -> Refused:
    text = below_level(f"{what} need", needed, level=level)
    return Refused(OLDER_LEVEL, text, f"config.{field}", again=True)
