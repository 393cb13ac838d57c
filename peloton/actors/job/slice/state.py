"""The state of a slice: its goal, and the table of its distinct effective configs.

Instances with equal configs share a row; a member's `spec` column names it. So a slice of a
thousand alike instances holds one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from peloton.actors.host.messages import RunSpec
from peloton.actors.job.slice import facts as f
from peloton.actors.job.slice.messages import SliceOpening
from peloton.actors.job.spec import Command, TaskConfig, effective
from peloton.actors.resources import Resources
from peloton.actors.respool.lot.messages import LotShape, lot_key
from peloton.actors.task.messages import SLICE_SIZE, Policy, TaskGoals
from peloton.placement.messages import HostSummary, Label, Shape
from peloton.runtime.vocabulary import Bits, Key, Value

DEFAULT_KILL_GRACE_S = 30.0


class SpecRow(Value, frozen=True, gc=False, array_like=True):
    """One distinct config, as each of its readers needs it."""

    config: TaskConfig
    run: RunSpec  # for the host
    shape: Shape  # for the placer
    lot: Key
    lot_shape: LotShape  # for the pool
    policy: Policy  # for the task


class Slice(Value, frozen=True, gc=False, array_like=True):
    """A thousand instances of a job."""

    job: Key
    number: int
    count: int
    specs: tuple[SpecRow, ...]
    version: int = 0
    goal: TaskGoals = TaskGoals.SUCCEEDED
    stopped: Bits = Bits()


class WishNotes(Value, frozen=True, gc=False, array_like=True):
    """Soft memory: what was wished and not yet answered, and why nothing was found.

    Lost with the daemon; then the slice simply wishes again.
    """

    wished: Bits = Bits()
    wished_at: float = 0.0
    number: int = 0
    resting: Bits = Bits()  # members for whom nothing was found: not before `retry_at`
    retry_at: float = 0.0
    reasons: tuple[tuple[str, int], ...] = ()
    reasons_at: float = 0.0
    refused: tuple[HostSummary, ...] = ()
    refusal: str = ""


def spec_rows(
    job: Key, number: int, opening: SliceOpening
) -> tuple[tuple[SpecRow, ...], tuple[Bits, ...]]:
    """The distinct configs of a slice, and the members of each."""
    groups: dict[TaskConfig, int] = {}
    first, rest = number * SLICE_SIZE, (1 << opening.count) - 1
    for override in opening.overrides:
        bit = 1 << override.instance - first
        config = effective(opening.default, override.config)
        groups[config] = groups.get(config, 0) | bit
        rest &= ~bit
    if rest:
        groups[opening.default] = groups.get(opening.default, 0) | rest
    lots: dict[LotShape, Key] = {}
    rows = tuple(_row(job, number, opening, config, lots) for config in groups)
    return rows, tuple(Bits(raw) for raw in groups.values())


def _row(
    job: Key, number: int, opening: SliceOpening, config: TaskConfig, lots: dict[LotShape, Key]
) -> SpecRow:
    resources = config.resources or Resources()
    preemptible = opening.preemptible if config.preemptible is None else config.preemptible
    lot_shape = LotShape(
        pool=opening.pool,
        resources=resources,
        priority=opening.priority,
        preemptible=preemptible,
        revocable=opening.revocable,
        controller=config.controller,
    )
    lot = lots.setdefault(lot_shape, lot_key(opening.job, number, len(lots)))
    command = config.command or Command("")
    grace_s = DEFAULT_KILL_GRACE_S if config.kill_grace_s is None else config.kill_grace_s
    run = RunSpec(
        resources=resources,
        value=command.value,
        shell=command.shell,
        arguments=command.arguments,
        environment=command.environment,
        ports=config.ports,
        kill_grace_s=grace_s,
        image=config.image,
    )
    shape = Shape(
        resources=resources,
        ports=sum(1 for port in config.ports if port.number == 0),
        constraint=config.constraint,
        labels=tuple(Label(name, value) for name, value in config.labels),
    )
    policy = Policy(max_failures=config.max_failures or 0, kill_grace_s=grace_s)
    return SpecRow(config, run, shape, lot, lot_shape, policy)


def _opened(slice_: Slice | None, fact: f.SliceOpened) -> Slice:
    rows, _ = spec_rows(fact.job, fact.number, fact.opening)
    return Slice(fact.job, fact.number, fact.opening.count, rows)


def _goal(slice_: Slice, fact: f.SliceGoalSet) -> Slice:
    return msgspec.structs.replace(
        slice_, version=fact.version, goal=fact.goal, stopped=fact.stopped
    )


EVOLVE: Mapping[type, Callable[[Any, Any], Slice | None]] = {
    f.SliceOpened: _opened,
    f.SliceGoalSet: _goal,
    f.SliceForgotten: lambda slice_, fact: None,
}
