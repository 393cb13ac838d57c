"""Values as short text: what equals its default is left out, and large values become one phrase.

It only leaves out what would be the same on every line.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import msgspec

from peloton.actors.host.messages import StartRun
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.job.slice.messages import SliceOpening
from peloton.actors.job.slice.task_config import Override, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.messages import PoolConfig
from peloton.actors.task.messages import Policy
from peloton.placement.messages import HostSummary, Shape
from peloton.runtime.vocabulary import Bits, Value
from tests.toy.bench import START_S

TIMES_S = (START_S, START_S + 1e6)
"""A number in this range is a time of the conversation, and is shown from its beginning."""


def brief(value: Any) -> str:
    """A value as people read it."""
    form = FORMS.get(type(value))
    if form is not None:
        return form(value)
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Value):
        return f"{type(value).__name__}({', '.join(_fields(value))})"
    if isinstance(value, tuple):
        return f"[{', '.join(brief(each) for each in value)}]"
    if isinstance(value, float) and TIMES_S[0] <= value < TIMES_S[1]:
        return f"{value - START_S:.1f}s"
    return str(value) if isinstance(value, str) and value else repr(value)


def members(bits: Bits) -> str:
    """Members as ranges: `{0-2,4}`."""
    parts: list[list[int]] = []
    for member in bits:
        if parts and parts[-1][1] == member - 1:
            parts[-1][1] = member
        else:
            parts.append([member, member])
    ranges = (str(low) if low == high else f"{low}-{high}" for low, high in parts)
    return "{" + ",".join(ranges) + "}"


def _fields(value: Value) -> list[str]:
    shown = []
    for field in msgspec.structs.fields(type(value)):
        now = getattr(value, field.name)
        if field.default_factory is not msgspec.NODEFAULT:
            usual = field.default_factory()
        else:
            usual = field.default
        if now != usual or type(now) is not type(usual):
            shown.append(f"{field.name}={brief(now)}")
    return shown


def _devices(devices: tuple[int, ...] | None) -> str:
    return f" on gpu {' '.join(map(str, devices))}" if devices else ""


def _resources(amount: Resources) -> str:
    pairs = zip(Resources.KINDS, amount.amounts(), strict=True)
    some = [f"{value / UNIT:g} {kind}" for kind, value in pairs if value]
    return " + ".join(some) or "0 cpu"


def _summary(host: HostSummary) -> str:
    name, free = host.host.partition("/")[2], _resources(host.free)
    return f"{name}: {free} free of {_resources(host.capacity)}{'' if host.up else ', not up'}"


FORMS: dict[type, Callable[[Any], str]] = {
    Bits: members,
    Resources: _resources,
    HostSummary: _summary,
    JobSpec: lambda spec: f"{spec.instances} instances of {brief(spec.default)} in {spec.pool}",
    LotShape: lambda shape: f"{_resources(shape.resources)} of {shape.pool}",
    Override: lambda one: f"{one.instance}: {brief(one.config)}",
    Policy: lambda policy: f"at most {policy.max_failures} failures",
    PoolConfig: lambda pool: f"{pool.name}, limit {_resources(pool.limit)}",
    RunSpec: lambda spec: _resources(spec.resources),
    Shape: lambda shape: _resources(shape.resources),
    SliceOpening: lambda opening: f"{opening.count} instances in {opening.pool}",
    StartRun: lambda start: start.run + _devices(start.devices),
    TaskConfig: lambda config: _resources(config.resources or Resources()),
}
