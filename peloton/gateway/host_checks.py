"""Whether hosts would take an instance that still waits for something else.

Turns the hosts as they were a moment ago into the reasons why none has room, before a placer is
asked. They are read at most once in `KEPT_S`, however many callers ask. It must not ask a placer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import TimeoutError as TimesUp
from threading import Lock

from peloton.actors.host.inventory.messages import ListHosts, inventory_key
from peloton.actors.job.messages import JobView
from peloton.actors.job.slice.messages import InstanceView, SliceOpening
from peloton.actors.job.slice.state import spec_rows
from peloton.gateway.cluster_client import ClusterClient, Context
from peloton.gateway.host_rules import blocker_of_rule, never_of_hosts, request_text
from peloton.gateway.texts import client_name
from peloton.ops.v1 import ops_pb2 as ops
from peloton.placement.messages import HostSummary
from peloton.placement.planning import HostsNow

KEPT_S = 10.0
"""How old what is known of hosts may be: to read all of them is work for their shards."""

READ_S_MAX = 2.0
"""How long an answer waits for them, or for another that reads them."""


class EarlyHostChecks:
    """The hosts of one cluster, as one server knows them."""

    def __init__(self, cluster_client: ClusterClient, *, scarce_gpu: bool) -> None:
        self._cluster_client = cluster_client
        self._scarce_gpu = scarce_gpu
        self._lock = Lock()
        self._known: HostsNow | None = None
        self._read_at = 0.0

    def blockers(
        self, view: InstanceView, job: JobView, *, context: Context
    ) -> Iterator[ops.Blocker]:
        """Why no host would take it now; nothing where one would."""
        spec = job.spec
        opening = SliceOpening(
            job=client_name(job.summary.job),
            name=spec.name,
            pool=spec.pool,
            count=1,
            default=view.config,
            labels=spec.labels,
            spread=spec.spread,
        )
        (row, *_), _ = spec_rows(0, opening)
        known = self._hosts(context)
        found = known.found(row.shape) if known is not None else None
        if found is None or found.fitting:
            return
        counts = [(rule, hosts) for rule, hosts in found.why.reasons if hosts]
        request = request_text(row.shape.resources)
        if found.why.never:
            total = sum(hosts for _, hosts in counts)
            yield never_of_hosts(found.why.text, hosts=total, request=request)
        for rule, hosts in counts:
            yield blocker_of_rule(rule, hosts, request=request)

    def _hosts(self, context: Context) -> HostsNow | None:
        """None while they cannot be read: the other reasons are told all the same."""
        if not self._lock.acquire(timeout=READ_S_MAX):
            return self._known
        try:
            now = time.monotonic()
            if self._known is None or now >= self._read_at + KEPT_S:
                hosts = self._read(context)
                if hosts is not None:
                    self._known = HostsNow(hosts, scarce_gpu=self._scarce_gpu)
                    self._read_at = now
            return self._known
        finally:
            self._lock.release()

    def _read(self, context: Context) -> list[HostSummary] | None:
        cluster, until = self._cluster_client.cluster, time.monotonic() + READ_S_MAX
        shards = range(len(cluster.shards_of("inventory")))
        futures = [cluster.ask(inventory_key(at), ListHosts()) for at in shards]
        found: list[HostSummary] = []
        for future in futures:
            try:
                answer = context.await_answer(future, max(until - time.monotonic(), 0.0))
            except TimesUp:
                return None
            if not isinstance(answer, tuple):
                return None
            found += [view.summary for view in answer]
        return found
