"""Warns if the limits of a pool, and of the pools above it, never let an instance be admitted.

The warning names the field. Nothing is refused: a limit may be raised, and a waiting job shows the
reason. The cluster's own capacity is no reason to warn: hosts come and go. Nor is what is in use:
in a full pool a job waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from peloton.actors.job.slice.task_config import Override
from peloton.actors.resources import Resources, amount
from peloton.actors.respool.messages import NO_SLACK_LIMIT, ROOT, PoolView
from peloton.gateway.cluster.cluster_client import Context
from peloton.gateway.translate.translate_job import ParsedJob

WARNING = "peloton-warning-bin"
"""Trailing metadata of an answer: what is accepted and will not do what is wanted, in UTF-8."""
FIELDS = {"cpu": "cpuLimit", "memory": "memLimitMb", "disk": "diskLimitMb", "gpu": "gpuLimit"}


def warn_of_limits(wanted: ParsedJob, pools: Sequence[PoolView], *, context: Context) -> None:
    """Tell the client of a call what the job will wait for in vain, if anything."""
    warning = warning_of_limits(wanted, pools)
    if warning:
        context.set_trailing_metadata(((WARNING, warning.encode()),))


def warning_of_limits(wanted: ParsedJob, pools: Sequence[PoolView]) -> str:
    """Return what is wrong with the first instance that its pool could never admit; empty: nothing.

    `pools` are the pool and those above it. The limit of the root is what the hosts have now.
    """
    above = [pool for pool in pools if pool.pool != ROOT]
    passed: dict[Resources, None] = {}
    for field, need in _needs(wanted):
        if need in passed:
            continue
        for each in above:
            short = need.short_of(each.config.limit + NO_SLACK_LIMIT)
            if short:
                return _warning(field, need, pool=each, kind=next(iter(short)))
        passed[need] = None
    return ""


def _needs(wanted: ParsedJob) -> Iterator[tuple[str, Resources]]:
    """Yield the requests of instances, each with the path of its config."""
    spec = wanted.spec
    default = spec.default.resources or Resources()
    overrides: list[Override] = [one for piece in wanted.pieces.values() for one in piece]
    if len(overrides) < spec.instances or any(one.config.resources is None for one in overrides):
        yield "config.defaultConfig", default
    for one in overrides:
        if one.config.resources is not None:
            yield f"config.instanceConfig[{one.instance}]", one.config.resources


def _warning(field: str, need: Resources, *, pool: PoolView, kind: str) -> str:
    at = Resources.KINDS.index(kind)
    requested, most = amount(need.amounts()[at]), amount(pool.config.limit.amounts()[at])
    return (
        f"{field}.resource.{FIELDS[kind]}: requested {requested:.10g}, "
        f"the limit of pool {pool.path} is {most:.10g}: it can never be admitted"
    )
