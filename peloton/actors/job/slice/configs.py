"""The table of a slice's distinct configs, in the form that each reader needs.

The opening by the job becomes one row for each distinct config, and the members of each. Rows of
equal lot shapes share a lot.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from peloton.actors.host.run_spec import MesosWords, RunSpec
from peloton.actors.job.slice.messages import SliceOpening
from peloton.actors.job.slice.task_config import Command, TaskConfig, effective
from peloton.actors.resources import Resources
from peloton.actors.respool.lot.messages import LotShape, lot_key
from peloton.actors.task.messages import SLICE_SIZE, Policy
from peloton.actors.task.run_messages import RetryRules
from peloton.placement.messages import DAEMON_LABEL, JOB_LABEL, Label, Shape
from peloton.runtime.vocabulary import Bits, Key, Value

DEFAULT_KILL_GRACE_S = 30.0
MAX_FAILURES_MAX = 100
"""A higher `max_failures` is silently lowered to this, as in the original."""


class SpecRow(Value, frozen=True, gc=False, array_like=True):
    """One distinct config, as each of its readers needs it."""

    config: TaskConfig
    run: RunSpec  # for the host
    shape: Shape  # for the placer
    lot: Key
    lot_shape: LotShape  # for the pool
    policy: Policy  # for the task
    config_version: int = 1

    @property
    def first_shape(self) -> Shape:
        """Return the shape for a member that has no volume yet, with room for the volume."""
        volume = self.config.volume
        if volume is None:
            return self.shape
        return replace(self.shape, resources=self.shape.resources + volume.room)


class LotKeys:
    """The keys of a slice's lots, by shape; new shapes get numbers of their own."""

    def __init__(self, job: str, number: int, *, known: dict[LotShape, Key], made: int) -> None:
        self._job, self._number = job, number
        self._known = known
        self._made = max(made, len(known))

    def of(self, shape: LotShape) -> Key:
        """Return the key of the lot with this shape."""
        found = self._known.get(shape)
        if found is None:
            found = self._known[shape] = lot_key(self._job, self._number, shape_number=self._made)
            self._made += 1
        return found


def lots_of(rows: Iterable[SpecRow]) -> int:
    """Return how many lots these rows name."""
    return len({row.lot for row in rows})


def spec_rows(
    number: int,
    opening: SliceOpening,
    *,
    known: tuple[SpecRow, ...] = (),
    count: int = 0,
    lots_made: int = 0,
) -> tuple[tuple[SpecRow, ...], tuple[Bits, ...]]:
    """Return the distinct configs of a slice, and the members of each.

    For a slice that has `count` members with `known` configs, only of the members beyond them. It
    has had `lots_made` lots, or as many as its configs name; no key of a lot ever has two shapes.
    """
    groups: dict[tuple[TaskConfig, bool], int] = {}
    gang = (1 << opening.gang) - 1
    first, rest = number * SLICE_SIZE, (1 << opening.count) - (1 << count)
    for override in opening.overrides:
        bit = 1 << override.instance - first
        if not rest & bit:
            continue  # of a member that has its config already
        name = effective(opening.default, override.config), bool(bit & gang)
        groups[name] = groups.get(name, 0) | bit
        rest &= ~bit
    for some, together in ((rest & gang, True), (rest & ~gang, False)):
        if some or not (groups or known or together):
            name = opening.default, together
            groups[name] = groups.get(name, 0) | some
    have = {row.lot_shape: row.lot for row in known}
    lots = LotKeys(opening.job, number, known=have, made=lots_made)
    rows = tuple(_row(opening, config=config, lots=lots, gang=gang) for config, gang in groups)
    return rows, tuple(Bits(raw) for raw in groups.values())


def _labels(opening: SliceOpening, config: TaskConfig) -> tuple[tuple[Label, ...], Label | None]:
    """Return the labels of a run, and the one by which the job's runs are kept apart."""
    labels = tuple(Label(name, value) for name, value in config.labels)
    apart = Label(JOB_LABEL, opening.job) if opening.spread else None
    if opening.hosts_of is not None and DAEMON_LABEL not in labels:
        labels = (*labels, DAEMON_LABEL)
    return (*labels, *((apart,) if apart is not None and apart not in labels else ())), apart


def _row(opening: SliceOpening, *, config: TaskConfig, lots: LotKeys, gang: bool) -> SpecRow:
    resources = config.resources or Resources()
    may_go = opening.preemptible if config.preemptible is None else config.preemptible
    lot_shape = LotShape(
        pool=opening.pool,
        resources=resources,
        priority=opening.priority,
        preemptible=(may_go and config.volume is None) or resources.slack > 0,
        revocable=opening.revocable,
        controller=config.controller,
        gang=gang,
    )
    lot = lots.of(lot_shape)
    command = config.command or Command("")
    labels, apart = _labels(opening, config)
    run = RunSpec(
        resources=resources,
        value=command.value,
        shell=command.shell,
        arguments=command.arguments,
        environment=config.variables,
        ports=config.ports,
        kill_grace_s=_grace_s(config),
        image=config.image,
        user=command.user,
        caller=command.caller,
        labels=labels,
        constraint=config.constraint,
        apart=apart,
        priority=opening.priority if resources.slack else 0,
        check=config.check,
        asks=opening.service,
        containers=config.containers if len(config.containers) > 1 else (),
        secrets=config.secrets,
        volume=config.volume,
        uris=command.uris,
        mesos=config.executor if isinstance(config.executor, MesosWords) else None,
        max_running_s=run_limit(config, opening.max_running_s),
    )
    shape = Shape(
        resources=resources,
        ports=sum(1 for port in config.ports if port.number == 0),
        constraint=config.constraint,
        strategy=opening.strategy or ("spread" if opening.spread else "pack"),
        labels=labels,
        apart=apart,
        fixed_ports=tuple(port.number for port in config.ports if port.number),
    )
    policy = _policy(opening, config, gang=gang)
    return SpecRow(config, run, shape, lot, lot_shape, policy, opening.config_version)


def _grace_s(config: TaskConfig) -> float:
    return DEFAULT_KILL_GRACE_S if config.kill_grace_s is None else config.kill_grace_s


def _policy(opening: SliceOpening, config: TaskConfig, *, gang: bool) -> Policy:
    return Policy(
        max_failures=min(config.max_failures or 0, MAX_FAILURES_MAX),
        kill_grace_s=_grace_s(config),
        max_running_s=run_limit(config, opening.max_running_s),
        together=gang and opening.gang_together,
        ends_with_slack=opening.revocable and bool(config.kill_on_preempt),
        stays=opening.hosts_of is not None or config.volume is not None,
        checked=config.check is not None and config.check.of_health,
        awaits_ready=config.check is not None and config.check.readiness is not None,
        healthy_after_s=opening.healthy_after_s,
        retry=_retry_rules(opening, config),
    )


def _retry_rules(opening: SliceOpening, config: TaskConfig) -> RetryRules | None:
    """Return the retry rules, or None without a second attempt, as most jobs have it: every task
    keeps them."""
    if opening.service or (config.max_failures or 0) <= 1:
        return None
    return config.retry or RetryRules()


def run_limit(config: TaskConfig, max_running_s: float | None) -> float | None:
    """Return how long one run of an instance with this config may take, by its job's limit."""
    return min((limit for limit in (config.max_running_s, max_running_s) if limit), default=None)
