"""The task of Mesos that is a run: its command, resources, checks and grace.

A part of a run that Mesos cannot provide must be refused, not left out.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, NoReturn

from peloton.actors.host.messages import StartRun
from peloton.actors.host.run_spec import MesosWords, Uri
from peloton.actors.task.run_messages import HealthCheck
from peloton.backends.keeper.secret_files import RunSecret
from peloton.backends.mesos.runs.keeper_tasks import KeeperAt, keeper_data
from peloton.backends.mesos.runs.words import Bundle

LABEL = "peloton."
OWN_EXECUTOR = "thermos-"
"""With which the id of a task's own executor begins; the run's name follows."""
OWN_EXECUTOR_NAME = "AuroraExecutor"
"""Where the spec gives it no other name."""
WHY_MAX = 300
"""Letters of an agent's words that are shown; what matters stands at their end."""
_NANO = 1_000_000_000


class NotOnMesos(ValueError):
    """A run has a part that this backend cannot provide; the text says which."""


class NoExecutorHere(Exception):
    """A run needs our own executor, which does not start on this agent; the text says for what."""


def task_info(
    run: StartRun,
    *,
    agent: str,
    bundle: Bundle,
    keeper: KeeperAt | None = None,
    secrets: tuple[RunSecret, ...] = (),
) -> dict[str, Any]:
    """Return the task; its resources, and those of a new executor, are taken from the bundle.

    Raises `NotOnMesos`, `NoExecutorHere`, and `NotOffered` of `Bundle.take`; then nothing is taken.
    """
    spec = run.spec
    _check(run)
    environment = run.environment
    info: dict[str, Any] = {
        "name": run.run,
        "task_id": {"value": run.run},
        "agent_id": {"value": agent},
        "kill_policy": {"grace_period": {"nanoseconds": int(spec.kill_grace_s * _NANO)}},
        "labels": {"labels": _labels(run)},
    }
    by_keeper = keeper is not None and keeper.runs(spec)
    if spec.secrets and not by_keeper:
        _lacks_keeper(keeper)
    if not by_keeper:
        info["command"] = _command(run, environment)
    if spec.mesos is not None and spec.mesos.container:
        info["container"] = json.loads(spec.mesos.container)
    elif spec.image:
        image = {"type": "DOCKER", "docker": {"name": spec.image}}
        info["container"] = {"type": "MESOS", "mesos": {"image": image}}
    if spec.mesos is not None and spec.mesos.executor:
        _put_executor(info, json.loads(spec.mesos.executor))
    if spec.ports:
        info["discovery"] = _discovery(run)
    if spec.check is not None and spec.check.of_health:
        info["health_check"] = _health(spec.check)
    if spec.check is not None and spec.check.readiness is not None:
        info["check"] = _readiness(spec.check.readiness)
    with bundle.together():
        info["resources"] = bundle.take(spec.resources, run.ports)
        if keeper is not None and by_keeper:
            info["data"] = keeper_data(run, secrets)  # of what fits alone: it takes its time
            info["executor"] = keeper.info(bundle)
    return info


def _put_executor(info: dict[str, Any], own: dict[str, Any]) -> None:
    """Put a task's own executor into its info, with the task's command and resources.

    The data are for the executor, in whichever of both places it looks.
    """
    moved = {name: info.pop(name) for name in ("command", "container") if name in info}
    info["executor"] = {
        "type": "CUSTOM",
        "executor_id": {"value": f"{OWN_EXECUTOR}{info['name']}"},
        "name": OWN_EXECUTOR_NAME,
        **own,
        **moved,
    }
    info["data"] = own["data"]


def _check(run: StartRun) -> None:
    spec = run.spec
    if spec.volume is not None:
        raise NotOnMesos("volumes")
    readiness = None if spec.check is None else spec.check.readiness
    if readiness is not None:
        _check_readiness(readiness, spec.mesos)


def _check_readiness(check: HealthCheck, own: MesosWords | None) -> None:
    """Refuse checks that Mesos cannot make.

    Mesos uses plain HTTP, and its executor of Docker, which makes no such checks, dies of the
    request.
    """
    if own is not None and own.executor:
        raise NotOnMesos("readiness checks of a task with an executor of its own")
    if own is not None and own.container and json.loads(own.container).get("type") == "DOCKER":
        raise NotOnMesos("readiness checks in a container of Docker")
    if check.http is not None and check.http.scheme != "http":
        raise NotOnMesos(f"readiness checks by {check.http.scheme}")


def _lacks_keeper(keeper: KeeperAt | None) -> NoReturn:
    """Refuse a run with secrets if our own executor is not available."""
    if keeper is not None:
        raise NoExecutorHere(
            "the run has secrets, which only our own executor gives, and that does not start on "
            f"this agent (backend.mesos.executor): {keeper.why_not_there[-WHY_MAX:] or 'it ended'}"
        )
    raise NotOnMesos(
        "secrets together with batch_executor: command, which may be so because of tls: only our "
        "own executor gives them; set backend.mesos.batch_executor: keeper"
    )


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


def _labels(run: StartRun) -> list[dict[str, str]]:
    """Return the labels of the run's identity, and those of its spec beside them."""
    found = dict(run.environment)
    names = ("JOB_ID", "INSTANCE_ID", "TASK_ID")
    ours = {f"{LABEL}{name.lower()}": found[f"PELOTON_{name}"] for name in names}
    own = [(each.key, each.value) for each in run.spec.labels if each.key not in ours]
    return [{"key": name, "value": value} for name, value in (*ours.items(), *own)]


def _discovery(run: StartRun) -> Mapping[str, Any]:
    pairs = zip(run.spec.ports, run.ports, strict=True)
    ports = [{"number": number, "name": port.name, "protocol": "tcp"} for port, number in pairs]
    return {"visibility": "CLUSTER", "name": run.run, "ports": {"ports": ports}}


def _times(check: HealthCheck) -> dict[str, Any]:
    return {
        "delay_seconds": check.initial_s,
        "interval_seconds": check.interval_s,
        "timeout_seconds": check.timeout_s,
    }


def _readiness(check: HealthCheck) -> dict[str, Any]:
    """Return a check of Mesos that ends nothing."""
    if check.http is not None:
        request = {"port": check.http.port, "path": check.http.path}
        return {**_times(check), "type": "HTTP", "http": request}
    return {**_times(check), "type": "COMMAND", "command": {"command": _checking(check)}}


def _health(check: HealthCheck) -> dict[str, Any]:
    found: dict[str, Any] = {
        **_times(check),
        "consecutive_failures": check.max_failures,
        "grace_period_seconds": 0.0,
    }
    if check.http is not None:
        probe = check.http
        request = {"scheme": probe.scheme, "port": probe.port, "path": probe.path}
        return {**found, "type": "HTTP", "http": request}
    return {**found, "type": "COMMAND", "command": _checking(check)}


def _checking(check: HealthCheck) -> dict[str, Any]:
    """Return the command of a check, in a shell of its own.

    If the shell that Mesos starts were ended by a signal, the executor would abort, and with it the
    task.
    """
    return {"shell": True, "value": f"/bin/sh -c {shlex.quote(check.command)}; exit $?"}
