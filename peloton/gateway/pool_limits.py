"""Whether the limits of a pool, and of the pools above it, let an instance ever be admitted.

Turns a spec and the pools as they are into a refusal that names the field. The cluster's own
capacity is no reason to refuse: hosts come and go, and whoever waits for them is told so. It must
not look at what is in use: a full pool is a reason to wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from peloton.actors.job.spec import Override
from peloton.actors.resources import Resources, amount
from peloton.actors.respool.messages import ROOT, PoolView
from peloton.gateway.translate_job import Wanted
from peloton.gateway.translate_task import BadConfig
from peloton.runtime.vocabulary import Key

FIELDS = {"cpu": "cpuLimit", "memory": "memLimitMb", "disk": "diskLimitMb", "gpu": "gpuLimit"}


def check_limits(wanted: Wanted, pool: PoolView, *, pools: Mapping[Key, PoolView]) -> None:
    """Raises BadConfig for the first instance that its pool could never admit."""
    above = list(_up(pool, pools))
    passed: dict[Resources, None] = {}
    for field, need in _needs(wanted):
        if need in passed:
            continue
        for each in above:
            short = need.short_of(each.config.limit)
            if short:
                _refuse(field, need, pool=each, kind=next(iter(short)))
        passed[need] = None


def _needs(wanted: Wanted) -> Iterator[tuple[str, Resources]]:
    """What instances want, with the field that says it."""
    spec = wanted.spec
    default = spec.default.resources or Resources()
    overrides: list[Override] = [one for piece in wanted.pieces.values() for one in piece]
    if len(overrides) < spec.instances or any(one.config.resources is None for one in overrides):
        yield "config.defaultConfig", default
    for one in overrides:
        if one.config.resources is not None:
            yield f"config.instanceConfig[{one.instance}]", one.config.resources


def _up(pool: PoolView, pools: Mapping[Key, PoolView]) -> Iterator[PoolView]:
    """The pool and those above it, but for the root, whose limit is what the hosts have now."""
    at: PoolView | None = pool
    while at is not None and at.pool != ROOT:
        yield at
        at = pools.get(at.config.parent)


def _refuse(field: str, need: Resources, *, pool: PoolView, kind: str) -> None:
    at = Resources.KINDS.index(kind)
    wants, most = amount(need.amounts()[at]), amount(pool.config.limit.amounts()[at])
    raise BadConfig(
        f"{field}.resource.{FIELDS[kind]}",
        f"wants {wants:.10g}, but the limit of pool {pool.path} is {most:.10g}: "
        "it could never be admitted",
    )
