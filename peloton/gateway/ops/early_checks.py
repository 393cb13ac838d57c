"""What will block an instance that still waits for something else.

The hosts as they were a moment ago give the reasons why none has room, before a placer is asked,
and the pools as they are the limits that will block it. Hosts are read at most once in `KEPT_S`,
however many callers ask. What cannot be read is left out, and never fails an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from threading import Lock
from typing import NamedTuple

from peloton.actors.host.inventory.messages import HostView, ListHosts
from peloton.actors.host.stages import Maintenance
from peloton.actors.job.messages import JobView
from peloton.actors.job.slice.configs import SpecRow, spec_rows
from peloton.actors.job.slice.messages import InstanceView, SliceOpening
from peloton.actors.resources import Resources
from peloton.actors.respool.lot.messages import PoolBlocker
from peloton.actors.respool.messages import NO_SLACK_LIMIT, ROOT, GetPool, PoolView
from peloton.gateway.cluster.cluster_client import ClusterClient, Context
from peloton.gateway.cluster.inventories import hosts_soon
from peloton.gateway.cluster.soon import READ_S_MAX, listed_soon
from peloton.gateway.ops.blockers import of_limit
from peloton.gateway.ops.host_rules import blockers_of_shape
from peloton.gateway.translate.texts import client_name
from peloton.ops.v1 import ops_pb2 as ops
from peloton.placement.planning import HostsNow
from peloton.placement.reasons import MISMATCH_STATUS
from peloton.runtime.vocabulary import Key

KEPT_S = 10.0
"""How old what is known of hosts may be: to read all of them is work for their shards."""

BEFORE_POOLS = ("LIMIT", "THROTTLE", "NEW")
"""What instances wait for before they queue in their pool."""
BEFORE_HOSTS = ("POOL", *BEFORE_POOLS)
"""What they wait for before hosts are looked for."""


class KnownHosts(NamedTuple):
    """Hosts at one moment, and how many of those that take no work are in which state."""

    now: HostsNow
    down: tuple[tuple[str, int], ...]


class EarlyChecks:
    """The pools and hosts of one cluster, as one server knows them."""

    def __init__(self, cluster_client: ClusterClient, *, scarce_gpu: bool) -> None:
        self._cluster_client = cluster_client
        self._scarce_gpu = scarce_gpu
        self._lock = Lock()
        self._checking = Lock()
        self._known: KnownHosts | None = None
        self._read_at = 0.0

    def of_job(self, job: JobView, context: Context) -> JobChecks:
        """Return the checks of instances of a job, for one answer."""
        return JobChecks(self, job, context=context)

    def hosts(self, context: Context) -> KnownHosts | None:
        """Return the hosts, or None while they cannot be read."""
        if not self._lock.acquire(timeout=READ_S_MAX):
            return self._known
        try:
            now = self._cluster_client.execution.monotonic()
            if self._known is None or now >= self._read_at + KEPT_S:
                views = self._read(context)
                if views is not None:
                    self._known = _known(views, scarce_gpu=self._scarce_gpu)
                    self._read_at = now
            return self._known
        finally:
            self._lock.release()

    def checked(self, row: SpecRow, known: KnownHosts) -> list[ops.Blocker]:
        """Return why no host would take it now.

        Only one thread at a time may use the known hosts.
        """
        with self._checking:
            return [*blockers_of_shape(row.shape, known.now)]

    def pools(self, pool: Key, context: Context) -> Sequence[PoolView]:
        """Return a pool and those above it; nothing while they cannot be read."""
        asks = [(ROOT, GetPool(pool))]
        answers = listed_soon(self._cluster_client, asks, context=context)
        return answers[0] if answers is not None else ()

    def _read(self, context: Context) -> list[HostView] | None:
        return hosts_soon(self._cluster_client, ListHosts(), context=context)


class JobChecks:
    """The checks for one answer: hosts and pools are read once, or given up once, for all
    reasons."""

    def __init__(self, checks: EarlyChecks, job: JobView, *, context: Context) -> None:
        self._checks, self._job, self._context = checks, job, context

    def add(self, into: ops.Reason, view: InstanceView) -> None:
        """Add what will block the instance, and in which state hosts are that are not up."""
        if view.code in BEFORE_POOLS:
            into.blockers.extend(self._of_pools(view))
        if self._job.spec.is_daemon:
            return  # it has one host, and what that lacks is said already
        if view.code in BEFORE_HOSTS and self._hosts is not None:
            into.blockers.extend(self._checks.checked(_row_of(view, self._job), self._hosts))
        down = [each for each in into.blockers if each.rule == MISMATCH_STATUS]
        if down and self._hosts is not None and self._hosts.down:
            states = ", ".join(f"{count} {state}" for state, count in self._hosts.down)
            for each in down:
                each.text += f"; of all hosts {states}"

    @cached_property
    def _hosts(self) -> KnownHosts | None:
        return self._checks.hosts(self._context)

    @cached_property
    def _pools(self) -> Sequence[PoolView]:
        return self._checks.pools(self._job.spec.pool, self._context)

    def _of_pools(self, view: InstanceView) -> Iterator[ops.Blocker]:
        """Yield the limits of its pool and of those above, as far as they leave too little."""
        need = view.config.resources or Resources()
        for pool in self._pools:
            root = pool.pool == ROOT
            most, used = pool.config.limit, pool.allocation
            most = most if root else most + NO_SLACK_LIMIT
            for kind, missing in need.short_of(most - used).items():
                at = Resources.KINDS.index(kind)
                limit, taken, wanted = (each.amounts()[at] for each in (most, used, need))
                rule, never = ("capacity", False) if root else ("limit", wanted > limit)
                yield of_limit(
                    PoolBlocker(rule, pool.path, kind, limit, taken, wanted, missing, wanted, never)
                )


def _known(views: Sequence[HostView], *, scarce_gpu: bool) -> KnownHosts:
    down = Counter(
        (view.maintenance if view.maintenance != Maintenance.NONE else view.state).name
        for view in views
        if not view.summary.up
    )
    now = HostsNow([view.summary for view in views], scarce_gpu=scarce_gpu)
    return KnownHosts(now, tuple(sorted(down.items())))


def _row_of(view: InstanceView, job: JobView) -> SpecRow:
    """Return the row that the slice makes of the config."""
    spec = job.spec
    opening = SliceOpening(
        job=client_name(job.summary.job),
        name=spec.name,
        pool=spec.pool,
        count=1,
        default=view.config,
        labels=spec.labels,
        spread=spec.spread,
        strategy=spec.strategy,
    )
    (row, *_), _ = spec_rows(0, opening)
    return row
