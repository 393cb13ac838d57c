"""Whether the limits of a pool, and of the pools above it, let an instance ever be admitted.

Turns a spec and the pools as they are into a refusal that names the field. The cluster's own
capacity is no reason to refuse: hosts come and go, and a waiting job shows the reason. It must not
consider what is in use: in a full pool a job waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from peloton.actors.job.spec import Override
from peloton.actors.resources import Resources, amount
from peloton.actors.respool.messages import ROOT, PoolView
from peloton.gateway.translate_job import ParsedJob
from peloton.gateway.translate_task import BadConfig

FIELDS = {"cpu": "cpuLimit", "memory": "memLimitMb", "disk": "diskLimitMb", "gpu": "gpuLimit"}


def check_limits(wanted: ParsedJob, pools: Sequence[PoolView]) -> None:
    """Raises BadConfig for the first instance that its pool could never admit.

    `pools` are the pool and those above it. The limit of the root is what the hosts have now.
    """
    above = [pool for pool in pools if pool.pool != ROOT]
    passed: dict[Resources, None] = {}
    for field, need in _needs(wanted):
        if need in passed:
            continue
        for each in above:
            short = need.short_of(each.config.limit)
            if short:
                _refuse(field, need, pool=each, kind=next(iter(short)))
        passed[need] = None


def _needs(wanted: ParsedJob) -> Iterator[tuple[str, Resources]]:
    """The requests of instances, each with the path of its config."""
    spec = wanted.spec
    default = spec.default.resources or Resources()
    overrides: list[Override] = [one for piece in wanted.pieces.values() for one in piece]
    if len(overrides) < spec.instances or any(one.config.resources is None for one in overrides):
        yield "config.defaultConfig", default
    for one in overrides:
        if one.config.resources is not None:
            yield f"config.instanceConfig[{one.instance}]", one.config.resources


def _refuse(field: str, need: Resources, *, pool: PoolView, kind: str) -> None:
    at = Resources.KINDS.index(kind)
    requested, most = amount(need.amounts()[at]), amount(pool.config.limit.amounts()[at])
    raise BadConfig(
        f"{field}.resource.{FIELDS[kind]}",
        f"requested {requested:.10g}, the limit of pool {pool.path} is {most:.10g}: "
        "it can never be admitted",
    )
