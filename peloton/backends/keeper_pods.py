"""The containers of a run with several, in orders to the keeper and in its reports.

Turns the keeper's reports of them into values; it has no state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from peloton.actors.host.messages import RunSpec


@dataclass(frozen=True, slots=True)
class PodPart:
    """A container of several: its command as in a request, and its own variables."""

    name: str
    value: str
    shell: bool = True
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    init: bool = False


@dataclass(frozen=True, slots=True)
class RunPod:
    """The containers of a run with several.

    `grace_s`: the time in which the others have to end once one has failed. `checked`: the
    container whose variables checks by commands get.
    """

    containers: tuple[PodPart, ...]
    grace_s: float = 30.0
    checked: str = ""


def pod_of(spec: RunSpec) -> RunPod | None:
    """Return the containers of a run with several."""
    if not spec.containers:
        return None
    parts = [
        PodPart(one.name, one.value, one.shell, one.arguments, dict(one.environment), one.init)
        for one in spec.containers
    ]
    checked = spec.check.container if spec.check is not None else ""
    return RunPod(tuple(parts), spec.kill_grace_s, checked)


@dataclass(frozen=True, slots=True)
class ContainerOfRun:
    """A container of a run with several, as far as it came."""

    name: str
    init: bool
    started_at: float
    ended_at: float
    exit_code: int | None
    signal: int | None


@dataclass(frozen=True, slots=True)
class ContainersMoved:
    """Containers of a run with several have begun or ended, and the run goes on."""

    host: str
    run_id: str
    containers: tuple[ContainerOfRun, ...]


def read_containers(told: Mapping[str, Any]) -> tuple[ContainerOfRun, ...]:
    """Return the containers in an end, a list or an event; none for a run of a single one."""
    return tuple(ContainerOfRun(**one) for one in told.get("containers", ()))
