"""The task of Mesos that is a run: its command, its resources, how it is checked and ended.

Must not leave out in silence what a run has and Mesos cannot give it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peloton.actors.host.messages import StartRun, Uri
from peloton.actors.task.health_messages import HealthCheck
from peloton.backends.mesos.keeper_tasks import KeeperAt, keeper_data
from peloton.backends.mesos.words import Bundle

LABEL = "peloton."
_NANO = 1_000_000_000


class NotOnMesos(ValueError):
    """A run has what this backend cannot give it: the text says what."""


def task_info(
    run: StartRun, *, agent: str, bundle: Bundle, keeper: KeeperAt | None = None
) -> dict[str, Any]:
    """The task; its resources are taken of the bundle, and what `keeper` needs if that runs it.

    Raises `NotOnMesos`, and `NotOffered` of `Bundle.take`; then nothing is taken.
    """
    spec = run.spec
    _check(run)
    environment = run.environment
    info: dict[str, Any] = {
        "name": run.run,
        "task_id": {"value": run.run},
        "agent_id": {"value": agent},
        "kill_policy": {"grace_period": {"nanoseconds": int(spec.kill_grace_s * _NANO)}},
        "labels": {"labels": [_label(name, value) for name, value in _ids(environment)]},
    }
    by_keeper = keeper is not None and keeper.runs(spec)
    if by_keeper:
        info["data"] = keeper_data(run)
    else:
        info["command"] = _command(run, environment)
    if spec.image:
        image = {"type": "DOCKER", "docker": {"name": spec.image}}
        info["container"] = {"type": "MESOS", "mesos": {"image": image}}
    if spec.ports:
        info["discovery"] = _discovery(run)
    if spec.check is not None:
        info["health_check"] = _health(spec.check)
    with bundle.together():
        info["resources"] = bundle.take(spec.resources, run.ports)
        if keeper is not None and by_keeper:
            info["executor"] = keeper.info(bundle)
    return info


def _check(run: StartRun) -> None:
    spec = run.spec
    if spec.volume is not None:
        raise NotOnMesos("volumes")
    if spec.secrets:
        raise NotOnMesos("secrets")
    if spec.check is not None and spec.check.readiness is not None:
        raise NotOnMesos("readiness checks")


def _command(run: StartRun, environment: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    spec = run.spec
    variables = [{"name": name, "value": value} for name, value in environment]
    command: dict[str, Any] = {"shell": spec.shell, "environment": {"variables": variables}}
    if spec.value or spec.shell:
        command["value"] = spec.value
    if not spec.shell:
        # As in a spec, the first argument is the program's own name; Mesos needs one.
        command["arguments"] = [*(spec.arguments or (spec.value,))]
    if spec.user:
        command["user"] = spec.user
    if spec.uris:
        command["uris"] = [_uri(one) for one in spec.uris]
    return command


def _uri(uri: Uri) -> dict[str, Any]:
    found: dict[str, Any] = {
        "value": uri.value,
        "executable": uri.executable,
        "extract": uri.extract,
        "cache": uri.cache,
    }
    return {**found, "output_file": uri.output_file} if uri.output_file else found


def _ids(environment: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    found = dict(environment)
    names = ("JOB_ID", "INSTANCE_ID", "TASK_ID")
    return [(f"{LABEL}{name.lower()}", found[f"PELOTON_{name}"]) for name in names]


def _label(name: str, value: str) -> dict[str, str]:
    return {"key": name, "value": value}


def _discovery(run: StartRun) -> Mapping[str, Any]:
    pairs = zip(run.spec.ports, run.ports, strict=True)
    ports = [{"number": number, "name": port.name, "protocol": "tcp"} for port, number in pairs]
    return {"visibility": "CLUSTER", "name": run.run, "ports": {"ports": ports}}


def _health(check: HealthCheck) -> dict[str, Any]:
    found: dict[str, Any] = {
        "delay_seconds": check.initial_s,
        "interval_seconds": check.interval_s,
        "timeout_seconds": check.timeout_s,
        "consecutive_failures": check.max_failures,
        "grace_period_seconds": 0.0,
    }
    if check.http is not None:
        probe = check.http
        request = {"scheme": probe.scheme, "port": probe.port, "path": probe.path}
        return {**found, "type": "HTTP", "http": request}
    return {**found, "type": "COMMAND", "command": {"shell": True, "value": check.command}}
